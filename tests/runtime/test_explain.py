from __future__ import annotations

import json

import pytest

from onnx2nnapi.errors import ArtifactError, DeviceError
from onnx2nnapi.runtime.explain import explain_model, load_profile, profile, save_profile
from tests.nnapi_host import models


@pytest.fixture
def npu(host):
    host.add_device("acme-npu", 4, version="7.1", level=4, supports=["RELU", "MUL"])
    host.add_device("acme-gpu", 3, supports=["RELU", "TANH", "MUL"])
    host.add_device("acme-dsp", 1, supports=["ADD"])
    return host


def test_support_is_told_by_operation(npu):
    support = explain_model(models.chain(), str(npu.path))
    assert [entry.operation for entry in support.operations] == ["RELU", "TANH", "MUL"]
    assert support.operations[1].devices == ("nnapi-reference", "acme-gpu")
    assert support.verdicts() == [
        "2 of 3 operations on acme-npu, the rest on the CPU, in 3 partitions",
        "all 3 operations on acme-gpu",
        "none of 3 operations on acme-dsp: all on the CPU",
    ]
    assert support.to_dict()["operations"][0]["devices"] == ["nnapi-reference", "acme-npu", "acme-gpu"]
    assert json.dumps(support.to_dict())
    assert npu.live == {}


def test_chosen_devices_alone_are_asked(npu):
    support = explain_model(models.chain(), str(npu.path), ["acme-npu"])
    assert [device.name for device in support.devices] == ["acme-npu"]
    assert support.verdicts() == ["2 of 3 operations on acme-npu, and no CPU for the rest"]
    support = explain_model(models.chain(), str(npu.path), ["acme-npu", "cpu"])
    assert support.verdicts() == ["2 of 3 operations on acme-npu, the rest on the CPU, in 3 partitions"]
    assert explain_model(models.chain(), str(npu.path), "acme-dsp").verdicts() == ["none of 3 operations on acme-dsp"]


def test_the_cpu_speaks_when_it_is_alone(host):
    assert explain_model(models.chain(), str(host.path)).verdicts() == ["all 3 operations on nnapi-reference"]


def test_devices_do_not_tell_before_level_3(make_host):
    with pytest.raises(DeviceError, match=r"devices tell what they support from feature level 3 \(Android 10\) on"):
        explain_model(models.chain(), str(make_host(2).path))


def test_a_profile_keeps_devices_and_support_for_another_machine(npu, tmp_path):
    path = tmp_path / "profile.json"
    save_profile(path, profile(str(npu.path), [models.chain(), models.add()]))
    data = load_profile(path)
    assert data["runtime"]["feature_level"] == 8
    assert [device["name"] for device in data["devices"]] == ["nnapi-reference", "acme-npu", "acme-gpu", "acme-dsp"]
    assert data["devices"][1] == {
        "index": 1, "name": "acme-npu", "type": "accelerator", "version": "7.1", "feature_level": 4,
    }  # fmt: skip
    assert data["support"]["TANH(TENSOR_FLOAT32)"] == {
        "nnapi-reference": True, "acme-npu": False, "acme-gpu": True, "acme-dsp": False,
    }  # fmt: skip
    assert data["support"]["ADD(TENSOR_FLOAT32, TENSOR_FLOAT32, INT32)"]["acme-dsp"]


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1, "devices": 3}'])
def test_what_is_no_profile(tmp_path, text):
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(ArtifactError, match=r"profile\.json"):
        load_profile(path)


def test_a_profile_that_cannot_be_written(tmp_path):
    with pytest.raises(ArtifactError, match="cannot be written: No such file or directory"):
        save_profile(tmp_path / "none" / "profile.json", {})
