"""The passes over control flow, on graphs that the frontend makes: what is left, held by running before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import onnx

from onnx2nnapi.frontend.importer import import_model
from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.options import Options
from onnx2nnapi.passes import PIPELINE
from onnx2nnapi.passes.capture_constants import capture_constants
from onnx2nnapi.passes.inline_control import inline_control
from onnx2nnapi.passes.manager import run_passes
from onnx2nnapi.passes.settle_submodels import settle_submodels

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
LOOP = """g (float[2,3] x) => (float[2,3] y, float[3,2,3] ys) <int64 m = {3}, bool go = {1}, int64 first = {0}> {
    y, ys = Loop (m, go, x) <body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] t, float[2,3] u) {
        k2 = Identity(k) c = Equal(i, first) u = Neg(s)
        t = If (c) <then_branch = p () => (a) { a = Relu(u) }, else_branch = q () => (d) { d = Add(u, x) }>
    }>
}"""
BRANCHES = """g (bool c, float[2,3] x) => (float[2,3] y, float[3] z) <float[3] w = {1, 2, 3}> {
    y, z = If (c) <
        then_branch = t () => (a, w2) { a = Mul(x, w) w2 = Identity(w) },
        else_branch = e () => (d, e2) <float[3] v = {4, 5, 6}> {
            d = If (c) <then_branch = p () => (f) { f = Add(x, w) }, else_branch = q () => (h) { h = Sub(x, w) }>
            e2 = Neg(v)
        }>
}"""


def graph_of(text: str) -> Graph:
    return import_model(onnx.parser.parse_model(HEADER + text), Options())


def kinds(graph: Graph) -> Counter[str]:
    return Counter(op.kind for op in graph)


def test_a_short_loop_is_copied_and_its_ifs_decided(check_pass: Callable[..., Graph]) -> None:
    graph = check_pass(graph_of(LOOP), inline_control)
    assert kinds(graph) == {"Neg": 3, "Relu": 1, "Add": 2, "Identity": 4, "Unsqueeze": 3, "Concat": 1}


def test_what_only_the_run_decides_stays(check_pass: Callable[..., Graph]) -> None:
    graph = graph_of(BRANCHES)
    assert not inline_control(graph, Options())
    assert kinds(check_pass(graph, inline_control)) == {"If": 1}


def test_a_long_loop_is_copied_only_where_nothing_else_can_be_done() -> None:
    text = LOOP.replace("m = {3}", "m = {300}").replace("[3,2,3] ys", "[300,2,3] ys")
    assert not inline_control(graph_of(text), Options())
    assert inline_control(graph_of(text), Options(feature_level=3))


def test_bodies_get_constants_of_their_own(check_pass: Callable[..., Graph]) -> None:
    graph = check_pass(graph_of(BRANCHES), capture_constants)
    (branch,) = graph.ops
    assert set(branch.captured) == {"c", "x"}
    inner = next(op for op in branch.attrs["else_branch"] if op.kind == "If")
    assert set(inner.captured) == {"x"}


def test_submodels_write_each_of_their_outputs(check_pass: Callable[..., Graph]) -> None:
    place = PIPELINE.index(settle_submodels)
    graph = run_passes(graph_of(BRANCHES), Options(), pipeline=PIPELINE[:place])
    branches = [op.attrs["then_model"] for op in graph if op.kind == "IF"]
    assert any(branch.producer(name) is None for branch in branches for name in branch.outputs)
    check_pass(graph, settle_submodels)
    for branch in branches:
        assert all(branch.producer(name) is not None for name in branch.outputs)
        assert len(set(branch.outputs)) == len(branch.outputs)
