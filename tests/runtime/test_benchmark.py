from __future__ import annotations

import json

import numpy as np
import pytest

from onnx2nnapi.runtime.benchmark import benchmark
from tests.nnapi_host import models

X = np.ones((2, 3), np.float32)


def test_every_mode_is_measured_with_its_durations(host, tmp_path):
    host.delay(compile_seconds=0.01, compute_seconds=0.001)
    found = benchmark(
        models.add(), [X, X], library=str(host.path), devices="cpu", cache=tmp_path,
        modes=("sync", "async", "burst", "fenced"), runs=3, warmup=1, load_seconds=0.5,
    )  # fmt: skip
    assert [report.mode for report in found.modes] == ["sync", "async", "burst", "fenced"]
    assert [report.cache.hit for report in found.modes] == [False, True, True, True]
    for report in found.modes:
        assert report.runs.steady.count == 3
        assert report.runs.steady.min >= 0.001
        hardware, driver = report.durations["duration on hardware"], report.durations["duration in driver"]
        assert 0 < hardware.mean < driver.mean <= report.runs.steady.max
        assert (hardware.count, len(report.durations)) == (3, 4 if report.mode == "fenced" else 2)
    assert found.no_durations is None
    assert set(found.memory) == {"before", "opened", "after"}
    data = json.loads(json.dumps(found.to_dict()))
    assert data["load_seconds"] == 0.5
    assert data["modes"][1]["cache"]["seconds_saved"] > 0
    assert found.to_csv().splitlines()[1].startswith("sync warm-up,1,")
    (_, opening), (_, runs), (_, memory) = found.tables()
    assert opening[1][4] == "miss, stored"
    assert opening[2][4].startswith("hit, saved ")
    assert [row[0] for row in runs[1:5]] == [
        "sync warm-up",
        "sync",
        "sync duration on hardware",
        "sync duration in driver",
    ]
    assert all(len(row) == len(runs[0]) for row in runs)
    assert [row[0] for row in memory] == ["", "before", "opened", "after"]


@pytest.mark.parametrize("devices", [None, ["cpu", "acme-npu"]])
def test_what_needs_one_device_says_so(host, devices):
    host.add_device("acme-npu", 4)
    found = benchmark(models.add(), [X, X], library=str(host.path), devices=devices, runs=2)
    assert found.modes[0].durations == {}
    assert found.remarks() == ["durations on the hardware and in the driver need one device: --device NAME"]


def test_outputs_of_unknown_shape_are_measured_too(host):
    inputs = [np.ones(4, np.float32), np.array([3], np.int32)]
    found = benchmark(models.dynamic(), inputs, library=str(host.path), devices="cpu", runs=2)
    assert found.modes[0].durations["duration in driver"].count == 2


def test_old_runtimes_are_measured_too(make_host):
    found = benchmark(models.add(), [X, X], library=str(make_host(1).path), runs=2)
    assert found.modes[0].mode == "async"
    text = "durations on the hardware and in the driver need feature level 3 (Android 10, API 29)"
    assert found.remarks() == [text]
