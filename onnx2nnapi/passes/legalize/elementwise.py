"""Arithmetic, element by element."""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.infinity import refuse_visible_infinities
from onnx2nnapi.passes.legalize.shapes import binary, fold, unary

# One operation for one operator, at whatever level the row names.
_UNARY = {"Exp": "EXP", "Floor": "FLOOR", "Log": "LOG", "Sin": "SIN", "Sqrt": "SQRT"}
_BINARY = {"Add": "ADD", "Mul": "MUL", "Sub": "SUB"}
_FOLDED = {"Max": "MAXIMUM", "Min": "MINIMUM", "Sum": "ADD"}


@legalizes(*_UNARY)
def unary_operator(b: Builder, op: Op) -> Value:
    return unary(b, _UNARY[op.kind], b.inputs(op)[0])


@legalizes("Add", "Mul")
def commutative(b: Builder, op: Op) -> Value:
    """ADD or MUL."""
    refuse_visible_infinities(b, op)
    return binary(b, _BINARY[op.kind], *b.inputs(op))


@legalizes("Sub")
def sub(b: Builder, op: Op) -> Value:
    """SUB; at level 1 the addition of the negative."""
    x, y = b.inputs(op)
    return difference(b, x, y)


@legalizes("Max", "Min", "Sum")
def folded(b: Builder, op: Op) -> Value:
    """MAXIMUM, MINIMUM or ADD over all operands; below level 3 max(x, y) = y + relu(x - y) of floats."""
    kind, values = _FOLDED[op.kind], b.inputs(op)
    if kind == "ADD" or b.at_least(3) or values[0].known.dtype.kind != "f":
        return fold(b, kind, values)
    result = values[0]
    for value in values[1:]:
        result = extremum(b, kind, result, value)
    return result


@legalizes("Mean")
def mean(b: Builder, op: Op) -> Value:
    """ADD of all operands, then MUL by a constant."""
    values = b.inputs(op)
    return scale(b, fold(b, "ADD", values), 1 / len(values)) if len(values) > 1 else values[0]


@legalizes("Div")
def div(b: Builder, op: Op) -> Value:
    """DIV; at level 1 a constant divisor becomes a factor. ONNX truncates integers, NNAPI floors."""
    x, y = b.inputs(op)
    if x.known.dtype.kind == "i":
        return truncated_quotient(b, x, y)
    return quotient(b, x, y)


@legalizes("Abs")
def abs_(b: Builder, op: Op) -> Value:
    """ABS; below level 3 RELU(x) + RELU(-x) of floats."""
    return absolute(b, b.inputs(op)[0])


@legalizes("Neg")
def neg(b: Builder, op: Op) -> Value:
    """NEG; below level 3 MUL by -1."""
    return negate(b, b.inputs(op)[0])


@legalizes("Reciprocal")
def reciprocal(b: Builder, op: Op) -> Value:
    """DIV of one by x."""
    (x,) = b.inputs(op)
    return quotient(b, one(b, x), x)


@legalizes("Ceil")
def ceil(b: Builder, op: Op) -> Value:
    """-FLOOR(-x)."""
    return negate(b, unary(b, "FLOOR", negate(b, b.inputs(op)[0])))


@legalizes("Pow")
def pow_(b: Builder, op: Op) -> Value:
    """Small constant exponents are products, roots or quotients; else POW."""
    x, y = b.inputs(op)
    exponent = (
        float(y.const.numpy().reshape(-1)[0])
        if y.const is not None and y.known.size == 1 and y.rank <= x.rank
        else None
    )
    if exponent == 1.0:
        return x
    if exponent in (2.0, 3.0, 4.0):
        square = binary(b, "MUL", x, x)
        return square if exponent == 2.0 else binary(b, "MUL", square, x if exponent == 3.0 else square)
    if x.known.dtype.kind == "i":
        b.unsupported("integers are raised to the constant powers 1 to 4 only", "cast the base to float before")
    if exponent == 0.5:
        return unary(b, "SQRT", x)
    if exponent == -1.0:
        return quotient(b, one(b, x), x)
    if exponent == -0.5 and b.at_least(3):
        return unary(b, "RSQRT", x)
    if y.known.dtype != x.known.dtype:
        y = b.const(y.const, x.known.dtype) if y.const is not None else b.emit("CAST", y, dtype=x.known.dtype)
    return binary(b, "POW", x, y)


# -- pieces that other families use ----------------------------------------------------------------------------------


def one(b: Builder, like: Value, value: float = 1.0) -> Value:
    """A constant of one element, of ``like``'s element type."""
    return b.const(np.array([value], like.known.dtype))


def scale(b: Builder, x: Value, factor: float) -> Value:
    return x if factor == 1 else binary(b, "MUL", x, one(b, x, factor))


def shift(b: Builder, x: Value, term: float, **attrs: int) -> Value:
    return x if term == 0 and not attrs else binary(b, "ADD", x, one(b, x, term), **attrs)


def negate(b: Builder, x: Value) -> Value:
    """NEG, below level 3 a product with -1."""
    return unary(b, "NEG", x) if b.at_least(3) else scale(b, x, -1.0)


def absolute(b: Builder, x: Value) -> Value:
    """ABS, below level 3 the sum of the positive and the negative part."""
    if b.at_least(3) or x.known.dtype.kind != "f":
        return unary(b, "ABS", x)
    return binary(b, "ADD", unary(b, "RELU", x), unary(b, "RELU", negate(b, x)))


def difference(b: Builder, x: Value, y: Value) -> Value:
    if b.at_least(2):
        return binary(b, "SUB", x, y)
    if y.const is not None:
        return binary(b, "ADD", x, b.const(y.const.scaled(np.array(-1, y.known.dtype))))
    return binary(b, "ADD", x, negate(b, y))


def quotient(b: Builder, x: Value, y: Value) -> Value:
    if not b.at_least(2) and y.const is not None:
        with np.errstate(divide="ignore"):
            return binary(b, "MUL", x, b.const((1 / y.const.numpy()).astype(y.known.dtype)))
    return binary(b, "DIV", x, y)


def extremum(b: Builder, kind: str, x: Value, y: Value) -> Value:
    """MAXIMUM or MINIMUM; of floats below level 3 by the positive part of the difference."""
    if b.at_least(3) or x.known.dtype.kind != "f":
        return binary(b, kind, x, y)
    if kind == "MAXIMUM":
        return binary(b, "ADD", unary(b, "RELU", difference(b, x, y)), y)
    return difference(b, y, unary(b, "RELU", difference(b, y, x)))


def clamp(b: Builder, x: Value, low: float | None, high: float | None) -> Value:
    """min(max(x, low), high): the fused forms where the bounds are theirs."""
    if x.known.dtype.kind == "f":
        if high is None and low == 0:
            return unary(b, "RELU", x)
        if (low, high) == (0, 6):
            return unary(b, "RELU6", x)
        if (low, high) == (-1, 1):
            return unary(b, "RELU1", x)
    if low is not None:
        x = unary(b, "RELU", x) if low == 0 and x.known.dtype.kind == "f" else extremum(b, "MAXIMUM", x, one(b, x, low))
    return x if high is None else extremum(b, "MINIMUM", x, one(b, x, high))


def truncated_quotient(b: Builder, x: Value, y: Value) -> Value:
    """Toward zero, as ONNX and C divide integers: the floor of the magnitudes' quotient, with the sign put back."""
    magnitude = binary(b, "DIV", absolute(b, x), absolute(b, y))
    zero = one(b, x, 0)
    differs = binary(b, "NOT_EQUAL", binary(b, "LESS", x, zero), binary(b, "LESS", y, zero))
    return b.emit("SELECT", differs, unary(b, "NEG", magnitude), magnitude)
