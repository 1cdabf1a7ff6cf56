"""Products of integers, exactly, in float32; and the quantization that a model computes for itself."""

from __future__ import annotations

import math

import numpy as np

from onnx2nnapi.errors import InternalError
from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.convolution import conv_of, part_of
from onnx2nnapi.passes.legalize.elementwise import clamp, difference, extremum, negate, one, quotient, scale
from onnx2nnapi.passes.legalize.logic import cast_to, narrowed
from onnx2nnapi.passes.legalize.matmul import matmul_of
from onnx2nnapi.passes.legalize.movement import sliced
from onnx2nnapi.passes.legalize.reduction import reduce_axes
from onnx2nnapi.passes.legalize.rounding import rounded
from onnx2nnapi.passes.legalize.shapes import EXACT_IN_FLOAT32, binary

_FLOATS = np.dtype(np.float32)
_WHOLE = np.dtype(np.int32)
_BYTE = np.dtype(np.uint8)


@legalizes("MatMulInteger")
def matmul_integer(b: Builder, op: Op) -> Value:
    """The product of both operands less their zero points, in float32 as far as its sums are exact, then in int32."""
    zero = _as_floats(b, op, 2)
    rank = b.in_type(op).rank
    if zero is not None and zero.known.size > 1 and zero.rank == 1:  # one for each row
        zero = b.reshape(zero, (*(1,) * (rank - 2), zero.known.size, 1))
    left, right = _centred(b, op, 0, zero), _centred(b, op, 1, _as_floats(b, op, 3))
    axis = max(right.rank - 2, 0)
    total: Value | None = None
    for start, count in _chunks(b, right, axis):
        parts = (_stretch(b, left, left.rank - 1, start, count), _stretch(b, right, axis, start, count))
        total = _added(b, total, matmul_of(b, *parts))
    assert total is not None
    return b.reshape(total, b.out_shape(op))


@legalizes("ConvInteger")
def conv_integer(b: Builder, op: Op) -> Value:
    """Conv of both operands less their zero points, in float32 as far as its sums are exact, then in int32."""
    zero = _as_floats(b, op, 3)
    if zero is not None and zero.known.size > 1:
        zero = b.reshape(zero, (zero.known.size, *(1,) * (b.in_type(op, 1).rank - 1)))
    data, kernel = _centred(b, op, 0, _as_floats(b, op, 2)), _centred(b, op, 1, zero)
    bias = b.const(np.zeros(kernel.shape[0], np.float32))
    chunks = _chunks(b, kernel, 1)
    if len(chunks) > 1 and op.attrs["group"] > 1:
        b.unsupported(f"sums of {math.prod(kernel.shape[1:])} products of bytes, which float32 may not hold, in groups")
    total: Value | None = None
    for start, count in chunks:
        part, taps = data, kernel
        if len(chunks) > 1:
            part, taps = (_stretch(b, value, 1, start, count) for value in (data, kernel))
        total = _added(b, total, conv_of(b, op, part, taps, bias))
    assert total is not None
    return total


def _chunks(b: Builder, factor: Value, axis: int) -> list[tuple[int, int]]:
    """Stretches (start, count) of the summed dimension over which sums of byte · ``factor`` are exact in float32.

    A byte less its zero point is at most 255. Of constant factors the largest sum of magnitudes is known.
    """
    depth = factor.shape[axis]
    others = 1 if axis != 1 else math.prod(factor.shape[2:])  # a kernel sums over its taps too
    if factor.const is not None:
        summed = tuple(range(1, factor.rank)) if axis == 1 and factor.rank > 2 else (axis,)
        if 255 * np.abs(factor.const.numpy()).sum(axis=summed).max(initial=0) <= EXACT_IN_FLOAT32:
            return [(0, depth)]
    most = EXACT_IN_FLOAT32 // (255 * 255 * others)
    if not most:
        b.unsupported(f"sums of {others} products of bytes for each channel, which float32 may not hold")
    return [(start, min(most, depth - start)) for start in range(0, depth, most)]


def _stretch(b: Builder, x: Value, axis: int, start: int, count: int) -> Value:
    if x.const is not None:
        return x if count == x.shape[axis] else part_of(b, x, start, count, axis)
    begin = tuple(start if i == axis else 0 for i in range(x.rank))
    size = tuple(count if i == axis else n for i, n in enumerate(x.shape))
    return sliced(b, x, begin, size, (1,) * x.rank)


def _added(b: Builder, total: Value | None, part: Value) -> Value:
    whole = cast_to(b, part, _WHOLE)
    return whole if total is None else binary(b, "ADD", total, whole)


def _centred(b: Builder, op: Op, index: int, zero: Value | None) -> Value:
    """A tensor of bytes as float32, less its zero point."""
    data = _as_floats(b, op, index)
    if data is None:
        raise InternalError(f"input {index} is omitted", where=op.origin)
    if zero is None or (zero.const is not None and not np.any(zero.const.numpy())):
        return data
    if data.const is not None and zero.const is not None:
        return b.const(data.const.numpy() - zero.const.numpy())
    return difference(b, data, zero)


def _as_floats(b: Builder, op: Op, index: int) -> Value | None:
    """An input of bytes in float32, None where it is omitted; constants of types that the level lacks serve too."""
    name = op.inputs[index] if index < len(op.inputs) else None
    if name is None:
        return None
    const = b.source[name].const
    shape = b.source[name].shape or (1,)
    return cast_to(b, b.value(name), _FLOATS) if const is None else b.const(const.astype(_FLOATS).reshape(shape))


@legalizes("DynamicQuantizeLinear")
def dynamic_quantize_linear(b: Builder, op: Op) -> tuple[Value, Value, Value]:
    """Scale and zero point from REDUCE_MAX and REDUCE_MIN, which include 0; then division, rounding and CAST."""
    (x,) = b.inputs(op)
    b.needs_level(3, "DynamicQuantizeLinear")
    high, low = (
        extremum(b, f"{kind}IMUM", reduce_axes(b, f"REDUCE_{kind}", x, range(x.rank), keep=False), one(b, x, 0.0))
        for kind in ("MAX", "MIN")
    )
    step = scale(b, difference(b, high, low), 1 / 255)
    zero = rounded(b, clamp(b, quotient(b, negate(b, low), step), 0, 255))
    codes = binary(b, "ADD", rounded(b, quotient(b, x, step)), zero)
    return narrowed(b, clamp(b, codes, 0, 255), _BYTE), step, narrowed(b, zero, _BYTE)
