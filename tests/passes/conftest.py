"""Graphs built by hand, and check_pass: what every pass must keep, held before and after."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from onnx2nnapi.errors import Origin
from onnx2nnapi.evaluate import run_graph
from onnx2nnapi.ir.graph import Graph, Interface, Op, Port, Provenance, Value
from onnx2nnapi.ir.text import print_graph
from onnx2nnapi.ir.types import LazyArray, TensorType
from onnx2nnapi.ir.verify import verify
from onnx2nnapi.options import Options
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.check_dialect import verify_dialect

Pass = Callable[[Graph, Options], bool]


class NnapiGraph(Builder):
    """A Builder that also makes inputs, outputs and seeded weights, for graphs of a few lines."""

    def __init__(self, level: int = 4) -> None:
        super().__init__(Graph("nnapi", "test"), Options(feature_level=level))
        self.ports: tuple[list[Port], list[Port]] = ([], [])
        self.random = np.random.default_rng(0)

    def input(self, name: str, *shape: int, dtype: Any = np.float32) -> Value:
        type_ = TensorType(np.dtype(dtype), shape)
        self.graph.inputs.append(name)
        self.ports[0].append(Port(name, type_))
        return self.graph.add_value(Value(name, type_, None, Provenance(name)))

    def weights(self, *shape: int) -> Value:
        return self.const((self.random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32))

    def output(self, value: Value, name: str | None = None) -> None:
        self.graph.outputs.append(value.name)
        self.ports[1].append(Port(name or value.name, value.known))

    def emit_all(self, kind: str, *tensors: Value | None, **attrs: Any) -> list[Value]:
        """As Builder's, with an origin for each operation."""
        self.op = Op(kind.title(), (), (), {}, (Origin(f"n{len(self.graph)}", kind.title()),))
        results = super().emit_all(kind, *tensors, **attrs)
        for value in results:
            if value.holds is None:
                value.holds = Provenance(value.name)
        return results

    def last(self, x: Value) -> Value:
        """From ONNX's layout to channels last."""
        return self.transpose(x, (0, *range(2, x.rank), 1))

    def first(self, x: Value) -> Value:
        """From channels last to ONNX's layout."""
        return self.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))

    def conv(self, x: Value, channels: int, size: int = 3) -> Value:
        """A convolution as legalize makes it: right on ONNX's layout, bracketed by transposes."""
        return self.first(self.bare_conv(self.last(x), channels, size))

    def bare_conv(self, x: Value, channels: int, size: int = 3) -> Value:
        return self.emit(
            "CONV_2D", x, self.weights(channels, size, size, x.shape[3]), self.weights(channels),
            padding_scheme=1, stride_width=1, stride_height=1,
        )  # fmt: skip

    def dense(self, x: Value, units: int) -> Value:
        depth = int(np.prod(x.shape[1:]))
        return self.emit("FULLY_CONNECTED", x, self.weights(units, depth), self.weights(units))

    def done(self) -> Graph:
        self.graph.interface = Interface(tuple(self.ports[0]), tuple(self.ports[1]))
        verify(self.graph)
        verify_dialect(self.graph, self.options)
        return self.graph


class OnnxGraph:
    """An ONNX-dialect graph of a few lines, in the newest opset's form."""

    def __init__(self, opset: int = 21) -> None:
        self.graph = Graph("onnx", "test")
        self.graph.opset = {"": opset}
        self.ports: tuple[list[Port], list[Port]] = ([], [])

    def input(self, name: str, *shape: int, dtype: Any = np.float32) -> str:
        type_ = TensorType(np.dtype(dtype), shape)
        self.graph.inputs.append(name)
        self.ports[0].append(Port(name, type_))
        return self.graph.add_value(Value(name, type_)).name

    def const(self, array: Any, name: str = "c", dtype: Any = np.float32) -> str:
        return self.graph.constant(name, LazyArray.of(np.asarray(array, dtype))).name

    def op(self, kind: str, *inputs: str | None, out: str | None = None, **attrs: Any) -> str:
        return self.ops(kind, *inputs, outputs=(out,), **attrs)[0]

    def ops(self, kind: str, *inputs: str | None, outputs: Sequence[str | None], **attrs: Any) -> list[str]:
        names = [self.graph.fresh(name or f"{kind.lower()}{len(self.graph)}") for name in outputs]
        for name in names:
            self.graph.add_value(Value(name))
        self.graph.add(Op(kind, inputs, tuple(names), attrs, (Origin(f"n{len(self.graph)}", kind, tuple(names)),)))
        return names

    def output(self, name: str) -> None:
        self.graph.outputs.append(name)

    def done(self) -> Graph:
        """The graph, with the types that running it on zeros gives."""
        graph = self.graph
        feeds = {name: np.ones(graph[name].shape, graph[name].known.dtype) for name in graph.inputs}
        probe = copy.copy(graph)
        probe.outputs = [name for op in graph.ops for name in op.outputs if name is not None]
        for name, array in zip(probe.outputs, run_graph(probe, feeds), strict=True):
            graph[name].type = TensorType(array.dtype, array.shape)
        self.ports[1].extend(Port(name, graph[name].known) for name in graph.outputs)
        graph.interface = Interface(tuple(self.ports[0]), tuple(self.ports[1]))
        verify(graph)
        return graph


def feeds_for(graph: Graph, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Random arrays for a graph's inputs."""
    random = np.random.default_rng(seed)
    feeds = {}
    for name in graph.inputs:
        type_ = graph[name].known
        if type_.dtype.kind == "f":
            feeds[name] = random.standard_normal(type_.shape).astype(type_.dtype)
        elif type_.dtype.kind == "b":
            feeds[name] = random.random(type_.shape) < 0.5
        else:
            feeds[name] = random.integers(-100 if type_.dtype.kind == "i" else 0, 100, type_.shape).astype(type_.dtype)
    return feeds


def check(graph: Graph, function: Pass, options: Options | None = None, tolerance: float = 1e-5) -> Graph:
    """Run a pass and hold the graph to what passes keep.

    The structure and the dialect are right, the interface is unchanged, a second run changes nothing, and the graph
    computes the same numbers, by running either dialect.
    """
    options = options or Options()
    interface, inputs = graph.interface, list(graph.inputs)
    feeds = feeds_for(graph)
    expected = run_graph(graph, feeds)
    before = print_graph(graph)
    changed = function(graph, options)
    verify(graph)
    if graph.dialect == "nnapi":
        verify_dialect(graph, options)
    assert (graph.interface, graph.inputs) == (interface, inputs)
    after = print_graph(graph)
    assert changed == (after != before)
    assert function(graph, options) is False, "the pass is not idempotent:\n" + print_graph(graph)
    assert print_graph(graph) == after
    for value in graph.values.values():
        held_where_it_says(graph, value)
    for got, want in zip(run_graph(graph, feeds), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    return graph


def held_where_it_says(graph: Graph, value: Value) -> None:
    """A value that is a copy of a graph input has that input's shape, permuted."""
    if value.holds is not None and value.holds.name in graph.inputs and value.holds.perm:
        shape = graph[value.holds.name].shape
        assert value.shape == tuple(shape[axis] for axis in value.holds.perm)


@pytest.fixture
def check_pass() -> Callable[..., Graph]:
    return check


@pytest.fixture
def nnapi_graph() -> type[NnapiGraph]:
    return NnapiGraph


@pytest.fixture
def onnx_graph() -> type[OnnxGraph]:
    return OnnxGraph
