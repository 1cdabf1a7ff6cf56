from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from tests.runtime.kernels.single import quantized, run

A = np.array([[-2.5, -1.0, 0.0], [0.5, 2.0, 7.0]], np.float32)
B = np.array([2.0, -4.0, 0.5], np.float32)
FLOAT32_MAX = np.finfo(np.float32).max
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float16])
QUANTIZED = pytest.mark.parametrize(("dtype", "shift"), [(np.uint8, 0), (np.int8, -128)])


@DTYPES
@pytest.mark.parametrize(
    ("name", "function"), [("ADD", np.add), ("SUB", np.subtract), ("MUL", np.multiply), ("DIV", np.divide)]
)
@pytest.mark.parametrize(("fuse_code", "low", "high"), [(0, -np.inf, np.inf), (1, 0, np.inf), (2, -1, 1), (3, 0, 6)])
def test_arithmetic_broadcasts_and_clamps(name, function, fuse_code, low, high, dtype):
    a, b = A.astype(dtype), B.astype(dtype)
    wanted = np.clip(function(a.astype(np.float32), b.astype(np.float32)), low, high).astype(dtype)
    np.testing.assert_array_equal(run(name, a, b, fuse_code=fuse_code), wanted)
    if name in ("ADD", "MUL"):
        np.testing.assert_array_equal(run(name, b, a, fuse_code=fuse_code), wanted)


def test_float32_never_leaves_an_operation_infinite_but_float16_does():
    ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
    np.testing.assert_array_equal(run("DIV", ones, zeros), [FLOAT32_MAX] * 2)
    assert np.isposinf(run("DIV", ones.astype(np.float16), zeros.astype(np.float16))).all()
    assert np.isnan(run("ADD", np.array([np.nan], np.float32), ones[:1])).all()
    big = np.array([np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(run("ADD", big, ones), [FLOAT32_MAX, -FLOAT32_MAX])


def test_a_large_sum_with_one_infinity_is_clamped_too():
    x = np.ones((100, 100), np.float32)
    x[3, 4] = np.inf
    result = run("ADD", x, x)
    assert result[3, 4] == FLOAT32_MAX
    assert (np.delete(result.reshape(-1), 304) == 2).all()


def test_integers_divide_downwards_and_by_zero_to_zero():
    a, b = np.array([7, -7, 7, -7, 5], np.int32), np.array([2, 2, -2, -2, 0], np.int32)
    np.testing.assert_array_equal(run("DIV", a, b), [3, -4, -4, 3, 0])
    np.testing.assert_array_equal(run("SUB", a, b), a - b)


def test_integers_take_no_activation():
    with pytest.raises(InvalidModelError, match="TENSOR_INT32 takes no fused activation"):
        run("ADD", np.ones(2, np.int32), np.ones(2, np.int32), fuse_code=1)


@QUANTIZED
@pytest.mark.parametrize("shape", [(2, 3), (300, 256)])  # computed one by one, and by the table of all pairs
def test_sums_and_products_of_codes(dtype, shift, shape):
    rng = np.random.default_rng(3)
    a, b = (quantized(rng.integers(0, 256, shape) + shift, scale, 100 + shift, dtype) for scale in (0.5, 0.25))
    half_up = np.floor(a.real * b.real * 4 + 0.5) / 4  # a product by 1/8 is rounded at 1/4 first
    for name, real in (("ADD", a.real + b.real), ("SUB", a.real - b.real), ("MUL", half_up)):
        result = run(name, a, b, quant=[(1.0, 90 + shift)])
        away = np.trunc(real + np.copysign(0.5, real))
        np.testing.assert_array_equal(result, np.clip(away + 90 + shift, shift, 255 + shift))


def test_fused_activation_of_codes():
    a = quantized([0, 100, 110, 120], 0.5, 100)
    zero = quantized([100], 0.5, 100)
    result = run("ADD", a, zero, fuse_code=3, quant=[(0.5, 20)])
    np.testing.assert_array_equal(result, [20, 20, 30, 32])  # 6.0 is code 32


@DTYPES
def test_maximum_and_minimum(dtype):
    a, b = A.astype(dtype), B.astype(dtype)
    np.testing.assert_array_equal(run("MAXIMUM", a, b), np.maximum(a, b))
    np.testing.assert_array_equal(run("MINIMUM", a, b), np.minimum(a, b))


def test_maximum_keeps_its_first_operand_where_one_is_no_number():
    nan, one = np.array([np.nan], np.float32), np.ones(1, np.float32)
    assert np.isnan(run("MAXIMUM", nan, one))[0]
    assert run("MAXIMUM", one, nan)[0] == 1


def test_maximum_of_codes_rounds_after_the_zero_point():
    """-0.5 steps become 99.5, and that 100: a tie below zero is rounded up."""
    a, b = quantized([9, 7], 0.5, 10), quantized([0, 0], 1.0, 10)
    np.testing.assert_array_equal(run("MAXIMUM", a, b, quant=[(1.0, 100)]), [100, 99])


@DTYPES
def test_power(dtype):
    base, exponent = np.array([[2.0], [0.5]], dtype), np.array([2.0, -1.0], dtype)
    np.testing.assert_allclose(run("POW", base, exponent), [[4, 0.5], [0.25, 2]], rtol=1e-3)


@DTYPES
def test_prelu_broadcasts_alpha(dtype):
    alpha = np.array([0.5, 2.0, 1.0], dtype)
    wanted = np.where(A >= 0, A, A * alpha.astype(np.float32))
    np.testing.assert_array_equal(run("PRELU", A.astype(dtype), alpha), wanted.astype(dtype))


def test_prelu_of_codes_rounds_twice():
    x, alpha = quantized([10, 9, 15], 1.0, 10), quantized([60], 0.01, 10)
    np.testing.assert_array_equal(run("PRELU", x, alpha, quant=[(0.5, 100)]), [100, 99, 110])


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("EQUAL", np.equal),
        ("NOT_EQUAL", np.not_equal),
        ("LESS", np.less),
        ("LESS_EQUAL", np.less_equal),
        ("GREATER", np.greater),
        ("GREATER_EQUAL", np.greater_equal),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.bool_])
def test_comparisons(name, function, dtype):
    a, b = A.astype(dtype), B.astype(dtype)
    np.testing.assert_array_equal(run(name, a, b), function(a, b))


@QUANTIZED
def test_codes_are_compared_by_what_they_stand_for(dtype, shift):
    a, b = quantized([10 + shift, 12 + shift], 0.5, 10 + shift, dtype), quantized([1 + shift] * 2, 1.0, shift, dtype)
    np.testing.assert_array_equal(run("LESS", a, b), [True, False])
    np.testing.assert_array_equal(run("EQUAL", a, b), [False, True])


def test_logic():
    a, b = np.array([[True], [False]]), np.array([True, False])
    np.testing.assert_array_equal(run("LOGICAL_AND", a, b), a & b)
    np.testing.assert_array_equal(run("LOGICAL_OR", a, b), a | b)
    np.testing.assert_array_equal(run("LOGICAL_NOT", a), ~a)


def test_select_takes_equal_shapes_only():
    condition = A > 0
    np.testing.assert_array_equal(run("SELECT", condition, A, -A), np.where(condition, A, -A))
    with pytest.raises(InvalidModelError, match="'input2' has shape"):
        run("SELECT", condition, A, B)


def test_select_of_codes_moves_both_to_the_results_quantization():
    a, b = quantized([10, 20], 1.0, 0), quantized([10, 20], 2.0, 0)
    np.testing.assert_array_equal(run("SELECT", np.array([True, False]), a, b, quant=[(4.0, 1)]), [4, 11])


@DTYPES
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("ABS", np.abs),
        ("NEG", np.negative),
        ("EXP", np.exp),
        ("LOG", np.log),
        ("SIN", np.sin),
        ("SQRT", np.sqrt),
        ("RSQRT", lambda x: 1 / np.sqrt(x)),
        ("FLOOR", np.floor),
    ],
)
def test_functions_of_one_tensor(name, function, dtype):
    x = np.array([[0.25, 1.0], [2.5, 6.75]], dtype)
    np.testing.assert_allclose(run(name, x), function(x.astype(np.float64)), rtol=1e-6 if dtype is np.float32 else 1e-3)


@QUANTIZED
def test_rsqrt_of_codes(dtype, shift):
    x = quantized(np.array([0, 4, 16, 100]) + shift, 1.0, shift, dtype)
    wanted = np.array([255, 50, 25, 10]) + shift  # one over zero is the highest code
    np.testing.assert_array_equal(run("RSQRT", x, quant=[(0.01, shift)]), wanted)


def test_zero_sizes_go_through():
    assert run("ADD", np.ones((0, 3), np.float32), B).shape == (0, 3)
