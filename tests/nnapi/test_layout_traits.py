"""Each row's layout trait, held to the row's kernel: an operation on permuted inputs gives the permuted results.

Every operation with a trait has an example here; the ways that the trait opens for it are all taken.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from onnx2nnapi.ir.graph import Graph, Value
from onnx2nnapi.ir.types import LazyArray, Quantization, TensorType
from onnx2nnapi.nnapi.schema import SCHEMAS, Barrier, Permutes
from onnx2nnapi.options import Options
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.layout.moves import Move, data_rank, moves
from tests.runtime.kernels.single import Array, quantized, run

RNG = np.random.default_rng(3)
LEVEL = 8


def floats(*shape: int) -> Array:
    return RNG.uniform(0.25, 4, shape).astype(np.float32)  # positive: logarithms and roots of them are finite


X = floats(2, 3, 4)
BITS = RNG.integers(0, 2, (2, 3, 4)).astype(np.bool_)
MASKS = {"begin_mask": 0b010, "end_mask": 0b100}

# (tensors, attributes) by operation; those without an entry are elementwise, on X alone.
EXAMPLES: dict[str, list[tuple[list[Any], dict[str, Any]]]] = {
    "CONCATENATION": [([X, floats(2, 5, 4)], {"axis": 1})],
    "FULLY_CONNECTED": [([floats(2, 3, 4), floats(5, 12), floats(5)], {"fuse_code": 0})],
    "L2_NORMALIZATION": [([X], {"axis": 1}), ([X], {"axis": -1})],
    "LOCAL_RESPONSE_NORMALIZATION": [([X], {"radius": 1, "bias": 1.0, "alpha": 0.5, "beta": 0.5, "axis": 1})],
    "SOFTMAX": [([X], {"beta": 1.0, "axis": 1}), ([X], {"beta": 1.0, "axis": -1})],
    "LOG_SOFTMAX": [([X], {"beta": 1.0, "axis": 2})],
    "RESHAPE": [([X], {"shape": (6, 4)}), ([X], {"shape": (2, 3, 2, 2)}), ([X], {"shape": (2, 1, 12)})],
    "SQUEEZE": [([floats(1, 3, 1, 2)], {"axes": (0, -2)}), ([floats(1, 3, 1, 2)], {"axes": (2,)})],
    "EXPAND_DIMS": [([X], {"axis": 1}), ([X], {"axis": -1})],
    "PACK": [([X, floats(2, 3, 4)], {"axis": 2})],
    "SPLIT": [([X], {"axis": 2, "count": 2})],
    "PAD": [([X], {"paddings": ((1, 0), (0, 2), (3, 1))})],
    "PAD_V2": [([X], {"paddings": ((1, 0), (0, 2), (3, 1)), "pad_value": 7.0})],
    "MIRROR_PAD": [([X], {"paddings": ((1, 0), (0, 2), (3, 1)), "mode": 0})],
    "SLICE": [([X], {"begin": (0, 1, 2), "size": (2, -1, 1)})],
    "STRIDED_SLICE": [
        ([X], {"begin": (1, 0, 3), "end": (2, 3, 0), "strides": (1, 2, -1), **MASKS}),
        ([X], {"begin": (1, 0, 1), "end": (2, 3, 4), "strides": (1, 2, 1), "shrink_axis_mask": 0b001}),
    ],
    "TILE": [([X], {"multiples": (1, 2, 3)})],
    "REVERSE": [([X], {"axes": (1,)})],
    "CHANNEL_SHUFFLE": [([X], {"groups": 2, "axis": -1})],
    "GATHER": [([X, np.array([2, 0], np.int32)], {"axis": 1}), ([X, np.array([[2], [0]], np.int32)], {"axis": 1})],
    "ELU": [([X], {"alpha": 0.5})],
    "SELECT": [([BITS, X, floats(2, 3, 4)], {})],
    "PRELU": [([X - 2, floats(4)], {})],
    "CAST": [([X], {"dtype": np.dtype(np.int32)})],
    "QUANTIZE": [([X], {"quant": Quantization(0.1, 3), "dtype": np.dtype(np.uint8)})],
    "DEQUANTIZE": [([quantized(X * 9, 0.1, 3)], {"dtype": np.dtype(np.float32)})],
    "LOGICAL_NOT": [([BITS], {})],
    **{name: [([BITS, BITS[:, ::-1].copy()], {})] for name in ("LOGICAL_AND", "LOGICAL_OR")},
    **{name: [([X], {"axis": 1}), ([X], {"axis": -1})] for name in ("ARGMAX", "ARGMIN")},
    **{
        name: [([X, floats(3, 1)], {"fuse_code": 0}), ([X, floats(2, 3, 4)], {"fuse_code": 0})]
        for name in ("ADD", "SUB", "MUL", "DIV")
    },
    **{
        name: [([X, floats(4)], {}), ([X, X], {})]
        for name in (
            "EQUAL",
            "NOT_EQUAL",
            "GREATER",
            "GREATER_EQUAL",
            "LESS",
            "LESS_EQUAL",
            "MAXIMUM",
            "MINIMUM",
            "POW",
        )
    },
    **{
        name: [([x], {"axes": (0, 2), "keep_dims": keep}) for keep in (0, 1)]
        for names, x in ((("SUM", "PROD", "MAX", "MIN"), X), (("ALL", "ANY"), BITS))
        for name in map("REDUCE_{}".format, names)
    },
    "MEAN": [([X], {"axes": (-1,), "keep_dims": keep}) for keep in (0, 1)],
}

WITH_TRAIT = [code.name for code, row in SCHEMAS.items() if not isinstance(row.layout, (Barrier, Permutes))]


def examples(name: str) -> list[tuple[list[Any], dict[str, Any]]]:
    return EXAMPLES.get(name, [([X], {})])


def emitted(name: str, tensors: list[Any], attrs: dict[str, Any]) -> tuple[Graph, Any]:
    """The operation in a graph."""
    builder = Builder(Graph(dialect="nnapi"), Options(feature_level=LEVEL))
    values = []
    for index, tensor in enumerate(tensors):
        codes = getattr(tensor, "codes", tensor)
        quant = None if codes is tensor else Quantization(tensor.scale, tensor.zero_point)
        value = Value(f"x{index}", TensorType(codes.dtype, codes.shape, quant))
        if name == "FULLY_CONNECTED" and index:
            value = builder.const(LazyArray.of(codes))
        else:
            value = builder.graph.add_value(value)
        values.append(value)
    builder.emit_all(name, *values, **attrs)
    (op,) = [op for op in builder.graph.ops if op.kind == name]
    return builder.graph, op


def permuted(tensor: Any, perm: tuple[int, ...] | None) -> Any:
    """A tensor with its dimensions permuted, those that it lacks filled up with 1 in front."""
    if perm is None:
        return tensor
    codes = getattr(tensor, "codes", tensor)
    codes = np.ascontiguousarray(codes.reshape((1,) * (len(perm) - codes.ndim) + codes.shape).transpose(perm))
    return codes if getattr(tensor, "codes", None) is None else quantized(codes, tensor.scale, tensor.zero_point)


def results(name: str, tensors: list[Any], attrs: Any) -> list[Array]:
    how = dict(attrs)
    quant = how.pop("quant", None)
    count = how["count"] if name == "SPLIT" else None
    given = run(name, *tensors, outputs=count, quant=[(quant.scale, quant.zero_point)] if quant else (), **how)
    return given if isinstance(given, list) else [given]


def check(name: str, tensors: list[Any], attrs: dict[str, Any], move: Move) -> None:
    moved = [permuted(tensor, perm) for tensor, perm in zip(tensors, move.inputs, strict=True)]
    for edit in move.edits:  # a constant whose dimension is reordered along
        shape = moved[edit.input].shape
        split = moved[edit.input].reshape(*shape[:-1], *edit.sizes)
        order = [*range(len(shape) - 1), *(len(shape) - 1 + axis for axis in edit.perm)]
        moved[edit.input] = np.ascontiguousarray(split.transpose(order)).reshape(shape)
    extra = {key: attrs[key] for key in ("dtype", "quant") if key in attrs}
    before = results(name, tensors, attrs)
    after = results(name, moved, {**move.attrs, **extra})
    for one, other, perm in zip(before, after, move.outputs, strict=True):
        wanted = one.transpose(perm) if perm else one
        assert other.shape == wanted.shape
        np.testing.assert_allclose(other.astype(np.float64), wanted.astype(np.float64), rtol=1e-5, atol=1e-6)


def ways(graph: Graph, op: Any) -> list[Move]:
    """All but those whose result is in another order within a dimension, which only a weight that reads it undoes."""
    rank = data_rank(graph, op)
    assert rank is not None
    perms = itertools.permutations(range(rank))
    return [move for perm in perms for move in moves(graph, op, perm, LEVEL) if not move.shuffled]


@pytest.mark.parametrize("name", WITH_TRAIT)
def test_a_permutation_passes_as_the_trait_says(name: str) -> None:
    for tensors, attrs in examples(name):
        graph, op = emitted(name, tensors, attrs)
        for move in ways(graph, op):
            check(name, tensors, attrs, move)


@pytest.mark.parametrize("name", WITH_TRAIT)
def test_the_trait_opens_a_way(name: str) -> None:
    tensors, attrs = examples(name)[0]
    graph, op = emitted(name, tensors, attrs)
    assert any(perm and perm != tuple(range(len(perm))) for move in ways(graph, op) for perm in move.inputs)


def test_gathering_by_a_matrix_lets_none_pass() -> None:
    tensors, attrs = EXAMPLES["GATHER"][1]
    graph, op = emitted("GATHER", tensors, attrs)
    assert ways(graph, op) == []
