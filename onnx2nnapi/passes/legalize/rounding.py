"""Whole numbers, signs, remainders, and what is no number."""

from __future__ import annotations

import math

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.nnapi.codes import FuseCode
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.elementwise import absolute, clamp, difference, one, quotient, scale, truncated_quotient
from onnx2nnapi.passes.legalize.logic import cast_to, narrowed, saturated
from onnx2nnapi.passes.legalize.shapes import binary, unary

__all__ = ["as_int32", "rounded", "sign_of", "step"]


@legalizes("Round")
def round_(b: Builder, op: Op) -> Value:
    """FLOOR, and one more where the fraction is above a half, or is a half and the floor is odd.

    With f the floor and d = x - f: f - FLOOR(1/2 - d - ε·odd), where ε is the distance from 1/2 to the number below it.
    All of it is exact: a half plus x would not be.
    """
    return rounded(b, b.inputs(op)[0])


def rounded(b: Builder, x: Value) -> Value:
    """The nearest whole numbers, halves to the even ones; see ``round_``."""
    whole = unary(b, "FLOOR", x)
    halved = scale(b, whole, 0.5)
    odd = difference(b, halved, unary(b, "FLOOR", halved))  # a half where the floor is odd
    below = float(np.finfo(x.known.dtype).epsneg)
    rest = difference(b, one(b, x, 0.5), difference(b, x, whole))
    return difference(b, whole, unary(b, "FLOOR", difference(b, rest, scale(b, odd, below))))


@legalizes("Sign")
def sign(b: Builder, op: Op) -> Value:
    """Floats times a large number, twice, each time clamped by RELU1; integers clamped to -1 and 1."""
    (x,) = b.inputs(op)
    if x.known.dtype.kind == "f":
        return sign_of(b, x)
    return narrowed(b, clamp(b, as_int32(b, x), -1, 1), x.known.dtype)


def sign_of(b: Builder, x: Value) -> Value:
    """-1, 0 or 1: the smallest float there is, times this factor twice, is above 1."""
    factor = one(b, x, 2.0 ** (100 if x.known.dtype.itemsize > 2 else 15))
    for _ in range(2):
        x = binary(b, "MUL", x, factor, fuse_code=FuseCode.RELU1)
    return x


def step(b: Builder, x: Value) -> Value:
    """1 where x is above 0, else 0."""
    return unary(b, "RELU", sign_of(b, x))


def as_int32(b: Builder, x: Value) -> Value:
    """Bytes as int32, in which NNAPI computes; others as they are."""
    return cast_to(b, x, np.dtype(np.int32)) if x.known.dtype.itemsize == 1 else x


@legalizes("Mod")
def mod(b: Builder, op: Op) -> Value:
    """x - y · floor(x / y), whose sign is y's; with fmod the remainder of the magnitudes, with the sign of x."""
    x, y = b.inputs(op)
    if x.known.dtype.kind == "f":
        if not op.attrs["fmod"]:
            if y.const is None or not np.isfinite(y.const.numpy()).all():
                b.unsupported(
                    "fmod is 0 and the divisor not constant: it may be infinite, and NNAPI saturates infinite numbers",
                    "make the divisor constant, or set fmod to 1",
                )
            return _remainder(b, x, y)
        return binary(b, "MUL", _remainder(b, absolute(b, x), absolute(b, y)), sign_of(b, x))
    x, y = as_int32(b, x), as_int32(b, y)
    whole = truncated_quotient(b, x, y) if op.attrs["fmod"] else binary(b, "DIV", x, y)
    rest = binary(b, "SUB", x, binary(b, "MUL", whole, y))
    return narrowed(b, rest, b.inputs(op)[0].known.dtype)


def _remainder(b: Builder, x: Value, y: Value) -> Value:
    """x - y · floor(x / y): a quotient that was rounded up leaves a rest just below 0, which a second round mends."""
    for _ in range(2):
        x = difference(b, x, binary(b, "MUL", unary(b, "FLOOR", quotient(b, x, y)), y))
    return x


@legalizes("IsNaN")
def is_nan(b: Builder, op: Op) -> Value:
    """NOT_EQUAL to itself."""
    (x,) = b.inputs(op)
    return binary(b, "NOT_EQUAL", x, x)


@legalizes("IsInf")
def is_inf(b: Builder, op: Op) -> Value:
    """At least the largest float, at which NNAPI's arithmetic saturates; in magnitude where both signs count."""
    (x,) = b.inputs(op)
    positive, negative = bool(op.attrs["detect_positive"]), bool(op.attrs["detect_negative"])
    if not positive and not negative:
        return b.const(np.zeros(b.out_shape(op), np.bool_))
    return saturated(b, absolute(b, x) if positive and negative else x, math.inf if positive else -math.inf)
