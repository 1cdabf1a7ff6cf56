from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.runtime.kernels.bands import ELEMENTS
from tests.runtime.kernels.single import quantized, run

X = np.array([[-8.0, -2.0, -0.5], [0.0, 0.75, 9.0]], np.float32)
CODES = np.arange(256).reshape(16, 16)
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float16])
QUANTIZED = pytest.mark.parametrize(("dtype", "shift"), [(np.uint8, 0), (np.int8, -128)])


@DTYPES
@pytest.mark.parametrize(("name", "low", "high"), [("RELU", 0, np.inf), ("RELU1", -1, 1), ("RELU6", 0, 6)])
def test_clamps_of_floats(name, low, high, dtype):
    np.testing.assert_array_equal(run(name, X.astype(dtype)), np.clip(X, low, high).astype(dtype))
    assert run(name, np.array([np.nan], dtype))[0] == low  # what is no number becomes the lower bound


@QUANTIZED
@pytest.mark.parametrize(("name", "low", "high"), [("RELU", 100, 255), ("RELU1", 98, 102), ("RELU6", 100, 112)])
def test_clamps_of_codes(name, low, high, dtype, shift):
    x = quantized(CODES + shift, 0.5, 100 + shift, dtype)
    np.testing.assert_array_equal(run(name, x), np.clip(CODES, low, high) + shift)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@DTYPES
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("LOGISTIC", sigmoid),
        ("TANH", np.tanh),
        ("HARD_SWISH", lambda x: x * np.clip(x + 3, 0, 6) / 6),
    ],
)
def test_curves_of_floats(name, function, dtype):
    np.testing.assert_allclose(run(name, X.astype(dtype)), function(X.astype(np.float64)), rtol=2e-3, atol=1e-6)


@QUANTIZED
@pytest.mark.parametrize(
    ("name", "function", "scale", "zero_point"),
    [("LOGISTIC", sigmoid, 1 / 256, 0), ("TANH", np.tanh, 1 / 128, 128)],
)
def test_curves_of_codes_have_a_fixed_result_type(name, function, scale, zero_point, dtype, shift):
    x = quantized(CODES + shift, 0.05, 128 + shift, dtype)
    real = function(x.real) / scale
    wanted = np.clip(np.trunc(real + np.copysign(0.5, real)) + zero_point, 0, 255) + shift
    np.testing.assert_array_equal(run(name, x), wanted)


@QUANTIZED
def test_hard_swish_of_codes(dtype, shift):
    x = quantized(CODES + shift, 0.0625, 128 + shift, dtype)
    real = x.real * np.clip(x.real + 3, 0, 6) / 6 / 0.125
    wanted = np.clip(np.trunc(real + np.copysign(0.5, real)) + 10, 0, 255) + shift
    np.testing.assert_array_equal(run("HARD_SWISH", x, quant=[(0.125, 10 + shift)]), wanted)


@pytest.mark.parametrize(("name", "scale"), [("LOGISTIC", 2.0**-28), ("TANH", 2.0**-27)])
def test_curves_refuse_scales_too_fine_for_their_arithmetic(name, scale):
    with pytest.raises(InvalidModelError, match="the input's scale is"):
        run(name, quantized([1], scale, 0))


@DTYPES
@pytest.mark.parametrize("alpha", [1.0, 0.5, -2.0])
def test_elu_counts_both_terms(alpha, dtype):
    x = X.astype(np.float64)
    wanted = np.maximum(0, x) + np.minimum(0, alpha * np.expm1(x))
    np.testing.assert_allclose(run("ELU", X.astype(dtype), alpha=alpha), wanted, rtol=2e-3, atol=1e-6)


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@DTYPES
@pytest.mark.parametrize(("axis", "beta"), [(-1, 1.0), (0, 0.5), (1, 2.0)])
def test_softmax(axis, beta, dtype):
    x = X.astype(dtype)
    np.testing.assert_allclose(
        run("SOFTMAX", x, axis=axis, beta=beta), softmax(X * np.float64(beta), axis), rtol=2e-3, atol=1e-6
    )
    wanted = np.log(softmax(X * np.float64(beta), axis))
    np.testing.assert_allclose(run("LOG_SOFTMAX", x, axis=axis, beta=beta), wanted, rtol=2e-3, atol=1e-6)


@QUANTIZED
def test_softmax_of_codes(dtype, shift):
    x = quantized(np.array([[0, 50, 100], [255, 255, 255]]) + shift, 0.05, 7 + shift, dtype)
    wanted = np.clip(np.trunc(softmax(x.real, -1) * 256 + 0.5), 0, 255) + shift
    np.testing.assert_array_equal(run("SOFTMAX", x), wanted)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"beta": 0.0}, "'beta' is 0.0, it must be positive"),
        ({"axis": 2}, "'axis' is 2"),
        ({"axis": -3}, "'axis' is -3"),
    ],
)
def test_softmax_refuses(how, words):
    with pytest.raises(InvalidModelError, match=words):
        run("SOFTMAX", X, **how)


def test_clamps_take_zero_sizes():
    assert run("RELU", np.ones((0, 2), np.float32)).shape == (0, 2)


@pytest.mark.parametrize("shape", [(3, ELEMENTS), (2, 300, 257)])
@pytest.mark.parametrize("axis", [-1, 0])
def test_large_softmax(shape, axis):
    x = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    np.testing.assert_allclose(run("SOFTMAX", x, axis=axis), softmax(x.astype(np.float64), axis), rtol=1e-5)


@pytest.mark.parametrize("size", [ELEMENTS, ELEMENTS + 1, 3 * ELEMENTS - 1])
def test_large_tensors_are_computed_by_pieces(size):
    x = np.linspace(-9, 9, size, dtype=np.float32)
    np.testing.assert_allclose(run("LOGISTIC", x), sigmoid(x), rtol=1e-5)
    np.testing.assert_array_equal(run("ADD", x, x, fuse_code=3), np.clip(x + x, 0, 6))
    codes = (np.arange(size) % 256).astype(np.uint8)
    np.testing.assert_array_equal(run("DEQUANTIZE", quantized(codes, 0.5, 9), dtype=np.float32), (codes - 9.0) * 0.5)
    x[-1] = np.nan
    assert run("RELU", x)[-1] == 0
