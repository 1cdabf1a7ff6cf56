"""Activation functions, Softmax, and the error function with its kin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.nnapi.codes import FuseCode
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.elementwise import (
    absolute,
    clamp,
    difference,
    extremum,
    negate,
    one,
    quotient,
    scale,
    shift,
)
from onnx2nnapi.passes.legalize.logic import cast_to, select
from onnx2nnapi.passes.legalize.rounding import step
from onnx2nnapi.passes.legalize.shapes import MAX_RANK, axis_of, binary, unary

_UNARY = {"Sigmoid": "LOGISTIC", "Tanh": "TANH"}


@legalizes(*_UNARY)
def sigmoid(b: Builder, op: Op) -> Value:
    return unary(b, _UNARY[op.kind], b.inputs(op)[0])


@legalizes("Relu")
def relu(b: Builder, op: Op) -> Value:
    """RELU, fused into the operation before it where that can."""
    return clamp(b, b.inputs(op)[0], 0, None)


@legalizes("Clip")
def clip(b: Builder, op: Op) -> Value:
    """RELU, RELU1, RELU6 where the bounds are theirs, else MAXIMUM and MINIMUM; the bounds may be computed."""
    x = b.inputs(op)[0]
    low, high = (b.optional_input(op, index) for index in (1, 2))
    bounds = [None if v is None or v.const is None else v.const.numpy().reshape(-1)[0].item() for v in (low, high)]
    if all(v is None or v.const is not None for v in (low, high)):
        limits = _limits(x)
        return clamp(b, x, *(None if bound in limits else bound for bound in bounds))
    x = x if low is None else extremum(b, "MAXIMUM", x, low)
    return x if high is None else extremum(b, "MINIMUM", x, high)


def _limits(x: Value) -> tuple[float, ...]:
    """Bounds that bound nothing."""
    if x.known.dtype.kind == "f":
        return (float(np.finfo(x.known.dtype).max), float(np.finfo(x.known.dtype).min), math.inf, -math.inf)
    return (np.iinfo(x.known.dtype).max, np.iinfo(x.known.dtype).min)


@legalizes("LeakyRelu")
def leaky_relu(b: Builder, op: Op) -> Value:
    """PRELU with a constant slope; below level 3 RELU(x) - alpha · RELU(-x)."""
    (x,) = b.inputs(op)
    return prelu_of(b, x, one(b, x, op.attrs["alpha"]))


@legalizes("PRelu")
def prelu(b: Builder, op: Op) -> Value:
    """PRELU; below level 3 RELU(x) - slope · RELU(-x)."""
    return prelu_of(b, *b.inputs(op))


def prelu_of(b: Builder, x: Value, slope: Value) -> Value:
    """PRELU; below level 3 relu(x) - slope · relu(-x)."""
    if b.at_least(3):
        return binary(b, "PRELU", x, slope)
    negative = binary(b, "MUL", unary(b, "RELU", negate(b, x)), slope)
    return binary(b, "ADD", unary(b, "RELU", x), negate(b, negative))


@legalizes("HardSigmoid")
def hard_sigmoid(b: Builder, op: Op) -> Value:
    """clamp(alpha · x + beta, 0, 1), as RELU6(6 · (alpha · x + beta)) / 6: an activation that every level fuses."""
    (x,) = b.inputs(op)
    return hard_sigmoid_of(b, x, op.attrs["alpha"], op.attrs["beta"])


def hard_sigmoid_of(b: Builder, x: Value, alpha: float, beta: float) -> Value:
    return scale(b, shift(b, scale(b, x, _six(alpha)), 6 * beta, fuse_code=FuseCode.RELU6), 1 / 6)


def _six(alpha: float) -> float:
    """6 · alpha, exactly 1 for the float32 nearest to a sixth."""
    return 1.0 if abs(6 * alpha - 1) < 1e-6 else 6 * alpha


@legalizes("HardSwish")
def hard_swish(b: Builder, op: Op) -> Value:
    """HARD_SWISH from level 4, below x · RELU6(x + 3) / 6."""
    (x,) = b.inputs(op)
    if b.at_least(4):
        return unary(b, "HARD_SWISH", x)
    return scale(b, binary(b, "MUL", x, shift(b, x, 3.0, fuse_code=FuseCode.RELU6)), 1 / 6)


@legalizes("Elu")
def elu(b: Builder, op: Op) -> Value:
    """ELU from level 4; at level 3 relu(x) + alpha · (exp(min(x, 0)) - 1)."""
    (x,) = b.inputs(op)
    return elu_of(b, x, op.attrs["alpha"])


def elu_of(b: Builder, x: Value, alpha: float) -> Value:
    if b.at_least(4) and alpha >= 0:
        return unary(b, "ELU", x, alpha=alpha)
    b.needs_level(3, "Elu")
    negative = shift(b, unary(b, "EXP", binary(b, "MINIMUM", x, one(b, x, 0.0))), -1.0)
    return binary(b, "ADD", unary(b, "RELU", x), scale(b, negative, alpha))


@legalizes("Softplus")
def softplus(b: Builder, op: Op) -> Value:
    """RELU(x) + LOG(1 + EXP(-|x|)), which overflows nowhere."""
    return softplus_of(b, b.inputs(op)[0])


def softplus_of(b: Builder, x: Value) -> Value:
    """relu(x) + log(1 + exp(-|x|)), which overflows nowhere."""
    b.needs_level(3, "Softplus")
    tail = unary(b, "LOG", shift(b, unary(b, "EXP", negate(b, absolute(b, x))), 1.0))
    return binary(b, "ADD", unary(b, "RELU", x), tail)


@legalizes("Selu")
def selu(b: Builder, op: Op) -> Value:
    """gamma · elu(x)."""
    (x,) = b.inputs(op)
    return scale(b, elu_of(b, x, op.attrs["alpha"]), op.attrs["gamma"])


@legalizes("Celu")
def celu(b: Builder, op: Op) -> Value:
    """alpha · elu(x / alpha)."""
    (x,) = b.inputs(op)
    alpha = op.attrs["alpha"]
    if alpha < 0:  # both max(0, x) and min(0, …) let exp(x / alpha) through where x is below 0
        b.unsupported(f"alpha is {alpha}, it must be above 0")
    return scale(b, elu_of(b, scale(b, x, 1 / alpha), 1.0), alpha)


@legalizes("Swish")
def swish(b: Builder, op: Op) -> Value:
    """x · LOGISTIC(alpha · x)."""
    (x,) = b.inputs(op)
    return swish_of(b, x, op.attrs["alpha"])


def swish_of(b: Builder, x: Value, alpha: float = 1.0) -> Value:
    return binary(b, "MUL", x, unary(b, "LOGISTIC", scale(b, x, alpha)))


@legalizes("Mish")
def mish(b: Builder, op: Op) -> Value:
    """x · tanh(softplus(x)), as x · s · (1 + n) / (1 + n²) with s = LOGISTIC(x) and n = LOGISTIC(-x)."""
    (x,) = b.inputs(op)
    rest = unary(b, "LOGISTIC", negate(b, x))
    above = binary(b, "MUL", unary(b, "LOGISTIC", x), shift(b, rest, 1.0))
    return binary(b, "MUL", x, quotient(b, above, shift(b, binary(b, "MUL", rest, rest), 1.0)))


@legalizes("Softsign")
def softsign(b: Builder, op: Op) -> Value:
    """x / (1 + |x|)."""
    (x,) = b.inputs(op)
    return quotient(b, x, shift(b, absolute(b, x), 1.0))


@legalizes("ThresholdedRelu")
def thresholded_relu(b: Builder, op: Op) -> Value:
    """SELECT of x where it is above alpha; below level 3 a product with 0 or 1."""
    (x,) = b.inputs(op)
    return above(b, x, op.attrs["alpha"], x)


@legalizes("Shrink")
def shrink(b: Builder, op: Op) -> Value:
    """x + bias below -lambd, x - bias above lambd, and 0 between."""
    (given,) = b.inputs(op)
    x = cast_to(b, given, np.dtype(np.float32)) if given.known.dtype.kind in "iu" else given
    limit, bias = op.attrs["lambd"], op.attrs["bias"]
    high = above(b, x, limit, shift(b, x, -bias))
    mirrored = negate(b, x)
    low = above(b, mirrored, limit, shift(b, mirrored, -bias))
    return cast_to(b, difference(b, high, low), given.known.dtype)


def above(b: Builder, x: Value, limit: float, result: Value) -> Value:
    """``result`` where x is above ``limit``, else 0; all floats of one shape."""
    if b.at_least(3):
        return select(b, binary(b, "GREATER", x, one(b, x, limit)), result, one(b, x, 0.0))
    return binary(b, "MUL", result, step(b, shift(b, x, -limit)))


@legalizes("Softmax")
def softmax(b: Builder, op: Op) -> Value:
    """SOFTMAX over one axis; below level 3, where it knows the last axis of rank 2 and 4 only, between transposes."""
    (x,) = b.inputs(op)
    axis = axis_of(op.attrs["axis"], max(x.rank, 1))
    return _over_axis(b, "SOFTMAX", x, axis, beta=1.0)


@legalizes("LogSoftmax")
def log_softmax(b: Builder, op: Op) -> Value:
    """LOG_SOFTMAX over one axis."""
    (x,) = b.inputs(op)
    b.needs_level(3, "LogSoftmax")
    return _over_axis(b, "LOG_SOFTMAX", x, axis_of(op.attrs["axis"], max(x.rank, 1)), beta=1.0)


def _over_axis(b: Builder, kind: str, x: Value, axis: int, **attrs: Any) -> Value:
    shape = x.shape
    if x.rank > MAX_RANK:
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        return b.reshape(_over_axis(b, kind, b.reshape(x, (before, shape[axis], after)), 1, **attrs), shape)
    if b.at_least(3):
        return b.emit(kind, x, axis=axis - x.rank if axis == x.rank - 1 else axis, **attrs)
    perm = [*(i for i in range(x.rank) if i != axis), axis]
    moved = b.transpose(x, perm)
    flat = b.reshape(moved, (math.prod(moved.shape[:-1]), moved.shape[-1]))
    return b.transpose(b.reshape(b.emit(kind, flat, **attrs), moved.shape), np.argsort(perm).tolist())


# -- the error function ------------------------------------------------------------------------------------------------

# erf(x) = tanh(x · p(x²)): p is the polynomial of degree 6 with the least largest error on |x| ≤ 4 (5.8e-8; 1.4e-7 in
# float32 arithmetic, which tests/ops holds). Beyond, x · p(x²) only grows, and tanh is ±1 as erf is: nothing to clamp.
_ERF_COEFFICIENTS = (
    1.1283797054746834,
    0.10276548140143453,
    -0.00018438355337341327,
    -0.0006257197028382027,
    8.971263924842658e-05,
    -5.985699657594279e-06,
    1.5896076492562242e-07,
)


def erf_of(b: Builder, x: Value) -> Value:
    """erf(x), within 2e-7, from the operations of level 1."""
    return unary(b, "TANH", _erf_argument(b, x, 1.0, 1.0))


def _erf_argument(b: Builder, x: Value, factor: float, times: float) -> Value:
    """``times`` what the hyperbolic tangent makes erf(factor · x) of."""
    b.approximate("erf within 2e-7")
    square = binary(b, "MUL", x, x)
    *lower, first = [times * c * factor ** (2 * power + 1) for power, c in enumerate(_ERF_COEFFICIENTS)]
    total = scale(b, square, first)
    for term in lower[:0:-1]:
        total = binary(b, "MUL", shift(b, total, term), square)
    return binary(b, "MUL", x, shift(b, total, lower[0]))


@legalizes("Erf")
def erf(b: Builder, op: Op) -> Value:
    """TANH of x times a polynomial in x²; within 2e-7."""
    return erf_of(b, b.inputs(op)[0])


@legalizes("Gelu")
def gelu(b: Builder, op: Op) -> Value:
    """x · LOGISTIC(2u), which is x/2 · (1 + tanh(u)), where tanh(u) is erf(x/√2), or what the tanh form has."""
    return gelu_of(b, b.inputs(op)[0], tanh=op.attrs["approximate"] == "tanh")


def gelu_of(b: Builder, x: Value, *, tanh: bool = False) -> Value:
    if tanh:
        factor = 2 * math.sqrt(2 / math.pi)
        doubled = binary(b, "MUL", x, shift(b, scale(b, binary(b, "MUL", x, x), 0.044715 * factor), factor))
    else:
        doubled = _erf_argument(b, x, math.sqrt(0.5), 2.0)
    return binary(b, "MUL", x, unary(b, "LOGISTIC", doubled))
