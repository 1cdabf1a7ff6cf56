"""Normalizations: over channels, images, layers, and neighbours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.along import along
from onnx2nnapi.passes.legalize.convolution import from_nhwc, padding_attrs, to_nhwc
from onnx2nnapi.passes.legalize.elementwise import absolute, difference, extremum, one, quotient, shift
from onnx2nnapi.passes.legalize.movement import concat, sliced
from onnx2nnapi.passes.legalize.reduction import reduce_axes
from onnx2nnapi.passes.legalize.shapes import axes_of, axis_of, binary, unary

__all__ = ["normalized", "per_channel"]


def per_channel(b: Builder, value: Value, rank: int) -> Value:
    """A vector over the channels, shaped to broadcast against [N, C, …]."""
    return b.reshape(value, (1, value.known.size, *(1,) * (rank - 2))) if rank > 1 else value


@legalizes("BatchNormalization")
def batch_normalization(b: Builder, op: Op) -> Value:
    """MUL and ADD by constants; with computed statistics the formula itself."""
    x, gamma, beta, mean, variance = b.inputs(op)
    if op.attrs["training_mode"]:
        b.unsupported("training_mode is set", "export the model for inference")
    epsilon = op.attrs["epsilon"]
    if all(v.const is not None for v in (gamma, beta, mean, variance)):
        g, t, m, v = (b.constant(value, "statistics").astype(np.float64) for value in (gamma, beta, mean, variance))
        factor = g / np.sqrt(v + epsilon)
        dtype = x.known.dtype
        product = binary(b, "MUL", x, per_channel(b, b.const(factor.astype(dtype)), x.rank))
        return binary(b, "ADD", product, per_channel(b, b.const((t - m * factor).astype(dtype)), x.rank))
    scale_of = binary(b, "MUL", unary(b, "RSQRT", shift(b, variance, epsilon)), gamma)
    centred = binary(b, "SUB", x, per_channel(b, mean, x.rank))
    product = binary(b, "MUL", centred, per_channel(b, scale_of, x.rank))
    return binary(b, "ADD", product, per_channel(b, beta, x.rank))


@legalizes("InstanceNormalization")
def instance_normalization(b: Builder, op: Op) -> Value:
    """INSTANCE_NORMALIZATION, whose gamma and beta are one for all channels, then MUL and ADD."""
    x, gamma, beta = b.inputs(op)
    dtype = x.known.dtype
    if b.at_least(3) and x.rank in (3, 4):
        attrs: dict[str, Any] = {"gamma": 1.0, "beta": 0.0, "epsilon": op.attrs["epsilon"]}
        result = from_nhwc(b, b.emit("INSTANCE_NORMALIZATION", to_nhwc(b, x), **attrs), x.rank)
    else:
        n, c = x.shape[:2]
        result = b.reshape(
            normalized(b, b.reshape(x, (n, c, math.prod(x.shape[2:]))), (2,), op.attrs["epsilon"]), x.shape
        )
    for kind, value, neutral in (("MUL", gamma, 1), ("ADD", beta, 0)):
        if value.const is None or not np.all(value.const.numpy() == np.array(neutral, dtype)):
            result = binary(b, kind, result, per_channel(b, value, x.rank))
    return result


@legalizes("LayerNormalization")
def layer_normalization(b: Builder, op: Op) -> list[Value | None]:
    """MEAN, differences and RSQRT over the trailing axes; see ``normalized`` for level 2."""
    x, gamma = b.inputs(op)[:2]
    axes = tuple(range(axis_of(op.attrs["axis"], x.rank), x.rank))
    epsilon = op.attrs["epsilon"]
    result = _affine(b, normalized(b, x, axes, epsilon), gamma, b.optional_input(op, 2))
    statistics: list[Value | None] = [None, None]
    if any(name is not None and b.source.uses(name) for name in op.outputs[1:]):
        mean = reduce_axes(b, "MEAN", x, axes, keep=True)
        centred = difference(b, x, mean)
        variance = reduce_axes(b, "MEAN", binary(b, "MUL", centred, centred), axes, keep=True)
        statistics = [mean, unary(b, "RSQRT", shift(b, variance, epsilon))]
    return [result, *statistics]


def _affine(b: Builder, x: Value, gamma: Value, beta: Value | None) -> Value:
    """x · gamma + beta, without what does nothing."""
    if gamma.const is None or not np.all(gamma.const.numpy() == 1):
        x = binary(b, "MUL", x, gamma)
    if beta is not None and (beta.const is None or np.any(beta.const.numpy())):
        x = binary(b, "ADD", x, beta)
    return x


@legalizes("GroupNormalization")
def group_normalization(b: Builder, op: Op) -> Value:
    """As a layer's normalization of each group of channels, then MUL and ADD by channel."""
    x, gamma, beta = b.inputs(op)
    n, groups = x.shape[0], op.attrs["num_groups"]
    rows = normalized(b, b.reshape(x, (n, groups, x.known.size // (n * groups))), (2,), op.attrs["epsilon"])
    return _affine(b, b.reshape(rows, x.shape), *(per_channel(b, value, x.rank) for value in (gamma, beta)))


@legalizes("RMSNormalization")
def rms_normalization(b: Builder, op: Op) -> Value:
    """x · RSQRT(mean of squares + epsilon) · scale over the trailing axes."""
    x, gamma = b.inputs(op)
    axes = tuple(range(axis_of(op.attrs["axis"], x.rank), x.rank))
    return _affine(b, normalized(b, x, axes, op.attrs["epsilon"], centre=False), gamma, None)


@legalizes("MeanVarianceNormalization")
def mean_variance_normalization(b: Builder, op: Op) -> Value:
    """As LayerNormalization, over the given axes; 1e-9 is what ONNX adds to the deviation."""
    (x,) = b.inputs(op)
    return normalized(b, x, axes_of(op.attrs["axes"], x.rank), 1e-18)


@legalizes("LpNormalization")
def lp_normalization(b: Builder, op: Op) -> Value:
    """L2_NORMALIZATION over one axis, below level 3 moved last; p = 1: DIV by the sum of magnitudes."""
    (x,) = b.inputs(op)
    return along(b, x, axis_of(op.attrs["axis"], x.rank), lambda v, axis: _lp_normalized(b, v, axis, op.attrs["p"]))


def _lp_normalized(b: Builder, x: Value, axis: int, p: int) -> Value:
    if p == 1:
        total = reduce_axes(b, "REDUCE_SUM", absolute(b, x), (axis,), keep=True)
        return quotient(b, x, extremum(b, "MAXIMUM", total, one(b, x, float(np.finfo(x.known.dtype).tiny))))
    if b.at_least(3):
        return b.emit("L2_NORMALIZATION", x, axis=axis)
    perm = [*(i for i in range(x.rank) if i != axis), axis]
    moved = b.transpose(x, perm)
    rows = b.emit("L2_NORMALIZATION", b.reshape(moved, (1, 1, x.known.size // x.shape[axis], x.shape[axis])))
    return b.transpose(b.reshape(rows, moved.shape), np.argsort(perm).tolist())


def normalized(b: Builder, x: Value, axes: tuple[int, ...], epsilon: float, *, centre: bool = True) -> Value:
    """(x - mean) / sqrt(variance + epsilon) over ``axes``; not ``centre``: x / sqrt(mean of squares + epsilon).

    Level 2 has no root: there L2_NORMALIZATION divides by the norm of the differences and of one more, constant element
    that stands for epsilon.
    """
    if centre:
        x = difference(b, x, reduce_axes(b, "MEAN", x, axes, keep=True))
    if b.at_least(3):
        variance = reduce_axes(b, "MEAN", binary(b, "MUL", x, x), axes, keep=True)
        return binary(b, "MUL", x, unary(b, "RSQRT", shift(b, variance, epsilon)))
    if axes != tuple(range(axes[0], x.rank)):
        b.needs_level(3, "normalization over inner axes")
    count = math.prod(x.shape[axis] for axis in axes)
    rows = math.prod(x.shape[: axes[0]])
    flat = b.reshape(x, (1, 1, rows, count))
    extra = b.const(np.full((1, 1, rows, 1), math.sqrt(count * epsilon), x.known.dtype))
    scaled = b.emit("L2_NORMALIZATION", concat(b, [flat, extra], 3))
    kept = sliced(b, scaled, (0, 0, 0, 0), (1, 1, rows, count), (1, 1, 1, 1))
    return b.reshape(binary(b, "MUL", kept, one(b, x, math.sqrt(count))), x.shape)


@legalizes("LRN")
def lrn(b: Builder, op: Op) -> Value:
    """LOCAL_RESPONSE_NORMALIZATION over the channels; an even size, which it lacks, by a band matrix and POW."""
    (x,) = b.inputs(op)
    size, alpha, beta, bias = (op.attrs[name] for name in ("size", "alpha", "beta", "bias"))
    attrs: dict[str, Any] = {"radius": (size - 1) // 2, "bias": bias, "alpha": alpha / size, "beta": beta}
    if size % 2 == 0:
        return _even_lrn(b, x, size, alpha, beta, bias)
    if b.at_least(3):
        return b.emit("LOCAL_RESPONSE_NORMALIZATION", x, **attrs, axis=1)
    if x.rank != 4:
        b.needs_level(3, f"LRN of rank {x.rank}")
    return from_nhwc(b, b.emit("LOCAL_RESPONSE_NORMALIZATION", to_nhwc(b, x), **attrs), 4)


def _even_lrn(b: Builder, x: Value, size: int, alpha: float, beta: float, bias: float) -> Value:
    channels, before = x.shape[1], (size - 1) // 2
    distance = np.arange(channels)[None, :] - np.arange(channels)[:, None]  # column (read) minus row (written)
    band = ((distance >= -before) & (distance <= size - 1 - before)) * (alpha / size)
    data = to_nhwc(b, x)
    kernel = b.const(band.astype(x.known.dtype).reshape(channels, 1, 1, channels))
    zeros = b.const(np.full(channels, bias, x.known.dtype))
    attrs = padding_attrs((0, 0, 0, 0)) | {"stride_width": 1, "stride_height": 1}
    sums = b.emit("CONV_2D", binary(b, "MUL", data, data), kernel, zeros, **attrs)
    return from_nhwc(b, binary(b, "MUL", data, binary(b, "POW", sums, one(b, x, -beta))), x.rank)
