"""Convolutions and pools over three dimensions, by those over two that NNAPI has."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import Shape
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize.convolution import convolved, over_dimensions, part_of, window_of
from onnx2nnapi.passes.legalize.movement import pad_value, sliced, transposed

__all__ = ["convolution", "pooled"]

_DEPTH, _PLANE = slice(0, 1), slice(1, 3)


def convolution(b: Builder, op: Op, x: Value, weight: Value, bias: Value) -> Value:
    """The sum, over the kernel's taps in depth, of convolutions of the planes that the tap meets."""
    batch, channels, depth, *plane = x.shape
    out = b.out_shape(op)
    deep = window_of(b, over_dimensions(op, _DEPTH, 3), weight.shape[2:3], x.shape[:3], out[:3])
    window = window_of(b, over_dimensions(op, _PLANE, 3), weight.shape[3:], (0, 0, *plane), (0, 0, *out[3:]))
    step, count, spread = deep.strides[1], deep.outputs[1], deep.dilations[1]
    before = deep.pads[1]
    after = (count - 1) * step + deep.extent[1] - depth - before
    width = math.prod(plane) * channels
    rows = b.reshape(transposed(b, x, (0, 2, 3, 4, 1)), (batch, depth, width))
    rows = sliced(b, rows, (0, max(-before, 0), 0), (batch, depth + min(before, 0) + min(after, 0), width), (1, 1, 1))
    if before > 0 or after > 0:
        rows = pad_value(b, rows, [(0, 0), (max(before, 0), max(after, 0)), (0, 0)], 0)
    total: Value | None = None
    for tap in range(weight.shape[2]):
        met = sliced(b, rows, (0, tap * spread, 0), (batch, count, width), (1, step, 1))
        planes = b.reshape(met, (batch * count, *plane, channels))
        kernel = b.reshape(part_of(b, weight, tap, 1, 2), (*weight.shape[:2], *weight.shape[3:]))
        result = convolved(b, planes, kernel, bias, window, op.attrs["group"])
        total = result if total is None else b.emit("ADD", total, result)
        bias = b.const(np.zeros(bias.shape, bias.known.dtype))
    assert total is not None
    lines = b.reshape(total, (batch, count * out[3] * out[4], out[1]))
    return b.reshape(transposed(b, lines, (0, 2, 1)), out)


def pooled(b: Builder, op: Op, x: Value, pool: Callable[[Builder, Op, Value, Shape], Value]) -> Value:
    """``pool`` over height and width, then over depth: maxima, sums and counts of cells come apart like that."""
    batch, channels, depth, *plane = x.shape
    out = b.out_shape(op)
    planes = b.reshape(transposed(b, x, (0, 2, 1, 3, 4)), (batch * depth, channels, *plane))
    flat = pool(b, over_dimensions(op, _PLANE, 3), planes, (batch * depth, channels, *out[3:]))
    width = channels * math.prod(out[3:])
    lines = transposed(b, b.reshape(flat, (batch, depth, width)), (0, 2, 1))
    result = pool(b, over_dimensions(op, _DEPTH, 3), lines, (batch, width, out[2]))
    moved = transposed(b, b.reshape(result, (batch * channels, math.prod(out[3:]), out[2])), (0, 2, 1))
    return b.reshape(moved, out)
