"""Kernels of the two quantized LSTMs, in the fixed-point arithmetic of Android's CPU reference, code for code."""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.table.quantized_lstm import state_exponent
from onnx2nnapi.nnapi.table.recurrent import GATES
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.arithmetic import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_power_of_two,
)
from onnx2nnapi.runtime.kernels.fixed_point import inverse_square_root, logistic16, multiply16, rescale16, tanh16

__all__: list[str] = []

INT16 = (-(1 << 15), (1 << 15) - 1)
INT8 = (-128, 127)
LAYER_NORM_GUARD = 1 << 20


def _float32(*factors: float, over: float = 1.0) -> float:
    """A product of scales over another, computed in float32."""
    product = np.float32(factors[0])
    for factor in factors[1:]:
        product *= np.float32(factor)
    return float(product / np.float32(over))


def _scaled(x: Array, scale: float) -> Array:
    """int32 numbers times a real one, in fixed point."""
    return multiply_by_quantized_multiplier(x, *quantize_multiplier(scale)).astype(np.int64)


def _product(codes: Array, zero_point: int, weights: Array) -> Array:
    """Exact integer products of (batch, size) codes with (rows, size) weights."""
    shifted = codes.astype(np.float64) - zero_point
    product: Array = shifted @ weights.astype(np.float64).T
    return product.astype(np.int64)


class _Gates:
    """The gates of a QUANTIZED_LSTM before their activations; the operands by name and their types are the call's."""

    def __init__(
        self, call: Call, operands: dict[str, Array | None], input: Array, state: Array, exponent: int
    ) -> None:
        self.call = call
        self.operands = operands
        self.sources = {"input": input, "recurrent": state}
        self.exponent = exponent

    def __call__(self, gate: str, scale: float, cell: Array | None) -> Array:
        """int16 numbers with 3 integer bits; ``cell``: the state that a peephole looks at.

        Without layer normalization Android leaves the gate's bias out: so does this.
        """
        total: Array = np.zeros(1, np.int64)
        for source, operand in (("input", "input"), ("recurrent", "output_state_in")):
            name = f"{source}_to_{gate}_weights"
            weights, type_ = self.operands[name], self.call[operand]
            if weights is None:
                continue
            products = _product(self.sources[source], type_.zero_point, weights)
            real = _float32(self.call[name].scale, type_.scale, over=scale)
            total = np.clip(total + _scaled(products, real), *INT16)
        name = f"cell_to_{gate}_weights"
        peephole = self.operands.get(name)
        if peephole is not None and cell is not None:
            real = float(np.float32(2.0**self.exponent * self.call[name].scale / np.float32(scale)))
            total = np.clip(total + _scaled(self._through(peephole, cell), real), *INT16)
        weights, bias = self.operands[f"{gate}_layer_norm_weights"], self.operands[f"{gate}_gate_bias"]
        if weights is None or bias is None:
            return total
        return _layer_norm(total, weights, bias, self.call[f"{gate}_layer_norm_weights"].scale)

    def _through(self, peephole: Array, cell: Array) -> Array:
        """What a peephole adds. Android takes rows of the output's size here, though the state's may be longer."""
        size = min(self.sources["recurrent"].shape[-1], cell.shape[-1])
        products: Array = np.zeros(cell.size, np.int64)
        count = len(cell) * size
        products[:count] = np.tile(peephole[:size].astype(np.int64), len(cell)) * cell.reshape(-1)[:count]
        result: Array = products.reshape(cell.shape)
        return result


def _layer_norm(x: Array, weights: Array, bias: Array, scale: float) -> Array:
    """Rows of int16 numbers with mean 0 and deviation 1, times weights, plus bias, in fixed point."""
    count = x.shape[-1]
    mean = np.trunc(x.sum(axis=-1) * 1024 / count).astype(np.int64)
    variance = (np.square(x).sum(axis=-1) * (LAYER_NORM_GUARD // count) - np.square(mean)) / LAYER_NORM_GUARD
    least = min(1, int(np.float32(10000) * np.float32(scale)))
    mantissa, shift = inverse_square_root(np.where(variance >= 1, variance.astype(np.int64), least)[:, np.newaxis])
    centred = (1024 * x - mean[:, np.newaxis]).astype(np.int32)
    normalized = multiply_by_quantized_multiplier(centred, mantissa, shift).astype(np.int32)
    weighted = (normalized * weights.astype(np.int32) + bias).astype(np.int64)
    rounded = np.trunc((weighted + np.where(weighted > 0, 512, -512)) / 1024).astype(np.int32)
    multiplier, exponent = quantize_multiplier(float(np.float32(scale)))
    return np.clip(multiply_by_quantized_multiplier(rounded, multiplier, exponent + 12).astype(np.int64), *INT16)


@kernel("QUANTIZED_LSTM")
def quantized_lstm(
    call: Call,
    *,
    input: Array,
    output_state_in: Array,
    cell_state_in: Array,
    cell_clip: float,
    projection_clip: float,
    hidden_state_zero_point: int,
    hidden_state_scale: float,
    **operands: Array | None,
) -> tuple[Array, Array, Array]:
    scales = {gate: float(operands.pop(f"{gate}_intermediate_scale")) for gate in GATES}  # type: ignore[arg-type]
    state_type, output_type = call["cell_state_in"], call["output_state_in"]
    exponent = state_exponent(state_type.scale) or 0
    gates = _Gates(call, operands, input, output_state_in, exponent)
    # Android's input and forget gates look through their peepholes at the new state's buffer before it is written.
    unwritten = np.zeros(cell_state_in.shape, np.int64)
    forget = logistic16(gates("forget", scales["forget"], unwritten)).astype(np.int64)
    candidate = tanh16(gates("cell", scales["cell"], None), 3).astype(np.int64)
    if operands["input_to_input_weights"] is None:
        admit = INT16[1] - forget
    else:
        admit = logistic16(gates("input", scales["input"], unwritten)).astype(np.int64)
    kept = rounding_divide_by_power_of_two(forget * cell_state_in, 15)
    cell = np.clip(kept + rounding_divide_by_power_of_two(admit * candidate, 30 + exponent), *INT16)
    if cell_clip > 0:
        limit = int(min(np.float32(cell_clip) / np.float32(state_type.scale), np.float32(INT16[1])))
        cell = np.clip(cell, -limit, limit) if limit > 0 else cell
    shown = logistic16(gates("output", scales["output"], cell)).astype(np.int64)
    hidden_scale = float(np.float32(2.0**-30 / np.float32(hidden_state_scale)))
    hidden = _scaled(shown * tanh16(cell, exponent + 15), hidden_scale) - hidden_state_zero_point
    output = np.clip(hidden, *INT8)
    projection, name = operands["projection_weights"], "projection_weights"
    if projection is not None:
        products = _product(output, -hidden_state_zero_point, projection)
        if operands["projection_bias"] is not None:
            products = products + operands["projection_bias"]
        real = _float32(call[name].scale, hidden_state_scale, over=output_type.scale)
        output = np.clip(_scaled(products, real) + output_type.zero_point, *INT8)
        if projection_clip > 0:
            limit = int(min(np.float32(projection_clip) / np.float32(call[name].scale), np.float32(INT8[1])))
            output = np.clip(output, -limit, limit) if limit > 0 else output
    codes = output.astype(np.int8)
    return codes, cell.astype(np.int16), codes.copy()


@kernel("QUANTIZED_16BIT_LSTM")
def quantized_16bit_lstm(
    call: Call,
    *,
    input: Array,
    cell_state_in: Array,
    output_state_in: Array,
    **weights: Array,
) -> tuple[Array, Array]:
    zero_point = call["input_to_input_weights"].zero_point
    multiplier = quantize_multiplier(float(np.float32(4096) * np.float32(call["input_gate_bias"].scale)))
    sums = {}
    for gate in GATES:
        joined = np.concatenate((weights[f"recurrent_to_{gate}_weights"], weights[f"input_to_{gate}_weights"]), axis=1)
        codes = np.concatenate((input, output_state_in), axis=1)
        products = _product(codes, 128, joined.astype(np.int64) - zero_point) + weights[f"{gate}_gate_bias"]
        sums[gate] = np.clip(multiply_by_quantized_multiplier(products, *multiplier), *INT16)
    added = rescale16(multiply16(logistic16(sums["input"]), tanh16(sums["cell"], 3)), -4)
    kept = multiply16(logistic16(sums["forget"]), cell_state_in)
    state = np.clip(added + kept, *INT16)
    output = multiply16(logistic16(sums["output"]), tanh16(rescale16(state, 1), 3))
    codes = np.clip(rounding_divide_by_power_of_two(output, 8), *INT8) + 128
    return state.astype(np.int16), codes.astype(np.uint8)
