"""check() tells of every node what it becomes, and collects every refusal with the way out."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx2nnapi
from onnx2nnapi.cli.page import page
from onnx2nnapi.report import NodeReport, Report, check


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[Any]],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets)


def node(kind: str, inputs: str, outputs: str, name: str | None = None, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), name=name or outputs.split()[0], **attributes)


def by_name(report: Report) -> dict[str, NodeReport]:
    return {entry.label: entry for entry in report.nodes}


def broken() -> onnx.ModelProto:
    """Two nodes that nothing converts, with others before, between, after and beside them."""
    return model(
        [
            node("Relu", "x", "before"),
            node("Det", "before", "first"),
            node("Abs", "first", "between"),
            node("Det", "before", "second"),
            node("Add", "between second", "after"),
            node("Neg", "x", "aside"),
            node("Sqrt", "x", "unneeded"),
        ],
        {"x": [2, 3, 3]},
        ["after", "aside"],
    )


def test_a_model_that_converts(checkout: pathlib.Path) -> None:
    report = onnx2nnapi.check(checkout / "models" / "digits.onnx")
    assert report.convertible
    assert report.required_level == 1
    assert report.verdict == "all 14 nodes convert"
    nodes = by_name(report)
    assert list(nodes) == [entry.name for entry in onnx.load(checkout / "models" / "digits.onnx").graph.node]
    assert nodes["conv_1"].operations == ("CONV_2D",)
    assert nodes["conv_1"].status == "converted"
    assert nodes["relu_1"].status == nodes["batchnormalization_1"].status == "merged"
    assert nodes["relu_1"].part_of == "conv_1"


def test_the_cost_of_a_convolution() -> None:
    weight = np.zeros((8, 4, 3, 3), np.float32)
    report = check(
        model([node("Conv", "x w", "y", pads=[1, 1, 1, 1])], {"x": [1, 4, 6, 6]}, ["y"], {"w": weight}),
        input_layouts={"x": "nhwc"},
        output_layouts={"y": "nhwc"},
    )
    (entry,) = report.nodes
    assert entry.operations == ("CONV_2D",)
    assert entry.macs == 6 * 6 * 8 * 4 * 3 * 3
    bias = 8
    assert entry.bytes_moved == 4 * (6 * 6 * 4 + weight.size + bias + 6 * 6 * 8)


def test_the_cost_of_a_product_of_two_inputs() -> None:
    report = check(model([node("MatMul", "x y", "z")], {"x": [2, 3, 4, 5], "y": [2, 3, 5, 6]}, ["z"]), feature_level=6)
    assert report.nodes[0].operations == ("BATCH_MATMUL",)
    assert report.nodes[0].macs == 2 * 3 * 4 * 5 * 6


def test_the_cost_of_a_recurrent_layer() -> None:
    steps, batch, size, units = 5, 2, 3, 4
    weights = {"w": np.zeros((1, 4 * units, size), np.float32), "r": np.zeros((1, 4 * units, units), np.float32)}
    graph = model([node("LSTM", "x w r", "y", hidden_size=units)], {"x": [steps, batch, size]}, ["y"], weights)
    assert check(graph).nodes[0].macs == steps * batch * 4 * units * (size + units)


def test_every_refusal_is_told_at_once_and_grouped() -> None:
    report = check(broken())
    assert not report.convertible
    assert report.required_level is None
    assert report.verdict == "2 of 7 nodes are refused"
    (group,) = report.refusals
    assert group.title == "Det (2 nodes)"
    assert group.reason == "NNAPI computes no determinants"
    assert group.places == ("first", "second")
    assert group.way_out == (
        "convert what is before it with --cut-outputs 'before', and what is after it with --cut-inputs 'first'"
    )


def test_nodes_around_refused_ones_are_judged() -> None:
    nodes = by_name(check(broken()))
    assert {name: entry.status for name, entry in nodes.items()} == {
        "before": "converted",
        "first": "refused",
        "between": "converted",
        "second": "refused",
        "after": "converted",
        "aside": "converted",
        "unneeded": "unneeded",
    }
    assert nodes["before"].operations == ("RELU",)
    assert nodes["first"].reasons == ("NNAPI computes no determinants",)


@pytest.mark.parametrize("flags", [{"cut_outputs": ["before"]}, {"cut_inputs": ["first", "second"]}])
def test_the_way_out_is_one(flags: dict[str, list[str]]) -> None:
    assert check(broken(), **flags).convertible


def test_a_level_is_named_and_the_transposes_are_judged_beside_other_refusals() -> None:
    graph = model(
        [node("Sin", "x", "a"), node("Transpose", "a", "b", perm=[1, 0]), node("Abs", "b", "y")], {"x": [2, 3]}, ["y"]
    )
    report = check(graph, feature_level=1)
    groups = {group.title: group for group in report.refusals}
    assert groups["Sin"].required_level == 3
    assert groups["Sin"].way_out == "raise --feature-level to 3; or convert what is after it with --cut-inputs 'a'"
    assert groups["Transpose"].required_level == 2
    assert check(graph, feature_level=3).required_level == 3


def test_constants_are_folded() -> None:
    graph = model(
        [node("Add", "c c", "twice"), node("Shape", "x", "shape"), node("Mul", "x twice", "y")],
        {"x": [2]},
        ["y", "shape"],
        {"c": np.ones(2, np.float32)},
    )
    assert [entry.status for entry in check(graph).nodes] == ["folded", "folded", "converted"]


def test_an_approximation_states_its_error() -> None:
    report = check(model([node("Erf", "x", "y"), node("Abs", "y", "z")], {"x": [2]}, ["z"]))
    erf, absolute = report.nodes
    assert erf.approximation == "erf within 2e-7"
    assert (erf.to_dict()["exact"], absolute.to_dict()["exact"]) == (False, True)


def test_an_open_size_is_refused_with_the_flag_that_binds_it() -> None:
    report = check(model([node("Relu", "x", "y")], {"x": ["N", 3]}, ["y"]))
    assert [entry.status for entry in report.nodes] == ["unread"]
    assert report.verdict == "the model is refused before its nodes are judged"
    assert "give --dim N=1" in report.refusals[0].reason
    assert check(model([node("Relu", "x", "y")], {"x": ["N", 3]}, ["y"]), dims={"N": 1}).convertible


def test_the_way_out_is_named_where_the_model_is_not_even_read() -> None:
    nodes = [node("Relu", "x", "a"), node("NonZero", "a", "b"), node("Cast", "b", "y", to=TensorProto.FLOAT)]
    report = check(model(nodes, {"x": [2]}, ["y"]))
    assert [entry.status for entry in report.nodes] == ["unread", "refused", "unread"]
    assert report.refusals[0].way_out == (
        "convert what is before it with --cut-outputs 'a', and what is after it with --cut-inputs 'b'"
    )


def test_a_size_that_stays_open() -> None:
    graph = model([node("Relu", "x", "y")], {"x": ["N", 3]}, ["y"])
    report = check(graph, keep_dynamic=["N"])
    assert report.convertible
    assert report.nodes[0].operations == ("RELU",)
    assert report.assumptions == ("bytes and MACs are those at the sizes x [24, 3]",)


def test_a_size_that_cannot_stay_open() -> None:
    nodes = [node("Shape", "x", "sizes"), node("Cast", "sizes", "f", to=TensorProto.FLOAT), node("Add", "x f", "y")]
    graph = model(nodes, {"x": ["N", 2]}, ["y"])
    with pytest.raises(onnx2nnapi.UnsupportedError) as refused:
        onnx2nnapi.convert(graph, keep_dynamic="N")
    (group,) = check(graph, keep_dynamic="N").refusals
    assert group.reason == refused.value.message


def test_an_operator_of_an_unknown_domain_is_named() -> None:
    nodes = [node("Relu", "x", "a"), node("Foo", "a", "y", domain="my"), node("Abs", "a", "z")]
    report = check(model(nodes, {"x": [2]}, ["y", "z"]))
    assert [group.title for group in report.refusals] == ["my::Foo"]
    assert by_name(report)["y"].status == "refused"


def test_a_broken_model_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"nothing")
    with pytest.raises(onnx2nnapi.InvalidModelError, match="it is no ONNX model"):
        check(tmp_path / "m.onnx")


def test_the_model_is_not_changed() -> None:
    graph = broken()
    before = graph.SerializeToString(deterministic=True)
    check(graph)
    assert graph.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("level", [1, 4])
def test_check_and_convert_agree(shared: pathlib.Path, level: int) -> None:
    names = ("conv_bn_relu", "avgpool_ceil_exclude", "channel_shuffle_rank5", "cast_compare_count", "argmax_ties_last")
    for name in names:
        for path in (shared / "cases" / name).glob("*.onnx"):
            try:
                onnx2nnapi.convert(path, feature_level=level)
                converts = True
            except onnx2nnapi.UnsupportedError:
                converts = False
            assert check(path, feature_level=level).convertible is converts, name


def test_the_report_is_json() -> None:
    data = json.loads(json.dumps(check(broken()).to_dict(), allow_nan=False))
    assert data["convertible"] is False
    assert data["refusals"][0]["nodes"] == ["first", "second"]
    assert [entry["status"] for entry in data["nodes"]].count("refused") == 2
    assert data["nodes"][0] == {
        "name": "before",
        "operator": "Relu",
        "outputs": ["before"],
        "status": "converted",
        "operations": ["RELU"],
        "level": 1,
        "exact": True,
        "approximation": None,
        "bytes_moved": 144,
        "macs": 0,
        "part_of": None,
        "reasons": [],
    }


def test_the_page_escapes_names() -> None:
    report = check(model([node("Det", "x", "y", name="<b>&\"'</b>")], {"x": [2, 2]}, ["y"]))
    text = page(report, "<model>")
    assert "<b>" not in text
    assert "&lt;b&gt;&amp;" in text
    assert "<title>&lt;model&gt;</title>" in text
    assert text.count("<tr") == text.count("</tr>")
    assert '<tr class="refused">' in text
