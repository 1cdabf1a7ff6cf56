"""recognize_pack, by graphs as layout leaves them and a golden text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.ir.text import print_graph
from onnx2nnapi.options import Options
from onnx2nnapi.passes.recognize_pack import recognize_pack

LEVEL = Options(feature_level=6)


def stack(make: type, axis: int, *, join: int | None = None, dtype: type = np.float32) -> Graph:
    b = make(6)
    x, y = (b.input(name, 2, 3, dtype=dtype) for name in "xy")
    shape = (*(2, 3)[:axis], 1, *(2, 3)[axis:])
    parts = [b.reshape(value, shape) for value in (x, y, x)]
    b.output(b.emit("CONCATENATION", *parts, axis=axis if join is None else join), "z")
    graph: Graph = b.done()
    return graph


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_golden_text(check_pass: Callable[..., Graph], nnapi_graph: type, axis: int) -> None:
    graph = check_pass(stack(nnapi_graph, axis), recognize_pack, LEVEL)
    shape = [2, 3]
    shape.insert(axis, 3)
    assert [line.split("  #")[0] for line in print_graph(graph).splitlines()][1:-1] == [
        "input  x: float32[2, 3]",
        "input  y: float32[2, 3]",
        f"concatenation.concatenation: float32{shape} = PACK(x, y, x) {{axis={axis}}}",
    ]
    assert len(graph.ops[0].origins) == 4


def test_another_axis_stays(check_pass: Callable[..., Graph], nnapi_graph: type) -> None:
    assert "PACK" not in kinds(check_pass(stack(nnapi_graph, 0, join=1), recognize_pack, LEVEL))


def test_the_level_must_have_the_operation(check_pass: Callable[..., Graph], nnapi_graph: type) -> None:
    assert "PACK" not in kinds(check_pass(stack(nnapi_graph, 0), recognize_pack, Options(feature_level=5)))


def test_a_second_reader_keeps_the_reshape(check_pass: Callable[..., Graph], nnapi_graph: type) -> None:
    b = nnapi_graph(6)
    parts = [b.reshape(b.input(name, 2, 3), (1, 2, 3)) for name in "xy"]
    b.output(b.emit("CONCATENATION", *parts, axis=0), "z")
    b.output(parts[0], "w")
    assert "PACK" not in kinds(check_pass(b.done(), recognize_pack, LEVEL))


def test_larger_parts_stay(check_pass: Callable[..., Graph], nnapi_graph: type) -> None:
    b = nnapi_graph(6)
    parts = [b.reshape(b.input(name, 4, 3), (2, 2, 3)) for name in "xy"]
    b.output(b.emit("CONCATENATION", *parts, axis=0), "z")
    assert "PACK" not in kinds(check_pass(b.done(), recognize_pack, LEVEL))
