"""Reductions over axes, and the places of extrema."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.along import along
from onnx2nnapi.passes.legalize.carry import takes
from onnx2nnapi.passes.legalize.elementwise import absolute, one, scale, truncated_quotient
from onnx2nnapi.passes.legalize.movement import split_axis
from onnx2nnapi.passes.legalize.shapes import EXACT_IN_FLOAT32, MAX_RANK, axes_of, axis_of, binary, fold, unary

__all__ = ["reduce_axes", "reduced_axes", "reversed_along"]

_KINDS = {
    "ReduceMax": "REDUCE_MAX",
    "ReduceMean": "MEAN",
    "ReduceMin": "REDUCE_MIN",
    "ReduceProd": "REDUCE_PROD",
    "ReduceSum": "REDUCE_SUM",
}


def reduced_axes(b: Builder, op: Op) -> tuple[int, ...]:
    """The axes of a Reduce operator, which must be constant; none means all, or nothing with noop_with_empty_axes."""
    rank = b.in_type(op).rank
    given = b.optional_input(op, 1)
    axes = () if given is None else axes_of(b.constant(given, "axes").reshape(-1), rank)
    return axes if axes or op.attrs.get("noop_with_empty_axes") else tuple(range(rank))


@legalizes(*_KINDS)
def reduce(b: Builder, op: Op) -> Value:
    """One NNAPI reduction; integers, which these lack, go through float32 where their bounds prove that exact."""
    x = b.inputs(op)[0]
    return reduce_axes(b, _KINDS[op.kind], x, reduced_axes(b, op), keep=bool(op.attrs["keepdims"]))


@legalizes("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
def reduce_composed(b: Builder, op: Op) -> Value:
    """Sums of magnitudes, squares or exponentials; LogSumExp takes the largest out first, so that nothing overflows."""
    x, axes, keep = b.inputs(op)[0], reduced_axes(b, op), bool(op.attrs["keepdims"])
    if op.kind == "ReduceLogSumExp":
        return _log_sum_exp(b, x, axes, keep)
    if op.kind != "ReduceLogSum":
        x = absolute(b, x) if op.kind == "ReduceL1" else binary(b, "MUL", x, x)
    total = reduce_axes(b, "REDUCE_SUM", x, axes, keep=keep)
    after = {"ReduceL2": "SQRT", "ReduceLogSum": "LOG"}.get(op.kind)
    return unary(b, after, total) if after else total


def _log_sum_exp(b: Builder, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    top = reduce_axes(b, "REDUCE_MAX", x, axes, keep=True)
    total = reduce_axes(b, "REDUCE_SUM", unary(b, "EXP", binary(b, "SUB", x, top)), axes, keep=keep)
    return binary(b, "ADD", unary(b, "LOG", total), b.reshape(top, total.shape))


def reduce_axes(b: Builder, kind: str, x: Value, axes: Iterable[int], *, keep: bool) -> Value:
    """``kind`` over ``axes`` of a tensor of any rank; a full reduction without ``keep`` has shape [1]."""
    axes = tuple(axes)
    if not axes:
        return x
    shape = (
        tuple(1 if i in axes else size for i, size in enumerate(x.shape))
        if keep
        else tuple(size for i, size in enumerate(x.shape) if i not in axes)
    )
    if x.known.dtype.kind == "i" and not takes(b, kind, x):
        return _integers(b, kind, x, axes, keep)
    if x.rank > MAX_RANK:
        return b.reshape(_grouped(b, kind, x, axes), shape or (1,))
    if kind == "REDUCE_SUM" and not b.at_least(3):
        count = math.prod(x.shape[i] for i in axes)
        return scale(b, b.emit("MEAN", x, axes=axes, keep_dims=int(keep)), count)
    return b.emit(kind, x, axes=axes, keep_dims=int(keep) if kind == "MEAN" else keep)


def _grouped(b: Builder, kind: str, x: Value, axes: tuple[int, ...]) -> Value:
    """Rank above 4: neighbours that are all reduced, or all kept, are merged; the result has the kept groups alone."""
    groups: list[tuple[bool, int]] = []
    for axis, size in enumerate(x.shape):
        reduced = axis in axes
        if groups and (groups[-1][0] == reduced or size == 1):
            groups[-1] = (groups[-1][0], groups[-1][1] * size)
        else:
            groups.append((reduced, size))
    while len(groups) > MAX_RANK:  # reduce the last group first, on its own
        last = max(i for i, (reduced, _) in enumerate(groups) if reduced)
        before, after = math.prod(s for _, s in groups[:last]), math.prod(s for _, s in groups[last + 1 :])
        x = reduce_axes(b, kind, b.reshape(x, (before, groups[last][1], after)), (1,), keep=False)
        del groups[last]
        groups = _joined(groups)
    merged = b.reshape(x, [size for _, size in groups])
    inner = tuple(i for i, (reduced, _) in enumerate(groups) if reduced)
    return reduce_axes(b, kind, merged, inner, keep=False)


def _joined(groups: list[tuple[bool, int]]) -> list[tuple[bool, int]]:
    result: list[tuple[bool, int]] = []
    for reduced, size in groups:
        if result and result[-1][0] == reduced:
            result[-1] = (reduced, result[-1][1] * size)
        else:
            result.append((reduced, size))
    return result


_PAIRWISE = {"REDUCE_MAX": "MAXIMUM", "REDUCE_MIN": "MINIMUM", "REDUCE_PROD": "MUL", "REDUCE_SUM": "ADD"}


def _integers(b: Builder, kind: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """int32, which the reductions lack: in float32 where bounds prove that exact, else pairwise, halving the axis."""
    if kind == "MEAN":
        total = _integers(b, "REDUCE_SUM", x, axes, keep)
        return truncated_quotient(b, total, one(b, total, math.prod(x.shape[i] for i in axes)))
    interval = b.interval(x)
    count = math.prod(x.shape[i] for i in axes)
    bound = max(abs(interval.low), abs(interval.high)) * (count if kind == "REDUCE_SUM" else 1)
    if kind == "REDUCE_PROD":
        bound = max(abs(interval.low), abs(interval.high), 1) ** count if count < 64 else math.inf
    if bound <= EXACT_IN_FLOAT32:
        return b.emit(
            "CAST", reduce_axes(b, kind, b.emit("CAST", x, dtype=np.float32), axes, keep=keep), dtype=np.int32
        )
    shape = tuple(1 if i in axes else size for i, size in enumerate(x.shape))
    for axis in axes:
        x = along(b, x, axis, lambda value, inner: _pairwise(b, _PAIRWISE[kind], value, inner))
    return b.reshape(x, shape if keep else tuple(size for i, size in enumerate(shape) if i not in axes) or (1,))


def _pairwise(b: Builder, kind: str, x: Value, axis: int) -> Value:
    """All elements along an axis combined: the first half with the second, again and again; the odd ones last."""
    odd: list[Value] = []
    while (size := x.shape[axis]) > 1:
        halves = split_axis(b, x, axis, [size // 2, size // 2, 1] if size % 2 else [size // 2, size // 2])
        odd += halves[2:]
        x = binary(b, kind, halves[0], halves[1])
    return fold(b, kind, [x, *odd])


@legalizes("ArgMax", "ArgMin")
def arg_extremum(b: Builder, op: Op) -> Value:
    """ARGMAX or ARGMIN, which take the first of equals; the last is the first of the reversed."""
    (x,) = b.inputs(op)
    shape, axis = x.shape, axis_of(op.attrs["axis"], x.rank)
    size = shape[axis]
    if x.rank > MAX_RANK:
        x = b.reshape(x, (math.prod(shape[:axis]), size, math.prod(shape[axis + 1 :])))
        axis = 1
    data = reversed_along(b, x, axis) if op.attrs["select_last_index"] and size > 1 else x
    index = b.emit(op.kind.upper(), data, axis=axis)
    if data is not x:
        index = b.bounded(index, 0, size - 1)
        index = binary(b, "SUB", b.const(np.array([size - 1], np.int32)), index)
    return b.reshape(index, b.out_shape(op))


def reversed_along(b: Builder, x: Value, axis: int) -> Value:
    if b.at_least(7):
        return b.emit("REVERSE", x, axes=(axis,))
    return b.emit("GATHER", x, b.const(np.arange(x.shape[axis] - 1, -1, -1, dtype=np.int32)), axis=axis)
