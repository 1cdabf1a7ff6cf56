"""Operators that gather and scatter elements or slices by indices: one GATHER over a flattened tensor each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import Array, Shape
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.logic import cast_to
from onnx2nnapi.passes.legalize.movement import concat, gathered, sliced, split_axis, wrapped
from onnx2nnapi.passes.legalize.shapes import EXACT_IN_FLOAT32, MAX_RANK, axis_of, binary

_FEW = 8  # consecutive runs of rows that are cut and joined rather than gathered
_MOST_PIECES = 64  # that are joined at levels without GATHER
_MOST_ROUNDS = 32  # updates of one element

# The operation, and the element that changes nothing, of a scatter's reduction.
_REDUCTIONS: dict[str, tuple[str, float]] = {
    "add": ("ADD", 0.0),
    "mul": ("MUL", 1.0),
    "max": ("MAXIMUM", -math.inf),
    "min": ("MINIMUM", math.inf),
}


@legalizes("GatherElements")
def gather_elements(b: Builder, op: Op) -> Value:
    """GATHER of the flattened tensor at index · stride + the place in the other dimensions."""
    x, indices = b.inputs(op)
    axis = axis_of(op.attrs["axis"], x.rank)
    shape = indices.shape
    strides = _strides(x.shape)
    if indices.const is not None:
        constant = _within(b, indices.const.numpy(), x.shape[axis])
        return b.reshape(_rows(b, _flat(b, x), _places(constant, axis, strides).reshape(-1)), shape)
    others = _places(np.zeros(shape, np.int64), axis, strides)
    if indices.rank > MAX_RANK:
        indices = _flat(b, b.bounded(indices, -x.shape[axis], x.shape[axis] - 1))
        others = others.reshape(-1)
    index = wrapped(b, indices, x.shape[axis])
    places = _affine(b, [(index, strides[axis])], others, x.known.size)
    return b.reshape(gathered(b, _flat(b, x), places, 0), shape)


@legalizes("GatherND")
def gather_nd(b: Builder, op: Op) -> Value:
    """GATHER of the leading dimensions, flattened to one, at the sum of index · stride over the last dimension."""
    x, indices = b.inputs(op)
    batch = op.attrs["batch_dims"]
    depth = indices.shape[-1]
    indexed, rest = x.shape[batch : batch + depth], x.shape[batch + depth :]
    rows = math.prod(x.shape[: batch + depth])
    strides = _strides(indexed)
    shape = indices.shape[:-1]
    size = math.prod(indexed)
    starts = np.arange(math.prod(x.shape[:batch])) * size
    offsets = np.broadcast_to(starts.reshape(*x.shape[:batch], *(1,) * (len(shape) - batch)), shape)
    table = b.reshape(x, (rows, *((math.prod(rest),) if rest else ())))
    if indices.const is not None:
        index = indices.const.numpy()
        parts = [
            _within(b, index[..., i], n) * stride for i, (n, stride) in enumerate(zip(indexed, strides, strict=True))
        ]
        return b.reshape(_rows(b, table, (sum(parts) + offsets).reshape(-1)), b.out_shape(op))
    flat = b.reshape(wrapped(b, indices, indexed), (math.prod(shape), depth))
    columns = split_axis(b, flat, 1, [1] * depth)
    terms = list(zip(columns, strides, strict=True))
    places = _affine(b, terms, offsets.reshape(-1, 1), rows)
    return b.reshape(gathered(b, table, places, 0), b.out_shape(op))


def _affine(b: Builder, terms: Sequence[tuple[Value, int]], offsets: Array, bound: int) -> Value:
    """The sum of value · factor and constants, all of it below ``bound``; at level 3 in float32, if that is exact."""
    dtype: Any = np.int32
    if not b.at_least(4):
        if bound > EXACT_IN_FLOAT32:
            b.needs_level(4, f"indices into {bound} elements")
        dtype = np.float32
    total: Value | None = None
    for value, factor in terms:
        term = cast_to(b, value, np.dtype(dtype))
        if factor != 1:
            term = binary(b, "MUL", term, b.const(np.array([factor], dtype)))
        total = term if total is None else binary(b, "ADD", total, term)
    if total is None:
        return b.const(offsets.astype(np.int32))
    if np.any(offsets):
        total = binary(b, "ADD", total, b.const(offsets.astype(dtype)))
    return b.bounded(cast_to(b, total, np.dtype(np.int32)), 0, bound - 1)


def _strides(shape: Shape) -> list[int]:
    """Elements from one index of each dimension to the next."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _places(index: Array, axis: int, strides: Sequence[int]) -> Array:
    """Flat places of the elements at ``index`` along ``axis``, and at their own place in the other dimensions."""
    grid = np.indices(index.shape)
    return np.asarray(sum((grid[i] if i != axis else index) * stride for i, stride in enumerate(strides)))


def _within(b: Builder, index: Array, size: int) -> Array:
    """Constant indices counted from the front."""
    index = np.where(index < 0, index.astype(np.int64) + size, index)
    if index.size and (index.min() < 0 or index.max() >= size):
        b.unsupported(f"an index is outside a dimension of size {size}")
    return index


def _flat(b: Builder, x: Value) -> Value:
    return b.reshape(x, (x.known.size,))


# -- rows at constant places -----------------------------------------------------------------------------------------


def _rows(b: Builder, x: Value, index: Array) -> Value:
    """The entries of ``x`` at constant places along its first dimension: a few slices where they lie together."""
    starts = np.flatnonzero(np.diff(index) != 1) + 1
    if b.at_least(3) and len(starts) >= _FEW:
        return gathered(b, x, b.const(index.astype(np.int32)), 0)
    if len(starts) >= _MOST_PIECES:
        b.needs_level(3, f"joining {len(starts) + 1} pieces")
    runs = [(int(run[0]), len(run)) for run in np.split(index, starts)]
    rest = (0,) * (x.rank - 1)
    cuts = [sliced(b, x, (start, *rest), (count, *x.shape[1:]), (1,) * x.rank) for start, count in runs]
    return concat(b, cuts, 0)


@legalizes("ScatterElements")
def scatter_elements(b: Builder, op: Op) -> Value:
    """The updates at constant places."""
    x, indices, updates = b.inputs(op)
    axis = axis_of(op.attrs["axis"], x.rank)
    index = _within(b, b.constant(indices, "indices"), x.shape[axis])
    places = _places(index, axis, _strides(x.shape)).reshape(-1)
    result = _scattered(b, _flat(b, x), places, _flat(b, updates), op.attrs["reduction"])
    return b.reshape(result, x.shape)


@legalizes("ScatterND")
def scatter_nd(b: Builder, op: Op) -> Value:
    """The updates, slices of the dimensions that are not indexed, at constant places."""
    x, indices, updates = b.inputs(op)
    index = b.constant(indices, "indices")
    depth = index.shape[-1]
    strides = _strides(x.shape[:depth])
    parts = [_within(b, index[..., i], x.shape[i]) * strides[i] for i in range(depth)]
    places = np.asarray(sum(parts) + np.zeros(index.shape[:-1], np.int64)).reshape(-1)
    rest = math.prod(x.shape[depth:])
    rows = b.reshape(x, (math.prod(x.shape[:depth]), rest))
    return b.reshape(
        _scattered(b, rows, places, b.reshape(updates, (len(places), rest)), op.attrs["reduction"]), x.shape
    )


@legalizes("TensorScatter")
def tensor_scatter(b: Builder, op: Op) -> Value:
    """The updates in the place of a constant stretch of each batch entry's sequence."""
    x, updates = b.inputs(op)[:2]
    axis = axis_of(op.attrs["axis"], x.rank)
    given = b.optional_input(op, 2)
    count, size, length = x.shape[0], x.shape[axis], updates.shape[axis]
    starts = np.zeros(count, np.int64) if given is None else b.constant(given, "write_indices").reshape(-1)
    steps = starts[:, np.newaxis] + np.arange(length)
    if op.attrs["mode"] == "circular":
        steps %= size
    steps = _within(b, steps, size)
    lead, rest = x.shape[1:axis], math.prod(x.shape[axis + 1 :])
    entries = np.arange(count * math.prod(lead)).reshape(count, -1, 1) * size
    places = (entries + steps[:, np.newaxis, :]).reshape(-1)
    rows = b.reshape(x, (count * math.prod(lead) * size, rest))
    return b.reshape(_scattered(b, rows, places, b.reshape(updates, (len(places), rest)), "none"), x.shape)


def _scattered(b: Builder, x: Value, places: Array, updates: Value, reduction: str) -> Value:
    """``updates`` put in the place of the entries of ``x`` at ``places``, or combined with them.

    Without a reduction this chooses each entry of the result from ``x`` or, where it is updated, from the last update.
    With one, each round combines with every entry one of its updates, or the element that changes nothing.
    """
    if not len(places):
        return x
    if reduction == "none":
        source = np.arange(x.shape[0])
        source[places] = x.shape[0] + np.arange(len(places))
        return _rows(b, concat(b, [x, updates], 0), source)
    kind, neutral = _REDUCTIONS[reduction]
    if not math.isfinite(neutral) and x.known.dtype.kind == "i":
        neutral = np.iinfo(np.int32).min if neutral < 0 else np.iinfo(np.int32).max
    nothing = b.const(np.full((1, *x.shape[1:]), neutral, x.known.dtype))
    rounds: list[Array] = []
    counts = np.zeros(x.shape[0], np.int64)
    for update, place in enumerate(places):
        if counts[place] == len(rounds):
            rounds.append(np.full(x.shape[0], len(places), np.int64))
        rounds[counts[place]][place] = update
        counts[place] += 1
    if len(rounds) > _MOST_ROUNDS:
        b.unsupported(f"{len(rounds)} updates are combined in one element, at most {_MOST_ROUNDS} are")
    available = concat(b, [updates, nothing], 0)
    for source in rounds:
        x = binary(b, kind, x, _rows(b, available, source))
    return x
