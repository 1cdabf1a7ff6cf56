"""Kernels of the convolutions.

Results are those of Android's CPU reference (cpu_operations/Conv2D.cpp, DepthwiseConv2D.cpp, GroupedConv2D.cpp,
TransposeConv2D.cpp): float32 to rounding, float16 computed in float32, codes to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.window import transposed_padding
from onnx2nnapi.runtime.kernels import Call, Step, kernel, recorded
from onnx2nnapi.runtime.kernels.products import (
    MIN_ROWS,
    Finish,
    Weights,
    blocks,
    centred_rows,
    finish_of,
    multiply,
    multiply_rows,
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
) -> tuple[Array, list[Step]]:
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
    steps = _convolve(sliding, weights, finish, out) if out.size else []
    result, last = into_layout(call, out, nchw)
    return result, [*sliding.steps, *steps, *last]


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
) -> tuple[Array, list[Step]]:
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
    steps = _convolve_depthwise(sliding, weights, depth_multiplier, finish, out) if out.size else []
    result, last = into_layout(call, out, nchw)
    return result, [*sliding.steps, *steps, *last]


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
) -> tuple[Array, list[Step]]:
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
    steps: list[Step] = []
    if out.size and filter.shape[3] == 1:
        steps = _convolve_depthwise(sliding, weights, len(filter) // groups, finish, out)
    elif out.size:
        steps = _convolve_groups(sliding, weights, groups, finish, out)
    result, last = into_layout(call, out, nchw)
    return result, [*sliding.steps, *steps, *last]


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
) -> tuple[Array, list[Step]]:
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
    return result, [*first, *steps, *last]


# -- how -------------------------------------------------------------------------------------------------------------


def _bands(out: Array) -> Iterator[tuple[slice, slice]]:
    """Parts of an image's batch and rows that are computed together: whole images where these are small."""
    batch, rows, columns, channels = out.shape
    if batch > 1 and rows * columns < MIN_ROWS:
        for start, stop in blocks(batch, rows * columns, channels):
            yield slice(start, stop), slice(0, rows)
        return
    for image in range(batch):
        for start, stop in blocks(rows, columns, channels):
            yield slice(image, image + 1), slice(start, stop)


def _convolve(sliding: Sliding, weights: Weights, finish: Finish, out: Array) -> list[Step]:
    call = sliding.call
    depth, units = weights.matrix.shape
    contiguous = out.flags.c_contiguous
    if sliding.is_pointwise:
        view, steps = centred_rows(call, sliding.image)
        if contiguous and view.flags.c_contiguous:
            return steps + multiply_rows(call, view.reshape(-1, depth), weights, finish, out.reshape(-1, units))
    else:
        bordered, steps = sliding.bordered()
        view = sliding.windows(bordered)
    direct = contiguous and out.dtype == weights.sum_dtype
    for images, lines in _bands(out):
        part, rows = out[images, lines], view[images, lines]
        if not rows.flags.c_contiguous:
            windows, rows = rows, call.scratch("windows", rows.shape, np.float32)
            steps.append(partial(np.copyto, rows, windows))
        sums = part if direct else call.scratch("sums", part.shape, weights.sum_dtype)
        steps += multiply(rows.reshape(-1, depth), weights, sums.reshape(-1, units))
        steps += finish(call, sums, part)
    return steps


def _convolve_groups(sliding: Sliding, weights: Weights, groups: int, finish: Finish, out: Array) -> list[Step]:
    call = sliding.call
    depth, units = weights.matrix.shape
    bordered, steps = sliding.bordered()
    view = sliding.windows(bordered)
    inputs, outputs = view.shape[-1] // groups, units // groups
    for images, lines in _bands(out):
        part, windows = out[images, lines], view[images, lines]
        rows = call.scratch("windows", (*windows.shape[:-1], inputs), np.float32)
        sums = call.scratch("sums", part.shape, weights.sum_dtype)
        products = call.scratch("products", (*part.shape[:-1], outputs), weights.sum_dtype)
        for group in range(groups):
            channels = slice(group * outputs, (group + 1) * outputs)
            own = Weights(weights.matrix[:, channels], weights.cuts)
            steps.append(partial(np.copyto, rows, windows[..., group * inputs : (group + 1) * inputs]))
            steps += multiply(rows.reshape(-1, depth), own, products.reshape(-1, outputs))
            steps.append(partial(np.copyto, sums[..., channels], products))
        steps += finish(call, sums, part)
    return steps


def _convolve_depthwise(sliding: Sliding, weights: Weights, multiplier: int, finish: Finish, out: Array) -> list[Step]:
    """The filter's taps are summed by einsum, over several neighbouring windows at a time where they are neighbours."""
    call, vertical, horizontal = sliding.call, sliding.vertical, sliding.horizontal
    units = weights.matrix.shape[1]
    tile = _tile(horizontal.places, units) if horizontal.stride == 1 else 1
    bordered, steps = sliding.bordered(multiplier)
    view = sliding.windows(bordered, tile)
    direct = out.dtype == weights.sum_dtype and out.flags.c_contiguous
    shape = (vertical.filter, horizontal.filter, tile * units)
    taps = call.once("taps", lambda: np.ascontiguousarray(np.tile(weights.matrix, tile)).reshape(shape), "filter")
    for images, lines in _bands(out):
        part = out[images, lines]
        sums = part if direct else call.scratch("sums", part.shape, weights.sum_dtype)
        tiles = sums.reshape(*part.shape[:2], -1, tile * units)
        steps.append(partial(np.einsum, "nhwabc,abc->nhwc", view[images, lines], taps, out=tiles))
        steps += finish(call, sums, part)
    return steps


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
