"""The smaller passes: each on a graph before, as text after, and with the numbers held by running both."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

import numpy as np
import pytest

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.ir.text import print_graph
from onnx2nnapi.ir.types import LazyArray
from onnx2nnapi.passes.eliminate_common import eliminate_common
from onnx2nnapi.passes.eliminate_dead import eliminate_dead
from onnx2nnapi.passes.fold_affine import fold_affine
from onnx2nnapi.passes.fold_bias import fold_bias
from onnx2nnapi.passes.fold_constants import fold_constants
from onnx2nnapi.passes.fold_pad import fold_pad
from onnx2nnapi.passes.fuse_activations import fuse_activations
from onnx2nnapi.passes.layout import layout
from onnx2nnapi.passes.recognize_clip import recognize_clip
from onnx2nnapi.passes.recognize_gelu import recognize_gelu
from onnx2nnapi.passes.remove_identities import remove_identities

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
UPDATE = "ONNX2NNAPI_UPDATE_GOLDEN"  # environment: write the golden texts anew, to be read before they are committed

CONV = {"group": 1, "pads": (0, 0, 0, 0), "strides": (1, 1), "dilations": (1, 1), "auto_pad": "NOTSET"}


def ramp(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7 - 3) / 4


def constants(g) -> None:
    scale = g.op("Sqrt", g.const([4.0, 9.0]))
    shape = g.op("Concat", g.const([1], dtype=np.int64), g.const([2], dtype=np.int64), axis=0)
    g.output(g.op("Mul", g.op("Reshape", g.input("x", 2), shape, allowzero=0), scale))


def identities(g) -> None:
    x = g.op("Dropout", g.op("Identity", g.input("x", 1, 2, 3)))
    x = g.op("Reshape", x, g.const([1, 2, 3], dtype=np.int64), allowzero=0)
    x = g.op("Transpose", g.op("Mul", x, g.const(1.0)), perm=(0, 1, 2))
    x = g.op("Slice", x, g.const([0], dtype=np.int64), g.const([9], dtype=np.int64), g.const([2], dtype=np.int64))
    back = g.op("Slice", x, *(g.const([value], dtype=np.int64) for value in (-1, -9, 2, -1)))
    g.output(g.op("Relu", g.op("Pad", back, g.const([0] * 6, dtype=np.int64), mode="constant")))


def clips(g) -> None:
    x = g.input("x", 2, 3)
    g.output(g.op("Min", g.op("Relu", x), g.const(6.0)))
    g.output(g.op("Max", g.op("Min", g.const(1.0), x), g.const([-1.0])))
    g.output(g.op("Clip", g.op("Clip", x, g.const(0.0), None), None, g.const(0.5)))
    g.output(g.op("Max", x, g.const(0.0)))
    g.output(g.op("Max", x, g.const([0.0, 1.0, 2.0])))


def gelus(g) -> None:
    x = g.input("x", 2, 3)

    def shifted(u: str, one: float = 1.0) -> str:
        return g.op("Add", g.op("Erf", u), g.const(one))

    g.output(g.op("Mul", g.op("Mul", x, shifted(g.op("Div", x, g.const(2**0.5)))), g.const(0.5)))
    g.output(g.op("Mul", g.op("Mul", g.const(0.5), x), shifted(g.op("Mul", x, g.const(0.5**0.5)))))
    y = g.op("Div", g.op("Mul", shifted(g.op("Mul", g.const([0.5**0.5]), x)), x), g.const(2.0))
    g.output(g.op("Mul", y, x))
    g.output(g.op("Mul", g.op("Mul", x, shifted(g.op("Div", x, g.const(2.0)))), g.const(0.5)))
    g.output(g.op("Mul", g.op("Mul", x, shifted(g.op("Div", x, g.const(2**0.5)), 2.0)), g.const(0.5)))
    g.output(g.op("Mul", g.op("Mul", x, shifted(g.op("Div", g.const(0.5**0.5), x))), g.const(0.5)))
    part = shifted(g.op("Div", x, g.const(2**0.5)))
    g.output(part)
    g.output(g.op("Mul", g.op("Mul", x, part), g.const(0.5)))


def pads(g) -> None:
    x = g.input("x", 1, 2, 5, 5)
    pad = g.const([0, 0, 1, 0, 0, 0, 1, 2], dtype=np.int64)
    g.output(g.op("Conv", g.op("Pad", x, pad, mode="constant"), g.const(ramp(3, 2, 3, 3)), **CONV))
    pad = g.const([0, 0, 1, 1, 0, 0, 1, 1], dtype=np.int64)  # the same all around: onnx.reference pools wrongly else
    pool = {"kernel_shape": (3, 3), "strides": (1, 1), "pads": (0, 0, 0, 0), "auto_pad": "NOTSET", "ceil_mode": 0}
    g.output(g.op("AveragePool", g.op("Pad", x, pad, mode="constant"), **pool, count_include_pad=0))
    g.output(g.op("MaxPool", g.op("Pad", g.op("Relu", x), pad, mode="constant"), **pool))
    g.output(g.op("MaxPool", g.op("Pad", x, pad, mode="constant"), **pool))


def affine(g) -> None:
    x = g.input("x", 1, 4, 5, 5)
    y = g.op("Conv", x, g.const(ramp(6, 2, 3, 3)), g.const(ramp(6)), **{**CONV, "group": 2})
    y = g.op("BatchNormalization", y, *(g.const(np.abs(ramp(6)) + add) for add in (1, 0, 0, 1)), epsilon=1e-5)
    y = g.op("Mul", y, g.const(ramp(6, 1, 1)))
    y = g.op("Relu", g.op("Sub", g.const(2.0), y))
    up = {"group": 1, "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "auto_pad": "NOTSET"}
    y = g.op("ConvTranspose", y, g.const(ramp(6, 4, 2, 2)), **up)
    g.output(g.op("Add", g.op("Div", y, g.const(ramp(1, 4, 1, 1) + 2)), g.const(0.5)))
    z = g.input("z", 2, 3)
    z = g.op("Gemm", z, g.const(ramp(4, 3)), g.const(ramp(4)), transA=0, transB=1, alpha=0.5, beta=2.0)
    z = g.op("Add", g.op("Mul", z, g.const(ramp(4))), g.const(ramp(1, 4)))
    g.output(g.op("Mul", g.op("MatMul", z, g.const(ramp(4, 5))), g.const(ramp(5))))
    along_the_width = g.op("Conv", x, g.const(ramp(2, 4, 1, 1)), **CONV)
    g.output(g.op("Mul", along_the_width, g.const(ramp(5))))


def common(g) -> None:
    x = g.input("x", 2, 3)
    a = g.op("Mul", x, g.const(2.0))
    b = g.op("Mul", x, g.const(2.0))
    g.output(g.op("Add", a, b))
    g.output(g.op("Elu", x, alpha=1.0))
    g.output(g.op("Elu", x, alpha=-0.0))
    g.output(g.op("Elu", x, alpha=0.0))


def dead(g) -> None:
    x = g.input("x", 2, 4)
    g.input("unused", 3)
    g.op("Exp", g.op("Mul", x, g.const(2.0)))
    parts = g.ops("Split", x, outputs=("left", "right"), axis=1, num_outputs=2)
    g.output(g.op("Relu", parts[1]))


def activations(g) -> None:
    x = g.input("x", 1, 5, 5, 2)
    g.output(g.emit("RELU6", g.emit("RELU", g.bare_conv(x, 3))))
    g.output(g.emit("RELU", g.emit("RELU1", g.bare_conv(x, 3))))
    twice = g.bare_conv(x, 3)
    g.output(g.emit("ADD", g.emit("RELU", twice), twice))
    g.output(g.emit("RELU", g.emit("TANH", x)))


def biases(g) -> None:
    x = g.input("x", 2, 8)
    g.output(g.emit("ADD", g.dense(x, 4), g.weights(1, 4)))
    g.output(g.emit("ADD", g.weights(1), g.dense(x, 3), fuse_code=1))
    g.output(g.emit("ADD", g.dense(x, 2), g.weights(2, 2)))


def transposes(g) -> None:
    y = g.emit("RELU", g.conv(g.input("x", 1, 3, 4, 4), 4))
    g.output(g.dense(g.reshape(y, (1, 64)), 2))


CASES: dict[Callable, Callable] = {
    fold_constants: constants,
    remove_identities: identities,
    recognize_clip: clips,
    recognize_gelu: gelus,
    fold_pad: pads,
    fold_affine: affine,
    eliminate_common: common,
    eliminate_dead: dead,
    fuse_activations: activations,
    fold_bias: biases,
    layout: transposes,
}
NNAPI = {activations, biases, transposes}


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_pass(function, check_pass, nnapi_graph, onnx_graph) -> None:
    g = nnapi_graph() if CASES[function] in NNAPI else onnx_graph()
    CASES[function](g)
    graph = g.done()
    before = print_graph(graph)
    text = f"before\n\n{before}\nafter\n\n{print_graph(check_pass(graph, function))}"
    path = GOLDEN / f"{function.__name__}.txt"
    if os.environ.get(UPDATE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} differs; {UPDATE}=1 writes it anew"


def test_large_constants_are_folded_when_they_are_read(onnx_graph) -> None:
    class Counted:
        dtype, shape = np.dtype(np.float32), (200, 200)
        reads = 0

        def read(self) -> np.ndarray:
            Counted.reads += 1
            return ramp(200, 200)

    g = onnx_graph()
    x = g.input("x", 200, 200)
    w = g.graph.constant("w", LazyArray.of(Counted())).name
    t = g.op("Exp", g.op("Transpose", w, perm=(1, 0)))
    g.output(g.op("Add", x, t))
    graph: Graph = g.done()
    Counted.reads = 0
    assert fold_constants(graph, None)
    assert (Counted.reads, [op.kind for op in graph.ops]) == (0, ["Add"])
    const = graph[t].const
    graph.become(Graph("nnapi"))  # what was recorded does not depend on what becomes of the graph
    np.testing.assert_allclose(const.numpy(), np.exp(ramp(200, 200).T), rtol=1e-6)


def test_random_numbers_are_no_constants(onnx_graph) -> None:
    g = onnx_graph()
    noise = g.op("RandomUniformLike", g.const(np.zeros(3)), low=0.0, high=1.0)
    g.output(g.op("Add", g.input("x", 3), noise))
    g.graph.values[noise].type = g.graph.values["x"].type
    assert not fold_constants(g.graph, None)
