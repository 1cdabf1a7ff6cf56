from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi import Model, validate
from onnx2nnapi.runtime import Interpreter
from tests.nnapi.descriptions import branch, f32, graph, i32, loop, model, operand


def runner(description):
    made = Model.from_dict(description)
    validate(made)
    return Interpreter(made).run


@pytest.mark.parametrize("which", [True, False])
def test_if_runs_one_of_its_models(which):
    x = np.array([1.0, -2.0], np.float32)
    result = runner(branch())([np.array([which]), x])[0]
    np.testing.assert_array_equal(result, np.abs(x) if which else -x)


@pytest.mark.parametrize(("start", "end"), [(0.5, 10.5), (9.0, 10.0), (10.0, 10.0), (42.0, 42.0)])
def test_while_runs_until_its_condition_is_false(start, end):
    assert runner(loop())([np.array([start], np.float32)])[0].tolist() == [end]


def test_state_that_only_the_loop_sees_and_inputs_that_stay():
    """While i < limit: (sum, i) = (sum + i, i + 1); only the sum comes out."""
    condition = graph(
        [f32("INPUT", 1), f32("INPUT", 1), f32("INPUT", 1), operand("TENSOR_BOOL8", [1], "OUTPUT")],
        [("LESS", [1, 2], [3])],
    )
    body = graph(
        [
            f32("INPUT", 1),
            f32("INPUT", 1),
            f32("INPUT", 1),
            f32("CONSTANT", 1, value=[1.0]),
            i32(0),
            f32("OUTPUT", 1),
            f32("OUTPUT", 1),
        ],
        [("ADD", [0, 1, 4], [5]), ("ADD", [1, 3, 4], [6])],
    )
    main = graph(
        [
            operand("SUBGRAPH", [], "SUBGRAPH", subgraph=0),
            operand("SUBGRAPH", [], "SUBGRAPH", subgraph=1),
            f32("INPUT", 1),
            f32("INPUT", 1),
            f32("INPUT", 1),
            f32("OUTPUT", 1),
        ],
        [("WHILE", [0, 1, 2, 3, 4], [5])],
    )
    one = np.ones(1, np.float32)
    assert runner(model(main, condition, body))([0 * one, one, 5 * one])[0].tolist() == [10]


def test_a_loop_that_does_not_end_is_stopped():
    description = loop()
    description["subgraphs"][1]["operands"][1]["value"] = [0.0]
    with pytest.raises(InvalidModelError, match="the loop has not ended after 10000 rounds"):
        runner(description)([np.zeros(1, np.float32)])
