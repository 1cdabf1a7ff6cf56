"""Kernels of the operations between element types."""

from __future__ import annotations

from functools import partial

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.runtime.kernels import Band, Call, kernel, recorded, whole
from onnx2nnapi.runtime.kernels.arithmetic import all_codes, code_range, look_up, round_half_away, store, widen
from onnx2nnapi.runtime.kernels.bands import elementwise, result_of


@kernel("QUANTIZE")
def quantize(call: Call, input: Array) -> Array:
    """Codes of real numbers, divided in float32, ties away from zero; what is no number gets the highest code."""
    low, high = code_range(call.output)
    codes = round_half_away(np.divide(widen(input), np.float32(call.output.scale)))
    codes += np.float32(call.output.zero_point)
    np.fmin(codes, np.float32(high), out=codes)
    np.fmax(codes, np.float32(low), out=codes)
    return store(codes, call.output, call.target)


@kernel("DEQUANTIZE")
@recorded()
def dequantize(call: Call, input: Array) -> tuple[Array, list[Band]]:
    """Real numbers of codes, rounded once to float32, and from there to float16."""
    type_ = call["input"]
    if type_.channel_quant is None:
        table = call.once("table", lambda: _real(call, all_codes(type_), np.float32(type_.scale)))
        return elementwise(call, partial(look_up, table), {"input": input})
    channels = type_.channel_quant
    shape = [1] * input.ndim
    shape[channels.channel_dim] = -1
    scales = np.asarray(channels.scales, np.float32).reshape(shape)
    out = result_of(call)
    return whole(out, [lambda: np.copyto(out, _real(call, input, scales))])


def _real(call: Call, codes: Array, scale: Array | np.float32) -> Array:
    real = codes.astype(np.float32)
    real -= np.float32(call["input"].zero_point)
    return np.multiply(real, scale, out=real).astype(call.output.dtype, copy=False)


@kernel("CAST")
def cast(call: Call, input: Array) -> Array:
    """Numbers cut towards zero; saturated where the result is 8-bit."""
    if call.output.dtype == np.uint8 and input.dtype != np.uint8:
        input = np.clip(input, input.dtype.type(0), input.dtype.type(255))
    return store(input, call.output, call.target)
