from __future__ import annotations

import gc
import pathlib

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnx2nnapi.errors import InvalidModelError, UnsupportedError
from onnx2nnapi.frontend.importer import import_model
from onnx2nnapi.ir.graph import Provenance
from onnx2nnapi.options import Options
from tests.frontend.building import BOOL, FLOAT, INT64, imported, kinds, model, node, run, value


def chain() -> onnx.ModelProto:
    """x -> Relu -> middle -> Exp -> y, with a symbolic batch."""
    nodes = [node("Relu", ["x"], ["middle"], "first"), node("Exp", ["middle"], ["y"], "second")]
    return model(nodes, [value("x", ["N", 3, 4, 5])], [value("y", ["N", 3, 4, 5])])


# -- what comes in ---------------------------------------------------------------------------------------------------


def test_path_bytes_and_proto_give_the_same_graph(tmp_path: pathlib.Path) -> None:
    proto = chain()
    before = proto.SerializeToString(deterministic=True)
    path = tmp_path / "chain.onnx"
    path.write_bytes(before)
    options = Options(dims={"N": 2})
    graphs = [import_model(source, options) for source in (path, str(path), before, bytearray(before), proto)]
    assert {tuple(kinds(graph)) for graph in graphs} == {("Relu", "Exp")}
    assert len({str(graph.interface) for graph in graphs}) == 1
    assert proto.SerializeToString(deterministic=True) == before


def test_the_interface_keeps_names_dtypes_and_shapes() -> None:
    nodes = [node("Gather", ["table", "ids"], ["rows"]), node("Not", ["flag"], ["other"])]
    proto = model(
        nodes,
        [value("ids", [2], INT64), value("flag", [], BOOL)],
        ["rows", "other"],
        {"table": np.zeros((5, 3), np.float32)},
    )
    interface = imported(proto).interface
    assert interface is not None
    assert [(port.name, str(port.type)) for port in interface.inputs] == [("ids", "int64[2]"), ("flag", "bool[]")]
    assert [(port.name, str(port.type)) for port in interface.outputs] == [
        ("rows", "float32[2, 3]"),
        ("other", "bool[]"),
    ]


def test_ops_carry_where_they_come_from() -> None:
    graph = imported(chain(), dims={"N": 1})
    origin = graph.ops[1].origin
    assert (origin.name, origin.op_type, origin.outputs) == ("second", "Exp", ("y",))
    assert graph["middle"].holds == Provenance("middle")


def test_initializers_that_are_inputs_too_are_constants() -> None:
    proto = model(
        [node("Add", ["x", "b"], ["y"])], [value("x", [2]), value("b", [2])], ["y"], {"b": np.float32([1, 2])}
    )
    graph = imported(proto, input_shapes={"x": (2,), "b": (2,)})
    assert graph.inputs == ["x"]
    assert graph.is_constant("b")
    with pytest.raises(InvalidModelError, match=r"input 'b': its shape is set to \[3\], it is a constant of \[2\]"):
        imported(proto, input_shapes={"b": (3,)})


def test_an_unused_input_stays_in_the_interface() -> None:
    graph = imported(model([node("Relu", ["x"], ["y"])], [value("x", [2]), value("spare", [3])], ["y"]))
    assert graph.inputs == ["x", "spare"]


def test_outputs_may_be_inputs_and_constants() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [2])], ["x", "c", "y"], {"c": np.float32([1, 2])})
    graph = imported(proto)
    assert graph.outputs == ["x", "c", "y"]
    assert graph.is_constant("c")


def test_a_graph_without_inputs_is_all_constant() -> None:
    graph = imported(model([node("Add", ["a", "a"], ["y"])], [], ["y"], {"a": np.float32([1, 2])}))
    assert kinds(graph) == []
    assert graph["y"].const is not None
    assert graph["y"].const.numpy().tolist() == [2, 4]


def test_nodes_without_names_and_with_one_name_for_all() -> None:
    nodes = [node("Relu", ["x"], ["a"], "same"), node("Relu", ["a"], ["b"], "same"), node("Relu", ["b"], ["y"])]
    assert kinds(imported(model(nodes, [value("x", [2])], ["y"]))) == ["Relu"] * 3


def test_names_that_look_like_fresh_ones_do_not_clash() -> None:
    nodes = [
        node("Squeeze", ["x"], ["y"], axes=[0]),
        node("Unsqueeze", ["y"], ["y.axes"], axes=[0]),
        node("Add", ["y.axes", "x"], ["z"]),
    ]
    graph = imported(model(nodes, [value("x", [1, 3])], ["z"], opset=11))
    x = np.float32([[1, 2, 3]])
    assert run(graph, {"x": x})[0].tolist() == [[2, 4, 6]]


def test_unsorted_nodes_are_sorted() -> None:
    nodes = [node("Exp", ["middle"], ["y"]), node("Relu", ["x"], ["middle"])]
    assert kinds(imported(model(nodes, [value("x", [2])], ["y"]))) == ["Relu", "Exp"]


def test_what_no_output_needs_is_left_out() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Nonsense", ["x"], ["unused"], domain="com.example")]
    assert kinds(imported(model(nodes, [value("x", [2])], ["y"], domains=["com.example"]))) == ["Relu"]


def test_the_garbage_collector_is_on_again_afterwards() -> None:
    assert gc.isenabled()
    imported(chain(), dims={"N": 1})
    assert gc.isenabled()
    with pytest.raises(UnsupportedError):
        imported(chain())
    assert gc.isenabled()


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_an_open_size_is_refused_with_the_flags_that_bind_it() -> None:
    with pytest.raises(UnsupportedError) as caught:
        imported(chain())
    assert "dimension 0 ('N') of input 'x' is not bound (give --dim N=1 or --input-shape x:1,3,4,5)" in str(
        caught.value
    )


@pytest.mark.parametrize("symbol", ["?", None])
def test_a_size_without_a_name_is_refused_by_its_index(symbol: str | None) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [symbol, 3, symbol])], ["y"])
    with pytest.raises(
        UnsupportedError, match=r"dimension 2, which has no name, of input 'x' .* --input-shape x:1,3,1\)"
    ):
        imported(proto)
    assert str(imported(proto, input_shapes={"x": (7, 3, 8)})["y"].known) == "float32[7, 3, 8]"


def test_an_input_without_a_shape_needs_one() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", None)], ["y"])
    with pytest.raises(UnsupportedError, match=r"input 'x' has no shape \(give --input-shape x:…\)"):
        imported(proto)
    assert str(imported(proto, input_shapes={"x": ()})["y"].known) == "float32[]"


def test_symbols_are_bound_by_dims_by_shapes_and_across_inputs() -> None:
    proto = model([node("Add", ["a", "b"], ["y"])], [value("a", ["N", 2]), value("b", ["N", 2])], ["y"])
    for options in ({"dims": {"N": 5}}, {"input_shapes": {"a": (5, 2)}}):
        assert str(imported(proto, **options)["y"].known) == "float32[5, 2]"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"input_shapes": {"a": (5, 2), "b": (6, 2)}},
            r"input 'b': dimension 0 \('N'\) is set to 6, and to 5 by input 'a'",
        ),
        ({"input_shapes": {"a": (5, 2)}, "dims": {"N": 4}}, r"dimension 0 \('N'\) is set to 5, and to 4 by --dim"),
        ({"input_shapes": {"a": (5, 3)}}, r"input 'a': dimension 1 is set to 3, the model declares 2: \[N, 2\]"),
        ({"input_shapes": {"a": (5,)}}, r"input 'a': its shape is set to \[5\], the model declares rank 2: \[N, 2\]"),
        ({"input_shapes": {"q": (5,)}}, r"no input 'q'; there are 'a', 'b'"),
        ({"dims": {"M": 4}}, r"no input has a dimension 'M'; there are 'N'"),
        ({"dims": {"N": 1}, "set": {"q": 1}}, r"no input 'q'; there are 'a', 'b'"),
        ({"dims": {"N": 1}, "input_layouts": {"q": "nhwc"}}, r"no input 'q'"),
        ({"dims": {"N": 1}, "output_layouts": {"q": "nhwc"}}, r"no output 'q'; there are 'y'"),
        ({"dims": {"N": 1}, "cut_outputs": ["q"]}, r"no tensor 'q'"),
    ],
)
def test_options_that_contradict_the_model(options: dict[str, object], message: str) -> None:
    proto = model([node("Add", ["a", "b"], ["y"])], [value("a", ["N", 2]), value("b", ["N", 2])], ["y"])
    with pytest.raises(InvalidModelError, match=message):
        imported(proto, **options)


# -- frozen inputs, cuts, layouts --------------------------------------------------------------------------------------


def test_a_frozen_input_is_a_constant_and_no_input(tmp_path: pathlib.Path) -> None:
    proto = model([node("Mul", ["x", "scale"], ["y"])], [value("x", [2]), value("scale", ["N"])], ["y"])
    np.save(tmp_path / "scale.npy", np.float32([2, 3]))
    for given in (np.float32([2, 3]), [2, 3], tmp_path / "scale.npy", str(tmp_path / "scale.npy")):
        graph = imported(proto, set={"scale": given})
        assert graph.inputs == ["x"]
        assert graph["scale"].const is not None
        assert graph["scale"].const.numpy().tolist() == [2, 3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.float64([1 + 1e-12]), "value of input 'k': float64 values don't fit int64"),
        (np.int64([1, 2]), r"input 'k': dimension 0 is set to 2, the model declares 1"),
        ("missing.npy", "value of input 'k': 'missing.npy' cannot be read"),
        (["a"], "value of input 'k': it is no int64 array"),
    ],
)
def test_a_value_that_does_not_fit_its_input(given: object, message: str) -> None:
    proto = model([node("Expand", ["x", "k"], ["y"])], [value("x", [1]), value("k", [1], INT64)], ["y"])
    with pytest.raises(InvalidModelError, match=message):
        imported(proto, set={"k": given})


def test_cutting_makes_tensors_inputs_and_outputs() -> None:
    graph = imported(chain(), dims={"N": 1}, cut_outputs=["middle"])
    assert (kinds(graph), graph.outputs) == (["Relu"], ["middle"])
    graph = imported(chain(), dims={"N": 2}, cut_inputs=["middle"])  # its shape comes from the part that is cut off
    assert (kinds(graph), graph.inputs) == (["Exp"], ["middle"])
    assert str(graph["middle"].known) == "float32[2, 3, 4, 5]"
    with pytest.raises(InvalidModelError, match="cut input 'middle': no output depends on it"):
        imported(chain(), dims={"N": 1}, cut_inputs=["middle"], cut_outputs=["middle", "x"][1:])


def test_cutting_one_of_two_outputs_of_a_node() -> None:
    nodes = [node("Split", ["x"], ["a", "b"], axis=0), node("Add", ["a", "b"], ["y"])]
    graph = imported(model(nodes, [value("x", [4])], ["y"]), cut_inputs=["a"])
    assert graph.inputs == ["x", "a"]
    assert run(graph, {"x": np.float32([1, 2, 3, 4]), "a": np.float32([10, 20])})[0].tolist() == [13, 24]


def test_channels_last_at_the_interface() -> None:
    graph = imported(chain(), dims={"N": 2}, input_layouts={"x": "nhwc"}, output_layouts={"y": "nhwc"})
    interface = graph.interface
    assert interface is not None
    assert (interface.inputs[0].name, interface.inputs[0].type.shape) == ("x", (2, 4, 5, 3))
    assert (interface.outputs[0].name, interface.outputs[0].type.shape) == ("y", (2, 4, 5, 3))
    assert kinds(graph) == ["Transpose", "Relu", "Exp", "Transpose"]
    assert graph[graph.inputs[0]].holds == Provenance("x", (0, 2, 3, 1))
    assert graph[graph.outputs[0]].holds == Provenance("y", (0, 2, 3, 1))
    x = np.random.default_rng(0).standard_normal((2, 4, 5, 3)).astype(np.float32)
    np.testing.assert_allclose(run(graph, {"x": x})[0], np.exp(np.maximum(x, 0)), rtol=1e-6)


def test_channels_last_needs_channels() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [2, 3])], ["y"])
    with pytest.raises(InvalidModelError, match="input 'x': it has rank 2, channels can be last from rank 3 on"):
        imported(proto, input_layouts={"x": "nhwc"})


# -- functions ---------------------------------------------------------------------------------------------------------


def with_function(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        agraph (float[2] x) => (float[2] y) {{ y = local.twice <alpha = 2.0> (x) }}
        {body}"""
    )


def test_functions_are_inlined_with_the_callers_attributes() -> None:
    body = """<domain: "local", opset_import: ["" : 17, "local" : 1]>
        twice <alpha> (x) => (y) { inner = local.once <slope : float = @alpha> (x)  y = Add (inner, x) }
        <domain: "local", opset_import: ["" : 17]>
        once <slope> (x) => (y) { y = LeakyRelu <alpha : float = @slope> (x) }"""
    graph = imported(with_function(body))
    assert kinds(graph) == ["LeakyRelu", "Add"]
    assert graph.ops[0].attrs == {"alpha": 2.0}
    assert run(graph, {"x": np.float32([-1, 3])})[0].tolist() == [-3, 6]


def test_a_function_of_an_older_opset_is_normalized_by_its_own() -> None:
    body = """<domain: "local", opset_import: ["" : 11]>
        twice <alpha> (x) => (y) { wide = Unsqueeze <axes = [0]> (x)  y = Squeeze <axes = [0]> (wide) }"""
    assert run(imported(with_function(body)), {"x": np.float32([1, 2])})[0].tolist() == [1, 2]


def test_a_function_that_calls_itself_is_refused() -> None:
    body = """<domain: "local", opset_import: ["" : 17, "local" : 1]>
        twice <alpha> (x) => (y) { y = local.twice (x) }"""
    with pytest.raises(InvalidModelError, match="its function calls itself"):
        imported(with_function(body))


def test_a_function_may_hand_on_its_input_and_leave_out_optional_ones() -> None:
    body = """<domain: "local", opset_import: ["" : 17]>
        twice <alpha> (x, low) => (x) { unused = Clip (x, low) }"""
    assert kinds(imported(with_function(body))) in (["Identity"], ["Clip", "Identity"])


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"not a protobuf at all", "it is no ONNX model"),
        (b"\x08\x08", "it is no ONNX model: it holds no graph"),
    ],
)
def test_files_that_are_no_models(tmp_path: pathlib.Path, data: bytes, message: str) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(data)
    with pytest.raises(InvalidModelError, match=rf"broken.onnx': {message}"):
        import_model(path)
    with pytest.raises(InvalidModelError, match=message):
        import_model(data)


def test_a_truncated_model_is_refused(checkout: pathlib.Path) -> None:
    data = (checkout / "models" / "mobilenet_block.onnx").read_bytes()
    for length in range(1, len(data) - 1, max(len(data) // 40, 1)):
        with pytest.raises((InvalidModelError, UnsupportedError)):
            import_model(data[:length])


def test_a_missing_file_and_a_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidModelError, match=r"absent.onnx': cannot be read: No such file"):
        import_model(tmp_path / "absent.onnx")
    with pytest.raises(InvalidModelError, match="cannot be read: Is a directory"):
        import_model(tmp_path)


@pytest.mark.parametrize(
    ("ir_version", "opset", "message"),
    [
        (99, 17, "its IR version is 99, the installed onnx"),
        (0, 17, "its IR version is 0"),
        (8, 999, "its opset is 999, the installed onnx"),
        (8, 0, "its opset is 0"),
    ],
)
def test_versions_that_are_not_read(ir_version: int, opset: int, message: str) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [2])], ["y"], opset=opset)
    proto.ir_version = ir_version
    with pytest.raises((InvalidModelError, UnsupportedError), match=message):
        imported(proto)


def test_models_of_older_opsets_are_upgraded_by_onnx_or_refused() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [2])], ["y"], opset=6)
    proto.graph.output[0].CopyFrom(value("y", [2]))
    assert [op.kind for op in imported(proto)] == ["Relu"]
    assert proto.opset_import[0].version == 6
    proto = model([node("Upsample", ["x"], ["y"], width_scale=2.0)], [value("x", [1, 1, 2, 2])], ["y"], opset=1)
    with pytest.raises(UnsupportedError, match="the oldest that is read is 7, and onnx cannot upgrade it"):
        imported(proto)


def test_names_that_are_no_utf8_are_refused() -> None:
    proto = model([node("Relu", ["x"], ["yyyy"])], [value("x", [2])], ["yyyy"])
    data = proto.SerializeToString().replace(b"yyyy", b"\xff\xfe\xfd\xfc")
    with pytest.raises(InvalidModelError, match="is no UTF-8"):
        import_model(data)


def test_hundreds_of_nodes_at_every_opset_stay_as_they_are() -> None:
    newest = onnx.defs.onnx_opset_version()
    for opset in range(7, newest + 1):
        nodes = [node("Relu", [f"t{at}"], [f"t{at + 1}"]) for at in range(3)]
        graph = imported(model(nodes, [value("t0", [2])], ["t3"], opset=opset))
        assert (kinds(graph), graph.opset[""]) == (["Relu"] * 3, newest)


def test_a_packed_model_proto_given_by_its_caller_may_change_afterwards() -> None:
    proto = model([node("Add", ["x", "b"], ["y"])], [value("x", [2])], ["y"], {"b": np.float32([1, 2])})
    graph = imported(proto)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32([7, 7]), "b"))
    assert graph["b"].const is not None
    assert graph["b"].const.numpy().tolist() == [1, 2]


def test_inputs_of_other_kinds_are_refused() -> None:
    sequence = helper.make_tensor_sequence_value_info("x", FLOAT, [2])
    with pytest.raises(UnsupportedError, match="input 'x': its type is sequence, NNAPI has tensors only"):
        imported(model([node("ConcatFromSequence", ["x"], ["y"], axis=0)], [sequence], ["y"]))
    with pytest.raises(UnsupportedError, match="input 'x': it holds strings"):
        imported(model([node("Identity", ["x"], ["y"])], [value("x", [2], onnx.TensorProto.STRING)], ["y"]))
