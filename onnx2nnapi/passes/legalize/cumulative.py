"""Running sums and products along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import Array
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.elementwise import one
from onnx2nnapi.passes.legalize.logic import cast_to
from onnx2nnapi.passes.legalize.matmul import fully_connected
from onnx2nnapi.passes.legalize.movement import concat, sliced, transposed
from onnx2nnapi.passes.legalize.shapes import EXACT_IN_FLOAT32, axis_of, binary

_WIDEST_TRIANGLE = 512  # up to this size a sum is a product with a triangular matrix


@legalizes("CumSum", "CumProd")
def cumulative(b: Builder, op: Op) -> Value:
    """FULLY_CONNECTED with a triangle of ones; products, and long sums, by shifts of 1, 2, 4 … along the axis."""
    x, axis_given = b.inputs(op)
    rank = b.in_type(op).rank
    axis = axis_of(int(b.constant(axis_given, "axis").reshape(-1)[0]), rank)
    size = x.shape[axis]
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    reverse, exclusive = bool(op.attrs["reverse"]), bool(op.attrs["exclusive"])

    def run(value: Value) -> Value:
        rows = b.reshape(value, (before, size, after))
        if op.kind == "CumSum" and size <= _WIDEST_TRIANGLE:
            return b.reshape(_by_triangle(b, rows, reverse, exclusive), x.shape)
        kind, neutral = ("ADD", 0.0) if op.kind == "CumSum" else ("MUL", 1.0)
        return b.reshape(_by_shifts(b, rows, kind, neutral, reverse, exclusive), x.shape)

    if x.known.dtype.kind == "f":
        return run(x)
    if op.kind == "CumProd":
        b.unsupported(f"a product of {b.in_type(op).dtype.name}, which float32 may not hold", "cast to float before")
    return linear_in_floats(b, cast_to(b, x, np.dtype(np.int32)), size, run)


def _by_triangle(b: Builder, x: Value, reverse: bool, exclusive: bool) -> Value:
    size = x.shape[1]
    ones: Array = np.tril(np.ones((size, size), x.known.dtype), -1 if exclusive else 0)
    moved = transposed(b, x, (0, 2, 1))
    rows = b.reshape(moved, (x.known.size // size, size))
    return transposed(
        b, b.reshape(fully_connected(b, rows, b.const(ones.T if reverse else ones)), moved.shape), (0, 2, 1)
    )


def _by_shifts(b: Builder, x: Value, kind: str, neutral: float, reverse: bool, exclusive: bool) -> Value:
    """After shifts of 1, 2, 4, … each element has combined all before it."""
    if exclusive:
        x = _shifted(b, x, 1, neutral, reverse)
    step = 1
    while step < x.shape[1]:
        x = binary(b, kind, x, _shifted(b, x, step, neutral, reverse))
        step *= 2
    return x


def _shifted(b: Builder, x: Value, step: int, neutral: float, reverse: bool) -> Value:
    """Moved by ``step`` toward the end (or the start) of the middle dimension, with ``neutral`` moving in."""
    before, size, after = x.shape
    fill = b.const(np.full((before, min(step, size), after), neutral, x.known.dtype))
    if step >= size:
        return fill
    kept = sliced(b, x, (0, step if reverse else 0, 0), (before, size - step, after), (1, 1, 1))
    return concat(b, [kept, fill] if reverse else [fill, kept], 1)


def linear_in_floats(b: Builder, x: Value, count: int, work: Callable[[Value], Value]) -> Value:
    """``work(x)`` of int32, in float32, where it adds up to ``count`` elements each time and does nothing else.

    Where bounds don't prove that the sums are exact, x is cut into digits whose sums are, and the results put together
    in int32, whose overflow wraps as ONNX's does.
    """
    floats = np.dtype(np.float32)
    interval = b.interval(x)
    if max(abs(interval.low), abs(interval.high)) * count <= EXACT_IN_FLOAT32:
        return cast_to(b, work(cast_to(b, x, floats)), np.dtype(np.int32))
    b.needs_level(4, "sums of int32 whose values are not known to be within 2^24")
    bits = (EXACT_IN_FLOAT32 // count).bit_length() - 1
    if bits < 1:
        b.unsupported(f"sums of {count} integers, whose last digit float32 loses")
    base = one(b, x, 1 << bits)
    digits = []
    for _ in range(-(-32 // bits) - 1):
        rest = binary(b, "DIV", x, base)  # rounds down
        digits.append(binary(b, "SUB", x, binary(b, "MUL", rest, base)))
        x = rest
    total = cast_to(b, work(cast_to(b, x, floats)), np.dtype(np.int32))
    for digit in reversed(digits):
        part = cast_to(b, work(cast_to(b, digit, floats)), np.dtype(np.int32))
        total = binary(b, "ADD", binary(b, "MUL", total, base), part)
    return total
