"""Fixtures that every test may use."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: the matrices of tests are small
os.environ.setdefault("ONNX2NNAPI_VERIFY", "all")  # the whole dialect is checked after every pass, not at borders only

import pathlib

import pytest
from hypothesis import settings

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent

# The same examples every run, and no deadline: a slow machine is no fault of the code.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def checkout() -> pathlib.Path:
    """The folder that holds pyproject.toml."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
    """Android's vectors, bug reports and whole models; a test that needs them is skipped where they are not."""
    folder = pathlib.Path(os.environ.get("ONNX2NNAPI_SHARED", CHECKOUT.parent / "shared"))
    if not (folder / "nnapi" / "facts.json").is_file():
        pytest.skip(f"{folder} is not there; ONNX2NNAPI_SHARED=PATH names another place")
    return folder
