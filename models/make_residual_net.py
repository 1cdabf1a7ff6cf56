"""Writes residual_net.onnx: a ResNet of two stages whose batch is the symbol N.

    python models/make_residual_net.py

Convolutions followed by BatchNormalization, residual sums, MaxPool, and a reshape to [N, features] by Shape arithmetic
as exporters write it. Convert it with `--dim N=1`. Seeded weights; the same bytes every time.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np

from models.writer import Writer


def conv_bn(net: Writer, x: str, channels: int, out: int, kernel: int = 3, stride: int = 1) -> str:
    """A convolution and a BatchNormalization with the statistics of a trained network's kind."""
    spread = np.linspace(-0.5, 0.5, out)
    statistics = [net.constant(array) for array in (1 + spread, spread[::-1], 0.2 * spread, 1 + spread**2)]
    return net.op("BatchNormalization", net.conv(x, channels, out, kernel, stride), *statistics)


def basic_block(net: Writer, x: str, channels: int, out: int, stride: int) -> str:
    """Two 3 × 3 convolutions beside the input, which a 1 × 1 convolution brings to shape where it differs."""
    y = net.op("Relu", conv_bn(net, x, channels, out, stride=stride))
    y = conv_bn(net, y, out, out)
    shortcut = x if stride == 1 and channels == out else conv_bn(net, x, channels, out, kernel=1, stride=stride)
    return net.op("Relu", net.op("Add", y, shortcut))


def make(path: pathlib.Path) -> None:
    """Write the model to `path`."""
    net = Writer("residual_net")
    x = net.input("image", ["N", 3, 32, 32])
    x = net.op("Relu", conv_bn(net, x, 3, 16, kernel=5, stride=2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = basic_block(net, x, 16, 16, stride=1)
    x = basic_block(net, x, 16, 32, stride=2)
    batch = net.op("Gather", net.op("Shape", x), net.constant([0], np.int64))
    shape = net.op("Concat", batch, net.constant([-1], np.int64), axis=0)
    x = net.op("Reshape", net.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2]), shape)
    x = net.op("Gemm", x, net.weight(10, 128), net.weight(10, scale=0.05), transB=1)
    net.op("Softmax", x, axis=-1, outputs=["probabilities"])
    net.save(path, {"probabilities": ["N", 10]})


if __name__ == "__main__":
    make(pathlib.Path(__file__).with_name("residual_net.onnx"))
