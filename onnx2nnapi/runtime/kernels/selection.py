"""Kernels of the operations that take a part of a tensor, or surround it."""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.rules import RuleError
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.movement import placed

__all__: list[str] = []


@kernel("PAD", "PAD_V2")
def pad(call: Call, input: Array, paddings: Array, pad_value: float | None = None) -> Array:
    value = call.output.zero_point if pad_value is None else pad_value
    pairs = paddings.tolist()
    target = call.target
    if target is None:
        shape = [before + size + after for (before, after), size in zip(pairs, input.shape, strict=True)]
        target = np.full(shape, value, input.dtype)
    else:
        target.fill(value)
    target[tuple(slice(before, before + size) for (before, _), size in zip(pairs, input.shape, strict=True))] = input
    return target


@kernel("MIRROR_PAD")
def mirror_pad(call: Call, input: Array, paddings: Array, mode: int) -> Array:
    return placed(call, np.pad(input, paddings.tolist(), mode="symmetric" if mode else "reflect"))


@kernel("SLICE")
def slice_(call: Call, input: Array, begin: Array, size: Array) -> Array:
    taken = tuple(
        slice(start, None if length == -1 else start + length)
        for start, length in zip(begin.tolist(), size.tolist(), strict=True)
    )
    return placed(call, input[taken])


@kernel("STRIDED_SLICE")
def strided_slice(
    call: Call,
    input: Array,
    begin: Array,
    end: Array,
    strides: Array,
    begin_mask: int,
    end_mask: int,
    shrink_axis_mask: int,
) -> Array:
    taken = tuple(
        slice(None if begin_mask >> axis & 1 else start, None if end_mask >> axis & 1 else stop, stride)
        for axis, (start, stop, stride) in enumerate(zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True))
    )
    view = input[taken]
    kept = [size for axis, size in enumerate(view.shape) if not shrink_axis_mask >> axis & 1]
    return placed(call, view.reshape(kept or [1]))


@kernel("GATHER")
def gather(call: Call, input: Array, axis: int, indices: Array) -> Array:
    size = input.shape[axis]
    if indices.size and not (indices.min() >= 0 and indices.max() < size):
        raise RuleError(f"operand 'indices' must be 0 to {size - 1}, it goes from {indices.min()} to {indices.max()}")
    return np.take(input, indices, axis=axis, out=call.target, mode="raise" if call.target is None else "clip")


@kernel("TOPK_V2")
def topk_v2(call: Call, input: Array, k: int) -> tuple[Array, Array]:
    # A stable sort of the values puts the later of two equals last, hence first once reversed.
    order = np.argsort(input, axis=-1, kind="stable")[..., : -k - 1 : -1]
    return np.take_along_axis(input, order, axis=-1), order.astype(np.int32)
