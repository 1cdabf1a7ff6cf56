from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnx2nnapi.errors import InvalidModelError, UnsupportedError
from onnx2nnapi.frontend.importer import import_model
from onnx2nnapi.ir.graph import Graph
from tests.frontend.building import BOOL, FLOAT, INT64, imported, kinds, model, node, onnxruntime_outputs, run, value


def constant(name: str, data: Any, dtype: Any = np.int64) -> onnx.NodeProto:
    return node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(data, dtype), name))


# -- shape arithmetic --------------------------------------------------------------------------------------------------

TORCHSCRIPT = [
    node("Shape", ["x"], ["shape"]), constant("zero", 0), node("Gather", ["shape", "zero"], ["batch"], axis=0),
    constant("axes", [0]), node("Unsqueeze", ["batch", "axes"], ["batch1"]), constant("rest", [-1]),
    node("Concat", ["batch1", "rest"], ["target"], axis=0), node("Reshape", ["x", "target"], ["y"]),
]  # fmt: skip
DYNAMO = [
    node("Shape", ["x"], ["batch"], start=0, end=1), constant("rest", [-1]),
    node("Concat", ["batch", "rest"], ["target"], axis=0), node("Reshape", ["x", "target"], ["y"], allowzero=1),
]  # fmt: skip
PADDLE = [
    node("Shape", ["x"], ["shape"]), constant("starts", [0]), constant("ends", [1]), constant("axes", [0]),
    node("Slice", ["shape", "starts", "ends", "axes"], ["batch"]), node("Cast", ["batch"], ["batch32"], to=6),
    constant("rest", [-1], np.int32), node("Concat", ["batch32", "rest"], ["target32"], axis=0),
    node("Cast", ["target32"], ["target"], to=7), node("Reshape", ["x", "target"], ["y"]),
]  # fmt: skip
TF2ONNX = [
    node("Shape", ["x"], ["shape"]), node("Cast", ["shape"], ["floats"], to=1), constant("starts", [0]),
    constant("ends", [1]), constant("axes", [0]), node("Slice", ["floats", "starts", "ends", "axes"], ["part"]),
    node("Squeeze", ["part", "axes"], ["batch"]), node("Cast", ["batch"], ["batch32"], to=6),
    node("Unsqueeze", ["batch32", "axes"], ["batch1"]), constant("rest", [-1], np.int32),
    node("Concat", ["batch1", "rest"], ["target32"], axis=0), node("Cast", ["target32"], ["target"], to=7),
    node("Reshape", ["x", "target"], ["y"]),
]  # fmt: skip


@pytest.mark.parametrize(
    "nodes", [TORCHSCRIPT, DYNAMO, PADDLE, TF2ONNX], ids=["torchscript", "dynamo", "paddle", "tf2onnx"]
)
def test_shape_arithmetic_disappears(nodes: list[onnx.NodeProto]) -> None:
    graph = imported(model(nodes, [value("x", ["N", 3, 4])], [value("y", ["N", 12])]), dims={"N": 2})
    assert kinds(graph) == ["Reshape"]
    assert set(graph.values) == {"x", "y", "target"}
    assert str(graph["y"].known) == "float32[2, 12]"


def test_small_constants_are_computed_and_large_ones_noted() -> None:
    weight = np.random.default_rng(0).standard_normal((512, 300)).astype(np.float32)  # over 256 KiB
    nodes = [
        node("Transpose", ["w"], ["turned"], perm=[1, 0]),
        node("Unsqueeze", ["turned", "axes"], ["wide"]),
        node("Mul", ["wide", "two"], ["scaled"]),
        node("Squeeze", ["scaled", "axes"], ["flat"]),
        node("MatMul", ["x", "flat"], ["y"]),
    ]
    proto = model(nodes, [value("x", [2, 300])], ["y"], {"w": weight, "axes": np.int64([0]), "two": np.float32(2)})
    graph = imported(proto)
    assert kinds(graph) == ["MatMul"]
    const = graph["flat"].const
    assert const is not None
    assert const.shape == (300, 512)
    np.testing.assert_array_equal(const.numpy(), weight.T * 2)


def test_a_large_fill_takes_no_memory_until_it_is_read() -> None:
    nodes = [node("ConstantOfShape", ["s"], ["w"]), node("Add", ["x", "w"], ["y"])]
    graph = imported(model(nodes, [value("x", [1])], ["y"], {"s": np.int64([1 << 20, 1 << 12])}))  # 16 GiB
    assert graph["w"].const is not None
    assert graph["w"].const.shape == (1 << 20, 1 << 12)


def test_the_movements_of_weights_are_steps() -> None:
    weight = np.zeros((512, 300), np.float32)
    nodes = [node("Transpose", ["w"], ["t"]), node("Identity", ["t"], ["i"]), node("MatMul", ["x", "i"], ["y"])]
    const = imported(model(nodes, [value("x", [2, 300])], ["y"], {"w": weight}))["i"].const
    assert const is not None
    assert [label for label, _ in const.steps] == ["transpose[1, 0]"]


def test_random_and_dequantizing_nodes_are_not_folded() -> None:
    nodes = [
        node("DequantizeLinear", ["q", "scale", "zero"], ["w"]),
        node("RandomNormalLike", ["w"], ["noise"]),
        node("Add", ["w", "noise"], ["y"]),
    ]
    data = {"q": np.int8([1, 2]), "scale": np.float32(0.5), "zero": np.int8(0)}
    assert kinds(imported(model(nodes, [], ["y"], data))) == ["DequantizeLinear", "RandomNormalLike", "Add"]


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value_float": 1.5}, np.float32(1.5)),
        ({"value_floats": [1.5, 2]}, np.float32([1.5, 2])),
        ({"value_int": 3}, np.int64(3)),
        ({"value_ints": [3, 4]}, np.int64([3, 4])),
        ({"value": numpy_helper.from_array(np.uint8([1]))}, np.uint8([1])),
        (
            {"sparse_value": helper.make_sparse_tensor(
                numpy_helper.from_array(np.float32([7]), "v"), numpy_helper.from_array(np.int64([1]), "i"), [3]
            )},
            np.float32([0, 7, 0]),
        ),
    ],
)  # fmt: skip
def test_every_form_of_a_constant(attribute: dict[str, Any], expected: Any) -> None:
    const = imported(model([node("Constant", [], ["y"], **attribute)], [], ["y"]))["y"].const
    assert const is not None
    np.testing.assert_array_equal(const.numpy(), expected)
    assert (const.dtype, const.shape) == (expected.dtype, expected.shape)


def test_attribute_defaults_are_filled_in() -> None:
    op = imported(model([node("LeakyRelu", ["x"], ["y"])], [value("x", [2])], ["y"])).ops[0]
    assert op.attrs == {"alpha": pytest.approx(0.01)}
    proto = model(
        [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        [value("x", [1, 1, 4, 4])],
        ["y"],
        {"w": np.zeros((1, 1, 3, 3), np.float32)},
    )
    assert imported(proto).ops[0].attrs == {"auto_pad": "NOTSET", "group": 1, "pads": (1, 1, 1, 1)}


def test_optional_outputs_that_nothing_reads_are_left_out() -> None:
    nodes = [node("MaxPool", ["x"], ["y", "indices"], kernel_shape=[2, 2])]
    graph = imported(model(nodes, [value("x", [1, 1, 4, 4])], ["y"]))
    assert graph.ops[0].outputs == ("y",)


# -- types -------------------------------------------------------------------------------------------------------------


def test_a_partial_type_becomes_whole_again() -> None:
    nodes = [
        node("NonZero", ["x"], ["where"]),  # [2, ?]
        node("Reshape", ["where", "target"], ["found"]),
        node("Cast", ["found"], ["y"], to=FLOAT),
    ]
    graph = imported(model(nodes, [value("x", [2, 3])], ["y"], {"target": np.int64([4, 3])}))
    assert str(graph["y"].known) == "float32[4, 3]"
    assert graph["where"].type is None
    with pytest.raises(InvalidModelError, match="tensor 'where': its shape cannot be inferred; bind"):
        _ = graph["where"].shape


def test_an_output_whose_size_depends_on_data_is_refused_where_it_arises() -> None:
    nodes = [node("NonZero", ["x"], ["where"], "finder"), node("Cast", ["where"], ["y"], to=FLOAT)]
    with pytest.raises(UnsupportedError, match=r"NonZero 'finder' \(-> 'where'\): the shape .* of output 'y'"):
        imported(model(nodes, [value("x", [2, 3])], ["y"]))


def test_stated_types_help_where_nothing_can_be_inferred() -> None:
    nodes = [node("Custom", ["x"], ["middle"], domain="com.example"), node("Relu", ["middle"], ["y"])]
    proto = model(nodes, [value("x", ["N", 3])], ["y"], domains=["com.example"], value_info=[value("middle", ["N", 7])])
    graph = imported(proto, dims={"N": 2})
    assert kinds(graph) == ["com.example::Custom", "Relu"]
    assert str(graph["y"].known) == "float32[2, 7]"


def test_an_output_declared_otherwise_is_refused_unless_sizes_were_open() -> None:
    relu = [node("Relu", ["x"], ["y"])]
    with pytest.raises(InvalidModelError, match=r"output 'y' is declared as float32\[3\], but is float32\[2\]"):
        imported(model(relu, [value("x", [2])], [value("y", [3])]))
    assert str(imported(model(relu, [value("x", ["N"])], [value("y", [1])]), dims={"N": 2})["y"].known) == "float32[2]"
    with pytest.raises(InvalidModelError, match="it computes float32 elements, the model states int64 for 'y'"):
        imported(model(relu, [value("x", [2])], [value("y", [2], INT64)]))


# -- control flow ------------------------------------------------------------------------------------------------------


def branches(then: list[onnx.NodeProto], other: list[onnx.NodeProto], *results: str) -> dict[str, onnx.GraphProto]:
    """Attributes of an If; the results of both branches have the same names."""
    outputs = [onnx.ValueInfoProto(name=name) for name in results]
    return {
        "then_branch": helper.make_graph(then, "then", [], outputs),
        "else_branch": helper.make_graph(other, "else", [], outputs),
    }


def if_on_rank() -> onnx.ModelProto:
    """TorchScript's squeeze of a dimension that may not be 1."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        constant("zero", 0),
        node("Gather", ["shape", "zero"], ["batch"]),
        constant("one", 1),
        node("Equal", ["batch", "one"], ["single"]),
        node("If", ["single"], ["y"], "choice", **branches(
            [constant("axes", [0]), node("Squeeze", ["x", "axes"], ["r"])], [node("Identity", ["x"], ["r"])], "r"
        )),
        node("Relu", ["y"], ["z"]),
    ]  # fmt: skip
    return model(nodes, [value("x", ["N", 3])], ["z"])


def test_an_if_whose_condition_folds_is_inlined() -> None:
    assert kinds(imported(if_on_rank(), dims={"N": 1})) == ["Squeeze", "Relu"]
    graph = imported(if_on_rank(), dims={"N": 2})
    assert kinds(graph) == ["Identity", "Relu"]
    assert graph.assumptions == []


def runtime_if(then: list[onnx.NodeProto], other: list[onnx.NodeProto], shape: list[Any]) -> onnx.ModelProto:
    nodes = [node("If", ["flag"], ["y"], "choice", **branches(then, other, "r"))]
    return model(nodes, [value("flag", [], BOOL), value("x", shape)], ["y"])


def test_the_branches_of_a_runtime_if_are_graphs_that_capture() -> None:
    proto = runtime_if(
        [node("Relu", ["x"], ["r"])], [constant("k", [5], np.float32), node("Add", ["x", "k"], ["r"])], [2]
    )
    graph = imported(proto)
    op = graph.ops[0]
    assert op.captured == ("x",)
    assert {name: kinds(branch) for name, branch in op.subgraphs.items()} == {
        "then_branch": ["Relu"],
        "else_branch": ["Add"],
    }
    for flag in (True, False):
        feeds = {"flag": np.asarray(flag), "x": np.float32([-1, 2])}
        np.testing.assert_array_equal(run(graph, feeds)[0], onnxruntime_outputs(proto, feeds)[0])


def test_branches_of_different_shapes_are_refused_at_the_if() -> None:
    proto = runtime_if([node("Relu", ["x"], ["r"])], [node("ReduceSum", ["x"], ["r"])], [2, 3])
    with pytest.raises(UnsupportedError, match=r"If 'choice' \(-> 'y'\): the shape of its result"):
        imported(proto)


def test_a_branch_for_other_sizes_is_dropped_and_told() -> None:
    matmul = [node("MatMul", ["x", "x"], ["r"])]
    proto = runtime_if(matmul, [node("Relu", ["x"], ["r"])], ["N", "M"])
    graph = imported(proto, dims={"N": 2, "M": 3})
    assert kinds(graph) == ["Relu"]
    assert "'flag' selects the else_branch; the then_branch takes other shapes" in graph.assumptions[0]
    with pytest.raises(InvalidModelError, match="MatMul"):  # no choice of sizes made it wrong
        imported(runtime_if(matmul, [node("Relu", ["x"], ["r"])], [2, 3]))


def loop_model(trips: str = "trips", body_condition: str = "going") -> onnx.ModelProto:
    body = helper.make_graph(
        [
            node("Identity", [body_condition], ["still"]),
            node("Add", ["sum", "x"], ["next"]),
            node("Mul", ["next", "factor"], ["part"]),
        ],
        "body",
        [value("step", [], INT64), value("going", [], BOOL), value("sum", None)],
        [value("still", [], BOOL), value("next", None), value("part", None)],
    )
    nodes = [node("Loop", [trips, "", "start"], ["total", "parts"], "repeat", body=body)]
    inputs = [value("x", [2]), value("start", [2]), value("runtime", [], INT64), value("open", [], BOOL)]
    data = {"trips": np.int64(3), "factor": np.float32(10)}
    return model(nodes, inputs, [value("total", None), value("parts", None)], data)


def test_a_loop_has_types_and_a_body() -> None:
    proto = loop_model()
    graph = imported(proto)
    assert [str(graph[name].known) for name in ("total", "parts")] == ["float32[2]", "float32[3, 2]"]
    body: Graph = graph.ops[0].attrs["body"]
    assert kinds(body) == ["Identity", "Add", "Mul"]
    assert body.is_constant(body.ops[2].inputs[1])  # constants of the enclosing graph are copied into the body
    assert body.free == ("x",)
    feeds = {
        "x": np.float32([1, 2]),
        "start": np.float32([0, 0]),
        "runtime": np.asarray(0, np.int64),
        "open": np.asarray(True),
    }
    for got, wanted in zip(run(graph, feeds), onnxruntime_outputs(proto, feeds), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("proto", [loop_model("runtime"), loop_model(body_condition="open")])
def test_a_loop_whose_trips_are_unknown_has_no_known_scans(proto: onnx.ModelProto) -> None:
    with pytest.raises(UnsupportedError, match="Loop 'repeat'"):
        imported(proto)
    assert str(imported(proto, cut_outputs=["total"])["total"].known) == "float32[2]"


def test_a_scan_runs_backwards_and_along_axes() -> None:
    body = helper.make_graph(
        [node("Add", ["state", "slice"], ["next"]), node("Identity", ["next"], ["copy"])],
        "body", [value("state", [2]), value("slice", [2])], [value("next", [2]), value("copy", [2])],
    )  # fmt: skip
    scan = node("Scan", ["start", "x"], ["last", "all"], body=body, num_scan_inputs=1, scan_input_axes=[1],
                scan_input_directions=[1], scan_output_axes=[1])  # fmt: skip
    proto = model([scan], [value("start", [2]), value("x", [2, 5])], [value("last", [2]), value("all", [2, 5])])
    graph = imported(proto)
    feeds = {"start": np.float32([1, 2]), "x": np.arange(10, dtype=np.float32).reshape(2, 5)}
    for got, wanted in zip(run(graph, feeds), onnxruntime_outputs(proto, feeds), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_body_may_use_names_of_its_enclosing_graph_for_its_own() -> None:
    then = [node("Relu", ["x"], ["shadow"]), node("Neg", ["shadow"], ["r"])]
    nodes = [
        node("Exp", ["x"], ["shadow"]),
        node("If", ["flag"], ["y"], **branches(then, [node("Identity", ["shadow"], ["r"])], "r")),
    ]
    graph = imported(model(nodes, [value("flag", [], BOOL), value("x", [1])], ["y"]))
    x = np.float32([2])
    assert run(graph, {"flag": np.asarray(True), "x": x})[0].tolist() == [-2]
    assert run(graph, {"flag": np.asarray(False), "x": x})[0].tolist() == pytest.approx([np.exp(2)])


def test_the_given_proto_is_never_changed_by_control_flow() -> None:
    proto = loop_model()
    before = proto.SerializeToString(deterministic=True)
    import_model(proto)
    assert proto.SerializeToString(deterministic=True) == before
