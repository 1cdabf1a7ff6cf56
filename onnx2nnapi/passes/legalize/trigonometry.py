"""Trigonometric and hyperbolic functions and their inverses, of which NNAPI has the sine and the hyperbolic tangent."""

from __future__ import annotations

import math

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.elementwise import absolute, clamp, difference, negate, one, quotient, scale, shift
from onnx2nnapi.passes.legalize.rounding import sign_of
from onnx2nnapi.passes.legalize.shapes import binary, unary

# atan(x) = x · p(x²): p is the polynomial of degree 4 with the least largest error on |x| ≤ tan(π/8) (4e-09).
_ATAN_COEFFICIENTS = (
    0.999999905503159,
    -0.33332203302399865,
    0.19961945904487802,
    -0.13754633769093055,
    0.07734034098551476,
)
_LARGE = 1e9  # where log(x + sqrt(x² ± 1)) is log(2x), and 1/x is less than float32 adds to π/2

# π and π/2 as sums of a part whose multiples are exact in float32, and the rest.
_PI = (3.140625, math.pi - 3.140625)
_HALF_PI = (1.5703125, math.pi / 2 - 1.5703125)


@legalizes("Cos")
def cos(b: Builder, op: Op) -> Value:
    """1 - 2 · SIN(x/2)², which rounds no argument."""
    half = unary(b, "SIN", scale(b, b.inputs(op)[0], 0.5))
    return shift(b, scale(b, binary(b, "MUL", half, half), -2.0), 1.0)


@legalizes("Tan")
def tan(b: Builder, op: Op) -> Value:
    """SIN(r) / SIN(π/2 - |r|), where r is x less the nearest multiple of π: accurate around zeros and poles."""
    (x,) = b.inputs(op)
    turns = unary(b, "FLOOR", shift(b, scale(b, x, 1 / math.pi), 0.5))
    rest = x
    for part in _PI:
        rest = difference(b, rest, scale(b, turns, part))
    other = shift(b, difference(b, one(b, x, _HALF_PI[0]), absolute(b, rest)), _HALF_PI[1])
    return quotient(b, unary(b, "SIN", rest), unary(b, "SIN", other))


@legalizes("Atan")
def atan(b: Builder, op: Op) -> Value:
    """Twice the arc tangent of x / (1 + sqrt(1 + x²)), which is at most 1; within 3e-7."""
    b.approximate("within 3e-7")
    x = clamp(b, b.inputs(op)[0], -_LARGE, _LARGE)
    return scale(b, _atan_of_one(b, _halved(b, x)), 2.0)


@legalizes("Asin")
def asin(b: Builder, op: Op) -> Value:
    """Twice the arc tangent of x / (1 + sqrt(1 - x²)); within 3e-7."""
    b.approximate("within 3e-7")
    (x,) = b.inputs(op)
    return scale(b, _atan_of_one(b, quotient(b, x, shift(b, _other_side(b, x), 1.0))), 2.0)


@legalizes("Acos")
def acos(b: Builder, op: Op) -> Value:
    """Four times the arc tangent of sqrt((1 - x)/2) / (1 + sqrt((1 + x)/2)); within 5e-7."""
    b.approximate("within 5e-7")
    (x,) = b.inputs(op)
    low, high = (unary(b, "SQRT", shift(b, scale(b, x, factor), 0.5)) for factor in (-0.5, 0.5))
    return scale(b, _atan_of_one(b, quotient(b, low, shift(b, high, 1.0))), 4.0)


def _other_side(b: Builder, x: Value) -> Value:
    """sqrt(1 - x²)."""
    return unary(b, "SQRT", binary(b, "MUL", difference(b, one(b, x), x), shift(b, x, 1.0)))


def _halved(b: Builder, x: Value) -> Value:
    """The tangent of half the angle whose tangent is ``x``: x / (1 + sqrt(1 + x²))."""
    return quotient(b, x, shift(b, unary(b, "SQRT", shift(b, binary(b, "MUL", x, x), 1.0)), 1.0))


def _atan_of_one(b: Builder, x: Value) -> Value:
    """The arc tangent of numbers from -1 to 1: twice a polynomial, at the tangent of half the angle."""
    half = _halved(b, x)
    square = binary(b, "MUL", half, half)
    total = one(b, x, _ATAN_COEFFICIENTS[-1])
    for coefficient in _ATAN_COEFFICIENTS[-2::-1]:
        total = shift(b, binary(b, "MUL", square, total), coefficient)
    return binary(b, "MUL", scale(b, half, 2.0), total)


@legalizes("Cosh")
def cosh(b: Builder, op: Op) -> Value:
    """(EXP(x) + EXP(-x)) / 2."""
    return _cosh(b, b.inputs(op)[0])


@legalizes("Sinh")
def sinh(b: Builder, op: Op) -> Value:
    """TANH(x) · cosh(x), which keeps small numbers: the difference of exponentials would not."""
    (x,) = b.inputs(op)
    return binary(b, "MUL", unary(b, "TANH", x), _cosh(b, x))


def _cosh(b: Builder, x: Value) -> Value:
    return binary(b, "ADD", *(scale(b, unary(b, "EXP", part), 0.5) for part in (x, negate(b, x))))


@legalizes("Asinh")
def asinh(b: Builder, op: Op) -> Value:
    """LOG(|x| + sqrt(x² + 1)) with the sign of x; within 1e-6 of 1, or of the result where that is larger."""
    b.approximate("within 1e-6, or of the result where that is larger")
    (x,) = b.inputs(op)
    return binary(b, "MUL", sign_of(b, x), _log_of_sum(b, absolute(b, x), 1.0))


@legalizes("Acosh")
def acosh(b: Builder, op: Op) -> Value:
    """LOG(x + sqrt(x² - 1))."""
    return _log_of_sum(b, b.inputs(op)[0], -1.0)


def _log_of_sum(b: Builder, x: Value, term: float) -> Value:
    """log(x + sqrt(x² + term)) of numbers above 0; beyond ``_LARGE``, where squares overflow, a factor is taken out."""
    near = clamp(b, x, None, _LARGE)
    if term < 0:
        square = binary(b, "MUL", shift(b, near, -1.0), shift(b, near, 1.0))  # exact at 1
    else:
        square = shift(b, binary(b, "MUL", near, near), term)
    total = unary(b, "LOG", binary(b, "ADD", near, unary(b, "SQRT", square)))
    return binary(b, "ADD", total, unary(b, "LOG", scale(b, clamp(b, x, _LARGE, None), 1 / _LARGE)))


@legalizes("Atanh")
def atanh(b: Builder, op: Op) -> Value:
    """LOG((1 + x) / (1 - x)) / 2."""
    (x,) = b.inputs(op)
    return scale(b, unary(b, "LOG", quotient(b, shift(b, x, 1.0), difference(b, one(b, x), x))), 0.5)
