"""Images under sliding windows: layouts, borders, and views that show each window without a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.window import Window
from onnx2nnapi.runtime.kernels import Border, Call, Step
from onnx2nnapi.runtime.kernels.products import centred

Fill = Callable[[slice, slice], "list[Step]"]  # images and rows of them

__all__ = ["Sliding", "channels_last", "image_result", "into_layout"]


def channels_last(call: Call, x: Array, nchw: bool) -> tuple[Array, list[Step]]:
    """An image with its channels last, and the step that copies it, if one does."""
    if not nchw:
        return x, []
    planes = x.transpose(0, 2, 3, 1)
    image = call.scratch("image", planes.shape, planes.dtype)
    return image, [partial(np.copyto, image, planes)]


def image_result(call: Call, nchw: bool) -> Array:
    """Where an image with its channels last goes: the plan's buffer, which may be strided, or a new array."""
    shape = call.output.shape
    if nchw:
        return np.empty((shape[0], shape[2], shape[3], shape[1]), call.output.dtype)
    return np.empty(shape, call.output.dtype) if call.target is None else call.target


def into_layout(call: Call, image: Array, nchw: bool) -> tuple[Array, list[Step]]:
    """``image_result`` in the layout of the operation, and the step that brings it there, if one does."""
    if not nchw:
        return image, []
    planes = image.transpose(0, 3, 1, 2)
    result = np.empty(planes.shape, planes.dtype) if call.target is None else call.target
    return result, [partial(np.copyto, result, planes)]


def _no_steps(images: slice, lines: slice) -> list[Step]:
    return []


@dataclass(frozen=True, slots=True)
class Sliding:
    """A window that slides over the operand ``input``.

    Attributes:
        call: the operation.
        image: its input with the channels last, [n, height, width, channels].
        vertical, horizontal: the window.
        nchw: whether the image is a copy of the operand.
        steps: what computes the image.
    """

    call: Call
    image: Array
    vertical: Window
    horizontal: Window
    nchw: bool
    steps: list[Step]

    @classmethod
    def over(
        cls,
        call: Call,
        input: Array,
        nchw: bool,
        *,
        filters: tuple[int, int],
        strides: tuple[int, int],
        dilations: tuple[int, int] = (1, 1),
        scheme: int | None,
        sides: tuple[int, int, int, int],
    ) -> Sliding:
        """From an operation's operands: pairs are (height, width), ``sides`` left, right, top, bottom."""
        image, steps = channels_last(call, input, nchw)
        left, right, top, bottom = sides
        vertical, horizontal = (
            Window(size, length, stride, dilation, *padding)
            if scheme is None
            else Window.implicit(scheme, size, length, stride, dilation)
            for size, length, stride, dilation, padding in zip(
                image.shape[1:3], filters, strides, dilations, ((top, bottom), (left, right)), strict=True
            )
        )
        return cls(call, image, vertical, horizontal, nchw, steps)

    @property
    def is_pointwise(self) -> bool:
        """Whether the windows are the image's elements, each once."""
        return all(
            (window.filter, window.stride, window.padded) == (1, 1, window.size)
            for window in (self.vertical, self.horizontal)
        )

    def seen(self, places: int) -> int:
        """How many rows of the image are under the first ``places`` rows of windows."""
        vertical = self.vertical
        if places == 0:
            return 0
        end = (places - 1) * vertical.stride + (vertical.filter - 1) * vertical.dilation + 1 - vertical.head
        return min(max(end, 0), vertical.size)

    def bordered(self, repeats: int = 1) -> tuple[Array, Fill]:
        """The image in float32 (codes less their zero point) with zeros around it, and the steps that put rows there.

        Each channel comes ``repeats`` times.
        """
        image, vertical, horizontal = self.image, self.vertical, self.horizontal
        batch, height, width, channels = image.shape
        rows, columns = vertical.reach, horizontal.reach
        top, left = vertical.head, horizontal.head
        bottom, right = max(rows - top - height, 0), max(columns - left - width, 0)
        if image.dtype == np.float32 and repeats == 1:
            if not (top or left or bottom or right):
                return image, _no_steps
            if not self.nchw:
                found = self.call.surrounded("input", Border((0, top, left, 0), (0, bottom, right, 0)))
                if found is not None:
                    return found, _no_steps
        shape = (batch, rows, columns, channels, repeats)
        border = self.call.buffer("border", lambda: np.zeros(shape, np.float32))
        width = min(width, columns - left)  # what no window reaches is left out

        def fill(images: slice, lines: slice) -> list[Step]:
            inner = border[images, top + lines.start : top + lines.stop, left : left + width]
            return [partial(centred, image[images, lines, :width, :, np.newaxis], self.call["input"], inner)]

        return border.reshape(batch, rows, columns, channels * repeats), fill

    def windows(self, bordered: Array, tile: int = 1) -> Array:
        """A view [n, rows, columns / tile, filter height, filter width, tile * channels] of a bordered image.

        With a tile above 1, which must divide the columns, neighbouring windows are one: the stride must be 1.
        """
        vertical, horizontal = self.vertical, self.horizontal
        batch, _, _, channels = bordered.shape
        n, h, w, c = bordered.strides
        return np.lib.stride_tricks.as_strided(
            bordered,
            (
                batch,
                vertical.places,
                horizontal.places // tile,
                vertical.filter,
                horizontal.filter,
                tile * channels,
            ),
            (n, h * vertical.stride, w * horizontal.stride * tile, h * vertical.dilation, w * horizontal.dilation, c),
            writeable=False,
        )
