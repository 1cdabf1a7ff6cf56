"""recognize_gelu: x/2 · (1 + erf(x/√2)), however its products are spelled, becomes one Gelu.

Before::

    a = Erf(Div(x, 1.4142))
    y = Mul(Mul(x, Add(a, 1)), 0.5)

After::

    y = Gelu(x)
"""

from __future__ import annotations

import math

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.options import Options

__all__ = ["recognize_gelu"]

_TOLERANCE = 5e-4  # of the constants, which may have been rounded to float16
_MOST = 6  # operators in a Gelu beside the last


def recognize_gelu(graph: Graph, options: Options) -> bool:
    """Merge what computes a Gelu and nothing else; ONNX dialect. What it leaves without readers is dead."""
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= recognize_gelu(subgraph, options)
        if op.kind not in ("Mul", "Div"):
            continue
        merged: list[Op] = []
        source = _argument(graph, op, merged)
        if source is not None and source in graph.values and graph[source].type == graph[str(op.outputs[0])].type:
            origins = tuple(dict.fromkeys(origin for part in (*reversed(merged), op) for origin in part.origins))
            graph.replace(op, [Op("Gelu", (source,), op.outputs, {"approximate": "none"}, origins)])
            changed = True
    return changed


def _argument(graph: Graph, op: Op, merged: list[Op]) -> str | None:
    """The x of which an operator computes the Gelu, if it does; the other operators involved go to ``merged``."""
    half, factors = _product(graph, op, merged)
    if len(factors) != 2 or not math.isclose(half, 0.5, rel_tol=_TOLERANCE):
        return None
    for source, shifted in (factors, factors[::-1]):
        add = _private(graph, shifted, "Add")
        if add is None:
            continue
        numbers = [_number(graph, name) for name in add.inputs]
        if 1.0 not in numbers:
            continue
        erf = _private(graph, add.inputs[1 - numbers.index(1.0)], "Erf")
        if erf is None:
            continue
        scaled = _private(graph, erf.inputs[0], "Mul", "Div")
        if scaled is None:
            continue
        inner: list[Op] = [add, erf, scaled]
        factor, of = _product(graph, scaled, inner)
        if of == [source] and math.isclose(factor, math.sqrt(0.5), rel_tol=_TOLERANCE):
            merged += inner
            return source
    return None


def _product(graph: Graph, op: Op, merged: list[Op]) -> tuple[float, list[str]]:
    """What the Mul or Div multiplies, over all those that only feed it: the constant factor, and the other ones."""
    number, factors = 1.0, []
    for position, name in enumerate(op.inputs):
        constant, divides = _number(graph, name), op.kind == "Div" and position == 1
        before = None if divides or len(merged) >= _MOST else _private(graph, name, "Mul", "Div")
        if constant is not None:
            number *= 1 / constant if divides and constant else constant
        elif before is not None:
            merged.append(before)
            inner, more = _product(graph, before, merged)
            number *= inner
            factors += more
        else:
            factors += ["", ""] if divides else [str(name)]  # a quotient is no product
    return number, factors


def _number(graph: Graph, name: str | None) -> float | None:
    """The value of a constant of one element."""
    constant = graph.const(name)
    return float(constant.numpy().reshape(())[()]) if constant is not None and constant.size == 1 else None


def _private(graph: Graph, name: str | None, *kinds: str) -> Op | None:
    """The operator of one of these kinds that computes a value, where nobody else reads that."""
    if name is None or name in graph.outputs or graph.uses(name) != 1:
        return None
    op = graph.producer(name)
    return op if op is not None and op.kind in kinds else None
