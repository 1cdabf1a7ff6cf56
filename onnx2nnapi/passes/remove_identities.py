"""remove_identities: operators that give their input back go.

Before::

    a = Dropout(x)
    b = Reshape(a, shape)        # to the shape that it has
    y = Relu(b)

After::

    y = Relu(x)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.ir.types import Array
from onnx2nnapi.options import Options

__all__ = ["remove_identities"]


def remove_identities(graph: Graph, options: Options) -> bool:
    """Remove what gives its input back; ONNX dialect. Runs before the passes that look at neighbouring operators."""
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= remove_identities(subgraph, options)
        source = _same_as(graph, op)
        if source is None:
            continue
        result = str(op.outputs[0])
        graph.remove(op)
        graph.replace_uses(result, source, outputs=True)
        graph.drop_value(result)
        changed = True
    return changed


def _same_as(graph: Graph, op: Op) -> str | None:
    """The input that the operator gives back, None where it does something."""
    rule = _RULES.get(op.kind)
    if rule is None or op.outputs[0] is None or any(name is not None and graph.uses(name) for name in op.outputs[1:]):
        return None
    result = graph[op.outputs[0]]
    for at in (0, 1) if op.kind in _COMMUTE else (0,):
        name = op.inputs[at]
        source = graph.values.get(name) if name is not None else None  # a subgraph may read the enclosing graph's
        if name is None or source is None or source.type is None or source.type != result.type:
            continue
        if rule(graph, op, source, at):
            return name
    return None


_COMMUTE = {"Add", "Mul"}
_Rule = Callable[
    [Graph, Op, Value, int], bool
]  # asked only where the result has the type of the input at that position


def _array(graph: Graph, op: Op, at: int) -> Array | None:
    """The value of a constant input; None where it is computed, or omitted."""
    name = op.inputs[at] if at < len(op.inputs) else None
    const = graph.const(name)
    return None if const is None else const.numpy()


def _given(op: Op, at: int) -> bool:
    return at < len(op.inputs) and op.inputs[at] is not None


def _always(graph: Graph, op: Op, source: Value, at: int) -> bool:
    return True


def _alone(graph: Graph, op: Op, source: Value, at: int) -> bool:
    return len(op.inputs) == 1


def _in_inference(graph: Graph, op: Op, source: Value, at: int) -> bool:
    training = _array(graph, op, 2)
    return not _given(op, 2) or (training is not None and not training.any())


def _in_order(graph: Graph, op: Op, source: Value, at: int) -> bool:
    perm = op.attrs.get("perm") or tuple(reversed(range(source.rank)))
    moved = [axis for axis in perm if source.shape[axis] != 1]
    return moved == sorted(moved)


def _forward(graph: Graph, op: Op, source: Value, at: int) -> bool:
    """A slice of the whole size is the whole, unless it runs backwards."""
    steps = _array(graph, op, 4)
    return not _given(op, 4) or (steps is not None and bool((steps > 0).all()))


def _pads_nothing(graph: Graph, op: Op, source: Value, at: int) -> bool:
    pads = _array(graph, op, 1)
    return pads is not None and not pads.any()


def _bounds_nothing(graph: Graph, op: Op, source: Value, at: int) -> bool:
    return not _given(op, 1) and not _given(op, 2)


def _neutral(element: int) -> _Rule:
    def rule(graph: Graph, op: Op, source: Value, at: int) -> bool:
        other = graph.const(op.inputs[1 - at])
        return other is not None and other.nbytes <= 1 << 16 and bool(np.all(other.numpy() == element))

    return rule


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(
        ("Cast", "CastLike", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Tile", "Unsqueeze"), _always
    ),
    **dict.fromkeys(("Concat", "Max", "Mean", "Min", "Split", "Sum"), _alone),
    **dict.fromkeys(("Add", "Sub"), _neutral(0)),
    **dict.fromkeys(("Mul", "Div"), _neutral(1)),
    "Clip": _bounds_nothing,
    "Dropout": _in_inference,
    "Pad": _pads_nothing,
    "Slice": _forward,
    "Transpose": _in_order,
}
