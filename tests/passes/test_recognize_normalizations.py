"""recognize_normalizations, by graphs as exporters write them, and by such that must stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.ir.text import print_graph
from onnx2nnapi.options import Options
from onnx2nnapi.passes.recognize_clip import recognize_clip
from onnx2nnapi.passes.recognize_normalizations import recognize_normalizations

Build = Callable[[Any, str], str]


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


def built(make: type, build: Build, shape: tuple[int, ...] = (2, 3, 4, 5)) -> Graph:
    g = make()
    g.output(build(g, g.input("x", *shape)))
    graph: Graph = g.done()
    return graph


def normalizations(graph: Graph, options: Options) -> bool:
    changed = recognize_clip(graph, options)
    return recognize_normalizations(graph, options) or changed


def reduced(g: Any, kind: str, x: str, *axes: int, keepdims: int = 1) -> str:
    return g.op(kind, x, g.const(axes, dtype=np.int64), keepdims=keepdims, noop_with_empty_axes=0)


def variance(g: Any, x: str, *axes: int, epsilon: float = 1e-5) -> tuple[str, str]:
    centred = g.op("Sub", x, reduced(g, "ReduceMean", x, *axes))
    squares = g.op("Pow", centred, g.const(2.0))
    return centred, g.op("Add", reduced(g, "ReduceMean", squares, *axes), g.const(epsilon))


def torch(g: Any, x: str, *axes: int) -> str:
    centred, spread = variance(g, x, *axes)
    return g.op("Div", centred, g.op("Sqrt", spread))


def reciprocal(g: Any, x: str, *axes: int) -> str:
    """With the differences computed twice."""
    _, spread = variance(g, x, *axes)
    again = g.op("Sub", x, reduced(g, "ReduceMean", x, *axes))
    return g.op("Mul", g.op("Reciprocal", g.op("Sqrt", spread)), again)


def powered(g: Any, x: str, *axes: int) -> str:
    centred, spread = variance(g, x, *axes)
    return g.op("Mul", centred, g.op("Pow", spread, g.const(-0.5)))


@pytest.mark.parametrize("build", [torch, reciprocal, powered])
@pytest.mark.parametrize(("axes", "axis"), [((-1,), 3), ((3, 1, 2), 1), ((-2, -1, 0, 1), 0)])
def test_layer_normalization(
    check_pass: Callable[..., Graph], onnx_graph: type, build: Any, axes: tuple[int, ...], axis: int
) -> None:
    graph = check_pass(built(onnx_graph, lambda g, x: build(g, x, *axes)), normalizations)
    (op,) = graph.ops
    assert (op.kind, op.attrs["axis"], op.attrs["epsilon"]) == ("LayerNormalization", axis, pytest.approx(1e-5))
    assert len(op.origins) == len(built(onnx_graph, lambda g, x: build(g, x, *axes)).ops)


def test_golden_text(check_pass: Callable[..., Graph], onnx_graph: type) -> None:
    graph = check_pass(built(onnx_graph, lambda g, x: torch(g, x, 1), (2, 3)), normalizations)
    origins = ["ReduceMean 'n0'", "Sub 'n1'", "Pow 'n2'", "ReduceMean 'n3'", "Add 'n4'", "Sqrt 'n5'", "Div 'n6'"]
    assert [origin in print_graph(graph) for origin in origins] == [True] * 7
    assert [line.split("  #")[0] for line in print_graph(graph).splitlines()][1:-1] == [
        "input  x: float32[2, 3]",
        "const  x.gamma: float32[3] = [1.0, 1.0, 1.0]",
        "const  x.beta: float32[3] = [0.0, 0.0, 0.0]",
        "div6: float32[2, 3] = LayerNormalization(x, x.gamma, x.beta) "
        "{axis=1, epsilon=9.999999747378752e-06, stash_type=1}",
    ]


def keras(g: Any, x: str, axes: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """x · f + (beta - mean · f) with f = gamma / √(variance + epsilon)."""
    gamma, beta = (g.const(np.linspace(low, 2, int(np.prod(shape))).reshape(shape)) for low in (0.5, -1))
    _, spread = variance(g, x, *axes)
    factor = g.op("Mul", g.op("Reciprocal", g.op("Sqrt", spread)), gamma)
    rest = g.op("Sub", beta, g.op("Mul", reduced(g, "ReduceMean", x, *axes), factor))
    return g.op("Add", g.op("Mul", x, factor), rest)


@pytest.mark.parametrize(
    ("axes", "shape", "kind"),
    [
        ((3,), (5,), "LayerNormalization"),
        ((3,), (1, 1, 1, 5), "LayerNormalization"),
        ((2, 3), (3, 1, 1), "InstanceNormalization"),
        ((3,), (4, 1), None),
        ((2, 3), (4, 5), None),
        ((1,), (3, 1, 1), None),
    ],
)
def test_the_form_of_keras(
    check_pass: Callable[..., Graph], onnx_graph: type, axes: tuple[int, ...], shape: tuple[int, ...], kind: str | None
) -> None:
    graph = check_pass(built(onnx_graph, lambda g, x: keras(g, x, axes, shape)), normalizations)
    assert kinds(graph) == [kind] if kind else "Add" in kinds(graph)


def test_instance_normalization(check_pass: Callable[..., Graph], onnx_graph: type) -> None:
    assert kinds(check_pass(built(onnx_graph, lambda g, x: torch(g, x, 2, 3)), normalizations)) == [
        "InstanceNormalization"
    ]


def other_axes(g: Any, x: str) -> str:
    centred = g.op("Sub", x, reduced(g, "ReduceMean", x, 3))
    spread = reduced(g, "ReduceMean", g.op("Mul", centred, centred), 2)
    return g.op("Div", centred, g.op("Sqrt", g.op("Add", spread, g.const(1e-5))))


def computed_epsilon(g: Any, x: str) -> str:
    centred = g.op("Sub", x, reduced(g, "ReduceMean", x, 3))
    spread = reduced(g, "ReduceMean", g.op("Mul", centred, centred), 3)
    return g.op("Div", centred, g.op("Sqrt", g.op("Add", spread, g.const(np.full((4, 1), 1e-5)))))


def second_reader(g: Any, x: str) -> str:
    centred, spread = variance(g, x, 3)
    g.output(spread)
    return g.op("Div", centred, g.op("Sqrt", spread))


@pytest.mark.parametrize("build", [lambda g, x: torch(g, x, 1), other_axes, computed_epsilon, second_reader])
def test_what_is_nearly_a_normalization_stays(check_pass: Callable[..., Graph], onnx_graph: type, build: Build) -> None:
    graph = built(onnx_graph, build)
    before = print_graph(graph)
    assert print_graph(check_pass(graph, normalizations)) == before


# -- by the norm -------------------------------------------------------------------------------------------------------


def norm(g: Any, x: str, *axes: int) -> str:
    return reduced(g, "ReduceL2", x, *axes)


def squares(g: Any, x: str, *axes: int) -> str:
    return reduced(g, "ReduceSum", g.op("Mul", x, x), *axes)


NORMS: dict[str, tuple[Build, int]] = {
    "ReduceL2": (lambda g, x: g.op("Div", x, norm(g, x, 1)), 1),
    "ReduceSumSquare": (lambda g, x: g.op("Div", x, g.op("Sqrt", reduced(g, "ReduceSumSquare", x, 1))), 1),
    "product": (lambda g, x: g.op("Mul", g.op("Div", g.const(1.0), g.op("Sqrt", squares(g, x, 1))), x), 1),
    "power": (lambda g, x: g.op("Mul", x, g.op("Pow", squares(g, x, 1), g.const(-0.5))), 1),
    "torch": (
        lambda g, x: g.op(
            "Div",
            x,
            g.op("Expand", g.op("Clip", norm(g, x, 1), g.const(1e-12)), g.const((2, 3, 4, 5), dtype=np.int64)),
        ),
        4,
    ),
    "tensorflow": (
        lambda g, x: g.op("Mul", x, g.op("Reciprocal", g.op("Sqrt", g.op("Max", squares(g, x, 1), g.const(1e-12))))),
        4,
    ),
    "added": (lambda g, x: g.op("Div", x, g.op("Sqrt", g.op("Add", squares(g, x, 1), g.const(1e-12)))), 4),
}


@pytest.mark.parametrize(("build", "level"), NORMS.values(), ids=NORMS)
def test_lp_normalization(check_pass: Callable[..., Graph], onnx_graph: type, build: Build, level: int) -> None:
    graph = check_pass(built(onnx_graph, build), normalizations, Options(feature_level=level))
    assert [(op.kind, op.attrs) for op in graph.ops] == [("LpNormalization", {"axis": 1, "p": 2})]


@pytest.mark.parametrize("name", ["torch", "tensorflow", "added"])
def test_zeros_are_kept_from_levels_that_leave_them_open(
    check_pass: Callable[..., Graph], onnx_graph: type, name: str
) -> None:
    graph = check_pass(built(onnx_graph, NORMS[name][0]), normalizations, Options(feature_level=3))
    assert "LpNormalization" not in kinds(graph)


@pytest.mark.parametrize(
    "build",
    [
        lambda g, x: g.op("Div", x, norm(g, x, 1, 2)),
        lambda g, x: g.op("Div", g.op("Neg", x), norm(g, x, 1)),
        lambda g, x: g.op("Div", x, g.op("Clip", norm(g, x, 1), g.const(0.1))),
        lambda g, x: g.op("Div", x, g.op("Sqrt", g.op("Add", squares(g, x, 1), g.const(1e-5)))),
        lambda g, x: g.op("Div", x, g.op("Clip", norm(g, x, 1), g.const(0.0), g.const(2.0))),
    ],
)
def test_what_is_nearly_a_division_by_the_norm_stays(
    check_pass: Callable[..., Graph], onnx_graph: type, build: Build
) -> None:
    assert "LpNormalization" not in kinds(check_pass(built(onnx_graph, build), normalizations))


# -- softmax and roots -------------------------------------------------------------------------------------------------


def exponentials(g: Any, x: str, *axes: int) -> tuple[str, str]:
    shifted = g.op("Sub", x, reduced(g, "ReduceMax", x, *axes))
    return shifted, g.op("Exp", shifted)


def softmax(g: Any, x: str, *axes: int) -> str:
    _, powers = exponentials(g, x, *axes)
    return g.op("Div", powers, reduced(g, "ReduceSum", powers, *axes))


def log_softmax(g: Any, x: str) -> str:
    shifted, powers = exponentials(g, x, 1)
    return g.op("Sub", shifted, g.op("Log", reduced(g, "ReduceSum", powers, 1)))


def plain(g: Any, x: str) -> str:
    powers = g.op("Exp", x)
    return g.op("Mul", powers, g.op("Reciprocal", reduced(g, "ReduceSum", powers, 1)))


SOFTMAXES: dict[str, tuple[Build, list[str]]] = {
    "composed": (lambda g, x: g.op("Log", g.op("Softmax", x, axis=1)), ["LogSoftmax"]),
    "parts": (log_softmax, ["LogSoftmax"]),
    "log of parts": (lambda g, x: g.op("Log", softmax(g, x, 1)), ["LogSoftmax"]),
    "softmax": (lambda g, x: softmax(g, x, 1), ["Softmax"]),
    "without maximum": (plain, ["Softmax"]),
    "two axes": (
        lambda g, x: softmax(g, x, 1, 2),
        ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div"],
    ),
    "log10": (lambda g, x: g.op("Neg", g.op("Softmax", x, axis=1)), ["Softmax", "Neg"]),
}


@pytest.mark.parametrize(("build", "expected"), SOFTMAXES.values(), ids=SOFTMAXES)
def test_softmax(check_pass: Callable[..., Graph], onnx_graph: type, build: Build, expected: list[str]) -> None:
    graph = check_pass(built(onnx_graph, build), normalizations)
    assert kinds(graph) == expected
    assert graph.ops[0].attrs.get("axis", 1) == 1


def test_a_softmax_that_is_read_stays(check_pass: Callable[..., Graph], onnx_graph: type) -> None:
    g = onnx_graph()
    soft = g.op("Softmax", g.input("x", 2, 3), axis=1)
    g.output(soft)
    g.output(g.op("Log", soft))
    assert kinds(check_pass(g.done(), normalizations)) == ["Softmax", "Log"]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda g, x: g.op("Reciprocal", g.op("Sqrt", x)), ["Abs", "Pow"]),
        (lambda g, x: g.op("Div", g.const(1.0), g.op("Sqrt", x)), ["Abs", "Pow"]),
        (lambda g, x: g.op("Sqrt", g.op("Reciprocal", x)), ["Abs", "Pow"]),
        (lambda g, x: g.op("Div", g.const(2.0), g.op("Sqrt", x)), ["Abs", "Sqrt", "Div"]),
    ],
)
def test_root(check_pass: Callable[..., Graph], onnx_graph: type, build: Build, expected: list[str]) -> None:
    graph = built(onnx_graph, lambda g, x: build(g, g.op("Abs", x)))
    assert kinds(check_pass(graph, normalizations)) == expected


def test_the_root_needs_its_level(check_pass: Callable[..., Graph], onnx_graph: type) -> None:
    graph = built(onnx_graph, lambda g, x: g.op("Reciprocal", g.op("Sqrt", g.op("Abs", x))))
    assert kinds(check_pass(graph, normalizations, Options(feature_level=2))) == ["Abs", "Sqrt", "Reciprocal"]
