"""Kernels of the convolutions.

Results are those of Android's CPU reference (cpu_operations/Conv2D.cpp, DepthwiseConv2D.cpp, GroupedConv2D.cpp,
TransposeConv2D.cpp): float32 to rounding, float16 computed in float32, codes to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.window import transposed_padding
from onnx2nnapi.runtime.kernels import Band, Call, Step, kernel, recorded, whole
from onnx2nnapi.runtime.kernels.products import (
    MIN_ROWS,
    Finish,
    Weights,
    blocks,
    centred_rows,
    finish_of,
    multiply,
    prepare,
)
from onnx2nnapi.runtime.kernels.sliding import Sliding, channels_last, image_result, into_layout

__all__: list[str] = []

TILE = 2048  # numbers in one step of a depthwise sum: with the taps they should fit the nearest cache


@kernel("CONV_2D")
@recorded("filter", "bias")
def conv_2d(
    call: Call,
    input: Array,
    filter: Array,
    bias: Array,
    padding_left: int = 0,
    padding_right: int = 0,
    padding_top: int = 0,
    padding_bottom: int = 0,
    stride_width: int = 1,
    stride_height: int = 1,
    fuse_code: int = 0,
    nchw: bool = False,
    dilation_width: int = 1,
    dilation_height: int = 1,
    padding_scheme: int | None = None,
) -> tuple[Array, list[Band]]:
    """Filter [out, height, width, in]."""
    sliding = Sliding.over(
        call,
        input,
        nchw,
        filters=filter.shape[1:3],
        strides=(stride_height, stride_width),
        dilations=(dilation_height, dilation_width),
        scheme=padding_scheme,
        sides=(padding_left, padding_right, padding_top, padding_bottom),
    )
    weights = prepare(call, "filter", filter, bias, lambda array: array.reshape(len(array), -1).T)
    finish = finish_of(call, "filter", weights, bias, fuse_code)
    out = image_result(call, nchw)
    return _laid_out(sliding, out, _convolve(sliding, weights, finish, out) if out.size else [])


@kernel("DEPTHWISE_CONV_2D")
@recorded("filter", "bias")
def depthwise_conv_2d(
    call: Call,
    input: Array,
    filter: Array,
    bias: Array,
    padding_left: int = 0,
    padding_right: int = 0,
    padding_top: int = 0,
    padding_bottom: int = 0,
    stride_width: int = 1,
    stride_height: int = 1,
    depth_multiplier: int = 1,
    fuse_code: int = 0,
    nchw: bool = False,
    dilation_width: int = 1,
    dilation_height: int = 1,
    padding_scheme: int | None = None,
) -> tuple[Array, list[Band]]:
    """Filter [1, height, width, in * depth_multiplier]."""
    sliding = Sliding.over(
        call,
        input,
        nchw,
        filters=filter.shape[1:3],
        strides=(stride_height, stride_width),
        dilations=(dilation_height, dilation_width),
        scheme=padding_scheme,
        sides=(padding_left, padding_right, padding_top, padding_bottom),
    )
    weights = prepare(call, "filter", filter, bias, lambda array: array.reshape(-1, array.shape[3]))
    finish = finish_of(call, "filter", weights, bias, fuse_code)
    out = image_result(call, nchw)
    return _laid_out(
        sliding, out, _convolve_depthwise(sliding, weights, depth_multiplier, finish, out) if out.size else []
    )


@kernel("GROUPED_CONV_2D")
@recorded("filter", "bias")
def grouped_conv_2d(
    call: Call,
    input: Array,
    filter: Array,
    bias: Array,
    padding_left: int = 0,
    padding_right: int = 0,
    padding_top: int = 0,
    padding_bottom: int = 0,
    stride_width: int = 1,
    stride_height: int = 1,
    groups: int = 1,
    fuse_code: int = 0,
    nchw: bool = False,
    padding_scheme: int | None = None,
) -> tuple[Array, list[Band]]:
    """Filter [out, height, width, in / groups]."""
    sliding = Sliding.over(
        call,
        input,
        nchw,
        filters=filter.shape[1:3],
        strides=(stride_height, stride_width),
        scheme=padding_scheme,
        sides=(padding_left, padding_right, padding_top, padding_bottom),
    )
    weights = prepare(call, "filter", filter, bias, lambda array: array.reshape(len(array), -1).T)
    finish = finish_of(call, "filter", weights, bias, fuse_code)
    out = image_result(call, nchw)
    bands: list[Band] = []
    if out.size and filter.shape[3] == 1:
        bands = _convolve_depthwise(sliding, weights, len(filter) // groups, finish, out)
    elif out.size:
        bands = _convolve_groups(sliding, weights, groups, finish, out)
    return _laid_out(sliding, out, bands)


@kernel("TRANSPOSE_CONV_2D")
@recorded("filter", "bias", "output_shape")
def transpose_conv_2d(
    call: Call,
    input: Array,
    filter: Array,
    bias: Array,
    padding_left: int = 0,
    padding_right: int = 0,
    padding_top: int = 0,
    padding_bottom: int = 0,
    stride_width: int = 1,
    stride_height: int = 1,
    fuse_code: int = 0,
    nchw: bool = False,
    output_shape: Array | None = None,
    padding_scheme: int | None = None,
) -> tuple[Array, list[Band]]:
    """Filter [out, height, width, in]; the tail paddings and ``output_shape`` are in the output's size already."""
    x, first = channels_last(call, input, nchw)
    if output_shape is not None and padding_scheme is not None:
        height, width = output_shape[2:] if nchw else output_shape[1:3]
        padding_top, _ = transposed_padding(padding_scheme, int(height), filter.shape[1], stride_height)
        padding_left, _ = transposed_padding(padding_scheme, int(width), filter.shape[2], stride_width)
    out = image_result(call, nchw)
    strides, heads = (stride_height, stride_width), (padding_top, padding_left)
    steps = _convolve_transposed(call, x, filter, bias, strides, heads, fuse_code, out) if out.size else []
    result, last = into_layout(call, out, nchw)
    return whole(result, [*first, *steps, *last])


# -- how -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a result that is computed at once.

    Attributes:
        images, lines: of the result.
        seen: the rows of the input that windows see here for the first time.
        until: elements of the result up to here.
        needs: elements of the input up to here.
    """

    images: slice
    lines: slice
    seen: slice
    until: int
    needs: int

    def band(self, steps: list[Step]) -> Band:
        return Band(steps, self.until, {"input": self.needs})


def _parts(sliding: Sliding, out: Array) -> Iterator[_Part]:
    """Batch and rows of a result in parts that stay in cache: whole images where these are small."""
    batch, rows, columns, channels = out.shape
    _, height, width, depth = sliding.image.shape

    def part(images: slice, lines: slice) -> _Part:
        seen = slice(sliding.seen(lines.start), sliding.seen(lines.stop))
        before = images.stop - 1
        until = (before * rows + lines.stop) * columns * channels
        return _Part(images, lines, seen, until, (before * height + seen.stop) * width * depth)

    if batch > 1 and rows * columns < MIN_ROWS:
        for start, stop in blocks(batch, rows * columns, channels):
            yield part(slice(start, stop), slice(0, rows))
        return
    for image in range(batch):
        for start, stop in blocks(rows, columns, channels):
            yield part(slice(image, image + 1), slice(start, stop))


def _laid_out(sliding: Sliding, out: Array, bands: list[Band]) -> tuple[Array, list[Band]]:
    """The result in the layout of the operation; with its channels first, it is computed in one go."""
    result, last = into_layout(sliding.call, out, sliding.nchw)
    if not sliding.nchw:
        return result, bands
    return whole(result, [*sliding.steps, *(step for band in bands for step in band.steps), *last])


def _convolve(sliding: Sliding, weights: Weights, finish: Finish, out: Array) -> list[Band]:
    call = sliding.call
    depth, units = weights.matrix.shape
    direct = out.flags.c_contiguous and out.dtype == weights.sum_dtype
    bordered, fill = (sliding.image, None) if sliding.is_pointwise else sliding.bordered()
    view = bordered if fill is None else sliding.windows(bordered)
    bands = []
    for p in _parts(sliding, out):
        part, windows = out[p.images, p.lines], view[p.images, p.lines]
        rows, steps = centred_rows(call, windows) if fill is None else (windows, fill(p.images, p.seen))
        if not rows.flags.c_contiguous:
            rows = call.scratch("windows", windows.shape, np.float32)
            steps.append(partial(np.copyto, rows, windows))
        sums = part if direct else call.scratch("sums", part.shape, weights.sum_dtype)
        steps += multiply(rows.reshape(-1, depth), weights, sums.reshape(-1, units))
        bands.append(p.band(steps + finish(call, sums, part)))
    return bands


def _convolve_groups(sliding: Sliding, weights: Weights, groups: int, finish: Finish, out: Array) -> list[Band]:
    call = sliding.call
    depth, units = weights.matrix.shape
    bordered, fill = sliding.bordered()
    view = sliding.windows(bordered)
    inputs, outputs = view.shape[-1] // groups, units // groups
    bands = []
    for p in _parts(sliding, out):
        part, windows = out[p.images, p.lines], view[p.images, p.lines]
        rows = call.scratch("windows", (*windows.shape[:-1], inputs), np.float32)
        sums = call.scratch("sums", part.shape, weights.sum_dtype)
        products = call.scratch("products", (*part.shape[:-1], outputs), weights.sum_dtype)
        steps = fill(p.images, p.seen)
        for group in range(groups):
            channels = slice(group * outputs, (group + 1) * outputs)
            own = Weights(weights.matrix[:, channels], weights.cuts)
            steps.append(partial(np.copyto, rows, windows[..., group * inputs : (group + 1) * inputs]))
            steps += multiply(rows.reshape(-1, depth), own, products.reshape(-1, outputs))
            steps.append(partial(np.copyto, sums[..., channels], products))
        bands.append(p.band(steps + finish(call, sums, part)))
    return bands


def _convolve_depthwise(sliding: Sliding, weights: Weights, multiplier: int, finish: Finish, out: Array) -> list[Band]:
    """The filter's taps are summed by einsum, over several neighbouring windows at a time where they are neighbours."""
    call, vertical, horizontal = sliding.call, sliding.vertical, sliding.horizontal
    units = weights.matrix.shape[1]
    tile = _tile(horizontal.places, units) if horizontal.stride == 1 else 1
    bordered, fill = sliding.bordered(multiplier)
    view = sliding.windows(bordered, tile)
    direct = out.dtype == weights.sum_dtype and out.flags.c_contiguous
    shape = (vertical.filter, horizontal.filter, tile * units)
    taps = call.once("taps", lambda: np.ascontiguousarray(np.tile(weights.matrix, tile)).reshape(shape), "filter")
    bands = []
    for p in _parts(sliding, out):
        part = out[p.images, p.lines]
        sums = part if direct else call.scratch("sums", part.shape, weights.sum_dtype)
        tiles = sums.reshape(*part.shape[:2], -1, tile * units)
        steps = fill(p.images, p.seen)
        steps.append(partial(np.einsum, "nhwabc,abc->nhwc", view[p.images, p.lines], taps, out=tiles))
        bands.append(p.band(steps + finish(call, sums, part)))
    return bands


def _tile(columns: int, channels: int) -> int:
    """How many neighbouring columns make one row of the depthwise sum: as many as stay in the nearest cache."""
    return max(
        (count for count in range(1, columns + 1) if columns % count == 0 and count * channels <= TILE), default=1
    )


def _convolve_transposed(
    call: Call,
    x: Array,
    filter: Array,
    bias: Array,
    strides: tuple[int, int],
    heads: tuple[int, int],
    fuse_code: int,
    out: Array,
) -> list[Step]:
    """Each input element spreads over a window of the output: one product, then a sum over the filter's taps."""
    units, *lengths, depth = filter.shape
    batch, height, width, _ = x.shape
    weights = prepare(call, "filter", filter, bias, lambda array: array.reshape(units, -1).T)
    finish = finish_of(call, "filter", weights, bias, fuse_code)
    dtype = weights.sum_dtype
    spread = weights.matrix.reshape(*lengths, depth, units).astype(dtype, copy=False)
    wide, steps = centred_rows(call, x)
    rows = wide.reshape(-1, depth)
    if dtype is not np.float32:
        narrow, rows = rows, call.scratch("rows", rows.shape, dtype)
        steps.append(partial(np.copyto, rows, narrow))
    extents = [
        max((size - 1) * stride + length, head + result)
        for size, stride, length, head, result in zip(
            (height, width), strides, lengths, heads, out.shape[1:3], strict=True
        )
    ]
    sums = call.scratch("sums", (batch, *extents, units), dtype)
    products = call.scratch("products", (batch, height, width, units), dtype)
    steps.append(partial(sums.fill, 0.0))
    for row in range(lengths[0]):
        for column in range(lengths[1]):
            target = sums[
                :,
                row : row + (height - 1) * strides[0] + 1 : strides[0],
                column : column + (width - 1) * strides[1] + 1 : strides[1],
            ]
            steps.append(partial(np.matmul, rows, spread[row, column], out=products.reshape(-1, units)))
            steps.append(partial(np.add, target, products, out=target))
    top, left = heads
    return steps + finish(call, sums[:, top : top + out.shape[1], left : left + out.shape[2]], out)
