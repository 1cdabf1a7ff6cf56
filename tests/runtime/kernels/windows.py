"""Sliding windows by their definition, in plain loops and in integers or float64: what the kernels are held against."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Pair = tuple[int, int]


def same(sizes: Pair, filters: Pair, strides: Pair, dilations: Pair = (1, 1)) -> tuple[Pair, Pair]:
    """(head, tail) for height and width so that there are ⌈size / stride⌉ places."""
    result = []
    for size, length, stride, dilation in zip(sizes, filters, strides, dilations, strict=True):
        total = max(0, (math.ceil(size / stride) - 1) * stride + (length - 1) * dilation + 1 - size)
        result.append((total // 2, total - total // 2))
    return result[0], result[1]


def taps(
    sizes: Pair, filters: Pair, strides: Pair, pads: tuple[Pair, Pair], dilations: Pair = (1, 1)
) -> Iterator[tuple[Pair, list[tuple[Pair, Pair]]]]:
    """For each place of a window, the elements of the filter that lie on the image: ((row, column), [(tap, pixel)])."""
    counts = [
        (size + head + tail - (length - 1) * dilation - 1) // stride + 1
        for size, length, stride, dilation, (head, tail) in zip(sizes, filters, strides, dilations, pads, strict=True)
    ]
    for place in itertools.product(*map(range, counts)):
        hits = []
        for tap in itertools.product(*map(range, filters)):
            pixel = tuple(
                p * stride + t * dilation - head
                for p, stride, t, dilation, (head, _) in zip(place, strides, tap, dilations, pads, strict=True)
            )
            if all(0 <= index < size for index, size in zip(pixel, sizes, strict=True)):
                hits.append((tap, pixel))
        yield place, hits


def conv(
    x: Array, w: Array, strides: Pair, pads: tuple[Pair, Pair], dilations: Pair = (1, 1), groups: int = 1
) -> Array:
    """Sums [n, rows, columns, out] of an image [n, h, w, in] under filters [out, h, w, in / groups]."""
    inputs, outputs = w.shape[3], len(w) // groups
    found = list(taps(x.shape[1:3], w.shape[1:3], strides, pads, dilations))
    rows, columns = (index + 1 for index in found[-1][0])
    result = np.zeros((len(x), rows, columns, len(w)), x.dtype)
    for place, hits in found:
        for tap, pixel in hits:
            for group in range(groups):
                channels = x[:, pixel[0], pixel[1], group * inputs : (group + 1) * inputs]
                units = slice(group * outputs, (group + 1) * outputs)
                result[:, place[0], place[1], units] += channels @ w[units, tap[0], tap[1]].T
    return result


def transposed_conv(x: Array, w: Array, strides: Pair, heads: Pair, output: Pair) -> Array:
    """Sums [n, rows, columns, out] of what each pixel of [n, h, w, in] spreads by filters [out, h, w, in]."""
    result = np.zeros((len(x), *output, len(w)), x.dtype)
    for row, column in itertools.product(range(x.shape[1]), range(x.shape[2])):
        for tap in itertools.product(range(w.shape[1]), range(w.shape[2])):
            place = row * strides[0] + tap[0] - heads[0], column * strides[1] + tap[1] - heads[1]
            if 0 <= place[0] < output[0] and 0 <= place[1] < output[1]:
                result[:, place[0], place[1]] += x[:, row, column] @ w[:, tap[0], tap[1]].T
    return result


def requantized(sums: Array, scales: Any, output_scale: float, zero_point: int, low: int, high: int) -> Array:
    """Codes of sums of products of codes by gemmlowp's arithmetic, one Python integer at a time.

    A multiplier is 31 bits of mantissa and a shift; the product's high half is rounded, then shifted and rounded again.
    """
    scales = np.broadcast_to(np.asarray(scales, np.float32), sums.shape)
    codes = np.empty(sums.shape, np.int64)
    for index in np.ndindex(sums.shape):
        fraction, shift = math.frexp(float(scales[index]) / float(np.float32(output_scale)))
        mantissa = math.floor(fraction * 2**31 + 0.5)
        product = int(sums[index]) * 2 ** max(shift, 0) * mantissa
        high_half = (product + 2**30) >> 31
        right = max(-shift, 0)
        rounded = (abs(high_half) + (2**right >> 1)) >> right
        codes[index] = min(max((rounded if high_half >= 0 else -rounded) + zero_point, low), high)
    return codes
