"""fold_affine: a scale and a shift of each channel go into the weights and the bias of the operator before.

Before::

    a = Conv(x, w)
    b = BatchNormalization(a, scale, B, mean, var)
    y = Mul(b, c)                # c constant, one number or one a channel

After::

    y = Conv(x, w', b')

The weights stay lazy: they are scaled when they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.ir.types import Array, LazyArray
from onnx2nnapi.options import Options

__all__ = ["fold_affine"]

_FEW = 1 << 16  # bytes: biases and factors up to this size are computed now


def fold_affine(graph: Graph, options: Options) -> bool:
    """Fold BatchNormalization and Mul, Div, Add, Sub by constants into Conv, ConvTranspose, Gemm and MatMul."""
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= fold_affine(subgraph, options)
        affine = _affine(graph, op)
        if affine is not None:
            changed |= _fold(graph, op, affine)
    return changed


@dataclass(frozen=True, slots=True)
class _Affine:
    """``y = x * scale + shift``.

    Attributes:
        source: x.
        scale, shift: of one element, or with as many dimensions as x, all of size 1 but one; in double precision.
    """

    source: str
    scale: Array
    shift: Array

    def along(self, rank: int, axis: int, size: int) -> tuple[Array, Array] | None:
        """Scale and shift as vectors along a dimension, None where they vary along another."""
        vectors = []
        for array in (self.scale, self.shift):
            shape = (1,) * (rank - array.ndim) + array.shape
            if len(shape) != rank or shape[axis] not in (1, size) or array.size != shape[axis]:
                return None
            vectors.append(np.broadcast_to(array.reshape(-1), (size,)))
        return vectors[0], vectors[1]


# -- what is an affine map of its input --------------------------------------------------------------------------------


def _affine(graph: Graph, op: Op) -> _Affine | None:
    rule = _AFFINE.get(op.kind)
    if rule is None or any(name is not None for name in op.outputs[1:]):
        return None
    found = rule(graph, op)
    if found is None or not (np.isfinite(found.scale).all() and np.isfinite(found.shift).all()):
        return None
    return found


def _constant(graph: Graph, name: str | None) -> Array | None:
    """A small constant in double precision."""
    const = graph.const(name)
    if const is None or const.nbytes > _FEW or const.dtype.kind != "f":
        return None
    return const.numpy().astype(np.float64)


def _batch_norm(graph: Graph, op: Op) -> _Affine | None:
    if op.attrs.get("training_mode", 0) or op.inputs[0] is None or op.inputs[0] not in graph.values:
        return None
    parameters = [_constant(graph, name) for name in op.inputs[1:5]]
    scale, offset, mean, variance = parameters
    if scale is None or offset is None or mean is None or variance is None:
        return None
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + op.attrs.get("epsilon", 1e-5))
        shape = (-1, *(1,) * (graph[op.inputs[0]].rank - 2))
        return _Affine(op.inputs[0], factor.reshape(shape), (offset - mean * factor).reshape(shape))


def _arithmetic(graph: Graph, op: Op) -> _Affine | None:
    left, right = op.inputs
    a, b = _constant(graph, left), _constant(graph, right)
    if (a is None) == (b is None):
        return None
    source = right if b is None else left
    other = a if b is None else b
    if source is None or other is None or source not in graph.values:
        return None
    if graph[source].type is None or graph[source].type != graph[str(op.outputs[0])].type:
        return None
    zero, one = np.zeros(1), np.ones(1)
    if op.kind == "Mul":
        return _Affine(source, other, zero)
    if op.kind == "Add":
        return _Affine(source, one, other)
    if op.kind == "Sub":
        return _Affine(source, one, -other) if b is not None else _Affine(source, -one, other)
    with np.errstate(all="ignore"):
        return _Affine(source, 1 / other, zero) if b is not None else None


_AFFINE: dict[str, Callable[[Graph, Op], _Affine | None]] = {
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(("Add", "Div", "Mul", "Sub"), _arithmetic),
}


# -- what takes it in --------------------------------------------------------------------------------------------------


def _fold(graph: Graph, op: Op, affine: _Affine) -> bool:
    producer = graph.producer(affine.source)
    taker = _TAKERS.get(producer.kind) if producer is not None else None
    if producer is None or taker is None or graph.uses(affine.source) != 1 or not _is_float_constant(graph, producer):
        return False
    inputs = taker(graph, producer, affine)
    if inputs is None:
        return False
    graph.remove(op)
    graph.rewire(producer, inputs=inputs, outputs=op.outputs)
    graph.drop_value(affine.source)
    producer.origins = tuple(dict.fromkeys((*producer.origins, *op.origins)))
    return True


def _is_float_constant(graph: Graph, op: Op) -> bool:
    """Whether the weights are a constant of floats."""
    const = graph.const(op.inputs[1])
    return const is not None and const.dtype.kind == "f"


def _weights(graph: Graph, op: Op) -> LazyArray:
    const = graph.const(op.inputs[1])
    if const is None:
        raise LookupError(op.inputs[1])
    return const


def _add(graph: Graph, op: Op, what: str, const: LazyArray) -> str:
    return graph.constant(f"{op.inputs[1]}.{what}", const).name


def _scaled(weights: LazyArray, factor: Array) -> LazyArray:
    return weights if np.all(factor == 1) else weights.scaled(factor.astype(weights.dtype))


def _bias(graph: Graph, op: Op, scale: Array, shift: Array) -> str | None:
    """A new bias in the place of input 2; None where that is computed."""
    dtype = _weights(graph, op).dtype
    name = op.inputs[2] if len(op.inputs) > 2 else None
    if name is None:
        return _add(graph, op, "bias", LazyArray.of(shift.astype(dtype)))
    old = _constant(graph, name)
    return None if old is None else _add(graph, op, "bias", LazyArray.of((old * scale + shift).astype(dtype)))


def _conv(graph: Graph, op: Op, affine: _Affine) -> list[str | None] | None:
    weights = _weights(graph, op)
    count, rank = weights.shape[0], len(weights.shape)
    return _convolution(graph, op, affine, count, lambda scale: scale.reshape(count, *(1,) * (rank - 1)), weights.shape)


def _conv_transpose(graph: Graph, op: Op, affine: _Affine) -> list[str | None] | None:
    """The weights are (input channels, output channels of a group, …), the groups side by side in the first."""
    shape, groups = _weights(graph, op).shape, op.attrs.get("group", 1)
    inputs, outputs, *space = shape
    ones = (1,) * len(space)
    return _convolution(
        graph,
        op,
        affine,
        outputs * groups,
        lambda scale: scale.reshape(groups, 1, outputs, *ones),
        (groups, inputs // groups, outputs, *space),
    )


def _convolution(
    graph: Graph,
    op: Op,
    affine: _Affine,
    channels: int,
    factor: Callable[[Array], Array],
    view: tuple[int, ...],
) -> list[str | None] | None:
    weights = _weights(graph, op)
    found = affine.along(len(weights.shape), 1, channels)
    if found is None:
        return None
    scale, shift = found
    bias = _bias(graph, op, scale, shift)
    if bias is None:
        return None
    scaled = _scaled(weights.reshape(view), factor(scale)).reshape(weights.shape)
    return [op.inputs[0], _add(graph, op, "scaled", scaled), bias]


def _gemm(graph: Graph, op: Op, affine: _Affine) -> list[str | None] | None:
    """``alpha·A·B + beta·C``: the columns of B and of C."""
    weights, transposed = _weights(graph, op), bool(op.attrs.get("transB", 0))
    units = weights.shape[0 if transposed else 1]
    found = affine.along(2, 1, units)
    beta = op.attrs.get("beta", 1.0)
    if found is None or (len(op.inputs) > 2 and op.inputs[2] is not None and beta == 0):
        return None
    scale, shift = found
    bias = _bias(graph, op, scale, shift / beta if beta else shift)
    if bias is None:
        return None
    if not beta:
        op.attrs["beta"] = 1.0
    scaled = _scaled(weights, scale.reshape((-1, 1) if transposed else (1, -1)))
    return [op.inputs[0], _add(graph, op, "scaled", scaled), bias]


def _matmul(graph: Graph, op: Op, affine: _Affine) -> list[str | None] | None:
    """Scales only: MatMul has no bias (a sum after it becomes one once it is FULLY_CONNECTED)."""
    weights = _weights(graph, op)
    rank = graph[affine.source].rank
    if len(weights.shape) < 2 or affine.shift.any() or op.inputs[0] is None:
        return None
    found = affine.along(rank, rank - 1, weights.shape[-1])
    if found is None:
        return None
    return [op.inputs[0], _add(graph, op, "scaled", _scaled(weights, found[0]))]


_TAKERS: dict[str, Callable[[Graph, Op, _Affine], list[str | None] | None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
