"""Samples of images at computed places: GridSample by gathers of the pixels around each place, RoiAlign."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.convolution import from_nhwc, to_nhwc
from onnx2nnapi.passes.legalize.elementwise import absolute, clamp, difference, negate, one, scale, shift
from onnx2nnapi.passes.legalize.logic import cast_to, select
from onnx2nnapi.passes.legalize.movement import gathered, pad_value, split_axis, transposed
from onnx2nnapi.passes.legalize.rounding import rounded
from onnx2nnapi.passes.legalize.shapes import EXACT_IN_FLOAT32, binary, unary

_SHARPNESS = -0.75  # of cubic interpolation
_MODES = {"linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic", "bicubic": "cubic"}

Wrap = Callable[[Value], Value]  # where a coordinate, or the index of a pixel, is taken from


@legalizes("GridSample")
def grid_sample(b: Builder, op: Op) -> Value:
    """For each pixel around a place: GATHER of its channels, times its weight; added up.

    Pixels outside are a border of zeros around the image, or those that clamping or reflection finds.
    """
    x, grid = b.inputs(op)
    b.needs_level(3, "GridSample")
    mode, padding, aligned = _MODES[op.attrs["mode"]], op.attrs["padding_mode"], bool(op.attrs["align_corners"])
    batch, channels, *sizes = x.shape
    zeros = padding == "zeros"
    table = transposed(b, x, (0, *range(2, x.rank), 1))
    if zeros:
        table = pad_value(b, table, [(0, 0), *[(1, 1)] * len(sizes), (0, 0)], 0)
    extents = table.shape[1:-1]
    count = math.prod(extents)
    if batch * count > EXACT_IN_FLOAT32:
        b.unsupported(f"an image of {batch * count} pixels, whose places float32 does not hold exactly")
    rows = b.reshape(table, (batch * count, channels))
    out = grid.shape[1:-1]
    samples = batch * math.prod(out)
    places = split_axis(b, b.reshape(grid, (batch, math.prod(out), len(sizes))), 2, [1] * len(sizes))[::-1]
    taps: list[list[tuple[Value, Value | None]]] = []  # of each dimension: index of the pixel, weight
    for place, size in zip(places, sizes, strict=True):
        outside, wrap = _wrapping(b, padding, size, aligned)
        at = scale(b, shift(b, place, 1.0), (size - 1) / 2) if aligned else _half_pixels(b, place, size)
        found = _around(b, outside(at), mode)
        taps.append([(shift(b, wrap(index), float(zeros)), weight) for index, weight in found])
    starts = b.const((np.arange(batch, dtype=np.float32) * count).reshape(batch, 1, 1))
    total: Value | None = None
    for corner in itertools.product(*taps):
        index, weight = starts, None
        for axis, (part, factor) in enumerate(corner):
            index = binary(b, "ADD", index, scale(b, part, math.prod(extents[axis + 1 :])))
            weight = factor if weight is None else weight if factor is None else binary(b, "MUL", weight, factor)
        flat = cast_to(b, b.reshape(index, (samples,)), np.dtype(np.int32))
        pixels = gathered(b, rows, b.bounded(flat, 0, batch * count - 1), 0)
        if weight is not None:
            pixels = binary(b, "MUL", pixels, b.reshape(weight, (samples, 1)))
        total = pixels if total is None else binary(b, "ADD", total, pixels)
    assert total is not None
    result = b.reshape(total, (batch, math.prod(out), channels))
    return b.reshape(transposed(b, result, (0, 2, 1)), b.out_shape(op))


def _half_pixels(b: Builder, place: Value, size: int) -> Value:
    """((place + 1) · size - 1) / 2."""
    return shift(b, scale(b, place, size / 2), (size - 1) / 2)


def _wrapping(b: Builder, padding: str, size: int, aligned: bool) -> tuple[Wrap, Wrap]:
    """What brings coordinates back into the image, and then indices of pixels to those that there are."""
    if padding == "zeros":
        return lambda at: at, lambda index: clamp(b, index, -1.0, float(size))
    low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))

    def clamped(at: Value) -> Value:
        return clamp(b, at, 0.0, float(size - 1))

    def clamped_outside(at: Value) -> Value:
        """Coordinates on the outer halves of border pixels stay, those beyond go to the pixels' centres."""
        inside = binary(b, "LESS_EQUAL", absolute(b, shift(b, at, -low - span / 2)), one(b, at, span / 2))
        return select(b, inside, at, clamped(at))

    def reflected(at: Value) -> Value:
        """low + span - |span - (|at - low| mod 2 · span)|."""
        if not span:
            return scale(b, at, 0.0)
        away = absolute(b, shift(b, at, -low))
        turns = unary(b, "FLOOR", scale(b, away, 1 / (2 * span)))
        rest = difference(b, away, scale(b, turns, 2 * span))
        return shift(b, negate(b, absolute(b, shift(b, rest, -span))), low + span)

    if padding == "border":
        return clamped if aligned else clamped_outside, clamped
    return reflected, lambda index: clamped(reflected(index))


def _around(b: Builder, at: Value, mode: str) -> list[tuple[Value, Value | None]]:
    """The pixels that count at a coordinate of one dimension, with their weights."""
    if mode == "nearest":
        return [(rounded(b, at), None)]
    first = unary(b, "FLOOR", at)
    part = difference(b, at, first)
    if mode == "linear":
        return [(first, difference(b, one(b, part), part)), (shift(b, first, 1.0), part)]
    return [(shift(b, first, float(tap)), _polynomial(b, part, _cubic(tap))) for tap in (-1, 0, 1, 2)]


def _cubic(tap: int) -> Sequence[float]:
    """Coefficients, of the highest power first, of the weight of the pixel at distance |tap - part|."""
    a = _SHARPNESS
    near, far = np.poly1d([a + 2, -(a + 3), 0, 1]), np.poly1d([a, -5 * a, 8 * a, -4 * a])
    distance = np.poly1d([1, -tap]) if tap <= 0 else np.poly1d([-1, tap])
    weight = (near if tap in (0, 1) else far)(distance)
    return [float(value) for value in weight.coeffs]


def _polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    total = scale(b, x, coefficients[0])
    for coefficient in coefficients[1:-1]:
        total = binary(b, "MUL", shift(b, total, coefficient), x)
    return shift(b, total, coefficients[-1])


@legalizes("RoiAlign")
def roi_align(b: Builder, op: Op) -> Value:
    """ROI_ALIGN, which averages, and takes regions as they are and at least one pixel wide."""
    x, rois, batches = b.inputs(op)
    if op.attrs["mode"] != "avg":
        b.unsupported("mode is 'max', and ROI_ALIGN averages")
    if op.attrs["coordinate_transformation_mode"] != "output_half_pixel":
        b.unsupported(
            "coordinate_transformation_mode is 'half_pixel', by which regions may be smaller than the pixel that"
            " ROI_ALIGN makes them at least",
            "export the model with coordinate_transformation_mode 'output_half_pixel' (aligned=False)",
        )
    if batches.const is not None and np.any(np.diff(batches.const.numpy()) < 0):
        b.unsupported("batch_indices fall, and ROI_ALIGN takes rising ones only")
    step = 1 / op.attrs["spatial_scale"]
    result = b.emit(
        "ROI_ALIGN",
        to_nhwc(b, x),
        rois,
        batches,
        output_height=op.attrs["output_height"],
        output_width=op.attrs["output_width"],
        height_stride=step,
        width_stride=step,
        height_sampling_ratio=op.attrs["sampling_ratio"],
        width_sampling_ratio=op.attrs["sampling_ratio"],
    )
    return from_nhwc(b, result, 4)
