"""What an ONNX file says of itself, as plain data: interface, nodes, weights. Nothing is inferred or converted."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import Any

from onnx import TensorProto, ValueInfoProto

from onnx2nnapi.frontend.load import load_model
from onnx2nnapi.frontend.operators import kind_of
from onnx2nnapi.frontend.tensors import numpy_dtype

__all__ = ["describe_model"]


def describe_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Opset, producer, inputs, outputs, nodes, and the weights' number and bytes by element type.

    A size of an input or output is a number, a symbol, or None where it has neither; the shape is None where nothing
    is said of it.

    Raises:
        InvalidModelError: it cannot be read, or is no ONNX model.
        UnsupportedError: its opset is older than 7.
    """
    model = load_model(path)
    graph = model.proto.graph
    fixed = {tensor.name for tensor in graph.initializer}
    fixed |= {tensor.values.name for tensor in graph.sparse_initializer}
    tensors = [*graph.initializer, *(tensor.values for tensor in graph.sparse_initializer)]
    weights: dict[str, Counter[str]] = {}
    for tensor in tensors:
        name, size = _element(tensor.data_type)
        entry = weights.setdefault(name, Counter())
        entry["tensors"] += 1
        entry["bytes"] += math.ceil(math.prod(tensor.dims) * size)
    producer = f"{model.proto.producer_name} {model.proto.producer_version}".strip()
    return {
        "opset": dict(model.opset),
        "producer": producer,
        "inputs": [_port(entry) for entry in graph.input if entry.name not in fixed],
        "outputs": [_port(entry) for entry in graph.output],
        "nodes": [
            {
                "name": node.name,
                "op_type": kind_of(node.domain, node.op_type),
                "inputs": list(node.input),
                "outputs": list(node.output),
            }
            for node in graph.node
        ],
        "weights": {name: dict(entry) for name, entry in sorted(weights.items())},
    }


def _element(code: int) -> tuple[str, float]:
    """An element type's name and bytes; those of less than a byte are packed, and strings have no size."""
    name = str(TensorProto.DataType.Name(code)).lower() if code in TensorProto.DataType.values() else str(code)
    if "4" in name.removesuffix("64"):
        return name, 0.5
    if name in ("string", "undefined") or code not in TensorProto.DataType.values():
        return name, 0
    return name, numpy_dtype(code, "an initializer").itemsize


def _port(entry: ValueInfoProto) -> dict[str, Any]:
    kind = entry.type.WhichOneof("value")
    if kind != "tensor_type":
        return {"name": entry.name, "dtype": (kind or "unknown").removesuffix("_type"), "shape": None}
    tensor = entry.type.tensor_type
    shape: list[int | str | None] | None = None
    if tensor.HasField("shape"):
        shape = [
            int(dim.dim_value) if dim.WhichOneof("value") == "dim_value" else dim.dim_param or None
            for dim in tensor.shape.dim
        ]
    return {"name": entry.name, "dtype": _element(tensor.elem_type)[0], "shape": shape}
