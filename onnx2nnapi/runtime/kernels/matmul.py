"""Kernels of the matrix products (cpu_operations/FullyConnected.cpp, BatchMatmul.cpp)."""

from __future__ import annotations

from functools import partial

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.runtime.kernels import Band, Call, kernel, recorded, whole
from onnx2nnapi.runtime.kernels.arithmetic import (
    code_range,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    store,
)
from onnx2nnapi.runtime.kernels.bands import result_of
from onnx2nnapi.runtime.kernels.products import blocks, centred_rows, finish_of, multiply, prepare

__all__: list[str] = []


@kernel("FULLY_CONNECTED")
@recorded("weights", "bias")
def fully_connected(
    call: Call, input: Array, weights: Array, bias: Array, fuse_code: int = 0
) -> tuple[Array, list[Band]]:
    """Weights [units, depth]; the input is flattened to rows of ``depth`` elements."""
    ready = prepare(call, "weights", weights, bias, lambda array: array.T)
    finish = finish_of(call, "weights", ready, bias, fuse_code)
    target = call.target
    if target is None or not target.flags.c_contiguous:
        target = np.empty(call.output.shape, call.output.dtype)
    depth = weights.shape[1]
    table, results = input.reshape(-1, depth), target.reshape(-1, len(weights))
    bands = []
    for start, stop in blocks(len(table), 1, len(weights)):
        part = results[start:stop]
        sums = part if part.dtype == ready.sum_dtype else call.scratch("sums", part.shape, ready.sum_dtype)
        rows, first = centred_rows(call, table[start:stop])
        steps = [*first, *multiply(rows, ready, sums), *finish(call, sums, part)]
        bands.append(Band(steps, stop * len(weights), {"input": stop * depth}))
    return target, bands


@kernel("BATCH_MATMUL")
@recorded()
def batch_matmul(
    call: Call, input: Array, other: Array, transpose_input: bool = False, transpose_other: bool = False
) -> tuple[Array, list[Band]]:
    """Android sums float16 in float16, wraps int32, and rounds codes twice in fixed point."""
    left = input.swapaxes(-1, -2) if transpose_input else input
    right = other.swapaxes(-1, -2) if transpose_other else other
    out = result_of(call)
    if input.dtype == np.float32:
        return whole(out, [partial(np.matmul, left, right, out=out)])
    if input.dtype == np.float16:
        return whole(out, [lambda: np.copyto(out, _matmul_in_half(left, right))])
    if input.dtype == np.int32:
        return whole(out, [lambda: np.copyto(out, _matmul_integers(left, right), casting="unsafe")])
    return whole(out, [partial(_matmul_of_codes, call, left, right, out)])


def _matmul_of_codes(call: Call, left: Array, right: Array, out: Array) -> None:
    sums = _matmul_integers(
        left.astype(np.int32) - call["input"].zero_point, right.astype(np.int32) - call["other"].zero_point
    )
    scale = np.float32(call["input"].scale) * np.float32(call["other"].scale)
    mantissa, shift = quantize_multiplier(float(scale) / float(np.float32(call.output.scale)))
    codes = multiply_by_quantized_multiplier(sums.astype(np.int32), mantissa, shift) + call.output.zero_point
    store(np.clip(codes, *code_range(call.output)), call.output, out)


def _matmul_in_half(left: Array, right: Array) -> Array:
    """Each product and each sum rounded to float16, in the order of the depth."""
    sums = np.zeros(np.broadcast_shapes(left[..., :1].shape, right[..., :1, :].shape), np.float16)
    for index in range(left.shape[-1]):
        sums += left[..., index : index + 1] * right[..., index : index + 1, :]
    return sums


def _matmul_integers(left: Array, right: Array) -> Array:
    """Exact sums modulo 2^64: by float64 where it holds them."""
    bound = left.shape[-1] * float(np.abs(left, dtype=np.float64).max()) * float(np.abs(right, dtype=np.float64).max())
    dtype = np.float64 if bound < 2**53 else np.int64
    sums: Array = np.matmul(left.astype(dtype), right.astype(dtype))
    return sums.astype(np.int64, copy=False)
