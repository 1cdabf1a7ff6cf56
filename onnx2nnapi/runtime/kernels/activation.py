"""Kernels of the activation operations; those of 8-bit codes are tables of 256 results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.codes import FuseCode
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels import Band, Call, kernel, recorded, whole
from onnx2nnapi.runtime.kernels.arithmetic import (
    all_codes,
    code_range,
    dequantize,
    float_range,
    in_half_precision,
    is_finite,
    look_up,
    requantize,
    store,
    widen,
)
from onnx2nnapi.runtime.kernels.bands import elementwise, pieces, result_of


def _register_clamp(code: FuseCode) -> None:
    @kernel(code.name, in_place=("input",))
    @recorded()
    def clamp(call: Call, input: Array) -> tuple[Array, list[Band]]:
        limits = code_range(call["input"], code) if call["input"].is_quantized else float_range(code)
        low, high = (input.dtype.type(limit) for limit in limits)

        def of_codes(x: Array, out: Array) -> None:
            np.clip(x, low, high, out=out)

        def of_floats(x: Array, out: Array) -> None:
            np.clip(x, low, high, out=out)
            if not is_finite(out):
                np.fmax(out, low, out=out)  # NaN becomes the lower bound

        return elementwise(call, of_codes if call["input"].is_quantized else of_floats, {"input": input})


for _code in (FuseCode.RELU, FuseCode.RELU1, FuseCode.RELU6):
    _register_clamp(_code)


def _register_function(name: str, function: Callable[..., Array]) -> None:
    @kernel(name, in_place=("input",))
    @recorded()
    def unary(call: Call, input: Array) -> tuple[Array, list[Band]]:
        compute: Callable[..., object] = function
        if call["input"].is_quantized:
            table = call.once("table", lambda: _table(function, call["input"], call.output))
            compute = partial(look_up, table)
        elif input.dtype == np.float16:
            compute = in_half_precision(function)
        return elementwise(call, compute, {"input": input})


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
@recorded()
def softmax(call: Call, input: Array, beta: float = 1.0, axis: int = -1) -> tuple[Array, list[Band]]:
    """exp(βx) over its sum along a dimension; along the last one, a band is some rows."""
    out, source, type_ = result_of(call), call["input"], call.output

    def compute(codes: Array, results: Array, axis: int) -> None:
        x = np.multiply(codes, source.scale, dtype=np.float64) if source.is_quantized else widen(codes)
        real = _softmax(x, beta, axis, results if results.dtype == x.dtype else np.empty_like(x))
        if type_.is_quantized:
            real /= type_.scale
            requantize(real, type_, out=results)
        else:
            store(real, type_, results)

    if axis not in (-1, input.ndim - 1) or not (input.flags.c_contiguous and out.flags.c_contiguous):
        return whole(out, [partial(compute, input, out, axis)])
    depth = input.shape[-1]
    table, results = input.reshape(-1, depth), out.reshape(-1, depth)
    bands = []
    for start, stop in pieces(len(table), depth):
        step = partial(compute, table[start:stop], results[start:stop], -1)
        bands.append(Band([step], stop * depth, {"input": stop * depth}, lockstep=True))
    return out, bands


def _softmax(x: Array, beta: float, axis: int, out: Array) -> Array:
    np.subtract(x, x.max(axis=axis, keepdims=True), out=out)
    if beta != 1:
        out *= x.dtype.type(beta)
    np.exp(out, out=out)
    out /= out.sum(axis=axis, keepdims=True)
    return out


@kernel("LOG_SOFTMAX")
def log_softmax(call: Call, input: Array, beta: float = 1.0, axis: int = -1) -> Array:
    """Logarithm of the softmax along a dimension."""
    x = widen(input)
    result: Array = np.subtract(x, x.max(axis=axis, keepdims=True), out=call.target if x is input else None)
    if beta != 1:
        result *= np.float32(beta)
    result -= np.log(np.exp(result).sum(axis=axis, keepdims=True))
    return store(result, call.output, call.target)
