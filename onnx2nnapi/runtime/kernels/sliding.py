"""Images under sliding windows: layouts, borders, and views that show each window without a copy."""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.types import Array, Shape
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.nnapi.window import Window
from onnx2nnapi.runtime.kernels import Call
from onnx2nnapi.runtime.kernels.products import centred

__all__ = ["bordered", "channels_last", "image_result", "image_windows", "into_layout", "window_view"]


def image_windows(
    shape: Shape,
    filters: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    padding_scheme: int | None,
    sides: tuple[int, int, int, int],
) -> tuple[Window, Window]:
    """The windows over height and width of an image [n, height, width, channels]; pairs are in this order."""
    if padding_scheme is not None:
        height, width = (
            Window.implicit(padding_scheme, size, length, stride, dilation)
            for size, length, stride, dilation in zip(shape[1:3], filters, strides, dilations, strict=True)
        )
        return height, width
    left, right, top, bottom = sides
    return (
        Window(shape[1], filters[0], strides[0], dilations[0], top, bottom),
        Window(shape[2], filters[1], strides[1], dilations[1], left, right),
    )


def channels_last(x: Array, nchw: bool) -> Array:
    """An image with its channels last, contiguous."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if nchw else x


def image_result(call: Call, nchw: bool) -> Array:
    """Where an image with its channels last goes: the plan's buffer, which may be strided, or a new array."""
    shape, target = call.output.shape, call.target
    if nchw:
        return np.empty((shape[0], shape[2], shape[3], shape[1]), call.output.dtype)
    if target is not None and target.shape == shape and target.dtype == call.output.dtype:
        return target
    return np.empty(shape, call.output.dtype)


def into_layout(call: Call, image: Array, nchw: bool) -> Array:
    """What ``image_result`` has become, in the layout of the operation."""
    if not nchw:
        return image
    planes = image.transpose(0, 3, 1, 2)
    target = call.target
    if target is None or target.shape != planes.shape:
        return np.ascontiguousarray(planes)
    np.copyto(target, planes)
    return target


def bordered(call: Call, x: Array, type_: OperandType, vertical: Window, horizontal: Window, repeats: int = 1) -> Array:
    """An image in float32 (codes less their zero point) with zeros around it, each channel ``repeats`` times.

    An image that needs no change is returned as it is.
    """
    batch, height, width, channels = x.shape
    rows, columns = max(vertical.reach, 1), max(horizontal.reach, 1)
    top, left = vertical.head, horizontal.head
    height, width = min(height, rows - top), min(width, columns - left)  # what no window reaches is left out
    plain = rows == x.shape[1] and columns == x.shape[2] and repeats == 1 and x.dtype == np.float32
    if plain or (top == left == 0 and (rows, columns) == (height, width) and repeats == 1 and x.dtype == np.float32):
        return x[:, :height, :width]
    shape = (batch, rows, columns, channels, repeats)
    border = call.buffer("border", lambda: np.zeros(shape, np.float32))
    if border.shape != shape:
        border = call.memo["border"] = np.zeros(shape, np.float32)
    inner = border[:, top : top + height, left : left + width]
    centred(x[:, :height, :width, :, np.newaxis], type_, inner)
    return border.reshape(batch, rows, columns, channels * repeats)


def window_view(x: Array, vertical: Window, horizontal: Window) -> Array:
    """A view [n, rows, columns, filter height, filter width, channels] of a bordered image."""
    batch, _, _, channels = x.shape
    n, h, w, c = x.strides
    return np.lib.stride_tricks.as_strided(
        x,
        (batch, vertical.places, horizontal.places, vertical.filter, horizontal.filter, channels),
        (n, h * vertical.stride, w * horizontal.stride, h * vertical.dilation, w * horizontal.dilation, c),
        writeable=False,
    )
