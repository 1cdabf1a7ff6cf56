"""recognize_gelu: x/2 · (1 + erf(x/√2)), and its form with tanh, become one Gelu in whatever order they are multiplied.

Before::

    a = Erf(Div(x, 1.4142))
    y = Mul(Mul(x, Add(a, 1)), 0.5)

After::

    y = Gelu(x)
"""

from __future__ import annotations

import math

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.options import Options
from onnx2nnapi.passes.pattern import Apply, Either, Input, Number, Pattern, Product, Rule, rewrite

__all__ = ["recognize_gelu"]


def recognize_gelu(graph: Graph, options: Options) -> bool:
    """Merge what computes a Gelu and nothing else; ONNX dialect, float tensors."""
    return rewrite(graph, options, _RULES)


_X = Input("x")
_CUBIC, _SLOPE = 0.044715, math.sqrt(2 / math.pi)
_ARGUMENT = Either(
    Product(_SLOPE, Apply("Add", _X, Product(_CUBIC, _X, _X, _X))),
    Product(_SLOPE, _X, Apply("Add", Product(_CUBIC, _X, _X), Number(1.0))),
)


def _rule(approximate: str, inner: Pattern) -> Rule:
    gelu = Either(
        Product(0.5, _X, Apply("Add", inner, Number(1.0))),
        Product(1.0, _X, Apply("Add", Product(0.5, inner), Number(0.5))),
    )
    return Rule(gelu, lambda graph, found: ("Gelu", (found.values["x"],), {"approximate": approximate}))


_RULES = (
    _rule("none", Apply("Erf", Product(math.sqrt(0.5), _X))),
    _rule("tanh", Apply("Tanh", _ARGUMENT)),
)
