from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx2nnapi.nnapi.codes import FuseCode, OperandCode
from onnx2nnapi.nnapi.rules import RuleError
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels.arithmetic import (
    FLOAT32_MAX,
    activate,
    all_codes,
    code_range,
    dequantize,
    look_up,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    requantize,
    round_half_away,
    rounding_divide_by_power_of_two,
    saturating_rounding_doubling_high_mul,
)

U8, S8 = OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
int32s = st.integers(-(2**31), 2**31 - 1)


def rounded(numerator: int, denominator: int) -> int:
    """The quotient of integers, ties away from zero, in integers only."""
    quotient = (2 * abs(numerator) + denominator) // (2 * denominator)
    return quotient if numerator >= 0 else -quotient


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_is_away_from_zero_at_ties_only(dtype):
    below = np.nextafter(dtype(0.5), dtype(0))
    x = np.array([0.5, -0.5, 1.5, 2.5, -2.5, below, -below, 2**22 + 0.5, np.inf], dtype)
    np.testing.assert_array_equal(round_half_away(x), [1, -1, 2, 3, -3, 0, 0, 2**22 + 1, np.inf])


@pytest.mark.parametrize(
    ("fuse_code", "values"),
    [
        (FuseCode.NONE, [-FLOAT32_MAX, -7, -0.5, 0.5, 7, FLOAT32_MAX]),
        (FuseCode.RELU, [0, 0, 0, 0.5, 7, FLOAT32_MAX]),
        (FuseCode.RELU1, [-1, -1, -0.5, 0.5, 1, 1]),
        (FuseCode.RELU6, [0, 0, 0, 0.5, 6, 6]),
    ],
)
def test_activations_of_floats(fuse_code, values):
    x = np.array([-np.inf, -7, -0.5, 0.5, 7, np.inf], np.float32)
    np.testing.assert_array_equal(activate(x, fuse_code), np.array(values, np.float32))
    np.testing.assert_array_equal(activate(x, fuse_code, x), np.array(values, np.float32))
    assert np.isnan(activate(np.array([np.nan], np.float32), fuse_code)).all()


@pytest.mark.parametrize(
    ("code", "scale", "zero_point", "ranges"),
    [
        (U8, 0.5, 10, [(0, 255), (10, 255), (8, 12), (10, 22)]),
        (S8, 0.5, 10, [(-128, 127), (10, 127), (8, 12), (10, 22)]),
        (S8, 0.01, -128, [(-128, 127), (-128, 127), (-128, -28), (-128, 127)]),
        (U8, 1e-30, 0, [(0, 255), (0, 255), (0, 255), (0, 255)]),
    ],
)
def test_activations_of_codes(code, scale, zero_point, ranges):
    type_ = OperandType(code, (1,), scale, zero_point)
    assert [code_range(type_, fuse_code) for fuse_code in range(4)] == ranges


@given(
    st.sampled_from([(U8, 0), (U8, 127), (U8, 255), (S8, -128), (S8, 0), (S8, 127)]),
    st.lists(st.integers(-3000, 3000), min_size=1, max_size=20),
    st.sampled_from([1, 2, 3, 8]),
)
def test_requantization_is_exact(kind, numerators, denominator):
    code, zero_point = kind
    low, high = (0, 255) if code is U8 else (-128, 127)
    wanted = [min(max(rounded(n, denominator) + zero_point, low), high) for n in numerators]
    codes = requantize(np.array(numerators) / denominator, OperandType(code, (1,), 1.0, zero_point))
    assert codes.dtype == code.dtype
    assert codes.tolist() == wanted


@pytest.mark.parametrize("code", [U8, S8])
def test_tables_are_read_by_code(code):
    type_ = OperandType(code, (256,), 0.25, 3)
    table = dequantize(all_codes(type_), type_)
    codes = np.array([[3, 7], [127, 0]], code.dtype)
    found = np.empty(codes.shape, table.dtype)
    look_up(table, codes, found)
    np.testing.assert_array_equal(found, [[0, 1], [31, -0.75]])


@given(st.floats(1e-9, 1e9))
def test_a_quantized_multiplier_has_31_bits(real):
    mantissa, shift = quantize_multiplier(real)
    assert 2**30 <= mantissa < 2**31
    assert math.isclose(math.ldexp(mantissa, shift - 31), real, rel_tol=2**-31)


@pytest.mark.parametrize("real", [2.0**31, 1e30, math.inf, math.nan])
def test_a_multiplier_beyond_32_bits_is_refused(real):
    with pytest.raises(RuleError, match="it must be below 2"):
        quantize_multiplier(real)


def test_tiny_multipliers_are_zero():
    assert quantize_multiplier(0.0) == quantize_multiplier(2.0**-40) == (0, 0)
    assert quantize_multiplier(1 - 2.0**-40) == (2**30, 1)


@given(int32s, int32s)
def test_doubling_high_mul(a, b):
    """The high half of twice the product; at ties upwards, as the C code's nudge does."""
    product = saturating_rounding_doubling_high_mul(np.array([a], np.int32), b)
    assert product.dtype == np.int32
    assert product[0] == min((a * b + 2**30) >> 31, 2**31 - 1)


@given(int32s, st.integers(0, 31))
def test_division_by_a_power_of_two(x, exponent):
    assert rounding_divide_by_power_of_two(np.array([x], np.int32), exponent)[0] == rounded(x, 2**exponent)


def test_a_product_is_rounded_twice():
    """131.25 becomes 131.5, and that 132."""
    assert multiply_by_quantized_multiplier(np.array([525], np.int32), *quantize_multiplier(0.25))[0] == 132
    assert (
        multiply_by_quantized_multiplier(np.array([22950], np.int32), *quantize_multiplier(0.0784 / 256 / 0.08624))[0]
        == 82
    )


def test_multipliers_may_differ_by_channel():
    mantissas, shifts = zip(*map(quantize_multiplier, (0.5, 2.0, 0.0)), strict=True)
    result = multiply_by_quantized_multiplier(np.array([[10, 10, 10]], np.int32), np.array(mantissas), np.array(shifts))
    np.testing.assert_array_equal(result, [[5, 20, 0]])
