"""Kernels of the normalizations (cpu_operations/L2Normalization.cpp, LocalResponseNormalization.cpp, …)."""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.arithmetic import code_range, multiply_by_quantized_multiplier, store, widen
from onnx2nnapi.runtime.kernels.fixed_point import inverse_square_root

__all__: list[str] = []

MIN_NORM = np.float32(1e-6)


@kernel("L2_NORMALIZATION")
def l2_normalization(call: Call, input: Array, axis: int = -1) -> Array:
    """Codes are divided in fixed point: 128 steps make one, and the quotient is rounded twice.

    Signed codes along the last axis are multiplied by 128 with the quotient, all others before it.
    """
    if not call.output.is_quantized:
        x = widen(input)
        norm = np.sqrt(np.square(x).sum(axis=axis, keepdims=True))
        return store(np.divide(x, np.maximum(norm, MIN_NORM, out=norm)), call.output, call.target)
    x = input.astype(np.int32) - np.int32(call["input"].zero_point)
    mantissa, shift = inverse_square_root(np.square(x).sum(axis=axis, keepdims=True, dtype=np.int64))
    if input.dtype == np.int8 and axis in (-1, input.ndim - 1):
        codes = multiply_by_quantized_multiplier(x, mantissa, shift + 7)
    else:
        codes = multiply_by_quantized_multiplier(x * 128, mantissa, shift)
    codes += call.output.zero_point
    return store(np.clip(codes, *code_range(call.output)), call.output, call.target)


@kernel("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(
    call: Call, input: Array, radius: int, bias: float, alpha: float, beta: float, axis: int = -1
) -> Array:
    """Sums of squares within ``radius`` come from running sums, whose differences need float64."""
    x = widen(input)
    size = x.shape[axis]
    sums = np.cumsum(np.square(np.moveaxis(x, axis, 0), dtype=np.float64), axis=0)
    sums = np.concatenate([np.zeros_like(sums[:1]), sums])
    places = np.arange(size)
    near = sums[np.minimum(places, size - 1 - min(radius, size)) + min(radius, size) + 1]
    near = near - sums[np.maximum(places - radius, 0)]
    scale = np.power(np.float32(bias) + np.float32(alpha) * near.astype(np.float32), np.float32(-beta))
    return store(x * np.moveaxis(scale, 0, axis), call.output, call.target)


@kernel("INSTANCE_NORMALIZATION")
def instance_normalization(
    call: Call, input: Array, gamma: float, beta: float, epsilon: float, nchw: bool = False
) -> Array:
    """Mean and variance of each channel of each image."""
    axes = (2, 3) if nchw else (1, 2)
    x = widen(input)
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(centred).mean(axis=axes, keepdims=True)
    centred *= np.float32(gamma) / np.sqrt(variance + np.float32(epsilon))
    centred += np.float32(beta)
    return store(centred, call.output, call.target)
