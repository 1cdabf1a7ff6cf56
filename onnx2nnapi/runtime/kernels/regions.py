"""Kernels of the operations that read regions of interest of an image: a loop over regions, whole arrays inside."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.rules import RuleError
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.arithmetic import (
    code_range,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
    widen,
)

__all__ = ["float_codes", "real"]

WEIGHT_SCALE = np.float32(1.0) / np.float32(255.0)  # the step that bilinear weights of codes are rounded to


def real(codes: Array, type_: OperandType) -> Array:
    """What an array stands for, in float32: codes times scale, float16 widened."""
    if not type_.is_quantized:
        return widen(codes)
    numbers: Array = (codes.astype(np.int32) - type_.zero_point).astype(np.float32) * np.float32(type_.scale)
    return numbers


def float_codes(numbers: Array, type_: OperandType) -> Array:
    """float32 numbers in the type of an output: rounded to codes half away from zero, computed in float32."""
    if not type_.is_quantized:
        return numbers.astype(type_.dtype, copy=False)
    codes = round_half_away(numbers / np.float32(type_.scale) + np.float32(type_.zero_point))
    return np.clip(codes, *code_range(type_)).astype(type_.dtype)


def _regions(
    rois: Array, batch_split: Array, image: Array, height_stride: float, width_stride: float
) -> Iterator[tuple[int, Array]]:
    """Each region's batch and its (x1, y1, x2, y2) in the image's pixels, in the type of ``rois``.

    Raises:
        RuleError: a region of no batch, outside the image, or turned inside out.
    """
    kind = rois.dtype.type
    batches, height, width = image.shape[:3]
    scales = [kind(np.float32(1.0) / np.float32(stride)) for stride in (width_stride, height_stride)] * 2
    scaled = rois * np.array(scales, rois.dtype)
    bounds = np.array((width, height, width, height))
    inside = (rois >= 0).all(axis=1) & (scaled <= bounds).all(axis=1)
    inside &= (rois[:, 0] <= rois[:, 2]) & (rois[:, 1] <= rois[:, 3])
    known = (batch_split >= 0) & (batch_split < batches)
    if not known.all():
        raise RuleError(f"operand 'batch_split' names batch {batch_split[~known][0]}, there are {batches}")
    if not inside.all():
        raise RuleError(f"operand 'rois' holds {rois[~inside][0].tolist()}, no region of {height} × {width} pixels")
    return zip(batch_split.tolist(), scaled, strict=True)


# -- ROI_POOLING -------------------------------------------------------------------------------------------------------


def _windows(start: float, end: float, count: int, size: int, kind: type) -> tuple[Array, Array]:
    """First and last (excluded) index of each of ``count`` cells of a dimension."""
    first, last = round_half_away(np.array((start, end), np.float32)).tolist()
    step = kind(max(last - first + 1, 1)) / kind(count)
    cells: Array = np.arange(count + 1).astype(kind)
    edges = (step * cells + kind(first)).astype(np.float32)
    starts, ends = np.floor(edges[:-1]), np.ceil(edges[1:])
    return np.minimum(starts, size).astype(np.intp), np.minimum(ends, size).astype(np.intp)


def _window_maxima(x: Array, starts: Array, ends: Array) -> Array:
    """Maxima over windows of the first dimension; of an empty window the element at its start."""
    last = len(x) - 1
    bounds = np.stack((np.minimum(starts, last), np.clip(ends, 0, last + 1)), axis=1).reshape(-1)
    padded = np.concatenate((x, x[-1:]))  # reduceat takes no index beyond the end
    return np.maximum.reduceat(padded, bounds, axis=0)[::2]


@kernel("ROI_POOLING")
def roi_pooling(
    call: Call,
    input: Array,
    rois: Array,
    batch_split: Array,
    output_height: int,
    output_width: int,
    height_stride: float,
    width_stride: float,
    nchw: bool,
) -> Array:
    image = input.transpose(0, 2, 3, 1) if nchw else input
    boxes = real(rois, call["rois"]) if call["rois"].is_quantized else rois
    kind = boxes.dtype.type
    output = np.empty((len(boxes), output_height, output_width, image.shape[3]), input.dtype)
    regions = _regions(boxes, batch_split, image, height_stride, width_stride)
    for index, (batch, (x1, y1, x2, y2)) in enumerate(regions):
        tops, bottoms = _windows(y1, y2, output_height, image.shape[1], kind)
        lefts, rights = _windows(x1, x2, output_width, image.shape[2], kind)
        rows = _window_maxima(image[batch], tops, bottoms)
        cells = _window_maxima(rows.swapaxes(0, 1), lefts, rights).swapaxes(0, 1)
        empty = (tops >= bottoms)[:, np.newaxis] | (lefts >= rights)
        output[index] = np.where(empty[..., np.newaxis], input.dtype.type(call["input"].zero_point), cells)
    return output.transpose(0, 3, 1, 2) if nchw else output


# -- ROI_ALIGN ---------------------------------------------------------------------------------------------------------


def _samples(start: Array, end: Array, cells: int, ratio: int, size: int) -> tuple[Array, Array, Array, int]:
    """The pixels before and after each sample of a dimension, how far it is beyond the former, and samples a cell."""
    kind = start.dtype.type
    step = kind(max(np.float32(end - start), np.float32(1.0))) / kind(cells)
    count = ratio or int(np.ceil(np.float32(step)))
    part = step / kind(count)
    starts = step * np.arange(cells).astype(kind) + start
    places = ((starts + part / kind(2))[:, np.newaxis] + part * np.arange(count).astype(kind)).reshape(-1)
    before = np.floor(places.astype(np.float32)).astype(np.intp)
    beyond = places - before.astype(kind)
    last = size - 1
    beyond[before >= last] = 0
    return np.minimum(before, last), np.minimum(before + 1, last), beyond, count


@kernel("ROI_ALIGN")
def roi_align(
    call: Call,
    input: Array,
    rois: Array,
    batch_split: Array,
    output_height: int,
    output_width: int,
    height_stride: float,
    width_stride: float,
    height_sampling_ratio: int,
    width_sampling_ratio: int,
    nchw: bool,
) -> Array:
    image = input.transpose(0, 2, 3, 1) if nchw else input
    quantized = call["input"].is_quantized
    boxes = real(rois, call["rois"]) if quantized else rois
    output = np.empty((len(boxes), output_height, output_width, image.shape[3]), input.dtype)
    regions = _regions(boxes, batch_split, image, height_stride, width_stride)
    for index, (batch, (x1, y1, x2, y2)) in enumerate(regions):
        top, bottom, down, rows = _samples(y1, y2, output_height, height_sampling_ratio, image.shape[1])
        left, right, across, columns = _samples(x1, x2, output_width, width_sampling_ratio, image.shape[2])
        total: Array = np.zeros(1, np.int64 if quantized else np.float32)
        for y, weight_y in ((top, 1 - down), (bottom, down)):
            for x, weight_x in ((left, 1 - across), (right, across)):
                weights = (weight_y[:, np.newaxis] * weight_x)[..., np.newaxis]
                pixels = image[batch][y[:, np.newaxis], x]
                if quantized:
                    codes = pixels.astype(np.int64) - call["input"].zero_point
                    total = total + round_half_away(weights / WEIGHT_SCALE).astype(np.int64) * codes
                else:
                    total = total + widen(weights) * widen(pixels)
        shape = (output_height, rows, output_width, columns, image.shape[3])
        sums = total.reshape(shape).sum(axis=(1, 3))
        output[index] = _averaged(call, sums, rows * columns) if quantized else sums / np.float32(rows * columns)
    return output.transpose(0, 3, 1, 2) if nchw else output


def _averaged(call: Call, sums: Array, count: int) -> Array:
    """Codes of the output for sums of codes times 8-bit weights."""
    given, wanted = call["input"], call.output
    scale = np.float32(given.scale) * WEIGHT_SCALE / np.float32(wanted.scale) / np.float32(count)
    codes = multiply_by_quantized_multiplier(sums, *quantize_multiplier(float(scale))).astype(np.int64)
    return np.clip(codes + wanted.zero_point, *code_range(wanted))


# -- HEATMAP_MAX_KEYPOINT ----------------------------------------------------------------------------------------------


@kernel("HEATMAP_MAX_KEYPOINT")
def heatmap_max_keypoint(call: Call, heatmap: Array, boxes: Array, nchw: bool) -> tuple[Array, Array]:
    maps = real(heatmap if nchw else heatmap.transpose(0, 3, 1, 2), call["heatmap"])
    corners = real(boxes, call["boxes"])
    if not ((corners[:, 0] <= corners[:, 2]) & (corners[:, 1] <= corners[:, 3])).all():
        raise RuleError("operand 'boxes' holds a box that is turned inside out")
    count, keypoints, size, _ = maps.shape
    best = maps.reshape(count, keypoints, -1).argmax(axis=-1)
    row, column = np.divmod(best, size)
    near = np.arange(-1, 2)
    rows, columns = (_mirrored(place[..., np.newaxis] + near, size) for place in (row, column))
    box, keypoint, _, _ = np.ogrid[:count, :keypoints, :1, :1]
    grid = maps[box, keypoint, rows[..., :, np.newaxis], columns[..., np.newaxis, :]]
    tolerance = np.float32(1e-3 if heatmap.dtype == np.float16 else 1e-5)
    across, down, scores = _quadratic_maximum(grid, tolerance)
    half = np.float32(0.5)
    x = (column.astype(np.float32) + across + half) / np.float32(size)
    y = (row.astype(np.float32) + down + half) / np.float32(size)
    left, top, right, bottom = (corners[:, [side]] for side in range(4))
    places = np.stack((x * (right - left) + left, y * (bottom - top) + top), axis=-1)
    return float_codes(scores, call.outputs[0]), float_codes(places, call.outputs[1])


def _mirrored(index: Array, size: int) -> Array:
    """Indices one beyond an edge, mirrored at it."""
    return np.where(index < 0, 1, np.where(index >= size, size - 2, index))


def _quadratic_maximum(grid: Array, tolerance: np.float32) -> tuple[Array, Array, Array]:
    """Where a quadratic through 3 × 3 values is stationary, at most 3/2 from the centre, and its value there."""
    two, four, limit = np.float32(2), np.float32(4), np.float32(1.5)
    centre = grid[..., 1, 1]
    b0, b1 = -(grid[..., 1, 2] - grid[..., 1, 0]) / two, -(grid[..., 2, 1] - grid[..., 0, 1]) / two
    a00 = grid[..., 1, 0] - two * centre + grid[..., 1, 2]
    a11 = grid[..., 0, 1] - two * centre + grid[..., 2, 1]
    a01 = (grid[..., 2, 2] - grid[..., 2, 0] - grid[..., 0, 2] + grid[..., 0, 0]) / four
    product = a00 * a11
    determinant = product - a01 * a01
    flat = np.abs(determinant) < tolerance + tolerance * product
    divisor = np.where(flat, np.float32(1), determinant)
    x, y = (a11 * b0 - a01 * b1) / divisor, (a00 * b1 - a01 * b0) / divisor
    furthest = np.maximum(np.abs(x), np.abs(y))
    shrink = np.where(furthest > limit, limit / np.maximum(furthest, limit), np.float32(1))
    x, y = np.where(flat, np.float32(0), x * shrink), np.where(flat, np.float32(0), y * shrink)
    value = centre - b0 * x - b1 * y + ((a00 * x + a01 * y) * x + (a01 * x + a11 * y) * y) / two
    return x, y, np.where(flat, centre, value)
