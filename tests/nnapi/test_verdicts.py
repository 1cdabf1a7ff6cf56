"""What Android's runtime accepts and refuses, a sample of each operation, and a case of each published test."""

from __future__ import annotations

import gzip
import importlib.util
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from onnx2nnapi.nnapi.codes import OperationCode

STEP = 2  # every second verdict
LARGEST_FILE = 200_000  # bytes, compressed: the vectors of whole networks are left to the script


@pytest.fixture(scope="module")
def vectors(shared: pathlib.Path) -> Any:
    """The module that runs vectors, which says what agrees and what is a clean refusal."""
    spec = importlib.util.spec_from_file_location("run_vectors", shared / "vts" / "run_vectors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))
    return cases


def failures(vectors: Any, cases: list[dict[str, Any]]) -> list[str]:
    """What is wrong in which case."""
    subject = vectors.Onnx2Nnapi()
    with np.errstate(all="ignore"):
        rows = [vectors.run_case(case, subject) for case in cases]
    return [f"{row['name']}: {row['reason']}" for row in rows if row["outcome"] != "pass"]


def cannot_happen(case: dict[str, Any]) -> bool:
    """An array always has a shape, which is what these cases withhold at execution."""
    return bool(case["mutation"] == "input_dim_unspecified")


@pytest.mark.parametrize("name", [*OperationCode.__members__, "CHAIN", "EDGE"])
def test_verdicts_are_androids(name: str, vectors: Any, shared: pathlib.Path) -> None:
    path = shared / "golden" / "verdict" / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("random numbers have no golden results")
    cases = [case for case in read(path)[::STEP] if not cannot_happen(case)]
    assert failures(vectors, cases) == []


def test_the_first_case_of_every_published_test_agrees(vectors: Any, shared: pathlib.Path) -> None:
    paths = [path for path in sorted((shared / "vts").rglob("*.json.gz")) if "experimental" not in path.parts]
    cases = [case for path in paths if path.stat().st_size < LARGEST_FILE for case in read(path)[:1]]
    assert failures(vectors, [case for case in cases if "infinite_loop" not in case["name"]]) == []
