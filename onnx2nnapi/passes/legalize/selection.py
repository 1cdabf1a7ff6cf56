"""The largest elements, one-hot vectors and triangles."""

from __future__ import annotations

import math

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import Array
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.element_types import nnapi_type
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.along import along
from onnx2nnapi.passes.legalize.carry import from_bool
from onnx2nnapi.passes.legalize.elementwise import negate, one
from onnx2nnapi.passes.legalize.logic import cast_to, narrowed, select
from onnx2nnapi.passes.legalize.movement import transposed
from onnx2nnapi.passes.legalize.reduction import reversed_along
from onnx2nnapi.passes.legalize.rounding import as_int32
from onnx2nnapi.passes.legalize.shapes import MAX_RANK, axis_of, binary, broadcast_to


@legalizes("TopK")
def top_k(b: Builder, op: Op) -> tuple[Value, Value]:
    """TOPK_V2 of the reversed axis, moved last: of equals it takes the last, ONNX the first. The least are negated."""
    x = b.inputs(op)[0]
    axis = axis_of(op.attrs["axis"], x.rank)
    size, k = x.shape[axis], b.out_shape(op)[axis]
    if not k:
        b.unsupported("k is 0, and NNAPI has no empty tensors")
    b.needs_level(3, "TopK")
    data = _mirrored(b, as_int32(b, x)) if not op.attrs["largest"] else x
    rows = (math.prod(x.shape[:axis]), size, math.prod(x.shape[axis + 1 :]))
    moved = transposed(b, b.reshape(data, rows), (0, 2, 1)) if axis != x.rank - 1 else data
    if moved.rank > MAX_RANK:
        moved = b.reshape(moved, rows[:2])
    values, places = b.emit_all("TOPK_V2", reversed_along(b, moved, moved.rank - 1), k=k)
    first = b.const(np.array([size - 1], np.int32))
    b.bounded(places, 0, size - 1)
    results = values, b.bounded(binary(b, "SUB", first, places), 0, size - 1)
    if axis != x.rank - 1:
        results = transposed(b, results[0], (0, 2, 1)), transposed(b, results[1], (0, 2, 1))
    values, index = results[0], b.reshape(b.bounded(results[1], 0, size - 1), b.out_shape(op))
    if not op.attrs["largest"]:
        values = narrowed(b, _mirrored(b, values), x.known.dtype)
    return b.reshape(values, b.out_shape(op)), index


def _mirrored(b: Builder, x: Value) -> Value:
    """The numbers in the opposite order: -x, of integers -1 - x, which no integer overflows."""
    return negate(b, x) if x.known.dtype.kind == "f" else binary(b, "SUB", one(b, x, -1), x)


@legalizes("Hardmax")
def hardmax(b: Builder, op: Op) -> Value:
    """1 at the place that ARGMAX finds, by EQUAL with all places."""
    (x,) = b.inputs(op)
    return along(b, x, axis_of(op.attrs["axis"], x.rank), lambda value, axis: _hardmax(b, value, axis))


def _hardmax(b: Builder, x: Value, axis: int) -> Value:
    b.needs_level(3, "Hardmax")
    index = b.emit("ARGMAX", x, axis=axis)
    if x.rank > 1:
        index = b.emit("EXPAND_DIMS", index, axis=axis)
    places = np.arange(x.shape[axis], dtype=np.int32).reshape([-1 if i == axis else 1 for i in range(x.rank)])
    return from_bool(b, binary(b, "EQUAL", index, b.const(places)), x.known.dtype)


@legalizes("OneHot")
def one_hot(b: Builder, op: Op) -> Value:
    """SELECT between the two values where EQUAL finds the index, counted from either end, among the places."""
    indices, _, values = b.inputs(op)
    shape = b.out_shape(op)
    rank = b.in_type(op).rank
    axis = axis_of(op.attrs["axis"], rank + 1)
    size = shape[axis]
    dtype = indices.known.dtype if indices.known.dtype.itemsize > 1 else np.dtype(np.int32)
    column = b.reshape(cast_to(b, indices, dtype), (*indices.shape[:axis], 1, *indices.shape[axis:])[: rank + 1])
    places = np.arange(size).reshape([-1 if i == axis else 1 for i in range(rank + 1)])
    hot = binary(b, "EQUAL", column, b.const(places.astype(dtype)))
    if dtype.kind == "f" or b.interval(indices).low < 0:
        hot = binary(b, "LOGICAL_OR", hot, binary(b, "EQUAL", column, b.const((places - size).astype(dtype))))
    return _between(b, hot, values, shape)


def _between(b: Builder, condition: Value, values: Value, shape: tuple[int, ...]) -> Value:
    """The second of two values where the condition holds, else the first."""
    if values.const is not None:
        off, on = values.const.numpy().tolist()
        dtype = values.known.dtype
        if dtype.kind == "b":
            fixed = b.const(np.array([on], np.bool_))
            return condition if on and not off else binary(b, "LOGICAL_AND", condition, fixed)
        if (off, on) == (0, 1):
            return from_bool(b, condition, dtype)
        pair = [b.const(np.array([value], dtype), quant=values.known.quant) for value in (off, on)]
    else:
        pair = b.emit_all("SPLIT", values, axis=0, count=2)
    return select(b, condition, broadcast_to(b, pair[1], shape), broadcast_to(b, pair[0], shape))


@legalizes("Trilu")
def trilu(b: Builder, op: Op) -> Value:
    """SELECT by a constant triangle; below level 3 the product with one."""
    x, given = b.inputs(op)[0], b.optional_input(op, 1)
    k = 0 if given is None else int(b.constant(given, "k").reshape(-1)[0])
    ones = np.ones(x.shape[-2:], np.bool_)
    kept: Array = np.triu(ones, k) if op.attrs["upper"] else np.tril(ones, k)
    if kept.all():
        return x
    if x.known.dtype.kind == "b":
        return binary(b, "LOGICAL_AND", x, b.const(kept))
    if b.at_least(3):
        wide = b.const(np.broadcast_to(kept, x.shape))
        zeros = b.const(np.zeros(x.shape, x.known.dtype), quant=x.known.quant)
        return b.emit("SELECT", wide, x, zeros)
    return binary(b, "MUL", x, b.const(kept.astype(x.known.dtype)))


@legalizes("EyeLike")
def eye_like(b: Builder, op: Op) -> Value:
    """A constant: only the shape of the input counts."""
    type_ = nnapi_type(b.out_type(op), b.options, f"tensor {op.outputs[0]!r}")
    rows, columns = type_.shape
    return b.const(np.eye(rows, columns, op.attrs["k"], dtype=type_.dtype), quant=type_.quant)
