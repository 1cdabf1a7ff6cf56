from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from onnx2nnapi.errors import ArtifactError, DeviceError, InvalidModelError
from onnx2nnapi.nnapi import Model, OperationCode
from onnx2nnapi.runtime.bisect import bisect, compare, write_vector
from onnx2nnapi.runtime.device import NnapiExecutor
from onnx2nnapi.runtime.submodels import extract, topological_order
from tests.nnapi_host import models
from tests.nnapi_host.host import interpret

X = np.array([-1, 0.5, 1, 2], np.float32)


def wrong_numbers(operation: str, error: float):
    """A driver that adds ``error`` to what one kind of operation computes, wherever in a model it is."""

    def compute(model, inputs):
        values = dict(zip(model.main.inputs, inputs, strict=True))
        for index in topological_order(model.main):
            single = extract(model, [index])
            reads = dict.fromkeys(model.main.operations[index].inputs)
            results = interpret(single, [values[operand] for operand in reads if operand in values])
            wrong = model.main.operations[index].code is OperationCode[operation]
            for operand, result in zip(model.main.operations[index].outputs, results, strict=True):
                values[operand] = (result + error).astype(result.dtype) if wrong else result
        return [values[operand] for operand in model.main.outputs]

    return compute


def on(host):
    def run(model, inputs):
        with NnapiExecutor(model, str(host.path)) as executor:
            return executor.run(inputs)

    return run


@pytest.mark.parametrize("operation", ["RELU", "TANH", "MUL"])
def test_the_first_wrong_operation_is_found(host, operation):
    host.compute = wrong_numbers(operation, 0.25)
    culprit = bisect(models.chain(), [X], on(host), interpret)
    assert culprit.operation == operation
    assert culprit.differences[0].largest == pytest.approx(0.25, abs=1e-6)
    assert not culprit.alone[0].within
    assert str(culprit).startswith(f"operation {culprit.index} {operation}: ")


def test_a_right_driver_has_no_culprit(host):
    assert bisect(models.chain(), [X], on(host), interpret) is None
    host.compute = wrong_numbers("TANH", 1e-7)  # rounding is no fault
    assert bisect(models.chain(), [X], on(host), interpret) is None


def test_a_device_that_refuses_many_outputs_is_bisected_by_prefixes(host):
    host.compute = wrong_numbers("MUL", 0.25)
    run = on(host)

    def few_outputs(model, inputs):
        if len(model.main.outputs) > 1:
            raise DeviceError("too many outputs")
        return run(model, inputs)

    assert bisect(models.chain(), [X], few_outputs, interpret).operation == "MUL"


@pytest.mark.parametrize("operation", ["RELU", "TANH", "MUL"])
def test_the_first_operation_that_fails_is_found(host, operation):
    def compute(model, inputs):
        if OperationCode[operation] in [entry.code for entry in model.main.operations]:
            raise InvalidModelError("too hard")
        return interpret(model, inputs)

    host.compute = compute
    culprit = bisect(models.chain(), [X], on(host), interpret)
    assert (culprit.operation, culprit.differences, culprit.alone) == (operation, (), None)
    assert str(culprit) == (
        f"operation {culprit.index} {operation}: ANeuralNetworksExecution_compute answered OP_FAILED: "
        "the driver failed while it computed"
    )


def test_an_operation_that_the_chosen_device_does_not_take_is_found(host):
    host.add_device("acme-npu", 4, supports=["RELU", "MUL"])

    def on_npu(model, inputs):
        with NnapiExecutor(model, str(host.path), "acme-npu") as executor:
            return executor.run(inputs)

    culprit = bisect(models.chain(), [X], on_npu, interpret)
    assert culprit.operation == "TANH"
    assert "ANeuralNetworksCompilation_finish answered BAD_DATA" in culprit.failure


def test_what_is_no_fault_of_the_device_is_no_culprit(host):
    def elsewhere(model, inputs):
        with NnapiExecutor(model, str(host.path), "acme-gpu") as executor:
            return executor.run(inputs)

    with pytest.raises(DeviceError, match="there is no device 'acme-gpu'"):
        bisect(models.chain(), [X], elsewhere, interpret)


def test_open_sizes_are_bisected_too(host):
    host.compute = wrong_numbers("RELU", 1)
    assert bisect(models.unspecified_input(), [X], on(host), interpret).operation == "RELU"


def test_control_flow_is_one_operation(host):
    host.compute = lambda model, inputs: [result + 1 for result in interpret(model, inputs)]
    inputs = [np.array([True]), np.ones(3, np.float32)]
    assert bisect(models.conditional(), inputs, on(host), interpret).operation == "IF"


@pytest.mark.parametrize("name", ["case.json", "case.json.gz"])
def test_the_vector_is_one_that_runs(host, tmp_path, name):
    host.compute = wrong_numbers("TANH", 0.25)
    culprit = bisect(models.chain(), [X], on(host), interpret)
    write_vector(tmp_path / name, culprit)
    data = (tmp_path / name).read_bytes()
    (case,) = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    model = Model.from_dict(case)
    inputs = [np.array(case["input_values"][0], np.float32)]
    assert inputs[0].tolist() == [0, 0.5, 1, 2]  # what RELU gave
    np.testing.assert_allclose(interpret(model, inputs)[0], case["output_values"][0], rtol=1e-6)
    assert case["main"]["operands"][1]["name"] == "tanh"


def test_a_vector_that_cannot_be_written(host, tmp_path):
    host.compute = wrong_numbers("TANH", 0.25)
    culprit = bisect(models.chain(), [X], on(host), interpret)
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_vector(tmp_path / "none" / "case.json", culprit)


@pytest.mark.parametrize(
    ("got", "wanted", "largest", "within"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0, True),
        ([1.0, np.nan], [1.0, np.nan], 0, True),
        ([1.0, np.inf], [1.0, np.inf], 0, True),
        ([1.0, np.nan], [1.0, 2.0], np.inf, False),
        ([1.0, 2.5], [1.0, 2.0], 0.5, False),
        ([1e6, 1.0], [1e6, 1.01], 0.01, True),  # small against the tensor
    ],
)
def test_differences(got, wanted, largest, within):
    model = models.model(
        models.case([models.operand("INPUT", [2]), models.operand("OUTPUT", [2])], [("RELU", [0], [1])], [0], [1])
    )
    (found,) = compare(model, [np.array(got, np.float32)], [np.array(wanted, np.float32)])
    assert found.largest == pytest.approx(largest, abs=1e-4)
    assert found.within is within


def test_another_shape_is_a_difference():
    (found,) = compare(models.add(), [np.zeros(2, np.float32)], [np.zeros(3, np.float32)])
    assert str(found) == "sum: another shape"


def test_parts_read_what_others_wrote():
    part = extract(models.chain(), [1, 2])
    assert [part.main.operands[index].name for index in part.main.inputs] == ["relu"]
    assert [part.main.operands[index].name for index in part.main.outputs] == ["tanh", "square"]


def test_order_is_the_models_own_where_it_is_free():
    model = models.chain()
    assert topological_order(model.main) == [0, 1, 2]
    operations = [("MUL", [2, 2, 3], [4]), ("TANH", [1], [2]), ("RELU", [0], [1])]
    operands = [models.operand("INPUT", [4]), *(models.operand("TEMPORARY", [4]) for _ in range(2)), models.scalar(0)]
    backward = models.model(models.case([*operands, models.operand("OUTPUT", [4])], operations, [0], [4]))
    assert topological_order(backward.main) == [2, 1, 0]
