"""What holds on every NNAPI: a phone's, that of NNAPI_LIBRARY (``pytest -m device``), or else the host library."""

from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.errors import DeviceError
from onnx2nnapi.runtime.benchmark import benchmark
from onnx2nnapi.runtime.bisect import bisect
from onnx2nnapi.runtime.device import NnapiExecutor
from onnx2nnapi.runtime.device_list import list_devices
from onnx2nnapi.runtime.execution import MODES
from onnx2nnapi.runtime.explain import explain_model
from onnx2nnapi.runtime.interpreter import Interpreter
from onnx2nnapi.runtime.memory import SharedMemory
from tests.nnapi_host import models

pytestmark = pytest.mark.device

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SINCE = {"sync": 3, "async": 1, "burst": 3, "fenced": 4}


def needs(nnapi, level: int) -> None:
    if nnapi.level < level:
        pytest.skip(f"needs feature level {level}, this NNAPI has {nnapi.level}")


@pytest.mark.parametrize("mode", MODES)
def test_it_computes_in_every_mode(nnapi, mode):
    needs(nnapi, SINCE[mode])
    if nnapi.is_driver and mode == "async":
        pytest.skip("a support library driver has no async runs")
    with NnapiExecutor(models.add(), nnapi, mode=mode) as executor:
        np.testing.assert_allclose(executor.run([X, X])[0], X + X)
        x = X.copy()
        with executor.bind([x, X]) as bound:
            for value in range(5):
                x[:] = value
                bound.run()
                np.testing.assert_allclose(bound.outputs[0], value + X)


def test_constants_in_and_beside_the_model(nnapi):
    with NnapiExecutor(models.add_constant(), nnapi) as executor:
        np.testing.assert_allclose(executor.run([np.ones(64, np.float32)])[0], np.arange(64) + 1)


@pytest.mark.parametrize(
    ("model", "inputs", "level"),
    [
        (models.per_channel, [np.array([120, 128, 130, 255], np.uint8).reshape(1, 2, 2, 1)], 3),
        (models.transposed, [X], 2),
        (models.conditional, [np.array([False]), np.arange(3, dtype=np.float32)], 4),
    ],
    ids=["scales of channels", "an omitted operand", "sub-models"],
)
def test_operands_of_every_kind(nnapi, model, inputs, level):
    needs(nnapi, level)
    (wanted,) = Interpreter(model()).run(inputs)
    with NnapiExecutor(model(), nnapi) as executor:
        np.testing.assert_allclose(executor.run(inputs)[0], wanted, atol=wanted.dtype.kind == "u")


def test_shared_memory_goes_in_and_out(nnapi):
    with (
        SharedMemory(nnapi, X.nbytes) as x,
        SharedMemory(nnapi, X.nbytes) as out,
        NnapiExecutor(models.add(), nnapi) as executor,
        executor.bind([x, X], [out]) as bound,
    ):
        x.array(np.float32, X.shape)[:] = 7
        bound.run()
        np.testing.assert_allclose(out.array(np.float32, X.shape), X + 7)


def test_fenced_runs_wait_for_each_other(nnapi):
    needs(nnapi, 4)
    with (
        NnapiExecutor(models.add(), nnapi, mode="fenced") as executor,
        executor.bind([X, X]) as first,
        executor.bind([first.outputs[0], X]) as second,
        first.start() as one,
        second.start([one]) as two,
    ):
        two.wait()
        np.testing.assert_allclose(second.outputs[0], 3 * X)


def test_outputs_of_unknown_shape(nnapi):
    needs(nnapi, 3)
    x = np.array([-1, 0.5, 1, 2], np.float32)
    with NnapiExecutor(models.unspecified_input(), nnapi) as executor:
        np.testing.assert_allclose(executor.run([x])[0], np.maximum(x, 0))


def test_every_device_tells_itself_and_what_it_supports(nnapi):
    needs(nnapi, 3)
    devices = list_devices(nnapi)
    assert devices
    assert all(device.name and 1 <= device.feature_level <= 8 for device in devices)
    support = explain_model(models.chain(), nnapi)
    assert [entry.operation for entry in support.operations] == ["RELU", "TANH", "MUL"]
    assert len(support.verdicts()) >= 1


def test_each_device_alone_is_right_and_measured(nnapi):
    needs(nnapi, 3)
    x = np.array([-1, 0.5, 1, 2], np.float32)
    for device in list_devices(nnapi):

        def run(model, inputs, index=device.index):
            with NnapiExecutor(model, nnapi, index) as executor:
                return executor.run(inputs)

        if all(device.name in entry.devices for entry in explain_model(models.chain(), nnapi).operations):
            assert bisect(models.chain(), [x], run, lambda model, inputs: Interpreter(model).run(inputs)) is None
            report = benchmark(models.chain(), [x], library=nnapi, devices=device.index, runs=3)
            assert report.modes[0].runs.steady.count == 3
            assert report.no_durations is None


def test_the_cache_is_asked_twice(nnapi, tmp_path):
    needs(nnapi, 3)
    for _ in range(2):
        with NnapiExecutor(models.add_constant(), nnapi, cache=tmp_path) as executor:
            np.testing.assert_allclose(executor.run([np.ones(64, np.float32)])[0], np.arange(64) + 1)
            assert executor.cache is not None


def test_what_fails_says_which_call(nnapi):
    needs(nnapi, 3)
    with pytest.raises(DeviceError, match="there is no device 'no-such-device'"):
        NnapiExecutor(models.add(), nnapi, "no-such-device")
