"""Elementwise functions by bands: pieces of the tensors that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.runtime.kernels import Band, Call, Step

__all__ = ["elementwise", "pieces", "result_of"]

ELEMENTS = 1 << 16  # of each tensor in a band: several of them stay in the second-level cache


def result_of(call: Call) -> Array:
    """Where the result is written: the plan's buffer, or a new array."""
    return np.empty(call.output.shape, call.output.dtype) if call.target is None else call.target


def pieces(count: int, width: int) -> Iterator[tuple[int, int]]:
    """Equal ranges of ``count`` items of ``width`` elements, each small enough to stay in the cache."""
    parts = max(min(count, -(-count * width // ELEMENTS)), 1)
    for number in range(parts):
        yield count * number // parts, count * (number + 1) // parts


def elementwise(
    call: Call,
    function: Callable[..., object],
    operands: Mapping[str, Array],
    finish: Callable[[Array], Step] | None = None,
) -> tuple[Array, list[Band]]:
    """The result of ``function(*operands.values(), out=result)`` for operands that broadcast to it, and its bands.

    Args:
        call: the operation.
        function: works on any part of the arrays, whatever is in the rest; the result may be one of the operands.
        operands: by name.
        finish: gives a step on the result that comes after it.
    """
    out = result_of(call)
    arrays = {name: x.reshape((1,) * (out.ndim - x.ndim) + x.shape) for name, x in operands.items()}
    along = [name for name, x in arrays.items() if x.shape == out.shape]
    if all(x.flags.c_contiguous for x in (out, *arrays.values())) and all(
        x.size == 1 or x.shape == out.shape for x in arrays.values()
    ):
        whole, arrays = out.reshape(-1), {name: x.reshape(-1) for name, x in arrays.items()}
    else:
        whole = out
    axis = next((axis for axis, size in enumerate(whole.shape) if size > 1), 0)
    length = whole.shape[axis] if whole.ndim else 1
    width = whole.size // max(length, 1)
    bands = []
    for start, stop in pieces(length, width):
        piece = (*[slice(None)] * axis, slice(start, stop))
        parts = [x if x.shape[axis : axis + 1] in ((), (1,)) else x[piece] for x in arrays.values()]
        result = whole[piece] if whole.ndim else whole
        steps: list[Step] = [partial(function, *parts, out=result)]
        if finish is not None:
            steps.append(finish(result))
        bands.append(Band(steps, width * stop, dict.fromkeys(along, width * stop), lockstep=True))
    return out, bands
