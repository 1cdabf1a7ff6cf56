from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.schema import SCHEMAS
from onnx2nnapi.runtime.kernels.fixed_point import inverse_square_root, logistic16, tanh16
from tests.runtime.kernels.single import Quantized, quantized, run

GATES = ("input", "forget", "cell", "output")
CODES = np.arange(-(1 << 15), 1 << 15).astype(np.int16)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# -- fixed point -------------------------------------------------------------------------------------------------------


def test_logistic_of_every_code_is_near_the_real_one():
    result = logistic16(CODES).astype(int)
    assert np.abs(result / 2**15 - sigmoid(CODES / 4096)).max() < 5e-4
    np.testing.assert_array_equal(result[1 : 1 << 15] + result[: 1 << 15 : -1], (1 << 15) - 1)


@pytest.mark.parametrize("bits", range(7))
def test_tanh_of_every_code_is_near_the_real_one_and_odd(bits):
    result = tanh16(CODES, bits).astype(int)
    assert np.abs(result / 2**15 - np.tanh(CODES / 2 ** (15 - bits))).max() < 5e-4
    np.testing.assert_array_equal(result[1:], -result[:0:-1])


def test_inverse_square_root():
    values = np.array([2, 3, 5, 100, 12345, 1 << 20, (1 << 29) + 5, (1 << 31) - 1])
    mantissa, shift = inverse_square_root(values)
    np.testing.assert_allclose(mantissa * 2.0 ** (shift.astype(float) - 31), values**-0.5, rtol=2e-6)
    mantissa, shift = inverse_square_root(np.array([0, 1]))
    assert (mantissa.tolist(), shift.tolist()) == ([(1 << 31) - 1] * 2, [0, 0])


# -- operations, against the same cell in real numbers -----------------------------------------------------------------


def real(tensors, name):
    return tensors[name].real if isinstance(tensors[name], Quantized) else None


def ordered(name, given):
    form = SCHEMAS[OperationCode[name]].forms[0]
    return [given[slot.name] for slot in form.slots if slot.role.value == "tensor"]


def test_quantized_16bit_lstm_is_near_the_real_cell():
    rng = np.random.default_rng(1)
    batch, size, outputs = 2, 3, 4
    tensors = {
        "input": quantized(rng.integers(0, 256, (batch, size)), 1 / 128, 128),
        "output_state_in": quantized(rng.integers(0, 256, (batch, outputs)), 1 / 128, 128),
        "cell_state_in": quantized(rng.integers(-9000, 9000, (batch, outputs)), 1 / 2048, 0, np.int16),
    }
    for gate in GATES:
        tensors[f"input_to_{gate}_weights"] = quantized(rng.integers(0, 256, (outputs, size)), 0.01, 100)
        tensors[f"recurrent_to_{gate}_weights"] = quantized(rng.integers(0, 256, (outputs, outputs)), 0.01, 100)
        bias = rng.integers(-5000, 5000, outputs)
        tensors[f"{gate}_gate_bias"] = quantized(bias, np.float32(0.01) / np.float32(128), 0, np.int32)
    state, output = run("QUANTIZED_16BIT_LSTM", *ordered("QUANTIZED_16BIT_LSTM", tensors))

    def total(gate):
        # Android multiplies the input by the first columns of (recurrent, input) weights, whatever their sizes.
        joined = np.concatenate([real(tensors, "input"), real(tensors, "output_state_in")], axis=1)
        weights = [real(tensors, f"{source}_to_{gate}_weights") for source in ("recurrent", "input")]
        return joined @ np.concatenate(weights, axis=1).T + real(tensors, f"{gate}_gate_bias")

    cell = sigmoid(total("forget")) * real(tensors, "cell_state_in") + sigmoid(total("input")) * np.tanh(total("cell"))
    np.testing.assert_allclose(state / 2048, np.clip(cell, -16, 16), atol=4e-3)
    shown = sigmoid(total("output")) * np.tanh(cell)
    np.testing.assert_allclose((output.astype(int) - 128) / 128, shown, atol=1.01 / 128)


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("projection", [False, True])
def test_quantized_lstm_is_near_the_real_cell(coupled, projection):
    rng = np.random.default_rng(2)
    batch, size, cells = 2, 5, 4
    outputs = 3 if projection else cells
    norm_scale = 2.0**-12

    def weights(rows, columns):
        return quantized(rng.integers(-127, 128, (rows, columns)), 0.01, 0, np.int8, symmetric=True)

    tensors = {
        "input": quantized(rng.integers(-128, 128, (batch, size)), 0.0078125, 3, np.int8),
        "output_state_in": quantized(rng.integers(-128, 128, (batch, outputs)), 0.0078125, -5, np.int8),
        "cell_state_in": quantized(rng.integers(-9000, 9000, (batch, cells)), 2.0**-12, 0, np.int16),
        "projection_weights": weights(outputs, cells) if projection else None,
        "projection_bias": np.zeros(outputs, np.int32) if projection else None,
    }
    for gate in GATES:
        here = not (coupled and gate == "input")
        tensors[f"input_to_{gate}_weights"] = weights(cells, size) if here else None
        tensors[f"recurrent_to_{gate}_weights"] = weights(cells, outputs) if here else None
        tensors[f"cell_to_{gate}_weights"] = None
        norm = rng.integers(1000, 9000, cells)
        tensors[f"{gate}_layer_norm_weights"] = quantized(norm, norm_scale, 0, np.int16) if here else None
        tensors[f"{gate}_gate_bias"] = rng.integers(-(1 << 19), 1 << 19, cells).astype(np.int32) if here else None
    how = {f"{gate}_intermediate_scale": 2.0**-12 for gate in GATES}
    how |= {"hidden_state_zero_point": 4, "hidden_state_scale": 0.0078125}
    quant = [(0.0078125, -5), (2.0**-12, 0), (0.0078125, -5)]
    state, cell_state, output = run("QUANTIZED_LSTM", *ordered("QUANTIZED_LSTM", tensors), quant=quant, **how)

    def total(gate):
        x = real(tensors, "input") @ real(tensors, f"input_to_{gate}_weights").T
        x = x + real(tensors, "output_state_in") @ real(tensors, f"recurrent_to_{gate}_weights").T
        x = (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)
        return x * real(tensors, f"{gate}_layer_norm_weights") + tensors[f"{gate}_gate_bias"] * norm_scale / 1024

    forget = sigmoid(total("forget"))
    admit = 1 - forget if coupled else sigmoid(total("input"))
    cell = forget * real(tensors, "cell_state_in") + admit * np.tanh(total("cell"))
    np.testing.assert_allclose(cell_state * 2.0**-12, cell, atol=6e-3)
    shown = sigmoid(total("output")) * np.tanh(cell)
    if projection:
        shown = shown @ real(tensors, "projection_weights").T
    np.testing.assert_allclose((output.astype(float) + 5) * 0.0078125, np.clip(shown, -0.96, 1.03), atol=0.03)
    np.testing.assert_array_equal(state, output)


def test_quantized_lstm_refuses_a_state_scale_that_is_no_power_of_two():
    form = SCHEMAS[OperationCode.QUANTIZED_LSTM].forms[0]
    codes = SCHEMAS[OperationCode.QUANTIZED_LSTM].types[0].codes
    tensors = []
    for slot in form.slots[:20]:
        shape = (1,) if "bias" in slot.name else (1, 1)
        array = np.zeros(shape, codes[slot.name].dtype)
        scale = 0.001 if slot.name == "cell_state_in" else 0.5
        omitted = slot.name.startswith(("cell_to", "projection"))
        made = (
            array
            if array.dtype == np.int32
            else quantized(array, scale, 0, array.dtype, symmetric="_weights" in slot.name)
        )
        tensors.append(None if omitted else made)
    how = {f"{gate}_intermediate_scale": 0.01 for gate in GATES}
    how |= {"hidden_state_zero_point": 0, "hidden_state_scale": 0.01}
    with pytest.raises(InvalidModelError, match="must be a power of two"):
        run("QUANTIZED_LSTM", *tensors, *[None] * 4, quant=[(0.5, 0), (0.001, 0), (0.5, 0)], **how)
