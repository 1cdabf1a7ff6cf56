"""onnxruntime's own operators: fused forms that its optimizers write, and the attention of its transformer exports."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.activation import elu_of, gelu_of, hard_sigmoid_of, prelu_of, swish_of
from onnx2nnapi.passes.legalize.convolution import conv
from onnx2nnapi.passes.legalize.elementwise import clamp, one, scale, shift
from onnx2nnapi.passes.legalize.logic import cast_to
from onnx2nnapi.passes.legalize.matmul import gemm, matmul_of
from onnx2nnapi.passes.legalize.movement import gathered, split_axis, transposed
from onnx2nnapi.passes.legalize.normalization import normalized
from onnx2nnapi.passes.legalize.shapes import axis_of, binary, unary

_ORT = "com.microsoft::"
_FAR = -10000.0  # what masks add to scores, as onnxruntime has it by default


def _given(op: Op, name: str, default: Any) -> Any:
    """An attribute; onnx has no schema of these operators that would fill defaults in."""
    return op.attrs.get(name, default)


# -- activations -------------------------------------------------------------------------------------------------------


@legalizes(_ORT + "Gelu", _ORT + "BiasGelu")
def gelu(b: Builder, op: Op) -> Value:
    """Gelu by the error function, of the input and a bias."""
    return gelu_of(b, _with_bias(b, op))


@legalizes(_ORT + "FastGelu")
def fast_gelu(b: Builder, op: Op) -> Value:
    """Gelu by the hyperbolic tangent, of the input and a bias."""
    return gelu_of(b, _with_bias(b, op), tanh=True)


@legalizes(_ORT + "QuickGelu")
def quick_gelu(b: Builder, op: Op) -> Value:
    """x · LOGISTIC(alpha · x)."""
    return swish_of(b, b.inputs(op)[0], _given(op, "alpha", 1.702))


def _with_bias(b: Builder, op: Op) -> Value:
    x, bias = b.inputs(op)[0], b.optional_input(op, 1)
    return x if bias is None else binary(b, "ADD", x, bias)


# Activations that onnxruntime fuses, with their parameters in order and the defaults.
_ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable[..., Value]]] = {
    "Relu": ((), lambda b, x: clamp(b, x, 0, None)),
    "Tanh": ((), lambda b, x: unary(b, "TANH", x)),
    "Sigmoid": ((), lambda b, x: unary(b, "LOGISTIC", x)),
    "LeakyRelu": ((0.01,), lambda b, x, alpha: prelu_of(b, x, one(b, x, alpha))),
    "Clip": ((-math.inf, math.inf), lambda b, x, low, high: clamp(b, x, _finite(low), _finite(high))),
    "Elu": ((1.0,), lambda b, x, alpha: elu_of(b, x, alpha)),
    "HardSigmoid": ((0.2, 0.5), lambda b, x, alpha, beta: hard_sigmoid_of(b, x, alpha, beta)),
}


def _finite(bound: float) -> float | None:
    return bound if abs(bound) < float(np.finfo(np.float32).max) else None


def _activated(b: Builder, x: Value, name: str, given: tuple[float, ...]) -> Value:
    if name not in _ACTIVATIONS:
        b.unsupported(f"its activation is {name!r}; {', '.join(sorted(_ACTIVATIONS))} are known")
    defaults, apply = _ACTIVATIONS[name]
    return apply(b, x, *given[: len(defaults)], *defaults[len(given) :])


# -- products ----------------------------------------------------------------------------------------------------------


@legalizes(_ORT + "FusedConv")
def fused_conv(b: Builder, op: Op) -> Value:
    """Conv, a tensor added, and an activation."""
    plain = Op("Conv", op.inputs[:3], op.outputs, {"group": 1, **op.attrs}, op.origins)
    result, addend = conv(b, plain), b.optional_input(op, 3)
    if addend is not None:
        result = binary(b, "ADD", result, addend)
    activation = _given(op, "activation", "")
    return _activated(b, result, activation, _given(op, "activation_params", ())) if activation else result


@legalizes(_ORT + "FusedGemm")
def fused_gemm(b: Builder, op: Op) -> Value:
    """Gemm and an activation."""
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0, **op.attrs}
    result = gemm(b, Op("Gemm", op.inputs, op.outputs, plain, op.origins))
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    given = tuple(op.attrs[name] for name in names if name in op.attrs)
    activation = _given(op, "activation", "")
    return _activated(b, result, activation, given) if activation else result


@legalizes(_ORT + "FusedMatMul", _ORT + "TransposeMatMul")
def fused_matmul(b: Builder, op: Op) -> Value:
    """A product of matrices, transposed as asked, times alpha."""
    if _given(op, "transBatchA", 0) or _given(op, "transBatchB", 0):
        b.unsupported("it transposes batches, by transBatchA or transBatchB")
    operands = []
    for value, name in zip(b.inputs(op), ("transA", "transB"), strict=True):
        swapped = _given(op, name, 0) and value.rank > 1
        operands.append(transposed(b, value, _swap_last(value.rank)) if swapped else value)
    result = scale(b, matmul_of(b, *operands), _given(op, "alpha", 1.0))
    return b.reshape(result, b.out_shape(op))


def _swap_last(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


# -- normalization -----------------------------------------------------------------------------------------------------


@legalizes("SimplifiedLayerNormalization")
def simplified_layer_normalization(b: Builder, op: Op) -> Value:
    """x / sqrt(mean of squares + epsilon) · scale over the trailing axes."""
    x, gamma = b.inputs(op)
    axis = axis_of(_given(op, "axis", -1), x.rank)
    result = normalized(b, x, tuple(range(axis, x.rank)), _given(op, "epsilon", 1e-5), centre=False)
    return binary(b, "MUL", result, gamma)


@legalizes(_ORT + "SkipLayerNormalization", _ORT + "SkipSimplifiedLayerNormalization")
def skip_layer_normalization(b: Builder, op: Op) -> list[Value | None]:
    """The normalized sum of input, skip and bias; the last output is the sum itself."""
    x, skip, gamma = b.inputs(op)[:3]
    simple = "Simplified" in op.kind
    beta, bias = (None, b.optional_input(op, 3)) if simple else (b.optional_input(op, 3), b.optional_input(op, 4))
    total = binary(b, "ADD", x, skip)
    if bias is not None:
        total = binary(b, "ADD", total, bias)
    result = _scaled(b, total, gamma, beta, _given(op, "epsilon", 1e-5 if simple else 1e-12), centre=not simple)
    return [result, None, None, total]


def _scaled(b: Builder, x: Value, gamma: Value, beta: Value | None, epsilon: float, *, centre: bool = True) -> Value:
    """Normalized over the last axis, times gamma, plus beta."""
    result = binary(b, "MUL", normalized(b, x, (x.rank - 1,), epsilon, centre=centre), gamma)
    return result if beta is None else binary(b, "ADD", result, beta)


@legalizes(_ORT + "EmbedLayerNormalization")
def embed_layer_normalization(b: Builder, op: Op) -> list[Value | None]:
    """The sum of word, position and segment embeddings, normalized; the second output counts each row's mask."""
    ids, words, positions, gamma, beta = (b.value(str(op.inputs[i])) for i in (0, 2, 3, 5, 6))
    segment_ids, segments = b.optional_input(op, 1), b.optional_input(op, 4)
    mask, position_ids = b.optional_input(op, 7), b.optional_input(op, 8)
    length = ids.shape[1]
    total = gathered(b, words, ids, 0)
    if position_ids is None:
        if positions.const is None:
            b.unsupported("the position embeddings are computed")
        rows = b.const(positions.const.numpy()[:length])
    else:
        rows = gathered(b, positions, position_ids, 0)
    total = binary(b, "ADD", total, rows)
    if segments is not None and segment_ids is not None:
        total = binary(b, "ADD", total, gathered(b, segments, segment_ids, 0))
    result = _scaled(b, total, gamma, beta, _given(op, "epsilon", 1e-12))
    count: Value | None = None
    if len(op.outputs) > 1 and op.outputs[1] is not None:
        if mask is None:
            count = b.const(np.zeros(ids.shape[0], np.int32))
        else:
            floats = cast_to(b, mask, np.dtype(np.float32))
            count = cast_to(b, b.emit("REDUCE_SUM", floats, axes=(1,), keep_dims=False), np.dtype(np.int32))
    return [result, count, total]


# -- attention ---------------------------------------------------------------------------------------------------------


@legalizes(_ORT + "Attention")
def attention(b: Builder, op: Op) -> Value:
    """Queries, keys and values by one product with the joined weights; then scores, softmax and their product."""
    x, weights = b.inputs(op)[:2]
    bias, mask = b.optional_input(op, 2), b.optional_input(op, 3)
    if any(b.optional_input(op, i) is not None for i in (4, 6)):
        b.unsupported("past keys and values", "export the model without its cache")
    heads = op.attrs["num_heads"]
    total = weights.shape[1]
    sizes = list(_given(op, "qkv_hidden_sizes", ()) or (total // 3,) * 3)
    joined = matmul_of(b, x, weights)
    if bias is not None:
        joined = binary(b, "ADD", joined, bias)
    parts = split_axis(b, joined, 2, sizes)
    query, key, value = (_heads(b, part, heads) for part in parts)
    length = x.shape[1]
    added = _mask(b, mask, (x.shape[0], length, length), _given(op, "mask_filter_value", _FAR))
    if _given(op, "unidirectional", 0):
        causal = np.triu(np.full((1, 1, length, length), _given(op, "mask_filter_value", _FAR), x.known.dtype), 1)
        added = b.const(causal) if added is None else binary(b, "ADD", added, b.const(causal))
    added = _sum_of(b, added, b.optional_input(op, 5))
    return attended(b, query, key, value, added, _given(op, "scale", 0.0))


@legalizes(_ORT + "MultiHeadAttention")
def multi_head_attention(b: Builder, op: Op) -> Value:
    """Attention of queries, keys and values that come apart, [batch, sequence, heads · size] each."""
    given = [b.optional_input(op, i) for i in range(3)]
    query, key, value = given
    if key is None or value is None or query is None or any(v is not None and v.rank != 3 for v in given):
        b.unsupported("queries, keys and values that are packed in one tensor", "export them apart")
    if any(b.optional_input(op, i) is not None for i in (6, 7)):
        b.unsupported("past keys and values", "export the model without its cache")
    heads, bias = op.attrs["num_heads"], b.optional_input(op, 3)
    parts: list[Value] = [query, key, value]
    if bias is not None:
        rows = split_axis(b, bias, 0, [part.shape[2] for part in parts])
        parts = [binary(b, "ADD", part, row) for part, row in zip(parts, rows, strict=True)]
    lengths = (query.shape[0], query.shape[1], key.shape[1])
    far = _given(op, "mask_filter_value", _FAR)
    added = _mask(b, b.optional_input(op, 4), lengths, far)
    if _given(op, "unidirectional", 0):
        causal = b.const(np.triu(np.full((1, 1, *lengths[1:]), far, query.known.dtype), 1))
        added = _sum_of(b, added, causal)
    added = _sum_of(b, added, b.optional_input(op, 5))
    query, key, value = (_heads(b, part, heads) for part in parts)
    return attended(b, query, key, value, added, _given(op, "scale", 0.0))


def _sum_of(b: Builder, x: Value | None, y: Value | None) -> Value | None:
    return y if x is None else x if y is None else binary(b, "ADD", x, y)


def _heads(b: Builder, x: Value, heads: int) -> Value:
    """[batch, sequence, heads · size] → [batch, heads, sequence, size]."""
    batch, length, width = x.shape
    return transposed(b, b.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _mask(b: Builder, mask: Value | None, lengths: tuple[int, int, int], far: float) -> Value | None:
    """What a mask (1 = kept) adds to the scores, [batch, 1, queries or 1, keys]."""
    if mask is None:
        return None
    batch, queries, keys = lengths
    shapes = {
        (batch, keys): (batch, 1, 1, keys),
        (batch, queries, keys): (batch, 1, queries, keys),
        (batch, 1, queries, keys): (batch, 1, queries, keys),
    }
    if mask.shape not in shapes:
        b.unsupported(f"a mask of shape {list(mask.shape)} for {batch} × {queries} × {keys} scores")
    kept = b.reshape(cast_to(b, mask, np.dtype(np.float32)), shapes[mask.shape])
    return scale(b, shift(b, kept, -1.0), -far)


def attended(b: Builder, query: Value, key: Value, value: Value, added: Value | None, factor: float) -> Value:
    """softmax(query · keyᵀ · factor + added) · value, all [batch, heads, sequence, size]; back to three dimensions."""
    batch, heads, length, size = query.shape
    scores = matmul_of(b, scale(b, query, factor or 1 / math.sqrt(size)), transposed(b, key, (0, 1, 3, 2)))
    if added is not None:
        scores = binary(b, "ADD", scores, added)
    result = matmul_of(b, softmax_last(b, scores), value)
    return b.reshape(transposed(b, result, (0, 2, 1, 3)), (batch, length, heads * value.shape[3]))


def softmax_last(b: Builder, x: Value) -> Value:
    """SOFTMAX over the last axis, which all levels have of rank 2 and 4."""
    return b.emit("SOFTMAX", x, beta=1.0)
