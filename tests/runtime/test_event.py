from __future__ import annotations

import os
import select
import time

import numpy as np
import pytest

from onnx2nnapi.errors import DeviceError
from onnx2nnapi.runtime.device import NnapiExecutor
from onnx2nnapi.runtime.event import Event
from onnx2nnapi.runtime.library import open_library
from tests.nnapi_host import models

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def is_signalled(fence: int) -> bool:
    return bool(select.select([fence], [], [], 0)[0])


def open_fenced(host) -> NnapiExecutor:
    return NnapiExecutor(models.add(), str(host.path), mode="fenced")


@pytest.mark.parametrize("level", [4, 8])
def test_runs_wait_for_each_other_on_the_device(make_host, level):
    host = make_host(level)
    host.delay(compute_seconds=0.05)
    with open_fenced(host) as executor:
        first = executor.bind([X, X])
        second = executor.bind([first.outputs[0], X])
        for _ in range(3):
            second.outputs[0][:] = 0
            with first.start() as one, second.start([one]) as two:
                two.wait()
                assert np.array_equal(second.outputs[0], 3 * X)
        first.close()
        second.close()


def test_a_run_waits_for_a_fence_and_has_one(host):
    signal, source = os.pipe()[::-1]
    with open_fenced(host) as executor, executor.bind([X, X]) as bound:
        with Event.of_fence(executor.library, source) as fence, bound.start([fence]) as end:
            mine = end.fence()
            assert mine is not None
            time.sleep(0.02)
            assert not is_signalled(mine)
            os.write(signal, b"x")
            end.wait()
            assert is_signalled(mine)
            assert np.array_equal(bound.outputs[0], X + X)
        host.c.host_set_fences(0)
        with bound.start() as end:
            assert end.fence() is None
            end.wait()
    for descriptor in (mine, signal, source):
        os.close(descriptor)


def test_a_dependency_that_fails_fails_the_run(host):
    signal, source = os.pipe()[::-1]
    with open_fenced(host) as executor, executor.bind([X, X]) as bound:
        fence = Event.of_fence(executor.library, source)
        with fence, bound.start([fence]) as end:
            os.close(signal)
            with pytest.raises(DeviceError, match="Event_wait answered OP_FAILED"):
                end.wait()
    os.close(source)


def test_buffers_and_handles_live_until_the_run_has_ended(host):
    host.delay(compute_seconds=0.05)
    executor = open_fenced(host)
    bound = executor.bind([X.copy(), X.copy()])
    end = bound.start()
    with pytest.raises(DeviceError, match="BAD_STATE"):
        bound.start()
    host.c.host_clear_violations()
    out = bound.outputs[0]
    bound.close()
    executor.close()
    assert host.live == {"model": 1, "compilation": 1, "execution": 1, "event": 1}
    end.wait()
    assert np.array_equal(out, X + X)
    end.close()
    assert host.live == {}
    with pytest.raises(DeviceError, match="the bound run is closed"):
        bound.start()
    with pytest.raises(DeviceError, match="Event: it is closed"):
        end.wait()


def test_an_event_that_is_forgotten_ends_its_run_first(host):
    host.delay(compute_seconds=0.05)
    with open_fenced(host) as executor, executor.bind([X, X]) as bound:
        bound.start()
        assert np.array_equal(bound.outputs[0], X + X)


def test_events_of_another_library(make_host):
    other = open_library(str(make_host(5).path))
    source, signal = os.pipe()
    with open_fenced(make_host(8)) as executor, executor.bind([X, X]) as bound, Event.of_fence(other, source) as fence:
        refused = pytest.raises(DeviceError, match="the event belongs to")
        with refused:
            bound.start([fence])
    os.close(source)
    os.close(signal)


@pytest.mark.parametrize("mode", ["sync", "async", "burst"])
def test_other_modes_start_nothing(host, mode):
    refused = pytest.raises(DeviceError, match=f"runs of mode {mode} are not started; use mode fenced")
    with NnapiExecutor(models.add(), str(host.path), mode=mode) as executor, executor.bind([X, X]) as bound, refused:
        bound.start()


def test_each_call_failing_in_turn_leaves_nothing(host):
    def start_two() -> None:
        with open_fenced(host) as executor, executor.bind([X, X]) as first, executor.bind([X, X]) as second:
            one = first.start()
            with one, second.start([one]) as two:
                two.wait()

    failed = 0
    for nth in range(1, 100):
        host.fail(nth=nth)
        try:
            start_two()
        except DeviceError:
            failed += 1
        assert host.live == {}
    host.fail(nth=0)
    assert failed > 20
