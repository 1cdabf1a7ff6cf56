"""onnxruntime's own operators: the frontend types them as onnxruntime computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.building import FLOAT, imported, model, node, onnxruntime_outputs, value

U8, I8, F32 = np.uint8, np.int8, np.float32
SCALE, ZERO = F32(0.1), U8(3)


def codes(*shape: int) -> np.ndarray[Any, Any]:
    return (np.arange(int(np.prod(shape))) % 200).reshape(shape).astype(np.uint8)


CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Gelu", [[2, 3]], {}),
    ("FastGelu", [[2, 3], F32([0, 1, 2])], {}),
    ("BiasGelu", [[2, 3], F32([0, 1, 2])], {}),
    ("QuickGelu", [[2, 3]], {"alpha": 1.7}),
    (
        "FusedConv",
        [[1, 2, 5, 5], np.ones((3, 2, 3, 3), F32), F32([0, 1, 2])],
        {"activation": "Relu", "strides": [2, 2]},
    ),
    ("FusedMatMul", [[2, 3, 4], np.ones((2, 5, 4), F32)], {"transB": 1, "alpha": 0.5}),
    ("SkipLayerNormalization", [[1, 3, 4], np.ones((1, 3, 4), F32), np.ones(4, F32), np.ones(4, F32)], {}),
    ("QLinearAdd", [codes(2, 3), SCALE, ZERO, codes(3), SCALE, ZERO, SCALE, ZERO], {}),
    ("QLinearMul", [codes(2, 1), SCALE, ZERO, codes(3), SCALE, ZERO, SCALE, ZERO], {}),
    ("QLinearSigmoid", [codes(2, 3), SCALE, ZERO, SCALE, ZERO], {}),
    ("QLinearLeakyRelu", [codes(2, 3), SCALE, ZERO, SCALE, ZERO], {"alpha": 0.1}),
    ("QLinearAveragePool", [codes(1, 2, 5, 5), SCALE, ZERO, SCALE, ZERO], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("QLinearGlobalAveragePool", [codes(1, 2, 5, 5), SCALE, ZERO, SCALE, ZERO], {}),
    ("QLinearConcat", [SCALE, ZERO, codes(2, 3), SCALE, ZERO, codes(2, 1), SCALE, ZERO], {"axis": 1}),
    ("QuantizeLinear", [[2, 3], SCALE, ZERO], {}),
    ("DequantizeLinear", [codes(2, 3), SCALE, ZERO], {}),
    ("QGemm", [codes(2, 3), SCALE, ZERO, codes(3, 4), SCALE, ZERO, np.zeros(4, np.int32), SCALE, ZERO], {}),
    ("QGemm", [codes(2, 3), SCALE, ZERO, codes(3, 4), SCALE, ZERO], {}),
    ("MatMulIntegerToFloat", [codes(2, 3), codes(3, 4), SCALE, SCALE, ZERO, ZERO], {}),
    ("DynamicQuantizeMatMul", [[2, 3], codes(3, 4), SCALE, ZERO], {}),
]


@pytest.mark.parametrize(("kind", "inputs", "attrs"), CASES, ids=[f"{row[0]}-{len(row[1])}" for row in CASES])
def test_the_type_is_what_onnxruntime_computes(kind: str, inputs: list[Any], attrs: dict[str, Any]) -> None:
    names = [f"i{at}" for at in range(len(inputs))]
    fed = [value(name, item) for name, item in zip(names, inputs, strict=True) if isinstance(item, list)]
    data = {name: item for name, item in zip(names, inputs, strict=True) if not isinstance(item, list)}
    nodes = [node(kind, names, ["y"], domain="com.microsoft", **attrs)]
    proto = model(nodes, fed, ["y"], data, domains=["com.microsoft"])
    found = imported(proto)["y"].known
    feeds = {entry.name: np.ones([dim.dim_value for dim in entry.type.tensor_type.shape.dim], F32) for entry in fed}
    proto.graph.output[0].CopyFrom(value("y", None, FLOAT if found.dtype == F32 else 2))
    wanted = onnxruntime_outputs(proto, feeds)[0]
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)


def test_what_is_not_known_stays_unknown() -> None:
    nodes = [
        node(
            "QLinearAveragePool",
            ["x", "s", "z", "s", "z"],
            ["m"],
            domain="com.microsoft",
            kernel_shape=[2, 2],
            channels_last=1,
        )
    ]
    data = {"x": codes(1, 5, 5, 2), "s": SCALE, "z": ZERO}
    proto = model(nodes, [], [value("m", [1, 4, 4, 2], 2)], data, domains=["com.microsoft"])
    assert str(imported(proto)["m"].known) == "uint8[1, 4, 4, 2]"  # as the model states it
