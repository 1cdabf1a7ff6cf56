"""Kernels of the matrix products (cpu_operations/FullyConnected.cpp, BatchMatmul.cpp)."""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.arithmetic import (
    code_range,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
)
from onnx2nnapi.runtime.kernels.products import centred, finish_of, multiply_rows, prepare

__all__: list[str] = []


@kernel("FULLY_CONNECTED")
def fully_connected(call: Call, input: Array, weights: Array, bias: Array, fuse_code: int = 0) -> Array:
    """Weights [units, depth]; the input is flattened to rows of ``depth`` elements."""
    units, depth = weights.shape
    ready = prepare(call, "weights", weights, bias, lambda array: array.T)
    finish = finish_of(call, "weights", ready, bias, fuse_code)
    target = call.target
    shape = (input.size // depth, units)
    usable = target is not None and target.shape == shape and target.flags.c_contiguous
    out = target if target is not None and usable else np.empty(shape, call.output.dtype)
    rows = centred(
        input, call["input"], None if input.dtype == np.float32 else call.scratch("centred", input.shape, np.float32)
    )
    multiply_rows(call, rows.reshape(-1, depth), ready, finish, out)
    return out


@kernel("BATCH_MATMUL")
def batch_matmul(
    call: Call, input: Array, other: Array, transpose_input: bool = False, transpose_other: bool = False
) -> Array:
    """Android sums float16 in float16, wraps int32, and rounds codes twice in fixed point."""
    left = input.swapaxes(-1, -2) if transpose_input else input
    right = other.swapaxes(-1, -2) if transpose_other else other
    if input.dtype == np.float32:
        target = call.target
        return np.matmul(left, right, out=target if target is not None and target.shape == call.output.shape else None)
    if input.dtype == np.float16:
        return _matmul_in_half(left, right)
    if input.dtype == np.int32:
        return _matmul_integers(left, right).astype(np.int32)
    sums = _matmul_integers(
        left.astype(np.int32) - call["input"].zero_point, right.astype(np.int32) - call["other"].zero_point
    )
    scale = np.float32(call["input"].scale) * np.float32(call["other"].scale)
    mantissa, shift = quantize_multiplier(float(scale) / float(np.float32(call.output.scale)))
    codes = multiply_by_quantized_multiplier(sums.astype(np.int32), mantissa, shift) + call.output.zero_point
    return np.clip(codes, *code_range(call.output)).astype(np.int8)


def _matmul_in_half(left: Array, right: Array) -> Array:
    """Each product and each sum rounded to float16, in the order of the depth."""
    sums = np.zeros(np.broadcast_shapes(left[..., :1].shape, right[..., :1, :].shape), np.float16)
    for index in range(left.shape[-1]):
        sums += left[..., index : index + 1] * right[..., index : index + 1, :]
    return sums


def _matmul_integers(left: Array, right: Array) -> Array:
    """Exact sums modulo 2^64: by float64 where it holds them."""
    bound = float(np.abs(left.astype(np.float64)).max()) * float(np.abs(right.astype(np.float64)).max())
    if bound * left.shape[-1] < 2**53:
        return np.matmul(left.astype(np.float64), right.astype(np.float64)).astype(np.int64)
    return np.matmul(left.astype(np.int64), right.astype(np.int64))
