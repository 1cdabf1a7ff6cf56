"""Writes an ONNX model node by node. It knows no operator: what it is told is what stands in the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, DTypeLike
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Writer:
    """One graph being written; values are the names of ONNX tensors.

    Args:
        name: The graph's name.
        opset: Version of ONNX's own operators.
        seed: Of the weights that `weight` draws.
    """

    def __init__(self, name: str, opset: int = OPSET, seed: int = 0) -> None:
        self.name = name
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(seed)
        self._counts: dict[str, int] = {}

    def input(self, name: str, shape: Sequence[int | str], element: int = TensorProto.FLOAT) -> str:
        """Declare a graph input; a string in the shape is a symbolic dimension."""
        self.inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def constant(self, value: ArrayLike, dtype: DTypeLike = np.float32, name: str | None = None) -> str:
        """Hold the value as an initializer."""
        name = name or self._fresh("const")
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Draw a float32 initializer: normal, by default with the variance that keeps a ReLU network's values level."""
        if scale is None:
            scale = float(np.sqrt(2.0 / max(1, int(np.prod(shape[1:])))))
        values = self._random.standard_normal(shape, dtype=np.float32)
        return self.constant(values * np.float32(scale))

    def op(self, op_type: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any) -> str:
        """Add a node and return its first output; an empty input name is an omitted input."""
        name = self._fresh(op_type.lower())
        outputs = outputs or [f"{name}_out"]
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name, **attributes))
        return outputs[0]

    def conv(self, x: str, channels: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> str:
        """A Conv with seeded weights, a small bias, and as much padding as keeps the size at stride 1."""
        weight, bias = self.weight(out, channels // groups, kernel, kernel), self.weight(out, scale=0.05)
        pads, strides = [kernel // 2] * 4, [stride] * 2
        return self.op(
            "Conv", x, weight, bias, kernel_shape=[kernel] * 2, pads=pads, strides=strides, group=groups
        )

    def relu6(self, x: str) -> str:
        """Clip to 0 … 6, as MobileNets have it."""
        return self.op("Clip", x, self._bound("zero", 0.0), self._bound("six", 6.0))

    def model(self, outputs: dict[str, Sequence[int | str]]) -> onnx.ModelProto:
        """The whole model; `outputs` are the float32 graph outputs by name and shape."""
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, values, self.initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        version = helper.find_min_ir_version_for(opsets)
        return helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="onnx2nnapi models")

    def save(self, path: str | os.PathLike[str], outputs: dict[str, Sequence[int | str]]) -> None:
        """Check the model and write it to `path`."""
        model = self.model(outputs)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)

    def _bound(self, name: str, value: float) -> str:
        if all(tensor.name != name for tensor in self.initializers):
            self.constant(value, name=name)
        return name

    def _fresh(self, stem: str) -> str:
        count = self._counts.get(stem, 0)
        self._counts[stem] = count + 1
        return f"{stem}_{count}"
