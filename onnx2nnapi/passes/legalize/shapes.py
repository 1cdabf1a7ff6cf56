"""Forms that rules share: elementwise operations of any rank, broadcasting, and the axis arguments of ONNX."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Value
from onnx2nnapi.ir.types import Array, Shape
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.intervals import Interval

__all__ = [
    "EXACT_IN_FLOAT32",
    "MAX_RANK",
    "axes_of",
    "axis_of",
    "binary",
    "broadcast_to",
    "chain",
    "fold",
    "merged",
    "unary",
]

MAX_RANK = 4
EXACT_IN_FLOAT32 = 2**24
_ARITHMETIC: dict[str, Callable[[Interval, Interval], Interval]] = {
    "ADD": operator.add,
    "MUL": operator.mul,
    "SUB": operator.sub,
}


def axis_of(axis: int, rank: int) -> int:
    """A dimension counted from the front."""
    return axis + rank if axis < 0 else axis


def axes_of(axes: Sequence[int] | Array, rank: int) -> tuple[int, ...]:
    """Dimensions counted from the front, sorted, each once."""
    return tuple(sorted({axis_of(int(axis), rank) for axis in axes}))


def unary(b: Builder, kind: str, x: Value, **attrs: Any) -> Value:
    """An elementwise operation of one operand, of any rank: leading dimensions beyond four are merged."""
    if x.rank <= MAX_RANK:
        return b.emit(kind, x, **attrs)
    flat = b.reshape(x, (math.prod(x.shape[: x.rank - MAX_RANK + 1]), *x.shape[x.rank - MAX_RANK + 1 :]))
    return b.reshape(b.emit(kind, flat, **attrs), x.shape)


def chain(b: Builder, x: Value, *kinds: str) -> Value:
    """Unary operations, one after the other."""
    return reduce(lambda value, kind: unary(b, kind, value), kinds, x)


def binary(b: Builder, kind: str, x: Value, y: Value, **attrs: Any) -> Value:
    """An elementwise operation of two operands that broadcast as ONNX's do, of any rank.

    Above rank 4 neighbouring dimensions are merged wherever both operands have or lack them alike.
    """
    if x.known.dtype == np.int32 and kind in _ARITHMETIC and not b.at_least(4):
        return _in_floats(b, kind, x, y)
    out = np.broadcast_shapes(x.shape, y.shape)
    operands = [_padded(b, value, len(out)) for value in (x, y)]
    if len(out) <= MAX_RANK:
        return b.emit(kind, *operands, **attrs)
    groups = merged(out, *(_aligned(value.shape, len(out)) for value in operands))
    if len(groups) > MAX_RANK:
        operands = [value if value.shape == out else broadcast_to(b, value, out) for value in operands]
        groups = merged(out, *(value.shape for value in operands))
    folded = [
        b.reshape(v, [math.prod(_aligned(v.shape, len(out))[i] for i in group) for group in groups]) for v in operands
    ]
    return b.reshape(b.emit(kind, *folded, **attrs), out)


def _in_floats(b: Builder, kind: str, x: Value, y: Value) -> Value:
    """Arithmetic of int32, which came with level 4: in float32 where bounds prove that this is exact."""
    low, high = b.interval(x), b.interval(y)
    result = _ARITHMETIC[kind](low, high)
    if not all(interval.within(EXACT_IN_FLOAT32) for interval in (low, high, result)):
        b.needs_level(4, f"{kind} of int32 whose values are not known to be within 2^24")
    floats = [
        b.const(v.const, np.float32) if v.const is not None else b.emit("CAST", v, dtype=np.float32) for v in (x, y)
    ]
    return b.emit("CAST", binary(b, kind, *floats), dtype=np.int32)


def fold(b: Builder, kind: str, values: Sequence[Value], **attrs: Any) -> Value:
    """A binary operation over any number of operands, from the left."""
    return reduce(lambda x, y: binary(b, kind, x, y, **attrs), values)


def merged(out: Shape, *shapes: Shape) -> list[list[int]]:
    """Groups of neighbouring dimensions of ``out`` that every shape either has whole or broadcasts whole."""
    groups: list[list[int]] = []
    last: tuple[bool, ...] | None = None
    for axis, size in enumerate(out):
        pattern = tuple(shape[axis] == 1 for shape in shapes)
        if groups and (size == 1 or pattern == last or last is None):
            groups[-1].append(axis)
        else:
            groups.append([axis])
        if size != 1:
            last = pattern
    return groups


def broadcast_to(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """``x`` repeated to ``shape``: TILE, or below level 3 a multiplication with ones."""
    target = tuple(shape)
    if x.shape == target:
        return x
    if x.const is not None and x.known.quant is None:
        return b.const(np.broadcast_to(x.const.numpy(), target), name=f"{x.name}.expanded")
    aligned = _aligned(x.shape, len(target))
    if len(target) > MAX_RANK:
        return _grown(b, x, aligned, target)
    if b.at_least(3):
        multiples = [want if have == 1 else 1 for have, want in zip(aligned, target, strict=True)]
        return b.emit("TILE", b.reshape(x, aligned), multiples=multiples)
    if x.known.dtype.kind != "f":
        b.needs_level(3, f"broadcasting {x.known.dtype.name}")
    return binary(b, "MUL", x, b.const(np.ones(target, x.known.dtype)))


def _grown(b: Builder, x: Value, shape: Shape, target: Shape) -> Value:
    """Rank above 4: one axis at a time, the dimensions around it merged."""
    for axis, (have, want) in enumerate(zip(shape, target, strict=True)):
        if have != want:
            before, after = math.prod(target[:axis]), math.prod(shape[axis + 1 :])
            x = broadcast_to(b, b.reshape(x, (before, 1, after)), (before, want, after))
    return b.reshape(x, target)


def _aligned(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def _padded(b: Builder, value: Value, rank: int) -> Value:
    """Constants get the full rank, so that a permutation can go into them; one element has no place and stays."""
    if value.const is None or value.known.size == 1 or value.rank == rank:
        return value
    return b.reshape(value, _aligned(value.shape, rank))
