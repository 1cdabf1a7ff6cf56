"""Kernels of the elementwise operations.

A function of one or two 8-bit tensors is computed as a table of its 256 or 65,536 results where they are larger.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.codes import FuseCode
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels import Band, Call, kernel, recorded
from onnx2nnapi.runtime.kernels.arithmetic import (
    activate,
    activation,
    all_codes,
    code_range,
    in_half_precision,
    look_up,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
    store,
    widen,
)
from onnx2nnapi.runtime.kernels.bands import elementwise

Function = Callable[..., Array]
Compute = Callable[..., object]  # writes ``out``
Codes = Callable[[Array, Array], Array]
_PAIRS = 1 << 16


def _by_table(call: Call, function: Codes, a: Array, b: Array) -> Compute:
    """A function of two 8-bit tensors that broadcast, by its table where that is smaller than its result."""
    if call.output.size <= _PAIRS:
        return lambda first, second, out: store(function(first, second), call.output, out)

    def tabulate() -> Array:
        rows, columns = np.meshgrid(
            np.arange(256, dtype=np.uint8).view(a.dtype), np.arange(256, dtype=np.uint8).view(b.dtype), indexing="ij"
        )
        return function(rows, columns).reshape(-1)

    table = call.once("table", tabulate)

    def compute(first: Array, second: Array, out: Array) -> None:
        index = np.multiply(first.view(np.uint8), np.uint16(256), dtype=np.uint16) + second.view(np.uint8)
        np.take(table, index, out=out, mode="clip")

    return compute


# -- arithmetic --------------------------------------------------------------------------------------------------------

_HEADROOM = 20  # bits that codes are shifted up by, so that a sum is rounded on a finer grid than its result


def _shifted(codes: Array, type_: OperandType) -> Array:
    """Codes less their zero point."""
    return np.subtract(codes, type_.zero_point, dtype=np.int32)


def _to_codes(numbers: Array, multiplier: float, type_: OperandType, fuse_code: int = FuseCode.NONE) -> Array:
    """int32 numbers times a real multiplier, in fixed point, as codes."""
    result = multiply_by_quantized_multiplier(numbers, *quantize_multiplier(multiplier))
    result += type_.zero_point
    np.clip(result, *code_range(type_, fuse_code), out=result)
    return result.astype(type_.dtype)


def _sum_of_codes(call: Call, fuse_code: int, sign: int) -> Codes:
    first, second, output = call["input1"], call["input2"], call.output
    twice_the_widest = 2 * max(first.scale, second.scale)
    multipliers = [quantize_multiplier(type_.scale / twice_the_widest) for type_ in (first, second)]

    def compute(a: Array, b: Array) -> Array:
        left, right = (
            multiply_by_quantized_multiplier(_shifted(codes, type_) << _HEADROOM, *multiplier)
            for codes, type_, multiplier in zip((a, b), (first, second), multipliers, strict=True)
        )
        total = left + right if sign > 0 else left - right
        return _to_codes(total, twice_the_widest / (2**_HEADROOM * output.scale), output, fuse_code)

    return compute


def _product_of_codes(call: Call, fuse_code: int) -> Codes:
    first, second, output = call["input1"], call["input2"], call.output
    multiplier = _float32_product(first.scale, second.scale) / output.scale
    return lambda a, b: _to_codes(_shifted(a, first) * _shifted(b, second), multiplier, output, fuse_code)


def _float32_product(a: float, b: float) -> float:
    return float(np.float32(a) * np.float32(b))


_QUANTIZED: dict[str, Callable[[Call, int], Codes]] = {
    "ADD": lambda call, fuse_code: _sum_of_codes(call, fuse_code, 1),
    "SUB": lambda call, fuse_code: _sum_of_codes(call, fuse_code, -1),
    "MUL": _product_of_codes,
}


def _register_arithmetic(name: str, function: Function) -> None:
    @kernel(name, in_place=("input1", "input2"))
    @recorded()
    def arithmetic(call: Call, input1: Array, input2: Array, fuse_code: int = 0) -> tuple[Array, list[Band]]:
        def of_float16(a: Array, b: Array, out: Array) -> None:
            wide = function(widen(a), widen(b))
            store(activate(wide, fuse_code, wide), call.output, out)

        finish = partial(activation, fuse_code=fuse_code) if input1.dtype == np.float32 else None
        compute: Compute = of_float16 if input1.dtype == np.float16 else function
        if call["input1"].is_quantized:
            compute = _by_table(call, _QUANTIZED[name](call, fuse_code), input1, input2)
        return elementwise(call, compute, {"input1": input1, "input2": input2}, finish)


def _divide(a: Array, b: Array, out: Array | None = None) -> Array:
    """The quotient; of integers rounded down, and 0 where the divisor is."""
    return np.floor_divide(a, b, out=out) if a.dtype.kind == "i" else np.divide(a, b, out=out)


_ARITHMETIC: dict[str, Function] = {"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "DIV": _divide}
for _name, _function in _ARITHMETIC.items():
    _register_arithmetic(_name, _function)


def _register_extremum(name: str, of_floats: Function, of_integers: Function) -> None:
    @kernel(name)
    @recorded()
    def extremum(call: Call, input1: Array, input2: Array) -> tuple[Array, list[Band]]:
        def codes(a: Array, b: Array) -> Array:
            return of_integers(_moved(a, call["input1"], call.output), _moved(b, call["input2"], call.output))

        compute: Compute = of_floats if input1.dtype.kind == "f" else of_integers
        if call["input1"].is_quantized:
            compute = _by_table(call, codes, input1, input2)
        return elementwise(call, compute, {"input1": input1, "input2": input2})


def _moved(codes: Array, source: OperandType, target: OperandType) -> Array:
    """Codes of another quantization: real numbers in float32, rounded half away after the zero point is added."""
    if (source.scale, source.zero_point) == (target.scale, target.zero_point):
        return codes
    low, high = code_range(target)
    real = _float32(codes, source) / np.float64(target.scale)
    real += target.zero_point
    return round_half_away(np.clip(real, low, high, out=real)).astype(target.dtype)


def _c_maximum(a: Array, b: Array, out: Array | None = None) -> Array:
    """C++'s std::max, which answers its first argument when one of them is no number."""
    return np.where(np.less(a, b), b, a) if out is None else _choose(np.less(a, b), b, a, out)


def _c_minimum(a: Array, b: Array, out: Array | None = None) -> Array:
    """C++'s std::min, which answers its first argument when one of them is no number."""
    return np.where(np.less(b, a), b, a) if out is None else _choose(np.less(b, a), b, a, out)


def _choose(condition: Array, a: Array, b: Array, out: Array) -> Array:
    np.copyto(out, b)
    np.copyto(out, a, where=condition)
    return out


_register_extremum("MAXIMUM", _c_maximum, np.maximum)
_register_extremum("MINIMUM", _c_minimum, np.minimum)


@kernel("POW")
@recorded()
def power(call: Call, base: Array, exponent: Array) -> tuple[Array, list[Band]]:
    """Power of float32 or float16."""

    def of_float16(a: Array, b: Array, out: Array) -> None:
        store(np.power(widen(a), widen(b)), call.output, out)

    return elementwise(call, np.power if base.dtype == np.float32 else of_float16, {"base": base, "exponent": exponent})


@kernel("PRELU")
@recorded()
def prelu(call: Call, input: Array, alpha: Array) -> tuple[Array, list[Band]]:
    """The input, times alpha where it is negative; quantized in fixed point, as Android does."""

    def of_floats(x: Array, slope: Array, out: Array) -> None:
        np.multiply(x, slope, out=out)
        np.copyto(out, x, where=x >= 0)

    compute: Compute = of_floats
    if call["input"].is_quantized:
        compute = _by_table(call, _prelu_of_codes(call), input, alpha)
    return elementwise(call, compute, {"input": input, "alpha": alpha})


def _prelu_of_codes(call: Call) -> Codes:
    x_type, slope_type, output = call["input"], call["alpha"], call.output
    above = float(np.float32(x_type.scale) / np.float32(output.scale))
    below = _float32_product(x_type.scale, slope_type.scale) / output.scale

    def codes(x: Array, slope: Array) -> Array:
        value = _shifted(x, x_type)
        scaled = value * _shifted(slope, slope_type)
        return np.where(value >= 0, _to_codes(value, above, output), _to_codes(scaled, below, output))

    return codes


# -- comparison and logic ----------------------------------------------------------------------------------------------


def _register_comparison(name: str, compare: Function) -> None:
    @kernel(name)
    @recorded()
    def comparison(call: Call, input1: Array, input2: Array) -> tuple[Array, list[Band]]:
        first, second = call["input1"], call["input2"]

        def codes(a: Array, b: Array) -> Array:
            return compare(_float32(a, first), _float32(b, second))

        function: Compute = compare
        if first.is_quantized and (first.scale, first.zero_point) != (second.scale, second.zero_point):
            function = _by_table(call, codes, input1, input2)
        return elementwise(call, function, {"input1": input1, "input2": input2})


def _float32(codes: Array, type_: OperandType) -> Array:
    """The real numbers of codes, rounded to float32."""
    real = codes.astype(np.float32)
    real -= np.float32(type_.zero_point)
    real *= np.float32(type_.scale)
    return real


_COMPARISONS: dict[str, Function] = {
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_OR": np.logical_or,
}
for _name, _function in _COMPARISONS.items():
    _register_comparison(_name, _function)


@kernel("SELECT")
@recorded()
def select(call: Call, condition: Array, input1: Array, input2: Array) -> tuple[Array, list[Band]]:
    """The first where the condition holds, else the second."""

    def compute(choice: Array, a: Array, b: Array, out: Array) -> None:
        if call.output.is_quantized:
            a, b = _moved(a, call["input1"], call.output), _moved(b, call["input2"], call.output)
        _choose(choice, a, b, out)

    return elementwise(call, compute, {"condition": condition, "input1": input1, "input2": input2})


# -- functions of one tensor -------------------------------------------------------------------------------------------


def _register_unary(name: str, function: Function) -> None:
    @kernel(name, in_place=("input",))
    @recorded()
    def unary(call: Call, input: Array) -> tuple[Array, list[Band]]:
        compute: Compute = function
        if call["input"].is_quantized:
            table = call.once("table", lambda: _quantized_by_float32(function, call["input"], call.output))
            compute = partial(look_up, table)
        elif input.dtype == np.float16:
            compute = in_half_precision(function)
        return elementwise(call, compute, {"input": input})


def _quantized_by_float32(function: Function, source: OperandType, target: OperandType) -> Array:
    """The table of a function that is computed in float32; what is no number gets the highest code."""
    low, high = code_range(target)
    codes = round_half_away(function(_float32(all_codes(source), source)) / np.float32(target.scale))
    codes += np.float32(target.zero_point)
    np.fmin(codes, np.float32(high), out=codes)
    np.fmax(codes, np.float32(low), out=codes)
    return codes.astype(target.dtype)


def _reciprocal_square_root(x: Array, out: Array | None = None) -> Array:
    root: Array = np.sqrt(x, out=out)
    return np.reciprocal(root, out=root)


_UNARY: dict[str, Function] = {
    "ABS": np.absolute,
    "NEG": np.negative,
    "EXP": np.exp,
    "LOG": np.log,
    "SIN": np.sin,
    "SQRT": np.sqrt,
    "RSQRT": _reciprocal_square_root,
    "FLOOR": np.floor,
    "LOGICAL_NOT": np.logical_not,
}
for _name, _function in _UNARY.items():
    _register_unary(_name, _function)
