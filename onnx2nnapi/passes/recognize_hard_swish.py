"""recognize_hard_swish: x · clip(x + 3, 0, 6) / 6, and the gate alone, however they are spelled.

Before::

    a = Clip(Add(x, 3), 0, 6)
    y = Div(Mul(x, a), 6)

After::

    y = HardSwish(x)
"""

from __future__ import annotations

import math

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.options import Options
from onnx2nnapi.passes.pattern import Apply, Either, Input, Made, Match, Number, Pattern, Product, Rule, rewrite

__all__ = ["recognize_hard_swish"]

_LEVEL = 4  # of HARD_SWISH; below it its pieces are as many as the model's


def recognize_hard_swish(graph: Graph, options: Options) -> bool:
    """Recognize HardSwish, and HardSigmoid of slope ⅙, which needs no scale; ONNX dialect, float tensors.

    A HardSigmoid of another slope has as many operations as the Mul, Add and Clip that it would come from.
    """
    rules = _HARD_SIGMOID if options.feature_level < _LEVEL else (*_HARD_SWISH, *_HARD_SIGMOID)
    return rewrite(graph, options, rules)


_X, _SIXTH = Input("x"), 1 / 6


def _clip(x: Pattern, high: float) -> Apply:
    return Apply("Clip", x, Number(0.0), Number(high))


_SHIFTED = Apply("Add", _X, Number(3.0))
_GATE = _clip(Either(Apply("Add", Product(_SIXTH, _X), Number(0.5)), Product(_SIXTH, _SHIFTED)), 1.0)


def _hard_swish(graph: Graph, found: Match) -> Made | None:
    gate = found.named.get("gate")
    if gate and not (math.isclose(gate.attrs["alpha"], _SIXTH, rel_tol=1e-6) and gate.attrs["beta"] == 0.5):
        return None
    return "HardSwish", (found.values["x"],), {}


def _hard_sigmoid(graph: Graph, found: Match) -> Made:
    return "HardSigmoid", (found.values["x"],), {"alpha": _SIXTH, "beta": 0.5}


_HARD_SWISH = (
    Rule(Product(_SIXTH, _X, _clip(_SHIFTED, 6.0)), _hard_swish),
    Rule(Product(1.0, _X, Either(_GATE, Apply("HardSigmoid", _X, name="gate"))), _hard_swish),
)
_HARD_SIGMOID = (Rule(_GATE, _hard_sigmoid),)
