"""Android's own vectors give the same through NNAPI's C calls as straight through the interpreter."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from onnx2nnapi.errors import InternalError, Onnx2NnapiError
from onnx2nnapi.nnapi import Model
from onnx2nnapi.runtime.device import NnapiExecutor
from tests.nnapi_host.host import interpret

FOLDERS = ("V1_0", "V1_1", "V1_2", "V1_3", "V1_3_cts_only", "AIDL_V2", "AIDL_V3")
RANDOM = {"RANDOM_MULTINOMIAL"}  # answers differ from run to run where the seed says so


def feeds(model: Model, case: dict[str, Any]) -> list[np.ndarray | None]:
    arrays: list[np.ndarray | None] = []
    for type_, value in zip(model.main.input_types(), case["input_values"], strict=True):
        if value is None:
            arrays.append(None)
            continue
        with np.errstate(all="ignore"):
            array = np.asarray(value, np.float64).astype(type_.dtype)
        arrays.append(array.reshape(type_.shape) if type_.is_specified and type_.code.is_tensor else array)
    return arrays


def outcome(run: Any) -> list[np.ndarray] | type[Exception]:
    """What a run gives, or that it is refused."""
    try:
        return run()
    except InternalError:
        raise
    except Onnx2NnapiError:
        return Onnx2NnapiError


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_vectors_agree(host, shared, folder):
    ran = 0
    for path in sorted((pathlib.Path(shared) / "vts" / folder).glob("*.json.gz")):
        for case in json.loads(gzip.decompress(path.read_bytes())):
            if case["expect_failure"] or {op["op"] for op in case["main"]["operations"]} & RANDOM:
                continue
            model = Model.from_dict(case)
            inputs = feeds(model, case)

            def through_nnapi(model=model, inputs=inputs):
                with NnapiExecutor(model, str(host.path)) as executor:
                    return executor.run(inputs)

            wanted = outcome(lambda model=model, inputs=inputs: interpret(model, inputs))
            got = outcome(through_nnapi)
            if wanted is Onnx2NnapiError or got is Onnx2NnapiError:
                assert got is wanted, case["name"]
                continue
            for mine, theirs in zip(got, wanted, strict=True):
                assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), case["name"]
                assert np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f"), case["name"]
            ran += 1
        host.reset()
        host.add_device()
    assert ran
