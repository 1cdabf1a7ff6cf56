"""Moving elements of types that a data-moving operation lacks: carried exactly in a type that it has.

Booleans go as bytes. Integers that an interval proves to be within 2^24 go as float32; others from level 4 on as two
halves, x = high · 65536 + low, each of which float32 holds exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.schema import SCHEMAS
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.element_types import BYTES
from onnx2nnapi.passes.legalize.shapes import EXACT_IN_FLOAT32, MAX_RANK, binary

__all__ = ["carried", "carry_move", "from_bool", "in_halves", "takes", "to_bool"]

_HALF = 65536
_LARGE = 1024  # elements


def takes(b: Builder, kind: str, x: Value, name: str = "input") -> bool:
    """Whether the operation has a type row for ``x`` at the target level."""
    try:
        code = OperandType.of(x.known).code
    except KeyError:
        b.unsupported(f"NNAPI has no tensors of {x.known.dtype.name}, which {x.name!r} is")
    schema = SCHEMAS[OperationCode[kind]]
    return b.at_least(schema.since) and any(
        row.codes.get(name) == code and b.at_least(row.since) for row in schema.types
    )


def carried(b: Builder, kind: str, x: Value, move: Callable[[Value], Value], name: str = "input") -> Value:
    """``move(x)``, which moves elements by operation ``kind``; in another type where that lacks ``x``'s."""
    dtype = x.known.dtype
    if takes(b, kind, x, name) or dtype.kind not in "bi" or (dtype.itemsize == 1 and dtype.kind == "i"):
        return move(x)
    if dtype.kind == "b":
        return to_bool(b, move(from_bool(b, x, np.dtype(np.uint8))))
    if b.interval(x).within(EXACT_IN_FLOAT32):
        return b.emit("CAST", move(b.emit("CAST", x, dtype=np.float32)), dtype=np.int32)
    b.needs_level(4, f"{kind} of int32 whose values are not known to be within 2^24")
    if x.rank > MAX_RANK:  # its halves would be computed in rank 4, which takes this very reshape
        b.needs_level(6, f"{kind} of int32 of rank {x.rank} whose values are not known to be within 2^24")
    return in_halves(b, [x], lambda parts: move(parts[0]))


def in_halves(b: Builder, values: Sequence[Value], move: Callable[[list[Value]], Value]) -> Value:
    """``move(values)`` of any int32 (level 4), moved once as the high and once as the low halves, in float32."""
    half = b.const(np.array([_HALF], np.int32))
    highs = [binary(b, "DIV", value, half) for value in values]
    lows = [binary(b, "SUB", value, binary(b, "MUL", high, half)) for value, high in zip(values, highs, strict=True)]
    moved = [
        b.emit("CAST", move([b.emit("CAST", part, dtype=np.float32) for part in parts]), dtype=np.int32)
        for parts in (highs, lows)
    ]
    return binary(b, "ADD", binary(b, "MUL", moved[0], half), moved[1])


def from_bool(b: Builder, x: Value, dtype: np.dtype[Any]) -> Value:
    """1 where x is true, else 0: SELECT between constants as large as x, so large ones as bytes."""
    if x.known.size > _LARGE and dtype.itemsize > 1:
        return b.emit("CAST", from_bool(b, x, np.dtype(np.uint8)), dtype=dtype)
    quant = BYTES if dtype.itemsize == 1 else None
    return b.emit("SELECT", x, *(b.const(np.full(x.shape, value, dtype), quant=quant) for value in (1, 0)), quant=quant)


def carry_move(b: Builder, x: Value, op: Op) -> Value:
    """A RESHAPE or TRANSPOSE of a type that it lacks; int32 gets new axes of size 1 by EXPAND_DIMS."""
    shape = op.attrs.get("shape")
    if shape is not None and x.known.dtype == np.int32 and b.at_least(3):
        added = _added_axes(x.shape, shape)
        if added is not None:
            for axis in added:
                x = b.emit("EXPAND_DIMS", x, axis=axis)
            return x
    return carried(b, op.kind, x, lambda value: b.emit(op.kind, value, **op.attrs))


def _added_axes(shape: Shape, target: Shape) -> list[int] | None:
    """The axes of size 1 whose insertion turns ``shape`` into ``target``; None where that is not enough."""
    added, position = [], 0
    for axis, size in enumerate(target):
        if position < len(shape) and shape[position] == size and len(target) - axis >= len(shape) - position:
            position += 1
        elif size == 1:
            added.append(axis)
        else:
            return None
    return added if position == len(shape) else None


def to_bool(b: Builder, x: Value) -> Value:
    """x != 0."""
    if x.known.dtype.kind == "b":
        return x
    return b.emit("NOT_EQUAL", x, b.const(np.zeros(1, x.known.dtype), quant=x.known.quant))
