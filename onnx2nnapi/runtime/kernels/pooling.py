"""Kernels of the pools (cpu_operations/Pooling.cpp): a window is folded along the columns, then along the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.window import Window
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.arithmetic import activate, code_range, round_half_away, store, widen
from onnx2nnapi.runtime.kernels.products import scratch
from onnx2nnapi.runtime.kernels.sliding import channels_last, image_result, image_windows, into_layout

__all__: list[str] = []

Pool = Callable[[Call, Array, Window, Window, int, Array], None]


def _pool(name: str) -> Callable[[Pool], Pool]:
    """Register ``pool(call, image, vertical, horizontal, fuse_code, out)`` as the kernel of an operation."""

    def add(pool: Pool) -> Pool:
        @kernel(name)
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
        ) -> Array:
            x = channels_last(input, nchw)
            vertical, horizontal = image_windows(
                x.shape,
                (filter_height, filter_width),
                (stride_height, stride_width),
                (1, 1),
                padding_scheme,
                (padding_left, padding_right, padding_top, padding_bottom),
            )
            out = image_result(call, nchw)
            if out.size:
                pool(call, x, vertical, horizontal, fuse_code, out)
            return into_layout(call, out, nchw)

        return pool

    return add


@_pool("MAX_POOL_2D")
def _max(call: Call, x: Array, vertical: Window, horizontal: Window, fuse_code: int, out: Array) -> None:
    _fold_window(call, x, vertical, horizontal, np.maximum, out)
    if call.output.is_quantized:
        low, high = code_range(call.output, fuse_code)
        if (low, high) != code_range(call.output):
            np.clip(out, low, high, out=out)
    else:
        store(activate(widen(out), fuse_code, out if out.dtype == np.float32 else None), call.output, out)


@_pool("AVERAGE_POOL_2D")
def _average(call: Call, x: Array, vertical: Window, horizontal: Window, fuse_code: int, out: Array) -> None:
    if not call.output.is_quantized:
        store(activate(_mean(call, widen(x), vertical, horizontal), fuse_code), call.output, out)
        return
    means = round_half_away(_mean(call, x.astype(np.int32), vertical, horizontal))
    store(np.clip(means, *code_range(call.output, fuse_code)), call.output, out)


@_pool("L2_POOL_2D")
def _l2(call: Call, x: Array, vertical: Window, horizontal: Window, fuse_code: int, out: Array) -> None:
    means = _mean(call, np.square(widen(x)), vertical, horizontal)
    store(activate(np.sqrt(means, out=means), fuse_code), call.output, out)


def _mean(call: Call, x: Array, vertical: Window, horizontal: Window) -> Array:
    """Means over the windows without their padding: float32 of float32, float64 of integers."""
    sums = scratch(call, "pooled", (x.shape[0], vertical.places, horizontal.places, x.shape[3]), x.dtype.type)
    _fold_window(call, x, vertical, horizontal, np.add, sums)
    counts = np.multiply.outer(_covered(vertical), _covered(horizontal))[..., np.newaxis]
    means: Array = np.divide(sums, counts.astype(x.dtype))
    return means


def _covered(window: Window) -> Array:
    """Elements of the input under the window at each of its places."""
    starts = np.arange(window.places) * window.stride - window.head
    covered: Array = np.minimum(starts + window.filter, window.size) - np.maximum(starts, 0)
    return covered


def _fold_window(call: Call, x: Array, vertical: Window, horizontal: Window, function: np.ufunc, out: Array) -> None:
    batch, _, width, channels = x.shape
    lines = scratch(call, "lines", (batch, vertical.places, width, channels), x.dtype.type)
    _fold(x, vertical, function, lines)
    _fold(lines.swapaxes(1, 2), horizontal, function, out.swapaxes(1, 2))


def _fold(x: Array, window: Window, function: np.ufunc, out: Array) -> None:
    """``function`` over the window along dimension 1, padding left out."""
    reaches = [_reach(window, tap) for tap in range(window.filter)]
    whole = [tap for tap, (first, last) in enumerate(reaches) if (first, last) == (0, window.places)]
    if whole:
        np.copyto(out, _tap(x, window, whole[0], 0, window.places))
    else:
        out.fill(0 if function is np.add else _lowest(out.dtype))
    for tap, (first, last) in enumerate(reaches):
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
