"""Kernels of the activation operations; those of 8-bit codes are tables of 256 results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.codes import FuseCode
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.arithmetic import (
    BLOCK,
    all_codes,
    code_range,
    dequantize,
    float_range,
    in_blocks,
    is_finite,
    look_up,
    requantize,
    store,
    widen,
)


def _register_clamp(code: FuseCode) -> None:
    @kernel(code.name, in_place=("input",))
    def clamp(call: Call, input: Array) -> Array:
        if call["input"].is_quantized:
            low, high = code_range(call["input"], code)
            codes: Array = np.clip(input, input.dtype.type(low), input.dtype.type(high), out=call.target)
            return codes
        bottom, top = map(np.float32, float_range(code))
        if input.dtype == np.float16:
            return store(np.clip(np.fmax(widen(input), bottom), bottom, top), call.output, call.target)
        result: Array = np.clip(input, bottom, top, out=call.target)
        return result if is_finite(result) else np.fmax(result, bottom, out=result)  # NaN becomes the lower bound


for _code in (FuseCode.RELU, FuseCode.RELU1, FuseCode.RELU6):
    _register_clamp(_code)


def _register_function(name: str, function: Callable[..., Array]) -> None:
    @kernel(name, in_place=("input",))
    def unary(call: Call, input: Array) -> Array:
        if call["input"].is_quantized:
            table = call.once("table", lambda: _table(function, call["input"], call.output))
            return look_up(input, table, call.target)
        if input.dtype == np.float16:
            return store(function(widen(input)), call.output, call.target)
        return in_blocks(function, np.empty_like(input) if call.target is None else call.target, input)


def _table(function: Callable[..., Array], source: OperandType, target: OperandType) -> Array:
    """The codes of a function of every code, in exact arithmetic."""
    real = function(dequantize(all_codes(source), source))
    real /= target.scale
    return requantize(real, target)


def _logistic(x: Array, out: Array | None = None) -> Array:
    out = np.negative(x, out=out)
    np.exp(out, out=out)
    out += 1
    return np.reciprocal(out, out=out)


def _hard_swish(x: Array, out: Array | None = None) -> Array:
    three, six = x.dtype.type(3), x.dtype.type(6)
    gate = np.add(x, three)
    np.clip(gate, 0, six, out=gate)
    gate *= x
    result: Array = np.divide(gate, six, out=gate if out is None else out)
    return result


_FUNCTIONS: dict[str, Callable[..., Array]] = {"LOGISTIC": _logistic, "TANH": np.tanh, "HARD_SWISH": _hard_swish}
for _name, _function in _FUNCTIONS.items():
    _register_function(_name, _function)


@kernel("ELU")
def elu(call: Call, input: Array, alpha: float = 1.0) -> Array:
    """max(0, x) + min(0, α(eˣ − 1)); the second term also counts where α is negative and x is not."""
    x = widen(input)
    curve = np.exp(x)
    curve -= 1
    curve *= np.float32(alpha)
    np.fmin(curve, 0, out=curve)
    curve += np.fmax(x, 0)
    return store(curve, call.output, call.target)


@kernel("SOFTMAX", in_place=("input",))
def softmax(call: Call, input: Array, beta: float = 1.0, axis: int = -1) -> Array:
    """exp(βx) over its sum along a dimension."""
    quantized = call["input"].is_quantized
    if quantized:
        x: Array = np.multiply(input, call["input"].scale, dtype=np.float64)
    else:
        x = widen(input)
    result = x if x is not input else np.empty_like(x) if call.target is None else call.target
    _softmax(x, beta, axis, result)
    if quantized:
        result /= call.output.scale
        return requantize(result, call.output, out=call.target)
    return store(result, call.output, call.target)


def _softmax(x: Array, beta: float, axis: int, out: Array) -> None:
    """Softmax of floats into ``out``, which may be ``x``; along the last dimension by rows that stay in the cache."""
    rows = max(BLOCK // max(x.shape[-1], 1), 1)
    if axis in (-1, x.ndim - 1) and x.size > BLOCK and x.flags.c_contiguous and out.flags.c_contiguous:
        table, results = x.reshape(-1, x.shape[-1]), out.reshape(-1, x.shape[-1])
        for start in range(0, len(table), rows):
            _softmax_of_piece(table[start : start + rows], beta, -1, results[start : start + rows])
    else:
        _softmax_of_piece(x, beta, axis, out)


def _softmax_of_piece(x: Array, beta: float, axis: int, out: Array) -> None:
    np.subtract(x, x.max(axis=axis, keepdims=True), out=out)
    if beta != 1:
        out *= x.dtype.type(beta)
    np.exp(out, out=out)
    out /= out.sum(axis=axis, keepdims=True)


@kernel("LOG_SOFTMAX")
def log_softmax(call: Call, input: Array, beta: float = 1.0, axis: int = -1) -> Array:
    """Logarithm of the softmax along a dimension."""
    x = widen(input)
    result: Array = np.subtract(x, x.max(axis=axis, keepdims=True), out=call.target if x is input else None)
    if beta != 1:
        result *= np.float32(beta)
    result -= np.log(np.exp(result).sum(axis=axis, keepdims=True))
    return store(result, call.output, call.target)
