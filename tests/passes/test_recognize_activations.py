"""recognize_gelu and recognize_hard_swish, by graphs as exporters write them, and by such that must stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.ir.text import print_graph
from onnx2nnapi.options import Options
from onnx2nnapi.passes.recognize_clip import recognize_clip
from onnx2nnapi.passes.recognize_gelu import recognize_gelu
from onnx2nnapi.passes.recognize_hard_swish import recognize_hard_swish

Build = Callable[[Any, str], str]


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


def built(make: type, build: Build, dtype: Any = np.float32) -> Graph:
    g = make()
    g.output(build(g, g.input("x", 2, 3, 4, dtype=dtype)))
    graph: Graph = g.done()
    return graph


def erf(g: Any, x: str, one: float = 1.0, root: float = math.sqrt(0.5)) -> str:
    return g.op("Add", g.op("Erf", g.op("Mul", x, g.const(root))), g.const(one))


def cubic(g: Any, x: str, factor: float = 0.044715, slope: float = math.sqrt(2 / math.pi)) -> str:
    power = g.op("Mul", g.op("Pow", x, g.const(3.0)), g.const(factor))
    return g.op("Add", g.const(1.0), g.op("Tanh", g.op("Mul", g.const(slope), g.op("Add", x, power))))


def nested(g: Any, x: str) -> str:
    """The cube as jax multiplies it: x · (x · (0.044715 · x))."""
    power = g.op("Mul", x, g.op("Mul", x, g.op("Mul", g.const(0.044715), x)))
    inner = g.op("Mul", g.const(math.sqrt(2 / math.pi)), g.op("Add", x, power))
    return g.op("Add", g.op("Tanh", inner), g.const(1.0))


def factored(g: Any, x: str) -> str:
    """x · (1 + 0.044715 · x²)."""
    square = g.op("Mul", g.op("Mul", x, x), g.const(0.044715))
    inner = g.op("Mul", g.op("Mul", x, g.const(math.sqrt(2 / math.pi))), g.op("Add", g.const(1.0), square))
    return g.op("Add", g.op("Tanh", inner), g.const(1.0))


def half_first(g: Any, x: str, term: str) -> str:
    return g.op("Mul", g.op("Mul", x, g.const(0.5)), term)


def half_last(g: Any, x: str, term: str) -> str:
    return g.op("Mul", g.op("Mul", x, term), g.const(0.5))


def half_of_term(g: Any, x: str, term: str) -> str:
    return g.op("Mul", x, g.op("Div", term, g.const(2.0)))


@pytest.mark.parametrize("order", [half_first, half_last, half_of_term])
@pytest.mark.parametrize(
    ("term", "approximate"), [(erf, "none"), (cubic, "tanh"), (nested, "tanh"), (factored, "tanh")]
)
def test_gelu(check_pass: Callable[..., Graph], onnx_graph: type, term: Build, order: Any, approximate: str) -> None:
    graph = check_pass(built(onnx_graph, lambda g, x: order(g, x, term(g, x))), recognize_gelu)
    assert [(op.kind, op.attrs) for op in graph.ops] == [("Gelu", {"approximate": approximate})]


def test_gelu_of_half_a_sum(check_pass: Callable[..., Graph], onnx_graph: type) -> None:
    def build(g: Any, x: str) -> str:
        inner = g.op("Mul", g.op("Erf", g.op("Div", x, g.const(math.sqrt(2)))), g.const(0.5))
        return g.op("Mul", x, g.op("Add", inner, g.const(0.5)))

    assert kinds(check_pass(built(onnx_graph, build), recognize_gelu)) == ["Gelu"]


@pytest.mark.parametrize(
    "build",
    [
        lambda g, x: half_last(g, x, erf(g, x, root=0.7)),
        lambda g, x: half_last(g, x, erf(g, x, one=1.001)),
        lambda g, x: half_last(g, x, cubic(g, x, factor=0.0447)),
        lambda g, x: half_last(g, x, cubic(g, x, slope=0.8)),
        lambda g, x: half_last(g, g.op("Neg", x), erf(g, x)),
        lambda g, x: g.op("Mul", g.op("Mul", x, erf(g, x)), g.const(0.25)),
        lambda g, x: half_last(g, g.op("Add", x, g.const([[1.0]])), erf(g, g.op("Add", x, g.const([[2.0]])))),
    ],
)
def test_what_is_nearly_a_gelu_stays(check_pass: Callable[..., Graph], onnx_graph: type, build: Build) -> None:
    graph = built(onnx_graph, build)
    before = print_graph(graph)
    assert print_graph(check_pass(graph, recognize_gelu)) == before


def test_a_second_reader_keeps_the_parts(check_pass: Callable[..., Graph], onnx_graph: type) -> None:
    g = onnx_graph()
    x = g.input("x", 2, 3)
    term = erf(g, x)
    g.output(half_last(g, x, term))
    g.output(g.op("Neg", term))
    assert "Gelu" not in kinds(check_pass(g.done(), recognize_gelu))


def test_a_constant_that_raises_the_rank_keeps_the_parts(check_pass: Callable[..., Graph], onnx_graph: type) -> None:
    graph = built(onnx_graph, lambda g, x: g.op("Mul", g.op("Mul", x, erf(g, x)), g.const([[[[0.5]]]])))
    assert "Gelu" not in kinds(check_pass(graph, recognize_gelu))


def relu6(g: Any, x: str, shift: float = 3.0, high: float = 6.0) -> str:
    return g.op("Min", g.op("Relu", g.op("Add", g.const(shift), x)), g.const(high))


def clip6(g: Any, x: str, shift: float = 3.0, high: float = 6.0) -> str:
    return g.op("Clip", g.op("Add", x, g.const(shift)), g.const(0.0), g.const(high))


def unit(g: Any, x: str, slope: float = 1 / 6) -> str:
    gate = g.op("Add", g.op("Mul", x, g.const(slope)), g.const(0.5))
    return g.op("Min", g.const(1.0), g.op("Max", gate, g.const(0.0)))


def divided(g: Any, x: str) -> str:
    return g.op("Clip", g.op("Div", g.op("Add", x, g.const(3.0)), g.const(6.0)), g.const(0.0), g.const(1.0))


SWISHES: dict[str, Build] = {
    "divided last": lambda g, x: g.op("Div", g.op("Mul", x, clip6(g, x)), g.const(6.0)),
    "divided first": lambda g, x: g.op("Mul", g.op("Div", clip6(g, x), g.const(6.0)), x),
    "times a sixth": lambda g, x: g.op("Mul", g.op("Mul", relu6(g, x), x), g.const(1 / 6)),
    "x by six": lambda g, x: g.op("Mul", g.op("Div", x, g.const(6.0)), relu6(g, x)),
    "unit": lambda g, x: g.op("Mul", unit(g, x), x),
    "divided gate": lambda g, x: g.op("Mul", x, divided(g, x)),
    "HardSigmoid": lambda g, x: g.op("Mul", x, g.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)),
}


def hard_swish(graph: Graph, options: Options) -> bool:
    changed = recognize_clip(graph, options)
    return recognize_hard_swish(graph, options) or changed


@pytest.mark.parametrize("build", SWISHES.values(), ids=SWISHES)
def test_hard_swish(check_pass: Callable[..., Graph], onnx_graph: type, build: Build) -> None:
    graph = check_pass(built(onnx_graph, build), hard_swish)
    assert kinds(graph) == ["HardSwish"]
    parts = len(built(onnx_graph, build).ops)
    assert len(graph.ops[0].origins) == parts  # of every operator that it is made of


@pytest.mark.parametrize("build", SWISHES.values(), ids=SWISHES)
def test_hard_swish_needs_its_level(check_pass: Callable[..., Graph], onnx_graph: type, build: Build) -> None:
    graph = check_pass(built(onnx_graph, build), hard_swish, Options(feature_level=3))
    assert "HardSwish" not in kinds(graph)


@pytest.mark.parametrize(
    "build",
    [
        lambda g, x: g.op("Div", g.op("Mul", x, clip6(g, x, shift=3.001)), g.const(6.0)),
        lambda g, x: g.op("Div", g.op("Mul", x, clip6(g, x, high=5.0)), g.const(6.0)),
        lambda g, x: g.op("Div", g.op("Mul", x, clip6(g, x)), g.const(3.0)),
        lambda g, x: g.op("Div", g.op("Mul", g.op("Neg", x), clip6(g, x)), g.const(6.0)),
        lambda g, x: g.op("Mul", x, g.op("HardSigmoid", x, alpha=0.2, beta=0.5)),
        lambda g, x: g.op("Mul", x, unit(g, x, slope=0.2)),
    ],
)
def test_what_is_nearly_a_hard_swish_stays(check_pass: Callable[..., Graph], onnx_graph: type, build: Build) -> None:
    assert not {"HardSwish"} & set(kinds(check_pass(built(onnx_graph, build), hard_swish)))


@pytest.mark.parametrize("level", [1, 4])
@pytest.mark.parametrize("build", [unit, divided])
def test_hard_sigmoid(check_pass: Callable[..., Graph], onnx_graph: type, build: Build, level: int) -> None:
    graph = check_pass(built(onnx_graph, build), hard_swish, Options(feature_level=level))
    assert [(op.kind, op.attrs) for op in graph.ops] == [("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5})]


def test_hard_sigmoid_of_another_slope_stays(check_pass: Callable[..., Graph], onnx_graph: type) -> None:
    graph = check_pass(built(onnx_graph, lambda g, x: unit(g, x, slope=0.2)), hard_swish)
    assert "HardSigmoid" not in kinds(graph)


def test_constants_of_float16_are_rounded_to_it(check_pass: Callable[..., Graph], onnx_graph: type) -> None:
    def build(g: Any, x: str) -> str:
        sixth, half = g.const(1 / 6, dtype=np.float16), g.const(0.5, dtype=np.float16)
        gate = g.op("Add", g.op("Mul", x, sixth), half)
        return g.op("Clip", gate, g.const(0, dtype=np.float16), g.const(1, dtype=np.float16))

    graph = check_pass(built(onnx_graph, build, np.float16), hard_swish, tolerance=2e-3)
    assert kinds(graph) == ["HardSigmoid"]
