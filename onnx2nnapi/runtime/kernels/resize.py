"""Kernels of the image resizes (cpu_operations/ResizeImageOps.cpp): coordinates are computed in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.runtime.kernels import Band, Call, kernel, recorded, whole
from onnx2nnapi.runtime.kernels.arithmetic import store, widen
from onnx2nnapi.runtime.kernels.sliding import channels_last, image_result, into_layout

__all__: list[str] = []


@kernel("RESIZE_NEAREST_NEIGHBOR")
@recorded()
def resize_nearest_neighbor(
    call: Call,
    input: Array,
    output_width: int = 0,
    output_height: int = 0,
    nchw: bool = False,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    scale_width: float = 0.0,
    scale_height: float = 0.0,
) -> tuple[Array, list[Band]]:
    """Corners aligned round, else coordinates are cut off; the sizes are in the output's type already."""
    return _resize(call, input, nchw, _take_nearest, align_corners, half_pixel_centers)


@kernel("RESIZE_BILINEAR")
@recorded()
def resize_bilinear(
    call: Call,
    input: Array,
    output_width: int = 0,
    output_height: int = 0,
    nchw: bool = False,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    scale_width: float = 0.0,
    scale_height: float = 0.0,
) -> tuple[Array, list[Band]]:
    """Codes are interpolated as they are, and half is added before they are cut off toward zero."""
    return _resize(call, input, nchw, _interpolate, align_corners, half_pixel_centers)


def _resize(
    call: Call, input: Array, nchw: bool, function: Callable[..., None], *modes: bool
) -> tuple[Array, list[Band]]:
    image, first = channels_last(call, input, nchw)
    out = image_result(call, nchw)
    result, last = into_layout(call, out, nchw)
    return whole(result, [*first, partial(function, call, image, out, *modes), *last])


def _take_nearest(call: Call, x: Array, out: Array, *modes: bool) -> None:
    sizes = zip(x.shape[1:3], out.shape[1:3], strict=True)
    rows, columns = (_nearest(size, count, *modes) for size, count in sizes)
    np.take(np.take(x, rows, axis=1), columns, axis=2, out=out, mode="clip")


def _interpolate(call: Call, x: Array, out: Array, *modes: bool) -> None:
    x = widen(x)
    sizes = zip(x.shape[1:3], out.shape[1:3], strict=True)
    (above, below, down), (left, right, across) = (_neighbours(size, count, *modes) for size, count in sizes)
    down, across = down[:, np.newaxis, np.newaxis], across[:, np.newaxis]
    up, back = 1 - down, 1 - across
    top, bottom = x[:, above], x[:, below]
    result = top[:, :, left] * (up * back)
    result += bottom[:, :, left] * (down * back)
    result += top[:, :, right] * (up * across)
    result += bottom[:, :, right] * (down * across)
    if call.output.is_quantized:
        result += np.float32(0.5)
    store(result, call.output, out)


def _step(size: int, count: int, align_corners: bool) -> Array:
    """Input elements for one step of the output, a float32 number."""
    aligned = align_corners and count > 1
    step: Array = np.divide(size - aligned, count - aligned, dtype=np.float32)
    return step


def _nearest(size: int, count: int, align_corners: bool, half_pixel_centers: bool) -> Array:
    """The input's index for each of the output's."""
    places = np.arange(count, dtype=np.float32)
    places = (places + np.float32(0.5 * half_pixel_centers)) * _step(size, count, align_corners)
    if align_corners:
        places += np.nextafter(np.float32(0.5), np.float32(0.0))
    nearest: Array = np.minimum(places.astype(np.int64), size - 1)
    return nearest


def _neighbours(size: int, count: int, align_corners: bool, half_pixel_centers: bool) -> tuple[Array, Array, Array]:
    """The two indices in the input around each of the output's, and how far it lies from the first to the second."""
    places = np.arange(count, dtype=np.float32)
    step = _step(size, count, align_corners)
    places = (places + np.float32(0.5)) * step - np.float32(0.5) if half_pixel_centers else places * step
    lower = np.floor(places)
    first = np.maximum(lower.astype(np.int64), 0)
    second = np.minimum(lower.astype(np.int64) + 1, size - 1)
    return np.minimum(first, size - 1), second, places - lower
