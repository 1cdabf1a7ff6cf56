"""Kernels of the operations that exchange blocks of pixels with channels or with the batch; each one is a transpose."""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.movement import placed

__all__: list[str] = []


def _nhwc(array: Array, nchw: bool) -> Array:
    return array.transpose(0, 2, 3, 1) if nchw else array


def _laid_out(call: Call, array: Array, nchw: bool) -> Array:
    return placed(call, np.ascontiguousarray(array.transpose(0, 3, 1, 2)) if nchw else array)


@kernel("DEPTH_TO_SPACE")
def depth_to_space(call: Call, input: Array, block_size: int, nchw: bool = False) -> Array:
    batch, height, width, channels = _nhwc(input, nchw).shape
    depth = channels // (block_size * block_size)
    blocks = _nhwc(input, nchw).reshape(batch, height, width, block_size, block_size, depth)
    pixels = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height * block_size, width * block_size, depth)
    return _laid_out(call, pixels, nchw)


@kernel("SPACE_TO_DEPTH")
def space_to_depth(call: Call, input: Array, block_size: int, nchw: bool = False) -> Array:
    batch, height, width, channels = _nhwc(input, nchw).shape
    rows, columns = height // block_size, width // block_size
    blocks = _nhwc(input, nchw).reshape(batch, rows, block_size, columns, block_size, channels)
    pixels = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, block_size * block_size * channels)
    return _laid_out(call, pixels, nchw)


@kernel("BATCH_TO_SPACE_ND")
def batch_to_space_nd(call: Call, input: Array, block_sizes: Array, nchw: bool = False) -> Array:
    batch, height, width, channels = _nhwc(input, nchw).shape
    rows, columns = block_sizes.tolist()
    count = batch // (rows * columns)
    blocks = _nhwc(input, nchw).reshape(rows, columns, count, height, width, channels)
    pixels = blocks.transpose(2, 3, 0, 4, 1, 5).reshape(count, height * rows, width * columns, channels)
    return _laid_out(call, pixels, nchw)


@kernel("SPACE_TO_BATCH_ND")
def space_to_batch_nd(call: Call, input: Array, block_sizes: Array, paddings: Array, nchw: bool = False) -> Array:
    rows, columns = block_sizes.tolist()
    padded = np.pad(_nhwc(input, nchw), [(0, 0), *paddings.tolist(), (0, 0)], constant_values=call.output.zero_point)
    batch, height, width, channels = padded.shape
    blocks = padded.reshape(batch, height // rows, rows, width // columns, columns, channels)
    pixels = blocks.transpose(2, 4, 0, 1, 3, 5)
    return _laid_out(call, pixels.reshape(rows * columns * batch, height // rows, width // columns, channels), nchw)
