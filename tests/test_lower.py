from __future__ import annotations

import numpy as np
import pytest

import onnx2nnapi
from onnx2nnapi.errors import FeatureLevelError, InternalError, Origin, UnsupportedForm
from onnx2nnapi.ir import Graph, Interface, LazyArray, Op, Port, Provenance, TensorType, Value
from onnx2nnapi.ir.sources import DataFile, FileSource
from onnx2nnapi.lower import lower
from onnx2nnapi.nnapi.model import Lifetime
from onnx2nnapi.options import Options

F32 = np.dtype(np.float32)


class Net:
    """A graph of the NNAPI dialect, built by name."""

    def __init__(self) -> None:
        self.graph = Graph("nnapi", "net")
        self.ports: dict[str, Port] = {}

    def value(self, name, shape, dtype=F32, holds=None):
        self.graph.add_value(Value(name, TensorType(np.dtype(dtype), tuple(shape)), holds=holds))

    def input(self, name, shape, dtype=F32, onnx=None):
        self.value(name, shape, dtype)
        self.graph.inputs.append(name)
        self.ports[name] = onnx or Port(name, TensorType(np.dtype(dtype), tuple(shape)))

    def const(self, name, array):
        self.graph.constant(name, LazyArray.of(array))

    def op(self, kind, inputs, outputs, shape, dtype=F32, **attrs):
        for name in outputs:
            if name is not None:
                self.value(name, shape, dtype)
        self.graph.add(Op(kind, tuple(inputs), tuple(outputs), attrs, (Origin(f"{kind} node", kind, tuple(outputs)),)))

    def lowered(self, *outputs, onnx=None, **options):
        self.graph.outputs = list(outputs)
        ports = tuple((onnx or {}).get(name) or Port(name, self.graph[name].known) for name in outputs)
        self.graph.interface = Interface(tuple(self.ports[name] for name in self.graph.inputs), ports)
        return lower(self.graph, Options(**options))


def run(program, **feeds):
    with onnx2nnapi.Session(program, backend="host") as session:
        return session.run(feeds)


@pytest.fixture
def net():
    return Net()


def test_operands_come_in_order_inputs_first_then_by_first_use(net):
    net.input("x", [2, 3])
    net.const("two", np.full([1], 2, np.float32))
    net.op("MUL", ["x", "two"], ["y"], [2, 3], fuse_code=0)
    net.op("RELU", ["y"], ["z"], [2, 3])
    main = net.lowered("z").model.main
    assert [operand.name for operand in main.operands] == ["x", "two", None, "y", "z"]
    assert [operand.lifetime for operand in main.operands] == [
        Lifetime.INPUT,
        Lifetime.CONSTANT,
        Lifetime.CONSTANT,
        Lifetime.TEMPORARY,
        Lifetime.OUTPUT,
    ]
    assert [(op.code.name, op.inputs, op.outputs, op.origin) for op in main.operations] == [
        ("MUL", (0, 1, 2), (3,), ("MUL node",)),
        ("RELU", (3,), (4,), ("RELU node",)),
    ]
    assert (main.inputs, main.outputs) == ((0,), (4,))


def test_equal_constants_and_scalars_are_one_operand(net):
    big = np.ones([40], np.float32)
    net.input("x", [40])
    net.const("a", np.ones([1], np.float32))
    net.const("b", np.ones([1], np.float32))
    net.const("c", big)
    net.graph.constant("d", net.graph["c"].const.reshape([40]))
    net.op("ADD", ["x", "a"], ["p"], [40], fuse_code=0)
    net.op("ADD", ["p", "b"], ["q"], [40], fuse_code=0)
    net.op("ADD", ["q", "c"], ["r"], [40], fuse_code=0)
    net.op("ADD", ["r", "d"], ["s"], [40], fuse_code=0)
    program = net.lowered("s")
    assert [operand.name for operand in program.model.main.operands] == ["x", "a", None, "p", "q", "c", "r", "s"]
    np.testing.assert_array_equal(run(program, x=big)["s"], big * 5)


def test_equal_ranges_of_a_file_are_one_operand_and_different_steps_are_not(net, tmp_path):
    (tmp_path / "w.bin").write_bytes(np.arange(80, dtype=np.float32).tobytes())
    file = DataFile.open(tmp_path / "w.bin")
    net.input("x", [40])
    for name in ("a", "b"):
        net.graph.constant(name, LazyArray.of(FileSource(file, 0, F32, (40,))))
    net.graph.constant("c", LazyArray.of(FileSource(file, 160, F32, (40,))))
    net.graph.constant("d", net.graph["a"].const.scaled(np.float32(2)))
    net.graph.constant("e", net.graph["a"].const.scaled(np.float32(3)))
    previous = "x"
    for name in "abcde":
        net.op("ADD", [previous, name], [f"s{name}"], [40], fuse_code=0)
        previous = f"s{name}"
    program = net.lowered(previous)
    constants = [o for o in program.model.main.operands if o.lifetime is Lifetime.CONSTANT and o.type.rank]
    assert [operand.name for operand in constants] == ["a", "c", "d", "e"]
    first = np.arange(40, dtype=np.float32)
    np.testing.assert_array_equal(run(program, x=first * 0)[previous], first * 8 + 40)


def test_optionals_at_their_default_are_left_out_and_omitted_tensors_have_no_value(net):
    net.input("x", [1, 4, 4, 1])
    net.const("w", np.ones([1, 2, 2, 1], np.float32))
    net.const("b", np.zeros([1], np.float32))
    common = dict.fromkeys(("padding_left", "padding_right", "padding_top", "padding_bottom"), 0)
    common |= {"stride_width": 1, "stride_height": 1, "fuse_code": 0}
    net.op("CONV_2D", ["x", "w", "b"], ["y"], [1, 3, 3, 1], **common, nchw=False, dilation_width=1, dilation_height=1)
    net.op("CONV_2D", ["y", "w", "b"], ["z"], [1, 1, 1, 1], **common, nchw=False, dilation_width=2, dilation_height=2)
    program = net.lowered("z")
    assert [len(op.inputs) for op in program.model.main.operations] == [10, 13]
    assert program.required_level == 3
    np.testing.assert_array_equal(run(program, x=np.ones([1, 4, 4, 1], np.float32))["z"], [[[[16]]]])


def test_what_a_level_lacks_is_refused(net):
    net.input("x", [2])
    net.op("NEG", ["x"], ["y"], [2])
    with pytest.raises(FeatureLevelError, match=r"the model needs feature level 3 \(Android 10, API 29\)"):
        net.lowered("y", feature_level=2)


def test_an_operation_that_its_row_refuses_is_our_fault(net):
    net.input("x", [2])
    net.op("RELU", ["x", "x"], ["y"], [2])
    with pytest.raises(InternalError, match=r"RELU 'RELU node'.*is not accepted"):
        net.lowered("y")


# -- the border --------------------------------------------------------------------------------------------------------


def test_outputs_that_are_inputs_constants_or_repeated(net):
    net.input("x", [2, 2])
    net.const("k", np.array([3, 4], np.float32))
    net.op("RELU", ["x"], ["y"], [2, 2])
    program = net.lowered("y", "x", "k", "y")
    assert [(p.name, p.tensor, p.source, p.constant is None) for p in program.outputs] == [
        ("y", "y", None, True),
        ("x", None, "x", True),
        ("k", None, None, False),
        ("y", "y", None, True),
    ]
    assert program.model.main.outputs == (1,)
    x = np.array([[-1, 2], [3, -4]], np.float32)
    results = run(program, x=x)
    assert list(results) == ["y", "x", "k"]
    np.testing.assert_array_equal(results["y"], np.maximum(x, 0))
    np.testing.assert_array_equal(results["x"], x)
    np.testing.assert_array_equal(results["k"], [3, 4])
    assert not np.may_share_memory(results["x"], x)


def test_a_graph_without_operations_is_a_program_of_no_segments(net):
    net.input("x", [2])
    net.input("unused", [3])
    program = net.lowered("x")
    assert program.segments == ()
    assert [port.tensor for port in program.inputs] == [None, None]
    results = run(program, x=np.ones(2, np.float32), unused=np.ones(3, np.float32))
    np.testing.assert_array_equal(results["x"], [1, 1])


def test_a_graph_without_inputs_is_computed_now(net):
    net.const("k", np.array([-1, 4], np.float32))
    net.op("RELU", ["k"], ["y"], [2])
    program = net.lowered("y")
    assert program.segments == ()
    np.testing.assert_array_equal(run(program)["y"], [0, 4])


def test_an_unused_input_is_no_operand(net):
    net.input("a", [2])
    net.input("b", [2])
    net.op("RELU", ["b"], ["y"], [2])
    program = net.lowered("y")
    assert [port.tensor for port in program.inputs] == [None, "b"]
    assert len(program.model.main.inputs) == 1


def test_zero_sized_values_stay_outside(net):
    net.input("x", [2, 3])
    net.input("none", [0, 3])
    net.op("RELU", ["x"], ["y"], [2, 3])
    net.op("RELU", ["none"], ["still none"], [0, 3])
    program = net.lowered("y", "still none")
    assert [operand.name for operand in program.model.main.operands] == ["x", "y"]
    results = run(program, x=np.ones([2, 3], np.float32), none=np.zeros([0, 3], np.float32))
    assert results["still none"].shape == (0, 3)
    assert results["still none"].dtype == np.float32


def test_an_operation_that_needs_a_zero_sized_value_is_refused(net):
    net.input("x", [2, 3])
    net.input("none", [0, 3])
    net.op("CONCATENATION", ["x", "none"], ["y"], [2, 3], axis=0)
    with pytest.raises(UnsupportedForm, match=r"'CONCATENATION node'.*reads 'none', whose shape \[0, 3\] has no elem"):
        net.lowered("y")


def test_int64_and_rank_0_are_onnx_business(net):
    onnx = Port("n", TensorType(np.dtype(np.int64), ()))
    net.input("n", [1], np.int32, onnx)
    net.op("ABS", ["n"], ["m"], [1], np.int32)
    program = net.lowered("m", onnx={"m": Port("m", TensorType(np.dtype(np.int64), ()))})
    assert (program.inputs[0].dtype, program.inputs[0].shape) == ("int64", ())
    result = run(program, n=np.array(-7, np.int64))["m"]
    assert (result.dtype, result.shape, int(result)) == (np.int64, (), 7)


def test_operands_carry_the_onnx_tensor_that_they_hold(net):
    net.input("x", [1, 2, 3, 4])
    net.value("t", [1, 3, 4, 2], holds=Provenance("conv_out", (0, 2, 3, 1)))
    net.graph.add(Op("TRANSPOSE", ("x",), ("t",), {"perm": (0, 2, 3, 1)}, (Origin("", "Transpose", ("t",)),)))
    net.op("RELU", ["t"], ["y"], [1, 3, 4, 2])
    main = net.lowered("y").model.main
    held = next(operand for operand in main.operands if operand.name == "conv_out")
    assert held.perm == (0, 2, 3, 1)
    assert main.operations[0].origin == ("t",)


def test_relaxed_float16_is_a_property_of_the_model(net):
    net.input("x", [2])
    net.op("RELU", ["x"], ["y"], [2])
    assert net.lowered("y", relaxed_float16=True).model.relaxed
    assert not net.lowered("y").model.relaxed


# -- sub-models --------------------------------------------------------------------------------------------------------


def branch(kind):
    graph = Graph("nnapi")
    graph.add_value(Value("in", TensorType(F32, (2,))))
    graph.inputs.append("in")
    if kind is None:
        graph.outputs.append("in")
    else:
        graph.add_value(Value("out", TensorType(F32, (2,))))
        graph.add(Op(kind, ("in",), ("out",)))
        graph.outputs.append("out")
    return graph


def test_sub_models_are_emitted_with_their_own_operands(net):
    net.input("c", [1], bool)
    net.input("x", [2])
    net.op("IF", ["c", "x"], ["y"], [2], then_model=branch("NEG"), else_model=branch("ABS"))
    program = net.lowered("y")
    assert len(program.model.subgraphs) == 2
    x = np.array([1, -2], np.float32)
    np.testing.assert_array_equal(run(program, c=np.array([True]), x=x)["y"], [-1, 2])
    np.testing.assert_array_equal(run(program, c=np.array([False]), x=x)["y"], [1, 2])


def test_a_sub_model_that_returns_its_input_is_refused(net):
    net.input("c", [1], bool)
    net.input("x", [2])
    net.op("IF", ["c", "x"], ["y"], [2], then_model=branch(None), else_model=branch("ABS"))
    with pytest.raises(UnsupportedForm, match="the sub-model's output 'in' is its input"):
        net.lowered("y")
