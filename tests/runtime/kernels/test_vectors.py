"""Android's own answers to one-operation models: every code equal to the last bit, every feature level right."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys

import numpy as np
import pytest

from onnx2nnapi.nnapi.codes import OperationCode


@pytest.fixture(scope="session")
def vectors(shared):
    """The shared script that runs vectors, as a module."""
    spec = importlib.util.spec_from_file_location("run_vectors", shared / "vts" / "run_vectors.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles look there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("operation", [code.name for code in OperationCode])
def test_answers_are_androids(operation, vectors, shared):
    path = shared / "golden" / "arith" / f"{operation}.json.gz"
    if not path.is_file():
        pytest.skip("there are no golden answers for it")
    subject = vectors.Onnx2Nnapi()
    with np.errstate(all="ignore"):
        rows = [vectors.run_case(case, subject) for case in json.loads(gzip.decompress(path.read_bytes()))]
    assert [f"{row['name']}: {row['reason']}" for row in rows if row["outcome"] != "pass"] == []
    assert [f"{row['name']}: level {row['level']}" for row in rows if row["level"] not in (None, "right")] == []
    exact, total = sum(row["exact"] for row in rows), sum(row["total"] for row in rows)
    assert exact == total
