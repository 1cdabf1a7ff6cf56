"""Writes the seeded models that the benchmarks convert and run, by name.

python benchmarks/synthetic_models.py NAME TARGET
"""

from __future__ import annotations

import functools
import pathlib
import sys
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from models.make_mobilenet_block import inverted_residual
from models.make_residual_net import conv_bn
from models.make_transformer_block import encoder_layer
from models.writer import Writer

Path = pathlib.Path


def classify(net: Writer, x: str, channels: int) -> None:
    """Pool, flatten and a fully connected layer to 1000 classes."""
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    net.op("Gemm", x, net.weight(1000, channels), net.weight(1000, scale=0.05), transB=1, outputs=["logits"])


def mobilenet_v2(target: Path, writer: type[Writer] = Writer) -> None:
    """MobileNetV2 1.0 at 224 × 224, BatchNormalization already folded; 14 MB in float32."""
    net = writer("mobilenet_v2")
    x = net.relu6(net.conv(net.input("image", [1, 3, 224, 224]), 3, 32, stride=2))
    channels = 32
    for expand, out, blocks, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(blocks):
            x = inverted_residual(net, x, channels, out, 1 if block else stride, expand)
            channels = out
    classify(net, net.relu6(net.conv(x, channels, 1280, kernel=1)), 1280)
    net.save(target, {"logits": [1, 1000]})


def resnet50(target: Path) -> None:
    """ResNet-50 at 224 × 224, with BatchNormalization as frameworks export it; 102 MB."""
    net = Writer("resnet50")
    x = net.op("Relu", conv_bn(net, net.input("image", [1, 3, 224, 224]), 3, 64, kernel=7, stride=2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            step, out = 1 if block else stride, 4 * width
            y = net.op("Relu", conv_bn(net, x, channels, width, kernel=1))
            y = net.op("Relu", conv_bn(net, y, width, width, stride=step))
            y = conv_bn(net, y, width, out, kernel=1)
            shortcut = x if block else conv_bn(net, x, channels, out, kernel=1, stride=step)
            x, channels = net.op("Relu", net.op("Add", y, shortcut)), out
    classify(net, x, channels)
    net.save(target, {"logits": [1, 1000]})


def transformer(target: Path, layers: int = 12, tokens: int = 128, features: int = 256, heads: int = 4) -> None:
    """An encoder of 12 layers on 128 tokens of 256 features; 38 MB."""
    net = Writer("transformer")
    x = net.input("tokens", [1, tokens, features])
    for _ in range(layers):
        x = encoder_layer(net, x, tokens, features, heads)
    net.op("Identity", x, outputs=["encoded"])
    net.save(target, {"encoded": [1, tokens, features]})


class QdqWriter(Writer):
    """Writes each operator as a static quantizer would: uint8 activations, int8 weights with a scale per channel.

    An activation is quantized where an operator other than Clip reads it: in 0 … 6 after a Clip, else in -8 … 8.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, opset=19)  # the oldest whose DequantizeLinear onnx.reference has
        self._quantized: dict[str, tuple[str, float]] = {}

    def op(self, op_type: str, *inputs: str, **settings: Any) -> str:
        """The operator between DequantizeLinear and QuantizeLinear nodes."""
        if op_type in ("Clip", "Flatten"):
            return super().op(op_type, *inputs, **settings)
        weights = {tensor.name for tensor in self.initializers}
        activations = [self._activation(name) for name in inputs if name not in weights]
        names = [name for name, _ in activations]
        if op_type in ("Conv", "Gemm"):
            names += self._weights(activations[0][1], *inputs[1:])
        return super().op(op_type, *names, **settings)

    def _activation(self, name: str) -> tuple[str, float]:
        if name not in self._quantized:
            producer = next((node.op_type for node in reversed(self.nodes) if name in node.output), "")
            scale, zero = (6 / 255, 0) if producer == "Clip" else (16 / 255, 128)
            parameters = self.constant(scale), self.constant(zero, np.uint8)
            codes = super().op("QuantizeLinear", name, *parameters)
            self._quantized[name] = super().op("DequantizeLinear", codes, *parameters), scale
        return self._quantized[name]

    def _weights(self, input_scale: float, weight: str, bias: str) -> list[str]:
        kernel, offsets = (self._take(name) for name in (weight, bias))
        scales = np.abs(kernel.reshape(len(kernel), -1)).max(1) / 127
        codes = np.rint(kernel / scales.reshape(-1, *[1] * (kernel.ndim - 1)))
        both = ((codes, np.int8, scales), (np.rint(offsets / (scales * input_scale)), np.int32, scales * input_scale))
        return [
            super(QdqWriter, self).op(
                "DequantizeLinear",
                *(self.constant(values, dtype), self.constant(scale), self.constant(np.zeros(len(kernel)), dtype)),
                axis=0,
            )
            for values, dtype, scale in both
        ]

    def _take(self, name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        tensor = next(tensor for tensor in reversed(self.initializers) if tensor.name == name)
        self.initializers.remove(tensor)
        return numpy_helper.to_array(tensor)


def mobilenet_v2_qdq(target: Path) -> None:
    """The same MobileNetV2, quantized."""
    mobilenet_v2(target, QdqWriter)


def chain(target: Path, nodes: int) -> None:
    """One operator after the other, four kinds in turn, on [1, 16, 4, 4]."""
    net = Writer(f"chain_{nodes}")
    x = net.input("x", [1, 16, 4, 4])
    half, step = net.constant(np.full((1, 16, 1, 1), 0.5)), net.constant(np.linspace(-1, 1, 16).reshape(1, 16, 1, 1))
    for number in range(nodes - 1):
        kind = ("Add", "Relu", "Mul", "Tanh")[number % 4]
        x = net.op(kind, x, *{"Add": [step], "Mul": [half]}.get(kind, []))
    net.op("Identity", x, outputs=["y"])
    net.save(target, {"y": [1, 16, 4, 4]})


def branch(target: Path, nodes: int) -> None:
    """Blocks of four: a 1 × 1 convolution and a Sigmoid side by side, their sum, a Relu; on [1, 8, 4, 4]."""
    net = Writer(f"branch_{nodes}")
    x = net.input("x", [1, 8, 4, 4])
    weight, bias = net.weight(8, 8, 1, 1, scale=0.2), net.weight(8, scale=0.05)
    for _ in range(nodes // 4):
        x = net.op("Relu", net.op("Add", net.op("Conv", x, weight, bias), net.op("Sigmoid", x)))
    net.op("Identity", x, outputs=["y"])
    net.save(target, {"y": [1, 8, 4, 4]})


def external(target: Path, layers: int = 94, features: int = 2048) -> None:
    """Fully connected layers of 16 MiB each with their weights beside the model; 1.5 GB, written one at a time."""
    net = Writer("external")
    x = net.input("x", [1, features])
    random = np.random.default_rng(0)
    data = target.with_suffix(".data")
    with data.open("wb") as file:
        for layer in range(layers):
            tensor = TensorProto(
                name=f"weight_{layer}",
                dims=[features, features],
                data_type=TensorProto.FLOAT,
                data_location=TensorProto.EXTERNAL,
            )
            values = random.standard_normal((features, features), np.float32) * np.float32(0.03)
            location = {"location": data.name, "offset": str(file.tell()), "length": str(values.nbytes)}
            for key, value in location.items():
                tensor.external_data.add(key=key, value=value)
            values.tofile(file)
            net.initializers.append(tensor)
            x = net.op("Relu", net.op("MatMul", x, tensor.name))
    net.op("Identity", x, outputs=["y"])
    onnx.save(net.model({"y": [1, features]}), target)


MODELS: dict[str, Callable[[Path], None]] = {
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v2_qdq": mobilenet_v2_qdq,
    "resnet50": resnet50,
    "transformer": transformer,
    "external": external,
    **{
        f"{shape.__name__}_{nodes}": functools.partial(shape, nodes=nodes)
        for shape in (chain, branch)
        for nodes in (40, 10_000, 50_000)
    },
}


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in MODELS:
        sys.exit(f"usage: synthetic_models.py NAME TARGET, NAME one of {', '.join(MODELS)}")
    MODELS[sys.argv[1]](Path(sys.argv[2]))
