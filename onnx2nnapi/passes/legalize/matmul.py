"""MatMul and Gemm: FULLY_CONNECTED where one side is constant, BATCH_MATMUL from level 6, matrix by matrix below."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import LazyArray
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.elementwise import scale
from onnx2nnapi.passes.legalize.shapes import binary, broadcast_to

__all__ = ["fully_connected", "matmul_of"]


@legalizes("Gemm")
def gemm(b: Builder, op: Op) -> Value:
    """FULLY_CONNECTED with alpha and beta inside its constants; a C that is no row of constants is added after."""
    x, weight = b.inputs(op)[:2]
    addend = b.optional_input(op, 2)
    alpha, beta = op.attrs["alpha"], op.attrs["beta"]
    if op.attrs["transA"]:
        x = b.transpose(x, (1, 0))
    units_first = weight if op.attrs["transB"] else b.transpose(weight, (1, 0))
    if alpha != 1:
        if units_first.const is not None:
            units_first = b.const(units_first.const.scaled(np.array(alpha, weight.known.dtype)))
        else:
            x = scale(b, x, alpha)
    units = units_first.shape[0]
    bias: Value | None = None
    if (
        addend is not None
        and addend.const is not None
        and beta != 0
        and addend.known.size in (1, units)
        and addend.shape[-1] == addend.known.size
    ):
        row = np.broadcast_to(addend.const.numpy().reshape(-1) * np.array(beta, addend.known.dtype), (units,))
        bias, addend = b.const(row.astype(x.known.dtype), name=f"{op.outputs[0]}.bias"), None
    elif addend is not None and beta == 1 and addend.shape == (units,):
        bias, addend = addend, None
    result = fully_connected(b, x, units_first, bias)
    if addend is not None and beta != 0:
        result = binary(b, "ADD", result, scale(b, addend, beta))
    return result


def fully_connected(b: Builder, x: Value, weights: Value, bias: Value | None = None) -> Value:
    """x [rows, depth] times weights [units, depth], plus a bias [units]."""
    if x.known.dtype.kind != "f":
        b.unsupported(f"a matrix product of {x.known.dtype.name}", "cast both operands to float before")
    if bias is None:
        bias = b.const(np.zeros(weights.shape[0], x.known.dtype), name=f"{b.op.outputs[0]}.bias")
    return b.emit("FULLY_CONNECTED", x, weights, bias)


@legalizes("MatMul")
def matmul(b: Builder, op: Op) -> Value:
    """FULLY_CONNECTED where one right matrix serves all rows, else BATCH_MATMUL (level 6) or a product a matrix."""
    x, y = b.inputs(op)
    result = matmul_of(b, x, y)
    return b.reshape(result, b.out_shape(op))


def matmul_of(b: Builder, x: Value, y: Value) -> Value:
    """The product of two (batches of) matrices with numpy's broadcasting; vectors are matrices of one row or column."""
    x_matrix = x if x.rank > 1 else b.reshape(x, (1, x.shape[0]))
    y_matrix = y if y.rank > 1 else b.reshape(y, (y.shape[0], 1))
    if y_matrix.rank == 2 or math.prod(y_matrix.shape[:-2]) == 1:
        result = _shared_right(b, x_matrix, y_matrix)
    else:
        result = _batched(b, x_matrix, y_matrix)
    if x.rank > 1 and y.rank > 1:
        return result
    shape = [
        *result.shape[:-2],
        *(result.shape[-2:-1] if x.rank > 1 else ()),
        *(result.shape[-1:] if y.rank > 1 else ()),
    ]
    return b.reshape(result, shape or (1,))


def _shared_right(b: Builder, x: Value, y: Value) -> Value:
    """One right matrix for all rows: FULLY_CONNECTED over x flattened to rows."""
    depth, units = y.shape[-2:]
    weights, swapped = _untransposed(b, y) if y.const is None else (y, False)
    right = b.reshape(weights, weights.shape[-2:])
    if not swapped:
        right = b.transpose(right, (1, 0))
    rows = b.reshape(x, (math.prod(x.shape[:-1]), depth))
    result = fully_connected(b, rows, right)
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return b.reshape(result, (*batch, x.shape[-2], units))


def _untransposed(b: Builder, y: Value) -> tuple[Value, bool]:
    """``y``, or what it is the transpose of in its last two dimensions: both forms of product take either for free.

    A transpose that moves other dimensions too is one that does not swap the last two, then one that does.
    """
    maker = b.graph.producer(y.name)
    if maker is None or maker.kind != "TRANSPOSE" or maker.inputs[0] is None:
        return y, False
    perm = list(maker.attrs["perm"])
    if perm[-2] < perm[-1]:
        return y, False
    perm[-2:] = perm[-1], perm[-2]
    return b.transpose(b.graph[maker.inputs[0]], perm), True


def _batched(b: Builder, x: Value, y: Value) -> Value:
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    count = math.prod(batch)
    y, swapped = _untransposed(b, y)
    if b.at_least(6):
        left, right = (_as_batch(b, value, batch) for value in (x, y))
        result = b.emit("BATCH_MATMUL", left, right, transpose_input=False, transpose_other=swapped)
        return b.reshape(result, (*batch, *result.shape[-2:]))
    if x.known.dtype.kind != "f":
        b.needs_level(6, f"a matrix product of {x.known.dtype.name}")
    lefts, rights = (_matrices(b, value, batch) for value in (x, y))
    products = []
    for left, right in zip(lefts, rights, strict=True):
        weights = right if swapped else b.transpose(right, (1, 0))
        products.append(fully_connected(b, left, weights))
    joined = products[0] if count == 1 else b.emit("CONCATENATION", *products, axis=0)
    return b.reshape(joined, (*batch, *products[0].shape))


def _as_batch(b: Builder, value: Value, batch: tuple[int, ...]) -> Value:
    """[batch…, r, c] in rank 3 or 4, repeated where the other operand has more."""
    full = (*batch, *value.shape[-2:])
    wide = broadcast_to(b, _at_rank(b, value, len(full)), full)
    return wide if wide.rank <= 4 else b.reshape(wide, (math.prod(batch), *value.shape[-2:]))


def _at_rank(b: Builder, value: Value, rank: int) -> Value:
    return value if value.rank == rank else b.reshape(value, (1,) * (rank - value.rank) + value.shape)


def _matrices(b: Builder, value: Value, batch: tuple[int, ...]) -> list[Value]:
    """The matrices of a batch in the order of the product's batch; one that is shared is one value."""
    own = value.shape[:-2]
    rows, columns = value.shape[-2:]
    count = math.prod(own)
    flat = b.reshape(value, (count * rows, columns))
    if count == 1:
        parts = [flat]
    elif flat.const is not None:
        const = flat.const.reshape((count, rows, columns))
        parts = [b.const(_part(const, i)) for i in range(count)]
    elif b.at_least(3):
        parts = b.emit_all("SPLIT", flat, axis=0, count=count)
    else:
        masks: dict[str, Any] = {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0}
        parts = [
            b.emit("STRIDED_SLICE", flat, begin=(i * rows, 0), end=((i + 1) * rows, columns), strides=(1, 1), **masks)
            for i in range(count)
        ]
    index = np.broadcast_to(np.arange(count).reshape(own), batch).reshape(-1)
    return [parts[i] for i in index]


def _part(const: LazyArray, index: int) -> LazyArray:
    """One entry along the first dimension."""
    return const.then(f"part[{index}]", lambda array: array[index], shape=const.shape[1:])
