from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

import onnx2nnapi
from onnx2nnapi import ArtifactError, InvalidModelError, Options


@pytest.fixture
def digits(checkout):
    return checkout / "models" / "digits.onnx"


def saved(program, folder):
    program.save(folder / "m.nnapi")
    return (folder / "m.nnapi").read_bytes()


def test_path_bytes_and_proto_give_the_same_program(digits, tmp_path):
    from_path = saved(onnx2nnapi.convert(digits), tmp_path)
    assert saved(onnx2nnapi.convert(str(digits)), tmp_path) == from_path
    assert saved(onnx2nnapi.convert(digits.read_bytes()), tmp_path) == from_path
    proto = onnx.load(digits)
    before = proto.SerializeToString(deterministic=True)
    program = onnx2nnapi.convert(proto)
    assert proto.SerializeToString(deterministic=True) == before
    assert program.model.to_dict() == onnx2nnapi.convert(digits).model.to_dict()


@pytest.mark.parametrize("model", ["digits", "mobilenet_block", "transformer_block"])
def test_the_same_bytes_whatever_the_hash_seed(checkout, tmp_path, model):
    code = "import sys, onnx2nnapi\nonnx2nnapi.convert(sys.argv[1], feature_level=6).save(sys.argv[2])\n"
    files = []
    for seed in ("0", "1"):
        target = tmp_path / f"{seed}.nnapi"
        source = checkout / "models" / f"{model}.onnx"
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(checkout)}
        subprocess.run([sys.executable, "-c", code, str(source), str(target)], check=True, env=environment)
        files.append(target.read_bytes())
    assert files[0] == files[1]


def test_metadata_tell_model_and_options_but_no_paths(digits, tmp_path):
    np.save(tmp_path / "frozen.npy", np.zeros((1, 1, 8, 8), np.float32))
    program = onnx2nnapi.convert(digits, Options(feature_level=3), set={"image": str(tmp_path / "frozen.npy")})
    assert program.metadata["model_sha256"] == hashlib.sha256(digits.read_bytes()).hexdigest()
    assert json.loads(program.metadata["options"]) == {"feature_level": 3, "set": ["image"]}
    assert str(tmp_path).encode() not in saved(program, tmp_path)


def test_the_model_is_not_overwritten(digits, tmp_path):
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(digits.read_bytes())
    os.symlink(copy, tmp_path / "link")
    for target in (copy, tmp_path / "link"):
        with pytest.raises(ArtifactError, match="is a file that the model is read from"):
            onnx2nnapi.convert(copy).save(target)
    assert copy.read_bytes() == digits.read_bytes()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"dims": 3}, "dims is 3, it must map names"),
        ({"input_layouts": "nhwc"}, "input_layouts is 'nhwc', it must map names"),
        ({"cut_inputs": 3}, "cut_inputs is 3, it must list names"),
        ({"keep_dynamic": True}, "keep_dynamic is True, it must list names"),
        ({"input_shapes": {"x": 5}}, "input 'x': the shape 5 is no list of sizes"),
    ],
)
def test_an_option_of_a_wrong_type(digits, option, message):
    with pytest.raises(InvalidModelError, match=message):
        onnx2nnapi.convert(digits, **option)


def test_an_unknown_option(digits):
    with pytest.raises(InvalidModelError, match="no option is called 'level'; there are"):
        onnx2nnapi.convert(digits, level=3)


def test_progress_names_the_stages(digits, tmp_path):
    stages = []
    onnx2nnapi.convert(digits, progress=stages.append, dump=tmp_path / "ir")
    assert stages[0] == "import"
    assert "legalize" in stages
    assert stages[-1] == "lower"
    assert (tmp_path / "ir" / "00_import.txt").is_file()


def test_the_collector_is_on_again(digits):
    import gc

    assert gc.isenabled()
    with pytest.raises(InvalidModelError):
        onnx2nnapi.convert(b"no model")
    assert gc.isenabled()
