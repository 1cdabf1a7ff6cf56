"""What rows infer of their results, held to what Android computes."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from onnx2nnapi.nnapi import Model
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.model import Lifetime
from onnx2nnapi.nnapi.rules import Argument, RuleError, UnknownValue, bind, output_types
from onnx2nnapi.nnapi.schema import SCHEMAS
from onnx2nnapi.nnapi.shapes import agree, broadcast_shapes, normalized_axis
from onnx2nnapi.runtime import Interpreter

# Their results' sizes depend on what they compute, or are those of sub-models.
FOUND_WHILE_RUNNING = {"BOX_WITH_NMS_LIMIT", "GENERATE_PROPOSALS", "IF", "WHILE"}


def array_of(operand: Any, values: list[Any]) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        array = np.asarray(values, np.float64).astype(operand.type.dtype)
    return array.reshape(operand.type.shape if operand.type.is_specified and operand.type.code.is_tensor else -1)


@pytest.mark.parametrize("name", OperationCode.__members__)
def test_inferred_sizes_are_androids_and_the_kernels(name: str, shared: pathlib.Path) -> None:
    path = shared / "golden" / "arith" / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("random numbers have no golden results")
    inferred = 0
    for case in json.loads(gzip.decompress(path.read_bytes())):
        made = Model.from_dict(case)
        graph = made.main
        if len(graph.operations) != 1 or None in case["input_values"]:
            continue
        feeds = [array_of(graph.operands[i], v) for i, v in zip(graph.inputs, case["input_values"], strict=True)]
        known = dict(zip(graph.inputs, feeds, strict=True))
        arguments = [
            None
            if operand.lifetime is Lifetime.NO_VALUE
            else Argument(operand.type, made.subgraphs[operand.subgraph])
            if operand.subgraph is not None
            else Argument(operand.type, known.get(index, operand.value))
            for index, operand in ((index, graph.operands[index]) for index in graph.operations[0].inputs)
        ]
        declared = [graph.operands[index].type for index in graph.operations[0].outputs]
        try:
            types = output_types(bind(SCHEMAS[graph.operations[0].code], arguments, declared), declared)
        except UnknownValue:
            continue
        inferred += 1
        shapes = [list(type_.shape) for type_, promised in zip(types, declared, strict=True) if promised.code.is_tensor]
        wanted = [
            dims
            for dims, promised in zip(case["expected_output_dims"], declared, strict=True)
            if promised.code.is_tensor
        ]
        assert shapes == wanted, case["name"]
        results = Interpreter(made).run(feeds)
        assert [tuple(result.shape) for result in results] == [type_.shape for type_ in types], case["name"]
    assert inferred or name in FOUND_WHILE_RUNNING


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [
        ([(2, 3), (3,)], (2, 3)),
        ([(2, 1), (1, 3)], (2, 3)),
        ([(1,), (1, 1, 1)], (1, 1, 1)),
        ([(0, 3), (1, 3)], (0, 3)),
        ([(2, 1), (3,), (1, 1, 1)], (1, 2, 3)),
    ],
)
def test_broadcasting(shapes: list[tuple[int, ...]], wanted: tuple[int, ...]) -> None:
    assert broadcast_shapes({f"x{index}": shape for index, shape in enumerate(shapes)}) == wanted
    assert np.broadcast_shapes(*shapes) == wanted


def test_what_does_not_broadcast_is_named() -> None:
    with pytest.raises(RuleError, match=r"'a' \[2, 3\] and 'b' \[4\] do not broadcast"):
        broadcast_shapes({"a": (2, 3), "b": (4,)})


@pytest.mark.parametrize(("axis", "rank", "wanted"), [(0, 1, 0), (-1, 3, 2), (-3, 3, 0), (2, 3, 2)])
def test_axes_are_counted_from_either_end(axis: int, rank: int, wanted: int) -> None:
    assert normalized_axis(axis, rank) == wanted


@pytest.mark.parametrize(("axis", "rank"), [(1, 1), (-2, 1), (0, 0)])
def test_an_axis_beyond_the_rank(axis: int, rank: int) -> None:
    with pytest.raises(RuleError, match=f"'axis' is {axis}"):
        normalized_axis(axis, rank)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        ((), (1, 2), True),
        ((0, 2), (5, 2), True),
        ((5, 2), (5, 2), True),
        ((5, 2), (5, 3), False),
        ((5,), (5, 1), False),
    ],
)
def test_shapes_agree_but_for_what_is_unspecified(a: tuple[int, ...], b: tuple[int, ...], wanted: bool) -> None:
    assert agree(a, b) is agree(b, a) is wanted
