"""Forms of older opsets: imported, they compute what onnxruntime does with the model as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from onnx2nnapi.errors import InvalidModelError, UnsupportedError
from tests.frontend.building import imported, kinds, model, node, onnxruntime_outputs, run, value

F32 = np.float32

# opset, operator, shape of x, further inputs (arrays are initializers, shapes inputs), attributes, kinds after import
FORMS: list[tuple[int, str, list[int], list[Any], dict[str, Any], list[str]]] = [
    (7, "Clip", [2, 3], [], {"min": -0.5, "max": 0.5}, ["Clip"]),
    (10, "Clip", [2, 3], [], {"max": 0.5}, ["Clip"]),
    (7, "Dropout", [2, 3], [], {"ratio": 0.3}, ["Dropout"]),
    (7, "Pad", [2, 3], [], {"pads": [0, 1, 2, 0], "value": 3.0}, ["Pad"]),
    (7, "Pad", [4, 5], [], {"pads": [1, 2, 0, 1], "mode": "reflect"}, ["Pad"]),
    (7, "Slice", [4, 5], [], {"starts": [1, -2], "ends": [3, 9]}, ["Slice"]),
    (7, "Slice", [4, 5], [], {"starts": [-3], "ends": [-1], "axes": [1]}, ["Slice"]),
    (7, "Squeeze", [1, 3, 1], [], {}, ["Squeeze"]),
    (11, "Squeeze", [1, 3, 1], [], {"axes": [-1]}, ["Squeeze"]),
    (7, "Unsqueeze", [3], [], {"axes": [0, 2]}, ["Unsqueeze"]),
    (7, "Split", [4, 6], [], {"axis": 1, "split": [1, 5]}, ["Split"]),
    (7, "Split", [4, 6], [], {"axis": 1}, ["Split"]),
    (13, "Split", [4, 6], [np.int64([3, 1])], {}, ["Split"]),
    *[
        (opset, f"Reduce{name}", [2, 3, 4], [], attrs, [f"Reduce{name}"])
        for name in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
        for opset, attrs in ((7, {"axes": [0, 2]}), (11, {"axes": [-1], "keepdims": 0}), (7, {}))
    ],
    (13, "ReduceMean", [2, 3, 4], [], {"axes": [1]}, ["ReduceMean"]),
    (7, "Softmax", [2, 3, 4], [], {}, ["Reshape", "Softmax", "Reshape"]),
    (11, "Softmax", [2, 3, 4], [], {"axis": -1}, ["Softmax"]),
    (7, "Softmax", [2, 3, 1, 1], [], {"axis": 1}, ["Softmax"]),
    (11, "Softmax", [2, 3, 4], [], {"axis": 0}, ["Reshape", "Softmax", "Reshape"]),
    (7, "LogSoftmax", [2, 3, 4], [], {}, ["Reshape", "LogSoftmax", "Reshape"]),
    (7, "Hardmax", [2, 3, 4], [], {}, ["Reshape", "Hardmax", "Reshape"]),
    (7, "Upsample", [1, 2, 3, 4], [], {"scales": [1.0, 1.0, 2.0, 3.0]}, ["Resize"]),
    (9, "Upsample", [1, 2, 3, 4], [F32([1, 1, 2, 2])], {"mode": "linear"}, ["Resize"]),
    (10, "Resize", [1, 2, 3, 4], [F32([1, 1, 2, 2])], {"mode": "linear"}, ["Resize"]),
    (10, "Resize", [1, 2, 3, 4], [F32([1, 1, 2, 2.5])], {}, ["Resize"]),
    (10, "Resize", [1, 2, 6, 8], [F32([1, 1, 0.5, 0.4])], {}, ["Resize"]),
    (10, "Resize", [1, 2, 6, 8], [F32([1, 1, 0.5, 2])], {}, ["Resize", "Resize"]),
    (11, "Resize", [1, 2, 3, 4], [F32([]), F32([]), np.int64([1, 2, 5, 7])], {"mode": "linear"}, ["Resize"]),
    (11, "Resize", [1, 2, 3, 4], [F32([]), F32([1, 1, 2, 2])], {"mode": "cubic"}, ["Resize"]),
    (13, "Resize", [1, 2, 3, 4], [F32([]), F32([1, 1, 2, 2])], {}, ["Resize"]),
    (7, "BatchNormalization", [2, 3, 4], [F32([1, 2, 3])] * 4, {}, ["BatchNormalization"]),
    (7, "TopK", [3, 5], [], {"k": 2}, ["TopK"]),
    (10, "TopK", [3, 5], [np.int64([2])], {"axis": 0}, ["TopK"]),
    (9, "Scatter", [3, 3], [np.int64([[1, 0, 2]]), F32([[9, 8, 7]])], {}, ["ScatterElements"]),
    (16, "GridSample", [1, 1, 4, 4], [F32([[[[0.1, 0.2], [-0.3, 0.9]]]])], {"mode": "bilinear"}, ["GridSample"]),
    (16, "GridSample", [1, 1, 4, 4], [F32([[[[0.1, 0.2], [-0.3, 0.9]]]])], {}, ["GridSample"]),
    (10, "RoiAlign", [1, 1, 6, 6], [F32([[0, 0, 4, 4]]), np.int64([0])], {"sampling_ratio": 2}, ["RoiAlign"]),
    (9, "Gemm", [2, 3], [F32([[1], [2], [3]]), F32([1])], {"alpha": 2.0}, ["Gemm"]),
    (15, "CastLike", [2, 3], [np.int64([1])], {}, ["Cast"]),
]  # fmt: skip


def form_model(opset: int, kind: str, shape: list[int], others: list[Any], attrs: dict[str, Any]) -> onnx.ModelProto:
    names = [f"i{at}" for at in range(len(others))]
    outputs = {"Split": ["y", "z"], "TopK": ["y", "z"]}.get(kind, ["y"])
    data = dict(zip(names, others, strict=True))
    return model([node(kind, ["x", *names], outputs, "old", **attrs)], [value("x", shape)], outputs, data, opset=opset)


@pytest.mark.parametrize(
    ("opset", "kind", "shape", "others", "attrs", "after"),
    FORMS,
    ids=[f"{row[1]}-{row[0]}-{at}" for at, row in enumerate(FORMS)],
)
def test_an_older_form_computes_the_same(
    opset: int, kind: str, shape: list[int], others: list[Any], attrs: dict[str, Any], after: list[str]
) -> None:
    proto = form_model(opset, kind, shape, others, attrs)
    graph = imported(proto)
    assert kinds(graph) == after
    assert {op.origin.name for op in graph.ops} == {"old"}
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    stated = onnx.shape_inference.infer_shapes(proto)  # onnxruntime wants the outputs' types
    del proto.graph.output[:]
    proto.graph.output.extend(stated.graph.output)
    for got, wanted in zip(run(graph, {"x": x}), onnxruntime_outputs(proto, {"x": x}), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_clip_bounds_of_float_limits_bound_nothing() -> None:
    assert imported(form_model(7, "Clip", [2], [], {})).ops[0].inputs == ("x",)


def test_the_mask_of_an_old_dropout_has_the_datas_type() -> None:
    proto = model([node("Dropout", ["x"], ["y", "mask"])], [value("x", [2])], ["y", "mask"], opset=7)
    graph = imported(proto)
    assert (kinds(graph), str(graph["mask"].known)) == (["Dropout", "Cast"], "float32[2]")


def test_group_normalization_of_one_scale_a_group() -> None:
    data = {"scale": F32([2, 3]), "bias": F32([1, 0])}
    nodes = [node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=2)]
    graph = imported(model(nodes, [value("x", [1, 4, 3])], ["y"], data, opset=18))
    assert kinds(graph) == ["GroupNormalization"]
    x = np.random.default_rng(0).standard_normal((1, 4, 3)).astype(np.float32)
    groups = x.reshape(1, 2, 6)
    wanted = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    wanted = wanted.reshape(x.shape) * F32([2, 2, 3, 3])[:, None] + F32([1, 1, 0, 0])[:, None]
    np.testing.assert_allclose(run(graph, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


def test_range_takes_bounds_of_shape_one() -> None:
    nodes = [node("Range", ["a", "b", "c"], ["r"]), node("Add", ["x", "r"], ["y"])]
    data = {"a": F32([0]), "b": F32([3]), "c": F32([1])}
    graph = imported(model(nodes, [value("x", [3])], ["y"], data))
    assert graph["r"].const is not None
    assert graph["r"].const.numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("opset", "kind", "shape", "attrs", "message"),
    [
        (8, "BatchNormalization", [2, 3], {"spatial": 0}, "statistics per activation"),
        (11, "Split", [5], {}, "5 elements cannot be split into 2 equal parts"),
        (11, "Split", [4], {"axis": 3}, "its axis 3 is outside its rank 1"),
        (11, "Softmax", [4], {"axis": 3}, "its axis 3 is outside its rank 1"),
    ],
)
def test_forms_that_have_no_equal(opset: int, kind: str, shape: list[int], attrs: dict[str, Any], message: str) -> None:
    others = [F32([1, 1, 1])] * 4 if kind == "BatchNormalization" else []
    with pytest.raises((InvalidModelError, UnsupportedError), match=rf"{kind} 'old' .*{message}"):
        imported(form_model(opset, kind, shape, others, attrs))


def test_training_outputs_are_refused_only_when_read() -> None:
    names = ["mean", "var", "saved_mean", "saved_var"]
    nodes = [node("BatchNormalization", ["x", "p", "p", "p", "p"], ["y", *names], "bn")]
    data = {"p": F32([1, 1, 1])}
    assert imported(model(nodes, [value("x", [2, 3])], ["y"], data, opset=9)).ops[0].outputs == ("y",)
    with pytest.raises(UnsupportedError, match=r"BatchNormalization 'bn' .* training mode"):
        imported(model(nodes, [value("x", [2, 3])], ["y", "mean"], data, opset=9))
