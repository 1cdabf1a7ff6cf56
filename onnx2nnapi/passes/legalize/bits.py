"""Shifts and bitwise operators, of which NNAPI has none: integer arithmetic on the bits."""

from __future__ import annotations

import math

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.elementwise import one
from onnx2nnapi.passes.legalize.logic import cast_to, narrowed
from onnx2nnapi.passes.legalize.reduction import reduce_axes
from onnx2nnapi.passes.legalize.rounding import as_int32
from onnx2nnapi.passes.legalize.shapes import MAX_RANK, binary, broadcast_to

_HALF = 16  # bits whose weighted sum float32 holds exactly


@legalizes("BitShift")
def bit_shift(b: Builder, op: Op) -> Value:
    """DIV or MUL by powers of two, which GATHER looks up; what is shifted out of a narrow type is taken off again."""
    x, by = (as_int32(b, value) for value in b.inputs(op))
    dtype = b.in_type(op).dtype
    bits = 8 * dtype.itemsize
    most = min(bits, 31) - 1
    if by.const is None and b.interval(b.value(str(op.inputs[1]))).high > most:
        b.unsupported(f"its shifts are computed, and not known to be at most {most}", "make them constant")
    table = b.const((1 << np.arange(most + 1)).astype(np.int32))
    power = (
        b.const(1 << np.minimum(by.const.numpy(), most), np.int32)
        if by.const is not None
        else b.emit("GATHER", table, by, axis=0)
    )
    if op.attrs["direction"] == "RIGHT":
        return narrowed(b, binary(b, "DIV", x, power), b.inputs(op)[0].known.dtype)
    high = b.interval(b.value(str(op.inputs[0]))).high
    largest = 1 << most if by.const is None else int(power.const.numpy().max()) if power.const is not None else 1
    if high * largest >= 2**31:
        b.unsupported(f"{dtype.name} shifted left may exceed the int32 that NNAPI computes in")
    product = binary(b, "MUL", x, power)
    if bits < 32 and high * largest >= 1 << bits:
        size = one(b, product, 1 << bits)
        product = binary(b, "SUB", product, binary(b, "MUL", binary(b, "DIV", product, size), size))
    return narrowed(b, product, b.inputs(op)[0].known.dtype)


@legalizes("BitwiseNot")
def bitwise_not(b: Builder, op: Op) -> Value:
    """The largest value less x: -1 - x for signed types."""
    dtype = b.in_type(op).dtype
    x = as_int32(b, b.inputs(op)[0])
    top = -1 if dtype.kind == "i" else int(np.iinfo(dtype).max)
    if top > np.iinfo(np.int32).max:
        b.unsupported(f"the results, of {dtype.name}, are beyond NNAPI's int32")
    return narrowed(b, binary(b, "SUB", one(b, x, top), x), b.inputs(op)[0].known.dtype)


@legalizes("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(b: Builder, op: Op) -> Value:
    """The bits along a new dimension, by DIV, which rounds down; combined there, weighted and summed in float32."""
    x, y = (as_int32(b, value) for value in b.inputs(op))
    width = min(8 * b.in_type(op).dtype.itemsize, 32)
    if len(b.out_shape(op)) >= MAX_RANK:  # no room for the bits
        x, y = (b.reshape(broadcast_to(b, value, b.out_shape(op)), (math.prod(b.out_shape(op)),)) for value in (x, y))
    first, second = (_bits(b, value, width) for value in (x, y))
    if op.kind == "BitwiseAnd":
        both = binary(b, "MUL", first, second)
    elif op.kind == "BitwiseOr":
        both = binary(b, "MAXIMUM", first, second)
    else:
        apart = binary(b, "SUB", first, second)
        both = binary(b, "MUL", apart, apart)
    weights = (2.0 ** np.arange(min(width, _HALF))).astype(np.float32)
    parts = []
    for start in range(0, width, _HALF):
        last = start + _HALF >= width
        place = np.zeros(width, np.float32)
        place[start : start + _HALF] = weights
        if last and b.in_type(op).dtype.kind == "i":
            place[-1] = -place[-1]  # two's complement
        weighted = binary(b, "MUL", cast_to(b, both, np.dtype(np.float32)), b.const(place))
        total = reduce_axes(b, "REDUCE_SUM", weighted, (both.rank - 1,), keep=False)
        parts.append(b.emit("CAST", total, dtype=np.int32))
    result = parts[0]
    if len(parts) > 1:
        result = binary(b, "ADD", result, binary(b, "MUL", parts[1], one(b, parts[1], 1 << _HALF)))
    return narrowed(b, b.reshape(result, b.out_shape(op)), b.inputs(op)[0].known.dtype)


def _bits(b: Builder, x: Value, width: int) -> Value:
    """[…, width] of 0 and 1, the lowest bit first: ⌊x / 2^i⌋ less twice the half of it, rounded down."""
    wide = b.reshape(x, (*x.shape, 1))
    powers = 2 ** np.arange(width, dtype=np.int64)
    shifted = binary(b, "DIV", wide, b.const(np.minimum(powers, 1 << 30).astype(np.int32)))
    if width > 31:  # 2^31 is no int32
        shifted = binary(b, "DIV", shifted, b.const(np.maximum(powers >> 30, 1).astype(np.int32)))
    two = one(b, shifted, 2)
    return binary(b, "SUB", shifted, binary(b, "MUL", binary(b, "DIV", shifted, two), two))
