"""Infinities that the caller would see: NNAPI's arithmetic saturates them at the largest float.

Inside a network that changes nothing (a mask of -inf before a softmax); as an output it would be a wrong number.
"""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.graph import Op
from onnx2nnapi.passes.builder import Builder

__all__ = ["refuse_visible_infinities"]

_MOVES = {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split"}
_MOVES |= {"Concat", "Gather", "Expand", "Tile", "Cast"}
_KEEPS = _MOVES | {"Add", "Sub", "Mul", "Where", "Pad", "Max", "Min"}
_LARGE = 1 << 20  # constants beyond are weights


def refuse_visible_infinities(b: Builder, op: Op) -> None:
    """Refuse a sum whose infinite terms reach an output by moves alone."""
    if _reaches_output(b, op) and any(_may_be_infinite(b, name) for name in op.inputs if name is not None):
        b.unsupported(
            "infinite elements of it are an output, and NNAPI's arithmetic saturates them at the largest float",
            "mask with a large finite number, or cut the output",
        )


def _reaches_output(b: Builder, op: Op) -> bool:
    graph, queue = b.source, [name for name in op.outputs if name is not None]
    for name in queue:
        if name in graph.outputs:
            return True
        queue += [str(out) for reader in graph.readers(name) if reader.kind in _MOVES for out in reader.outputs if out]
    return False


def _may_be_infinite(b: Builder, name: str) -> bool:
    """Whether a constant with an infinity goes into a tensor."""
    graph, seen, queue = b.source, {name}, [name]
    for current in queue:
        value = graph.values.get(current)
        if value is None:
            continue
        if value.const is not None:
            if value.const.dtype.kind == "f" and value.const.size <= _LARGE and np.isinf(value.const.numpy()).any():
                return True
            continue
        producer = graph.producer(current)
        if producer is not None and producer.kind in _KEEPS:
            fresh = [item for item in producer.inputs if item is not None and item not in seen]
            seen.update(fresh)
            queue += fresh
    return False
