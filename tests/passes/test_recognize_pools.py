"""recognize_pools, by graphs as legalize makes them and a golden text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.ir.text import print_graph
from onnx2nnapi.passes.recognize_pools import recognize_pools

POOL: dict[str, Any] = {
    "padding_scheme": 1, "stride_width": 2, "stride_height": 2, "filter_width": 3, "filter_height": 3,
}  # fmt: skip


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


def test_golden_text(check_pass: Callable[..., Graph], nnapi_graph: type) -> None:
    b = nnapi_graph()
    x = b.input("x", 2, 3, 8, 8)
    pooled = b.emit("AVERAGE_POOL_2D", b.last(b.emit("MUL", x, x)), **POOL)
    b.output(b.emit("SQRT", b.first(pooled)), "y")
    graph = check_pass(b.done(), recognize_pools)
    lines = print_graph(graph).splitlines()[2:-1]
    assert [line.split(" = ")[1].split("  #")[0] for line in lines] == [
        "TRANSPOSE(x) {perm=[0, 2, 3, 1]}",
        "L2_POOL_2D(transpose.transpose) "
        "{filter_height=3, filter_width=3, padding_scheme=1, stride_height=2, stride_width=2}",
        "TRANSPOSE(average_pool_2d.average_pool_2d) {perm=[0, 3, 1, 2]}",
    ]
    assert [value.holds for value in graph.values.values() if value.name not in graph.inputs + graph.outputs] == [
        None
    ] * 2
    assert "Mul 'n0'" in lines[1]
    assert "Sqrt 'n4'" in lines[1]


def test_without_moves(check_pass: Callable[..., Graph], nnapi_graph: type) -> None:
    b = nnapi_graph()
    x = b.input("x", 2, 8, 8, 3)
    root = b.emit("SQRT", b.emit("AVERAGE_POOL_2D", b.emit("MUL", x, x), **POOL))
    b.output(b.emit("ADD", root, root), "y")
    assert kinds(check_pass(b.done(), recognize_pools)) == ["L2_POOL_2D", "ADD"]


@pytest.mark.parametrize("kept", ["square", "pool", "product", "factor"])
def test_what_others_read_or_is_no_square_stays(check_pass: Callable[..., Graph], nnapi_graph: type, kept: str) -> None:
    b = nnapi_graph()
    x = b.input("x", 1, 8, 8, 3)
    square = b.emit("MUL", x, b.emit("ABS", x) if kept == "product" else x)
    square = b.emit("ABS", square) if kept == "product" else square
    pooled = b.emit("AVERAGE_POOL_2D", square, **POOL)
    scaled = b.emit("ADD", pooled, pooled) if kept == "factor" else pooled
    b.output(b.emit("SQRT", scaled), "y")
    for name, value in (("square", square), ("pool", pooled)):
        if kept == name:
            b.output(value, "z")
    assert "L2_POOL_2D" not in kinds(check_pass(b.done(), recognize_pools))
