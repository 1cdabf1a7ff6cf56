"""recognize_shuffle, by graphs as legalize makes them and a golden text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.ir.text import print_graph
from onnx2nnapi.options import Options
from onnx2nnapi.passes.recognize_shuffle import recognize_shuffle


def shuffled(make: type, perm: tuple[int, ...] = (0, 2, 1, 3), level: int = 4) -> Graph:
    b = make(level)
    x = b.input("x", 2, 6, 4, 5)
    split = b.reshape(x, (2, 2, 3, 20))
    b.output(b.reshape(b.transpose(split, perm), (2, 6, 4, 5)), "y")
    graph: Graph = b.done()
    return graph


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


def test_golden_text(check_pass: Callable[..., Graph], nnapi_graph: type) -> None:
    graph = check_pass(shuffled(nnapi_graph), recognize_shuffle)
    assert [line.split("  #")[0] for line in print_graph(graph).splitlines()][1:-1] == [
        "input  x: float32[2, 6, 4, 5]",
        "reshape.reshape_1: float32[2, 6, 4, 5] = CHANNEL_SHUFFLE(x) {axis=1, groups=2}",
    ]


def test_a_swap_of_other_dimensions_stays(check_pass: Callable[..., Graph], nnapi_graph: type) -> None:
    assert "CHANNEL_SHUFFLE" not in kinds(check_pass(shuffled(nnapi_graph, (0, 3, 1, 2)), recognize_shuffle))


def test_the_level_must_have_the_operation(check_pass: Callable[..., Graph], nnapi_graph: type) -> None:
    graph = check_pass(shuffled(nnapi_graph, level=2), recognize_shuffle, Options(feature_level=2))
    assert "CHANNEL_SHUFFLE" not in kinds(graph)


@pytest.mark.parametrize("groups", [2, 3])
def test_other_readers_keep_what_they_read(check_pass: Callable[..., Graph], nnapi_graph: type, groups: int) -> None:
    b = nnapi_graph(4)
    x = b.input("x", 2, 6, 4, 5)
    moved = b.transpose(b.reshape(x, (2, groups, 6 // groups, 20)), (0, 2, 1, 3))
    b.output(moved, "z")
    b.output(b.reshape(moved, (2, 6, 4, 5)), "y")
    assert "TRANSPOSE" in kinds(check_pass(b.done(), recognize_shuffle))
