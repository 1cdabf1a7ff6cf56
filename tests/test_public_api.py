"""The names that users import, and what importing them costs."""

from __future__ import annotations

import inspect
import pathlib
import subprocess
import sys

import pytest

import onnx2nnapi

NAMES = {
    "ArtifactError",
    "DeviceError",
    "FeatureLevelError",
    "FeedError",
    "InternalError",
    "InvalidModelError",
    "Onnx2NnapiError",
    "Options",
    "Session",
    "UnsupportedError",
    "UnsupportedForm",
    "UnsupportedOp",
    "__version__",
    "check",
    "convert",
    "load",
}
KINDS = ["InvalidModelError", "UnsupportedError", "ArtifactError", "FeedError", "DeviceError", "InternalError"]


def python(code: str, *arguments: str) -> str:
    """What the code prints in an interpreter of its own."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=pathlib.Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_public_names() -> None:
    assert set(onnx2nnapi.__all__) == NAMES
    assert set(dir(onnx2nnapi)) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_public_name_resolves(name: str) -> None:
    assert getattr(onnx2nnapi, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'transmogrify'"):
        _ = onnx2nnapi.transmogrify


@pytest.mark.parametrize("kind", KINDS)
def test_one_clause_catches_every_error(kind: str) -> None:
    assert issubclass(getattr(onnx2nnapi, kind), onnx2nnapi.Onnx2NnapiError)


@pytest.mark.parametrize("kind", ["UnsupportedOp", "UnsupportedForm", "FeatureLevelError"])
def test_refusals_are_unsupported_errors(kind: str) -> None:
    assert issubclass(getattr(onnx2nnapi, kind), onnx2nnapi.UnsupportedError)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("convert", ["model", "options", "base_dir", "overrides"]),
        ("load", ["path"]),
        ("check", ["model", "options"]),
    ],
)
def test_signatures_begin_as_documented(name: str, parameters: list[str]) -> None:
    given = list(inspect.signature(getattr(onnx2nnapi, name)).parameters)
    assert [parameter for parameter in given if parameter in parameters] == parameters


def test_a_session_takes_a_backend_by_name() -> None:
    parameters = inspect.signature(onnx2nnapi.Session).parameters
    assert parameters["backend"].default == "auto"
    assert {"library", "devices"} <= set(parameters)


@pytest.mark.parametrize(
    ("name", "members"),
    [("nnapi", ["Model", "SCHEMAS", "validate"]), ("runtime", ["Interpreter", "NnapiExecutor"])],
)
def test_the_two_public_packages(name: str, members: list[str]) -> None:
    for member in members:
        assert hasattr(getattr(onnx2nnapi, name), member)


def test_import_costs_nothing() -> None:
    loaded = python("import sys, onnx2nnapi; print(*sorted(m for m in sys.modules if m.startswith('onnx2nnapi')))")
    assert loaded == "onnx2nnapi"


def test_running_a_program_needs_only_numpy(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "digits.nnapi"
    python("import sys, onnx2nnapi; onnx2nnapi.convert('models/digits.onnx').save(sys.argv[1])", str(target))
    code = """
import sys
import numpy
before = set(sys.modules)
import onnx2nnapi
onnx2nnapi.Session(sys.argv[1], backend="host").run({"image": numpy.zeros((1, 1, 8, 8), numpy.float32)})
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded & {"onnx", "networkx", "rich", "ml_dtypes", "google", "click"}))
"""
    assert python(code, str(target)) == ""
