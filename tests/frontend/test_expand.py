from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx2nnapi.frontend.expand import expand, expand_all
from tests.frontend.building import imported, kinds, model, node, run, value

BODIES: list[tuple[str, list[list[int]], dict[str, Any]]] = [
    ("Mish", [[2, 3]], {}),
    ("Celu", [[2, 3]], {"alpha": 0.5}),
    ("Shrink", [[2, 3]], {"lambd": 0.3, "bias": 0.1}),
    ("ReduceLogSumExp", [[2, 3]], {"keepdims": 0}),
    ("MeanVarianceNormalization", [[2, 3, 4, 4]], {}),
    ("Gelu", [[2, 3]], {"approximate": "tanh"}),
    ("LayerNormalization", [[2, 3, 4], [4], [4]], {}),
    ("GroupNormalization", [[2, 4, 3], [4], [4]], {"num_groups": 2}),
    ("RMSNormalization", [[2, 3, 4], [4]], {}),
    ("Attention", [[1, 2, 5, 8], [1, 2, 5, 8], [1, 2, 5, 8]], {}),
    ("RotaryEmbedding", [[1, 2, 5, 8], [1, 5, 4], [1, 5, 4]], {}),
]


@pytest.mark.parametrize(("kind", "shapes", "attrs"), BODIES, ids=[row[0] for row in BODIES])
def test_a_body_computes_what_its_operator_does(kind: str, shapes: list[list[int]], attrs: dict[str, Any]) -> None:
    names = [f"x{at}" for at in range(len(shapes))]
    inputs = [value(name, shape) for name, shape in zip(names, shapes, strict=True)]
    graph = imported(model([node(kind, names, ["y"], "whole", **attrs)], inputs, ["y"], opset=24))
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in zip(names, shapes, strict=True)}
    wanted = run(graph, feeds)[0]
    assert expand(graph, graph.ops[0])
    assert kind not in kinds(graph)
    assert {op.origin.name for op in graph.ops} == {"whole"}
    assert all(graph[name].type is not None for op in graph.ops for name in op.outputs if name)
    np.testing.assert_allclose(run(graph, feeds)[0], wanted, rtol=1e-4, atol=1e-5)


def test_an_operator_without_a_body_stays() -> None:
    graph = imported(model([node("Sin", ["x"], ["y"])], [value("x", [2])], ["y"]))
    assert not expand(graph, graph.ops[0])
    assert kinds(graph) == ["Sin"]


def test_the_order_of_operations_around_a_body_is_kept() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("HardSwish", ["a"], ["b"]), node("Exp", ["b"], ["y"])]
    graph = imported(model(nodes, [value("x", [2])], ["y"]))
    assert expand(graph, graph.ops[1])
    assert kinds(graph) == ["Relu", "HardSigmoid", "Mul", "Exp"]


def test_bodies_of_bodies_are_expanded_until_all_is_known() -> None:
    graph = imported(model([node("HardSwish", ["x"], ["y"])], [value("x", [2])], ["y"]))
    assert expand_all(graph, lambda kind: kind in ("Mul", "Add", "Max", "Min"))
    assert {"HardSwish", "HardSigmoid"}.isdisjoint(kinds(graph))
    assert not expand_all(graph, lambda kind: True)


def test_a_body_of_unknown_sizes_is_left_alone() -> None:
    inputs = [value(name, []) for name in ("start", "limit", "delta")]
    graph = imported(
        model([node("Range", ["start", "limit", "delta"], ["r"]), node("ReduceSum", ["r"], ["y"])], inputs, ["y"])
    )
    before = sorted(graph.values)
    assert not expand_all(graph, lambda kind: kind != "Range")
    assert kinds(graph)[0] == "Range"
    assert sorted(graph.values) == before
