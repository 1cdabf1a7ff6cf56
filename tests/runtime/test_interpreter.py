from __future__ import annotations

import gzip
import json
import threading

import numpy as np
import pytest

from onnx2nnapi.errors import FeedError, InternalError, InvalidModelError
from onnx2nnapi.nnapi import Model
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.schema import SCHEMAS, Role
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime import Interpreter
from onnx2nnapi.runtime.kernels import KERNELS, Border, Call, _kernels, may_overwrite


class Net:
    """A model description, built operand by operand."""

    def __init__(self):
        self.operands, self.operations, self.subgraphs = [], [], []
        self.inputs, self.outputs = [], []

    def add(self, lifetime, shape, code="TENSOR_FLOAT32", **more):
        self.operands.append({"type": code, "dimensions": list(shape), "lifetime": lifetime, **more})
        return len(self.operands) - 1

    def input(self, shape, code="TENSOR_FLOAT32", **more):
        self.inputs.append(self.add("INPUT", shape, code, **more))
        return self.inputs[-1]

    def const(self, values, shape=(), code="INT32", **more):
        return self.add("CONSTANT", shape, code, value=np.asarray(values).reshape(-1).tolist(), **more)

    def op(self, operation, inputs, shape, code="TENSOR_FLOAT32", *, output=False, origin=(), **more):
        index = self.add("OUTPUT" if output else "TEMPORARY", shape, code, **more)
        self.operations.append({"op": operation, "inputs": list(inputs), "outputs": [index], "origin": list(origin)})
        if output:
            self.outputs.append(index)
        return index

    def graph(self):
        return {
            "operands": self.operands,
            "operations": self.operations,
            "inputs": self.inputs,
            "outputs": self.outputs,
        }

    def model(self):
        return Model.from_dict({"main": self.graph(), "subgraphs": self.subgraphs})


def f32(*values):
    return np.array(values, np.float32)


def twice(interpreter, inputs):
    """Outputs of the first run, the tracing one; three runs by plans must give the same."""
    first = interpreter.run(inputs)
    kept = [array.copy() for array in first]
    for _ in range(3):
        for one, again, copy in zip(first, interpreter.run(inputs), kept, strict=True):
            np.testing.assert_array_equal(again, copy)
            np.testing.assert_array_equal(one, copy)
            assert not np.may_share_memory(one, again)
    return first


# -- plans -------------------------------------------------------------------------------------------------------------


def diamond():
    """A graph whose values live for different times; views of them live on."""
    net = Net()
    x = net.input([2, 6])
    none = net.const(0)
    a = net.op("RELU", [x], [2, 6])
    view = net.op("RESHAPE", [a, net.const([3, 4], [2], "TENSOR_INT32")], [3, 4])
    b = net.op("ABS", [x], [2, 6])
    c = net.op("ADD", [a, b, none], [2, 6])
    d = net.op("NEG", [c], [2, 6])
    e = net.op("MUL", [d, b, none], [2, 6])
    flat = net.op("RESHAPE", [e, net.const([3, 4], [2], "TENSOR_INT32")], [3, 4])
    net.op("SUB", [flat, view, none], [3, 4], output=True)
    net.op("TANH", [d], [2, 6], output=True)
    return net.model()


def expected_diamond(x):
    a, b = np.maximum(x, 0), np.abs(x)
    d = -(a + b)
    return (d * b).reshape(3, 4) - a.reshape(3, 4), np.tanh(d)


def test_values_do_not_overwrite_each_other():
    interpreter = Interpreter(diamond())
    generator = np.random.default_rng(0)
    for _ in range(5):
        x = generator.standard_normal((2, 6)).astype(np.float32)
        for found, expected in zip(interpreter.run([x]), expected_diamond(x), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_results_belong_to_the_caller():
    interpreter = Interpreter(diamond())
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(2, 6)
    results = [interpreter.run([x]) for _ in range(4)]
    for result in results[:-1]:
        result[0][...] = 0
        result[1][...] = 0
    np.testing.assert_allclose(results[-1][0], expected_diamond(x)[0], rtol=1e-6)


@pytest.mark.parametrize(("operation", "buffers"), [("NEG", 1), ("MAXIMUM", 2)])
def test_a_chain_needs_one_buffer_in_place_and_two_else(operation, buffers):
    net = Net()
    value = net.input([1000])
    for _ in range(20):
        value = net.op(operation, [value] if operation == "NEG" else [value, value], [1000])
    net.op("ABS", [value], [1000], output=True)
    interpreter = Interpreter(net.model())
    x = np.arange(1000, dtype=np.float32)
    np.testing.assert_array_equal(twice(interpreter, [x])[0], x)
    runner = interpreter._runners[id(interpreter.model.main)]
    (recipe,) = runner._recipes.values()
    assert len({step.out.ctypes.data for step in recipe.idle[0]._steps if step.out is not None}) == buffers


def test_outputs_that_are_views_or_inputs_of_others():
    net = Net()
    x = net.input([2, 3])
    shape = net.const([6], [1], "TENSOR_INT32")
    net.op("RESHAPE", [x, shape], [6], output=True)
    y = net.op("NEG", [x], [2, 3], output=True)
    net.op("RESHAPE", [y, shape], [6], output=True)
    net.op("ABS", [net.outputs[-1]], [6], output=True)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    flat, negative, view, absolute = twice(Interpreter(net.model()), [x])
    np.testing.assert_array_equal(flat, x.reshape(6))
    np.testing.assert_array_equal(negative, -x)
    np.testing.assert_array_equal(view, -x.reshape(6))
    np.testing.assert_array_equal(absolute, x.reshape(6))
    assert not np.may_share_memory(flat, x)
    assert not np.may_share_memory(negative, view)


def test_operations_run_in_the_order_of_their_data():
    net = Net()
    x, y = net.input([2]), net.add("TEMPORARY", [2])
    out = net.add("OUTPUT", [2])
    net.operations = [
        {"op": "NEG", "inputs": [y], "outputs": [out]},
        {"op": "ABS", "inputs": [x], "outputs": [y]},
    ]
    net.outputs = [out]
    np.testing.assert_array_equal(twice(Interpreter(net.model()), [f32(-1, 2)])[0], [-1, -2])


def test_a_cycle_is_refused():
    net = Net()
    net.input([2])
    a, b = net.add("TEMPORARY", [2]), net.add("OUTPUT", [2])
    net.operations = [{"op": "NEG", "inputs": [b], "outputs": [a]}, {"op": "ABS", "inputs": [a], "outputs": [b]}]
    net.outputs = [b]
    with pytest.raises(InvalidModelError, match=r"NEG \(-> operand 1\): it depends on its own result"):
        Interpreter(net.model())


def convolutions(padding, strides=(1, 1)):
    """Two convolutions; the second reads within a border what the first writes."""
    net = Net()
    x = net.input([1, 6, 5, 2])
    first = np.random.default_rng(1).standard_normal((3, 1, 1, 2)).astype(np.float32)
    second = np.random.default_rng(2).standard_normal((2, 3, 3, 3)).astype(np.float32)
    zeros = [net.const(np.zeros(n, np.float32), [n], "TENSOR_FLOAT32") for n in (3, 2)]
    zero, one = net.const(0), net.const(1)
    w1 = net.const(first, first.shape, "TENSOR_FLOAT32")
    w2 = net.const(second, second.shape, "TENSOR_FLOAT32")
    y = net.op("CONV_2D", [x, w1, zeros[0], zero, zero, zero, zero, one, one, zero], [1, 6, 5, 3])
    sides = [net.const(p) for p in padding]
    steps = [net.const(s) for s in strides]
    left, right, top, bottom = padding
    shape = [1, (6 + top + bottom - 3) // strides[1] + 1, (5 + left + right - 3) // strides[0] + 1, 2]
    net.op("CONV_2D", [y, w2, zeros[1], *sides, *steps, zero], shape, output=True)

    def expected(image):
        padded = np.pad(image @ first[:, 0, 0].T, ((0, 0), (top, bottom), (left, right), (0, 0)))
        result = np.zeros(shape, np.float32)
        for row, column in np.ndindex(*shape[1:3]):
            r, c = row * strides[1], column * strides[0]
            result[0, row, column] = np.einsum("hwi,ohwi->o", padded[0, r : r + 3, c : c + 3], second)
        return result

    return net.model(), expected


@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 2, 0, 1), (2, 0, 1, 0), (0, 0, 0, 0)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_a_value_lies_in_the_border_that_its_reader_wants(padding, strides):
    model, expected = convolutions(padding, strides)
    interpreter = Interpreter(model)
    for seed in range(4):
        image = np.random.default_rng(seed).standard_normal((1, 6, 5, 2)).astype(np.float32)
        np.testing.assert_allclose(interpreter.run([image])[0], expected(image), rtol=1e-4, atol=1e-5)


def test_borders_join_and_contain_each_other():
    small, large = Border((0, 1), (2, 0)), Border((1, 0), (0, 3))
    union = small.union(large)
    assert union == Border((1, 1), (2, 3))
    array = np.zeros((1 + 4 + 2, 1 + 5 + 3))
    array[1:5, 1:6] = 1
    for border in (small, large, union):
        part = border.inside(union, array)
        assert part.shape == (4 + border.before[0] + border.after[0], 5 + border.before[1] + border.after[1])
        assert part.sum() == 20


def test_a_kernel_that_ignores_its_buffer(monkeypatch):
    """It is copied in this run, and gets no buffer in the next."""
    given = []

    def stubborn(call, input):
        given.append(call.target)
        return np.negative(input)

    KERNELS[OperationCode.NEG]
    monkeypatch.setitem(_kernels, OperationCode.NEG, stubborn)
    net = Net()
    x = net.input([4])
    y = net.op("NEG", [x], [4])
    net.op("ABS", [y], [4], output=True)
    np.testing.assert_array_equal(twice(Interpreter(net.model()), [f32(1, -2, 3, 4)])[0], [1, 2, 3, 4])
    assert [target is None for target in given] == [True, False, True, True]


def test_threads_do_not_disturb_each_other():
    interpreter = Interpreter(diamond())
    wrong = []

    def work(seed):
        generator = np.random.default_rng(seed)
        for _ in range(50):
            x = generator.standard_normal((2, 6)).astype(np.float32)
            for found, expected in zip(interpreter.run([x]), expected_diamond(x), strict=True):
                if not np.allclose(found, expected, rtol=1e-5):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_times_are_recorded_on_demand():
    model = diamond()
    interpreter = Interpreter(model, profile=True)
    x = np.ones((2, 6), np.float32)
    for _ in range(3):
        interpreter.run([x])
    times = interpreter.times
    assert {time.operation for time in times} == set(model.main.operations)
    assert all(time.seconds > 0 for time in times)
    assert next(time.runs for time in times if time.operation.code.name == "TANH") == 3
    assert Interpreter(model).times == []


# -- sizes that the model leaves open ----------------------------------------------------------------------------------


def test_unspecified_sizes_come_from_the_inputs():
    net = Net()
    x, y = net.input([0, 3]), net.input([])
    net.op("ADD", [x, y, net.const(0)], [], output=True)
    interpreter = Interpreter(net.model())
    for rows in (1, 4, 2, 4, 1):
        a = np.full((rows, 3), rows, np.float32)
        np.testing.assert_array_equal(interpreter.run([a, f32(1, 2, 3)])[0], a + f32(1, 2, 3))
    with pytest.raises(FeedError, match=r"input 0: has shape \[2, 4\], the model takes \[0, 3\]"):
        interpreter.run([np.zeros((2, 4), np.float32), f32(1)])


def test_plans_of_old_sizes_are_let_go():
    net = Net()
    net.op("ABS", [net.input([0])], [0], output=True)
    interpreter = Interpreter(net.model())
    for size in range(1, 30):
        interpreter.run([np.zeros(size, np.float32)])
    assert len(interpreter._runners[id(interpreter.model.main)]._recipes) == 8


def test_sizes_that_depend_on_values():
    net = Net()
    x, shape = net.input([6]), net.input([2], "TENSOR_INT32")
    y = net.op("RESHAPE", [x, shape], [0, 0])
    z = net.op("NEG", [y], [0, 0])
    net.op("ABS", [z], [0, 0], output=True)
    interpreter = Interpreter(net.model())
    x = np.arange(6, dtype=np.float32)
    for sizes in ((2, 3), (6, 1), (-1, 2), (2, 3)):
        found = interpreter.run([x, np.array(sizes, np.int32)])[0]
        np.testing.assert_array_equal(found, x.reshape(sizes))
    with pytest.raises(InvalidModelError, match="RESHAPE"):
        interpreter.run([x, np.array([4, 2], np.int32)])


def test_scalars_as_inputs():
    net = Net()
    x, fuse = net.input([3]), net.input([], "INT32")
    net.op("ADD", [x, x, fuse], [3], output=True)
    interpreter = Interpreter(net.model())
    for code, expected in ((0, [-8, 2, 8]), (3, [0, 2, 6]), (1, [0, 2, 8])):
        for value in (np.array(code, np.int32), np.array([code], np.int32)):
            np.testing.assert_array_equal(interpreter.run([f32(-4, 1, 4), value])[0], expected)
    with pytest.raises(FeedError, match=r"has shape \[2\], the model takes a scalar"):
        interpreter.run([f32(1, 2, 3), np.zeros(2, np.int32)])


def test_a_scalar_output_has_rank_0():
    net = Net()
    x = net.input([2, 3])
    net.op("RANK", [x], [], "INT32", output=True)
    (rank,) = twice(Interpreter(net.model()), [np.zeros((2, 3), np.float32)])
    assert (rank.shape, rank.dtype, int(rank)) == ((), np.int32, 2)


# -- control flow ------------------------------------------------------------------------------------------------------


def sub_model(op, shape=(2,)):
    net = Net()
    x = net.input(shape)
    if op is None:
        net.op("LESS", [x, net.const(f32(100), [1], "TENSOR_FLOAT32")], shape, "TENSOR_BOOL8", output=True)
    else:
        net.op(op, [x, x, net.const(0)][: 1 if op in ("NEG", "ABS") else 3], shape, output=True)
    return net.graph()


def test_if_takes_a_branch_by_value():
    net = Net()
    condition, x = net.input([1], "TENSOR_BOOL8"), net.input([2])
    y = net.op("ABS", [x], [2])
    models = [net.add("SUBGRAPH", [], "SUBGRAPH", subgraph=number) for number in (0, 1)]
    z = net.op("IF", [condition, *models, y], [2])
    net.op("NEG", [z], [2], output=True)
    net.subgraphs = [sub_model("ADD"), sub_model("NEG")]
    interpreter = Interpreter(net.model())
    for flag, expected in ((True, [-2, -4]), (False, [1, 2]), (True, [-2, -4])):
        np.testing.assert_array_equal(interpreter.run([np.array([flag]), f32(-1, 2)])[0], expected)


def test_while_returns_its_input_or_goes_on():
    net = Net()
    x = net.input([1])
    y = net.op("ABS", [x], [1])
    models = [net.add("SUBGRAPH", [], "SUBGRAPH", subgraph=number) for number in (0, 1)]
    z = net.op("WHILE", [*models, y], [1])
    net.op("NEG", [z], [1])
    net.op("ADD", [z, y, net.const(0)], [1], output=True)
    net.subgraphs = [sub_model(None, (1,)), sub_model("ADD", (1,))]
    interpreter = Interpreter(net.model())
    for start, end in ((3, 192), (200, 200), (-3, 192), (150, 150)):
        np.testing.assert_array_equal(interpreter.run([f32(start)])[0], [end + abs(start)])


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_inputs_that_do_not_fit():
    interpreter = Interpreter(diamond())
    good = np.zeros((2, 6), np.float32)
    with pytest.raises(FeedError, match="the model has 1 inputs, 2 are given"):
        interpreter.run([good, good])
    with pytest.raises(FeedError, match="input 0: has element type float64, the model takes float32"):
        interpreter.run([good.astype(np.float64)])
    with pytest.raises(FeedError, match=r"has shape \[6, 2\], the model takes \[2, 6\]"):
        interpreter.run([good.T])


def test_only_outputs_must_be_quantized_as_declared():
    """A temporary takes the scale of what computes it."""
    net = Net()
    x = net.input([4], "TENSOR_QUANT8_ASYMM", scale=0.5, zero_point=3)
    y = net.op("RELU", [x], [4], "TENSOR_QUANT8_ASYMM", scale=0.25, zero_point=0)
    net.op("DEQUANTIZE", [y], [4], output=True)
    codes = np.array([0, 3, 5, 255], np.uint8)
    np.testing.assert_array_equal(twice(Interpreter(net.model()), [codes])[0], [0, 0, 1, 126])
    net = Net()
    x = net.input([4], "TENSOR_QUANT8_ASYMM", scale=0.5, zero_point=3)
    net.op("RELU", [x], [4], "TENSOR_QUANT8_ASYMM", output=True, scale=0.25, zero_point=0)
    with pytest.raises(InvalidModelError, match="the model's output is declared as"):
        Interpreter(net.model()).run([codes])


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        (ZeroDivisionError("oh"), InternalError, r"the kernel failed: ZeroDivisionError: oh"),
        (MemoryError(), InvalidModelError, "there is not enough memory for its result"),
    ],
)
def test_what_fails_in_a_kernel_is_told_in_the_operations_name(monkeypatch, planned, failure, error, message):
    net = Net()
    x = net.input([2], name="image")
    net.op("NEG", [x], [2], output=True, origin=["node_7", "node_8"], name="negated")
    interpreter = Interpreter(net.model())
    if planned:
        interpreter.run([f32(1, 2)])
        interpreter.run([f32(1, 2)])

    def broken(call, input):
        raise failure

    KERNELS[OperationCode.NEG]
    monkeypatch.setitem(_kernels, OperationCode.NEG, broken)
    if planned:
        for recipe in interpreter._runners[id(interpreter.model.main)]._recipes.values():
            recipe.idle.clear()
    with pytest.raises(error, match=rf"NEG of 'node_7', 'node_8' \(-> 'negated'\): {message}"):
        interpreter.run([f32(1, 2)])


def test_numpy_does_not_warn():
    net = Net()
    x = net.input([2])
    y = net.op("LOG", [x], [2])
    net.op("DIV", [x, y, net.const(0)], [2], output=True)
    twice(Interpreter(net.model()), [f32(0, -1)])


# -- whole models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["CHAIN", "IF", "WHILE"])
def test_plans_compute_what_the_first_run_does(shared, file):
    cases = json.loads(gzip.decompress((shared / "golden" / "arith" / f"{file}.json.gz").read_bytes()))
    for case in cases[:60]:
        model = Model.from_dict(case)
        inputs = []
        for operand, value in zip(model.main.input_types(), case["input_values"], strict=True):
            array = None if value is None else np.asarray(value, np.float64).astype(operand.dtype)
            inputs.append(None if array is None else array.reshape(operand.shape))
        twice(Interpreter(model), inputs)


# -- in place ----------------------------------------------------------------------------------------------------------

OVERWRITING = [
    pytest.param(code, dtype, id=f"{code.name}-{np.dtype(dtype)}")
    for code in KERNELS
    for dtype in (np.float32, np.float16)
    if may_overwrite(code) and any(kind.dtype == dtype for row in SCHEMAS[code].types for kind in row.codes.values())
]


@pytest.mark.parametrize(("code", "dtype"), OVERWRITING)
def test_a_kernel_may_be_given_its_operand_as_its_buffer(code, dtype):
    names = [slot.name for slot in SCHEMAS[code].forms[0].slots if slot.role is Role.TENSOR]
    operand = OperandType(OperandCode.TENSOR_FLOAT32 if dtype == np.float32 else OperandCode.TENSOR_FLOAT16, (3, 40))
    generator = np.random.default_rng(0)

    def compute(target):
        arrays = {name: (generator.standard_normal((3, 40)) * 4).astype(dtype) for name in names}
        expected = KERNELS[code](Call(dict.fromkeys(names, operand), (operand,)), **arrays)
        out = np.empty_like(expected) if target is None else arrays[target]
        with np.errstate(all="ignore"):
            result = KERNELS[code](Call(dict.fromkeys(names, operand), (operand,), (out,)), **arrays)
        return expected, result

    with np.errstate(all="ignore"):
        for target in (None, *may_overwrite(code)):
            expected, result = compute(target)
            np.testing.assert_array_equal(result, expected)


def test_a_chain_works_in_one_place_unless_somebody_else_reads():
    net = Net()
    x = net.input([64])
    y = net.op("TANH", [x], [64])
    z = net.op("MUL", [y, y, net.const(0)], [64])
    w = net.op("ADD", [z, y, net.const(0)], [64])
    net.op("SUB", [w, z, net.const(0)], [64], output=True)
    x = np.linspace(-2, 2, 64, dtype=np.float32)
    expected = (np.tanh(x) ** 2 + np.tanh(x)) - np.tanh(x) ** 2
    np.testing.assert_allclose(twice(Interpreter(net.model()), [x])[0], expected, atol=1e-6)
