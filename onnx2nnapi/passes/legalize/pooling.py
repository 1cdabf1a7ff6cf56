"""Pools over windows and over all of an image."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import Array, Shape
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
from onnx2nnapi.passes.legalize.elementwise import absolute, one
from onnx2nnapi.passes.legalize.reduction import reduce_axes
from onnx2nnapi.passes.legalize.shapes import binary, unary

Pool = Callable[[Builder, Op, Value, Shape], Value]


def _in_any_rank(b: Builder, op: Op, x: Value, pool: Pool) -> Value:
    """``pool`` over one or two dimensions; over three its planes are pooled first, then the depth."""
    if x.rank == 5:
        from onnx2nnapi.passes.legalize import volume  # built on this module's neighbours

        return volume.pooled(b, op, x, pool)
    spatial(b, x.rank, op.kind)
    return pool(b, op, x, b.out_shape(op))


@legalizes("MaxPool")
def max_pool(b: Builder, op: Op) -> Value | tuple[Value | None, ...]:
    """MAX_POOL_2D; a dilated window is the MAXIMUM over its shifted, strided slices."""
    (x,) = b.inputs(op)
    if len(op.outputs) > 1 and op.outputs[1] is not None and b.source.uses(op.outputs[1]):
        b.unsupported("its output Indices is used, and NNAPI's pools give none", "export the model without it")
    return _in_any_rank(b, op, x, _max), None


def _max(b: Builder, op: Op, x: Value, out: Shape) -> Value:
    window = _covered(window_of(b, op, op.attrs["kernel_shape"], x.shape, out))
    data = to_nhwc(b, x)
    result = _pool(b, "MAX_POOL_2D", data, window) if window.dilations == (1, 1) else _dilated_max(b, data, window)
    return from_nhwc(b, result, x.rank)


@legalizes("AveragePool")
def average_pool(b: Builder, op: Op) -> Value:
    """AVERAGE_POOL_2D, which divides by the cells inside the image; a constant factor where ONNX divides by others."""
    return _in_any_rank(b, op, b.inputs(op)[0], _average)


def _average(b: Builder, op: Op, x: Value, out: Shape) -> Value:
    window = window_of(b, op, op.attrs["kernel_shape"], x.shape, out)
    return _averaged(b, x, window, _counts(window, inside=not op.attrs["count_include_pad"]))


def _averaged(b: Builder, x: Value, given: Window, divisor: Array) -> Value:
    """The sums of windows over ``divisor`` [height, width]."""
    window = _covered(given)
    if window.dilations == (1, 1):
        result = _pool(b, "AVERAGE_POOL_2D", to_nhwc(b, x), window)
        factor = _counts(window, inside=True) / divisor
    else:
        result, *rest = _taps(b, pad_nhwc(b, to_nhwc(b, x), window.pads), window)
        for tap in rest:
            result = b.emit("ADD", result, tap)
        factor = 1 / divisor
    return from_nhwc(b, _times(b, result, factor), x.rank)


def _times(b: Builder, x: Value, factor: Array) -> Value:
    """``x`` [n, h, w, c] times a constant [h, w], or one number where that is all it is."""
    if np.all(factor == 1):
        return x
    dense = factor.reshape(1, *factor.shape, 1).astype(x.known.dtype)
    return binary(b, "MUL", x, b.const(dense[:, :1, :1] if np.all(dense == dense.flat[0]) else dense))


@legalizes("LpPool")
def lp_pool(b: Builder, op: Op) -> Value:
    """L2_POOL_2D times the root of the number of cells; else the root of the sum of powers, by AVERAGE_POOL_2D."""
    (x,) = b.inputs(op)
    p = op.attrs["p"]
    dilated = any(step != 1 for step in op.attrs.get("dilations") or ())
    if p == 2 and x.rank in (3, 4) and not dilated:
        window = _covered(window_of(b, op, op.attrs["kernel_shape"], x.shape, b.out_shape(op)))
        roots = np.sqrt(_counts(window, inside=True))
        return from_nhwc(b, _times(b, _pool(b, "L2_POOL_2D", to_nhwc(b, x), window), roots), x.rank)
    return _root(b, _in_any_rank(b, op, _power(b, x, p), _sum), p)


def _sum(b: Builder, op: Op, x: Value, out: Shape) -> Value:
    window = window_of(b, op, op.attrs["kernel_shape"], x.shape, out)
    return _averaged(b, x, window, np.ones(window.outputs))


def _power(b: Builder, x: Value, p: int) -> Value:
    """The p-th powers of the magnitudes."""
    if p == 2:
        return binary(b, "MUL", x, x)
    x = absolute(b, x)
    return x if p == 1 else binary(b, "POW", x, one(b, x, p))


def _root(b: Builder, x: Value, p: int) -> Value:
    return x if p == 1 else unary(b, "SQRT", x) if p == 2 else binary(b, "POW", x, one(b, x, 1 / p))


@legalizes("GlobalLpPool")
def global_lp_pool(b: Builder, op: Op) -> Value:
    """The root of REDUCE_SUM of powers over the spatial dimensions."""
    (x,) = b.inputs(op)
    p = op.attrs["p"]
    return _root(b, reduce_axes(b, "REDUCE_SUM", _power(b, x, p), range(2, x.rank), keep=True), p)


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
    if -bottom >= window.strides[0] or -right >= window.strides[1]:  # NNAPI would put a window on what none reaches
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
