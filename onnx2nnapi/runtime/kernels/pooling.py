"""Kernels of the pools (cpu_operations/Pooling.cpp): a window is folded along the columns, then along the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.window import Window
from onnx2nnapi.runtime.kernels import Band, Call, kernel, recorded, whole
from onnx2nnapi.runtime.kernels.arithmetic import activate, code_range, round_half_away, store, widen
from onnx2nnapi.runtime.kernels.sliding import Sliding, image_result, into_layout

__all__: list[str] = []

Pool = Callable[[Sliding, int, Array], None]


def _pool(name: str) -> Callable[[Pool], Pool]:
    """Register ``pool(sliding, fuse_code, out)`` as the kernel of an operation."""

    def add(pool: Pool) -> Pool:
        @kernel(name)
        @recorded()
        def pool_2d(
            call: Call,
            input: Array,
            padding_left: int = 0,
            padding_right: int = 0,
            padding_top: int = 0,
            padding_bottom: int = 0,
            stride_width: int = 1,
            stride_height: int = 1,
            filter_width: int = 1,
            filter_height: int = 1,
            fuse_code: int = 0,
            nchw: bool = False,
            padding_scheme: int | None = None,
        ) -> tuple[Array, list[Band]]:
            sliding = Sliding.over(
                call,
                input,
                nchw,
                filters=(filter_height, filter_width),
                strides=(stride_height, stride_width),
                scheme=padding_scheme,
                sides=(padding_left, padding_right, padding_top, padding_bottom),
            )
            out = image_result(call, nchw)
            steps = [partial(pool, sliding, fuse_code, out)] if out.size else []
            result, last = into_layout(call, out, nchw)
            return whole(result, [*sliding.steps, *steps, *last])

        return pool

    return add


@_pool("MAX_POOL_2D")
def _max(sliding: Sliding, fuse_code: int, out: Array) -> None:
    _fold_window(sliding, sliding.image, np.maximum, out)
    type_ = sliding.call.output
    if not type_.is_quantized:
        store(activate(widen(out), fuse_code, out if out.dtype == np.float32 else None), type_, out)
    elif fuse_code:
        np.clip(out, *code_range(type_, fuse_code), out=out)


@_pool("AVERAGE_POOL_2D")
def _average(sliding: Sliding, fuse_code: int, out: Array) -> None:
    type_ = sliding.call.output
    if not type_.is_quantized:
        store(activate(_means(sliding, widen(sliding.image)), fuse_code), type_, out)
        return
    means = round_half_away(_means(sliding, sliding.image.astype(np.int32)))
    store(np.clip(means, *code_range(type_, fuse_code)), type_, out)


@_pool("L2_POOL_2D")
def _l2(sliding: Sliding, fuse_code: int, out: Array) -> None:
    means = _means(sliding, np.square(widen(sliding.image)))
    store(activate(np.sqrt(means, out=means), fuse_code), sliding.call.output, out)


def _means(sliding: Sliding, image: Array) -> Array:
    """Means over the windows without their padding: float32 of float32, float64 of integers."""
    vertical, horizontal = sliding.vertical, sliding.horizontal
    shape = (image.shape[0], vertical.places, horizontal.places, image.shape[3])
    sums = sliding.call.scratch("pooled", shape, image.dtype)
    _fold_window(sliding, image, np.add, sums)
    counts = np.multiply.outer(_covered(vertical), _covered(horizontal))[..., np.newaxis]
    means: Array = np.divide(sums, counts.astype(image.dtype))
    return means


def _covered(window: Window) -> Array:
    """Elements of the input under the window at each of its places."""
    starts = np.arange(window.places) * window.stride - window.head
    covered: Array = np.minimum(starts + window.filter, window.size) - np.maximum(starts, 0)
    return covered


def _fold_window(sliding: Sliding, image: Array, function: np.ufunc, out: Array) -> None:
    batch, _, width, channels = image.shape
    lines = sliding.call.scratch("lines", (batch, sliding.vertical.places, width, channels), image.dtype)
    _fold(image, sliding.vertical, function, lines)
    _fold(lines.swapaxes(1, 2), sliding.horizontal, function, out.swapaxes(1, 2))


def _fold(x: Array, window: Window, function: np.ufunc, out: Array) -> None:
    """``function`` over the window along dimension 1, padding left out."""
    earliest, latest = window.head - (window.places - 1) * window.stride, window.head + window.size
    taps = range(max(earliest, 0), min(latest, window.filter))  # the others lie on padding at every place
    reaches = [(tap, *_reach(window, tap)) for tap in taps]
    whole = [tap for tap, *reach in reaches if reach == [0, window.places]]
    if whole:
        np.copyto(out, _tap(x, window, whole[0], 0, window.places))
    else:
        out.fill(0 if function is np.add else _lowest(out.dtype))
    for tap, first, last in reaches:
        if first < last and tap not in whole[:1]:
            part = out[:, first:last]
            function(part, _tap(x, window, tap, first, last), out=part)


def _reach(window: Window, tap: int) -> tuple[int, int]:
    """The range of places at which an element of the filter lies on the input."""
    offset = window.head - tap
    first = max(-(-offset // window.stride), 0)
    last = min(-(-(window.size + offset) // window.stride), window.places)
    return first, last


def _tap(x: Array, window: Window, tap: int, first: int, last: int) -> Array:
    """The input under an element of the filter at the places first … last - 1."""
    start = first * window.stride + tap - window.head
    return x[:, start : start + (last - first - 1) * window.stride + 1 : window.stride]


def _lowest(dtype: np.dtype[Any]) -> float:
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)
