"""Writes mobilenet_block.onnx: a stem, two inverted residual blocks (one adds its input) and a classifier.

    python models/make_mobilenet_block.py

Depthwise convolutions, Clip as ReLU6, stride 2 with uneven padding, and a pooled Flatten: what MobileNetV2 is made of.
Seeded weights; the same bytes every time.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from models.writer import Writer


def inverted_residual(net: Writer, x: str, channels: int, out: int, stride: int, expand: int = 4) -> str:
    """1 × 1 up, 3 × 3 depthwise, 1 × 1 down; with the input added where the shape stays."""
    wide = channels * expand
    y = net.relu6(net.conv(x, channels, wide, kernel=1))
    y = net.relu6(net.conv(y, wide, wide, stride=stride, groups=wide))
    y = net.conv(y, wide, out, kernel=1)
    return net.op("Add", x, y) if stride == 1 and channels == out else y


def make(path: pathlib.Path) -> None:
    """Write the model to `path`."""
    net = Writer("mobilenet_block")
    x = net.input("image", [1, 3, 32, 32])
    x = net.relu6(net.conv(x, 3, 8, stride=2))
    x = inverted_residual(net, x, 8, 8, stride=1)
    x = inverted_residual(net, x, 8, 16, stride=2)
    x = net.op("Flatten", net.op("GlobalAveragePool", net.relu6(net.conv(x, 16, 32, kernel=1))))
    net.op("Gemm", x, net.weight(10, 32), net.weight(10, scale=0.05), transB=1, outputs=["logits"])
    net.save(path, {"logits": [1, 10]})


if __name__ == "__main__":
    make(pathlib.Path(__file__).with_name("mobilenet_block.onnx"))
