"""Logistic function and hyperbolic tangent of 16-bit fixed-point numbers, and an inverse square root of 32-bit ones.

They follow gemmlowp's fixedpoint.h and TensorFlow Lite's use of it step by step, so that every code is Android's. A
number of ``bits`` integer bits stands for ``raw / 2^(15 - bits)``. The functions of 16 bits are tabulated once.
"""

from __future__ import annotations

import functools

import numpy as np

from onnx2nnapi.ir.types import Array

__all__ = ["inverse_square_root", "logistic16", "multiply16", "rescale16", "tanh16"]

LOW, HIGH = -(1 << 15), (1 << 15) - 1

# exp(-2^exponent) as a 32-bit number without integer bits, by exponent.
_EXPONENTIALS = {-2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242}


def multiply16(a: Array, b: Array | int) -> Array:
    """The product of two numbers, with the integer bits of both; ties away from zero."""
    product = np.multiply(a, b, dtype=np.int64)
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.minimum(_divide_toward_zero(nudged, 1 << 15), HIGH)


def rescale16(x: Array, exponent: int) -> Array:
    """``x · 2^exponent``, saturated, or rounded with ties away from zero: the same number with other integer bits."""
    if exponent >= 0:
        return np.clip(np.left_shift(x, exponent), LOW, HIGH)
    divisor = 1 << -exponent
    return _divide_toward_zero(x + np.where(x >= 0, divisor >> 1, -(divisor >> 1)), divisor)


def logistic16(x: Array) -> Array:
    """1 / (1 + exp(−x)) of int16 numbers with 3 integer bits, an int16 number without."""
    return np.take(_logistic_table(), x.astype(np.int64) - LOW)


def tanh16(x: Array, bits: int) -> Array:
    """tanh(x) of int16 numbers with ``bits`` integer bits, an int16 number without."""
    return np.take(_tanh_table(bits), x.astype(np.int64) - LOW)


@functools.cache
def _logistic_table() -> Array:
    x = np.arange(LOW, HIGH + 1, dtype=np.int64)
    positive = _reciprocal(_exp_of_negative(_wrapped(-np.abs(x)), 3), one_over=True)
    return np.where(x == 0, 1 << 14, np.where(x > 0, positive, HIGH - positive)).astype(np.int16)


@functools.cache
def _tanh_table(bits: int) -> Array:
    x = np.arange(LOW, HIGH + 1, dtype=np.int64)
    magnitude = _reciprocal(_exp_of_negative(_wrapped(-np.abs(x)), bits + 1), one_over=False)
    return np.where(x == 0, 0, np.where(x > 0, magnitude, -magnitude)).astype(np.int16)


def _wrapped(x: Array) -> Array:
    """64-bit numbers as 16 bits hold them."""
    return x.astype(np.int16).astype(np.int64)


def _divide_toward_zero(x: Array, divisor: int) -> Array:
    quotient: Array = np.abs(x) // divisor
    return np.where(x < 0, -quotient, quotient)


def _constant(value: int) -> int:
    """A 32-bit constant in 16 bits."""
    return min((abs(value) + (1 << 15)) >> 16, HIGH) * (1 if value >= 0 else -1)


def _exp_of_negative(x: Array, bits: int) -> Array:
    """exp(x) of numbers that are not positive: a polynomial on [−1/4, 0), times exp(−2^k) for each bit above."""
    fraction = 15 - bits
    quarter = 1 << (fraction - 2) if fraction >= 2 else 0
    within = (x & (quarter - 1)) - quarter
    result = _exp_near_zero(rescale16(within, bits))
    remainder = within - x
    for exponent, value in _EXPONENTIALS.items():
        if bits > exponent:
            result = np.where(remainder & (1 << (fraction + exponent)), multiply16(result, _constant(value)), result)
    if bits > 5:
        result = np.where(x < -(1 << (20 - bits)), 0, result)
    return np.where(x == 0, HIGH, result)


def _exp_near_zero(x: Array) -> Array:
    """exp(x) on [−1/4, 0), by its Taylor series round −1/8; no integer bits."""
    centre, third = _constant(1895147668), _constant(715827883)
    x = x + (1 << 12)
    square = multiply16(x, x)
    cube, fourth = multiply16(square, x), multiply16(square, square)
    tail = rescale16(multiply16(rescale16(fourth, -2) + cube, third) + square, -1)
    result: Array = np.clip(centre + multiply16(x + tail, centre), LOW, HIGH)
    return result


def _reciprocal(x: Array, *, one_over: bool) -> Array:
    """1 / (1 + x), or (1 − x) / (1 + x), of numbers from 0 to 1 without integer bits, by Newton's method."""
    total = x + HIGH
    half = _divide_toward_zero(total + np.where(total >= 0, 1, -1), 2)  # the denominator's half
    y = _constant(1515870810) + multiply16(half, _constant(-1010580540))  # two integer bits
    one = 1 << 13
    for _ in range(3):
        error = one - multiply16(half, y)
        y = y + rescale16(multiply16(y, error), 2)
    return rescale16(y, 1) if one_over else rescale16(y - one, 2)


def inverse_square_root(values: Array) -> tuple[Array, Array]:
    """``(mantissa, shift)`` with 1 / sqrt(value) ≈ mantissa · 2^(shift − 31), of integers that are not negative."""
    value = np.maximum(values, 1).astype(np.int64)
    length = np.frexp(value.astype(np.float64))[1].astype(np.int64)
    quarters = np.maximum((length - 28) // 2, 0)
    pairs = (31 - (length - 2 * quarters)) // 2 - 1
    shift = 11 + quarters - pairs
    value = (value >> (2 * quarters)) << (2 * pairs)
    x = np.full(value.shape, 1 << 28, np.int64)  # one, with three integer bits
    half_input = ((value >> 1) + 1) >> 1
    for _ in range(5):
        cube = _saturated(_multiply32(_multiply32(x, x), x) << 6)
        x = _saturated((_multiply32(x, (1 << 28) + (1 << 27)) - _multiply32(half_input, cube)) << 3)
    x = _multiply32(x, 1518500250)  # sqrt(2) / 2
    x <<= np.maximum(-shift, 0)
    one = values <= 1
    return np.where(one, (1 << 31) - 1, x), np.where(one, 0, -np.maximum(shift, 0))


def _multiply32(a: Array, b: Array | int) -> Array:
    """The product of 32-bit numbers without integer bits; ties upwards."""
    result: Array = np.add(a * b, 1 << 30, dtype=np.int64) >> 31
    return result


def _saturated(x: Array) -> Array:
    return np.clip(x, -(1 << 31), (1 << 31) - 1)
