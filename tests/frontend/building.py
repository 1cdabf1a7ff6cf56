"""Small ONNX models for the frontend's tests, and what onnxruntime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx2nnapi.evaluate import run_graph
from onnx2nnapi.frontend.importer import import_model
from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.options import Options

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, shape: Sequence[Any] | None, elem: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str | onnx.ValueInfoProto],
    initializers: Mapping[str, Any] | None = None,
    *,
    opset: int = 17,
    domains: Sequence[str] = (),
    **extra: Any,
) -> onnx.ModelProto:
    """A model; outputs that are only named state no type."""
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (initializers or {}).items()]
    stated = [onnx.ValueInfoProto(name=item) if isinstance(item, str) else item for item in outputs]
    graph = helper.make_graph(list(nodes), "small", list(inputs), stated, tensors, **extra)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, list(inputs), list(outputs), name, **attrs)


def imported(proto: Any, **options: Any) -> Graph:
    return import_model(proto, Options(**options))


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


def run(graph: Graph, feeds: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Run an imported graph on feeds by ONNX name."""
    assert graph.interface is not None
    ports = [port.name for port in graph.interface.inputs]
    return run_graph(graph, {name: feeds[port] for name, port in zip(graph.inputs, ports, strict=True)})


def onnxruntime_outputs(
    proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))
