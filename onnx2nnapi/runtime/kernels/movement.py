"""Kernels of the operations that move whole tensors. What needs no new memory is returned as a view of the input."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels import Band, Call, kernel, recorded, whole
from onnx2nnapi.runtime.kernels.arithmetic import round_half_away

__all__ = ["placed"]

FEW_CHANNELS = 8  # so few that a tensor is copied channel by channel


def placed(call: Call, array: Array) -> Array:
    """A result that is a view of an input: in the plan's buffer where there is one, else as it is."""
    target = call.target
    if target is None or target.shape != array.shape:
        return array
    np.copyto(target, array)
    return target


@kernel("RESHAPE")
def reshape(call: Call, input: Array, shape: Array) -> Array:
    sizes = [int(size) for size in shape.reshape(-1)]
    if -1 in sizes:
        known = math.prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = input.size // max(known, 1)
    return placed(call, input.reshape(sizes))


@kernel("TRANSPOSE")
@recorded("perm")
def transpose(call: Call, input: Array, perm: Array | None) -> tuple[Array, list[Band]]:
    view = input.T if perm is None else input.transpose(perm.tolist())
    result = np.empty(view.shape, view.dtype) if call.target is None else call.target
    if view.ndim < 2 or not 0 < view.shape[-1] <= FEW_CHANNELS:
        return whole(result, [partial(np.copyto, result, view)])
    channels = range(view.shape[-1])  # numpy's inner loop would be over these
    return whole(result, [partial(np.copyto, result[..., channel], view[..., channel]) for channel in channels])


@kernel("SQUEEZE")
def squeeze(call: Call, input: Array, axes: Array | None) -> Array:
    if axes is None:
        shape = [size for size in input.shape if size != 1]
    else:
        gone = {int(axis) % input.ndim for axis in axes.reshape(-1)}
        shape = [size for axis, size in enumerate(input.shape) if axis not in gone]
    return placed(call, input.reshape(shape or [1]))


@kernel("EXPAND_DIMS")
def expand_dims(call: Call, input: Array, axis: int) -> Array:
    return placed(call, np.expand_dims(input, axis))


@kernel("CONCATENATION")
def concatenation(call: Call, *inputs: Array, axis: int) -> Array:
    if call.output.is_quantized:
        inputs = tuple(_requantized(x, call[f"inputs[{index}]"], call.output) for index, x in enumerate(inputs))
    return np.concatenate(inputs, axis=axis, out=call.target)


def _requantized(codes: Array, type_: OperandType, wanted: OperandType) -> Array:
    """Codes of another scale and zero point, computed in float32 over unsigned codes, as Android does."""
    if (type_.scale, type_.zero_point) == (wanted.scale, wanted.zero_point):
        return codes
    shift = 128 if type_.dtype == np.int8 else 0  # signed codes are moved to 0..255 first
    scale = np.float32(type_.scale) * (np.float32(1.0) / np.float32(wanted.scale))
    bias = -np.float32(type_.zero_point + shift) * scale
    table = round_half_away(np.arange(256, dtype=np.float32) * scale + bias) + np.float32(wanted.zero_point + shift)
    table = (np.clip(table, 0, 255).astype(np.int16) - shift).astype(type_.dtype)
    return np.take(table, codes.astype(np.int16) + shift)


@kernel("PACK")
def pack(call: Call, *inputs: Array, axis: int) -> Array:
    return np.stack(inputs, axis=axis, out=call.target)


@kernel("SPLIT")
def split(call: Call, input: Array, axis: int, count: int) -> tuple[Array, ...]:
    parts = np.split(input, count, axis=axis)
    if not call.out:
        return tuple(parts)
    for part, out in zip(parts, call.out, strict=True):
        if out is not None:
            np.copyto(out, part)
    return tuple(part if out is None else out for part, out in zip(parts, call.out, strict=True))


@kernel("TILE")
def tile(call: Call, input: Array, multiples: Array) -> Array:
    # Each dimension becomes (multiple, size): one broadcast copy.
    times = [int(multiple) for multiple in multiples.reshape(-1)]
    source = input.reshape([part for size in input.shape for part in (1, size)])
    repeated = np.broadcast_to(source, [part for pair in zip(times, input.shape, strict=True) for part in pair])
    return placed(call, repeated.reshape([time * size for time, size in zip(times, input.shape, strict=True)]))


@kernel("REVERSE")
def reverse(call: Call, input: Array, axes: Array) -> Array:
    return placed(call, np.flip(input, int(axes.reshape(-1)[0])))


@kernel("CHANNEL_SHUFFLE")
def channel_shuffle(call: Call, input: Array, groups: int, axis: int) -> Array:
    axis %= input.ndim
    before, after = input.shape[:axis], input.shape[axis + 1 :]
    grouped = input.reshape(*before, groups, input.shape[axis] // groups, *after)
    return placed(call, grouped.swapaxes(axis, axis + 1).reshape(input.shape))


@kernel("FILL")
def fill(call: Call, dims: Array, value: float) -> Array:
    target = call.target
    if target is None:
        return np.full(dims.tolist(), value, call.output.dtype)
    target.fill(value)
    return target


@kernel("RANK")
def rank(call: Call, input: Array) -> Array:
    return np.asarray(input.ndim, np.int32)
