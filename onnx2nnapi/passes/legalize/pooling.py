"""Pools over windows and over all of an image."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import Array
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.convolution import (
    Window,
    from_nhwc,
    pad_nhwc,
    padding_attrs,
    slice_nhwc,
    spatial,
    to_nhwc,
    window_of,
)
from onnx2nnapi.passes.legalize.reduction import reduce_axes
from onnx2nnapi.passes.legalize.shapes import binary


@legalizes("MaxPool")
def max_pool(b: Builder, op: Op) -> Value | tuple[Value | None, ...]:
    """MAX_POOL_2D; a dilated window is the MAXIMUM over its shifted, strided slices."""
    (x,) = b.inputs(op)
    if len(op.outputs) > 1 and op.outputs[1] is not None and b.source.uses(op.outputs[1]):
        b.unsupported("its output Indices is used, and NNAPI's pools give none")
    spatial(b, x.rank, op.kind)
    window = _covered(window_of(b, op, op.attrs["kernel_shape"], x.shape, b.out_shape(op)))
    data = to_nhwc(b, x)
    result = _pool(b, "MAX_POOL_2D", data, window) if window.dilations == (1, 1) else _dilated_max(b, data, window)
    return from_nhwc(b, result, x.rank), None


@legalizes("AveragePool")
def average_pool(b: Builder, op: Op) -> Value:
    """AVERAGE_POOL_2D, which divides by the cells inside the image; a constant factor where ONNX divides by others."""
    (x,) = b.inputs(op)
    spatial(b, x.rank, op.kind)
    given = window_of(b, op, op.attrs["kernel_shape"], x.shape, b.out_shape(op))
    if given.dilations != (1, 1):
        return _dilated_average(b, op, x, given)
    window = _covered(given)
    result = _pool(b, "AVERAGE_POOL_2D", to_nhwc(b, x), window)
    factor = _counts(window, inside=True) / _counts(given, inside=not op.attrs["count_include_pad"])
    if not np.all(factor == 1):
        dense = factor.reshape(1, *factor.shape, 1).astype(x.known.dtype)
        result = binary(b, "MUL", result, b.const(dense[:, :1, :1] if np.all(dense == dense.flat[0]) else dense))
    return from_nhwc(b, result, x.rank)


@legalizes("GlobalAveragePool", "GlobalMaxPool")
def global_pool(b: Builder, op: Op) -> Value:
    """MEAN or REDUCE_MAX over the spatial dimensions; below the level that has them a pool as large as the image."""
    (x,) = b.inputs(op)
    kind, pool, since = (
        ("MEAN", "AVERAGE_POOL_2D", 2) if op.kind == "GlobalAveragePool" else ("REDUCE_MAX", "MAX_POOL_2D", 3)
    )
    if b.at_least(since) or x.rank not in (3, 4):
        return reduce_axes(b, kind, x, range(2, x.rank), keep=True)
    data = to_nhwc(b, x)
    sizes = (data.shape[1], data.shape[2])
    window = Window(sizes, (1, 1), (1, 1), (0, 0, 0, 0), sizes, (1, 1))
    return from_nhwc(b, _pool(b, pool, data, window), x.rank)


def _covered(window: Window) -> Window:
    """With the end padding that gives exactly the outputs: ceil_mode adds, windows that don't fit take away."""
    ends = [
        (o - 1) * s + extent - size - begin
        for o, s, extent, size, begin in zip(
            window.outputs, window.strides, window.extent, window.sizes, window.pads[:2], strict=True
        )
    ]
    return dataclasses.replace(window, pads=(*window.pads[:2], ends[0], ends[1]))


def _pool(b: Builder, kind: str, x: Value, window: Window) -> Value:
    top, left, bottom, right = window.pads
    if bottom < 0 or right < 0:  # rows that no window reaches
        x = slice_nhwc(
            b, x, (0, 0, 0, 0), (x.shape[0], x.shape[1] + min(bottom, 0), x.shape[2] + min(right, 0), x.shape[3])
        )
    pads = (top, left, max(bottom, 0), max(right, 0))
    if max(pads[0], pads[2]) >= window.kernel[0] or max(pads[1], pads[3]) >= window.kernel[1]:
        b.unsupported(f"padding {list(pads)} is not smaller than the window {list(window.kernel)}")
    return b.emit(
        kind,
        x,
        **padding_attrs(pads),
        stride_width=window.strides[1],
        stride_height=window.strides[0],
        filter_width=window.kernel[1],
        filter_height=window.kernel[0],
    )


def _counts(window: Window, *, inside: bool) -> Array:
    """How many cells each window divides by: those inside the image, or also those in the declared padding."""
    per_axis = []
    for axis in range(2):
        begin, end = window.pads[axis], window.pads[axis + 2]
        size = window.sizes[axis]
        low, high = (0, size) if inside else (-begin, size + max(end, 0))
        starts = np.arange(window.outputs[axis]) * window.strides[axis] - begin
        taps = starts[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
        per_axis.append(((taps >= low) & (taps < high)).sum(axis=1))
    counts: Array = np.multiply.outer(per_axis[0], per_axis[1]).astype(np.float64)
    return counts


def _taps(b: Builder, x: Value, window: Window) -> list[Value]:
    """One strided slice of the padded image for each tap of the window."""
    (sh, sw), (dh, dw), (oh, ow) = window.strides, window.dilations, window.outputs
    slices = []
    for i in range(window.kernel[0]):
        for j in range(window.kernel[1]):
            begin = (0, i * dh, j * dw, 0)
            end = (x.shape[0], i * dh + (oh - 1) * sh + 1, j * dw + (ow - 1) * sw + 1, x.shape[3])
            masks: dict[str, Any] = {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0}
            slices.append(b.emit("STRIDED_SLICE", x, begin=begin, end=end, strides=(1, sh, sw, 1), **masks))
    return slices


def _dilated_max(b: Builder, x: Value, window: Window) -> Value:
    lowest: Any = (
        float(np.finfo(x.known.dtype).min) if x.known.dtype.kind == "f" else b.unsupported("a dilated pool of integers")
    )
    result, *rest = _taps(b, pad_nhwc(b, x, window.pads, lowest), window)
    for tap in rest:
        result = b.emit("MAXIMUM", result, tap)
    return result


def _dilated_average(b: Builder, op: Op, x: Value, given: Window) -> Value:
    window = _covered(given)
    result, *rest = _taps(b, pad_nhwc(b, to_nhwc(b, x), window.pads), window)
    for tap in rest:
        result = b.emit("ADD", result, tap)
    factor = 1 / _counts(given, inside=not op.attrs["count_include_pad"])
    result = b.emit("MUL", result, b.const(factor.reshape(1, *factor.shape, 1).astype(x.known.dtype)))
    return from_nhwc(b, result, x.rank)
