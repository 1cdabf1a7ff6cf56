"""Rules of passes/legalize/trigonometry.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import onnx2nnapi
from tests.ops.harness import Case, case, check, f32, model_of, rows

CASES = [
    case("Cos", x=f32(2, 3, 4), since=3),
    case("Cos", x=f32(2, 1, 3, 2, 2), since=3),
    case("Tan", x=f32(2, 3, 4, low=-1.4, high=1.4), since=3, rtol=1e-5),
    case("Asin", x=f32(2, 3, low=-1, high=1), since=3),
    case("Acos", x=f32(2, 3, low=-1, high=1), since=3),
    case("Atan", x=f32(2, 3, low=-50, high=50), since=3),
    case("Sinh", x=f32(2, 3), since=3),
    case("Cosh", x=f32(2, 3), since=3),
    case("Asinh", x=f32(2, 3, low=-50, high=50), since=3),
    case("Acosh", x=f32(2, 3, low=1, high=50), since=3),
    case("Atanh", x=f32(2, 3, low=-0.99, high=0.99), since=3),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)


_SMALL = np.geomspace(1e-30, 1, 2000)
_LARGE = np.geomspace(1, 3e38, 2000)
_ALL = np.concatenate([-_LARGE[::-1], -_SMALL[::-1], [0.0], _SMALL, _LARGE])
_ONE = np.concatenate([np.linspace(-1, 1, 20001), _SMALL, -_SMALL])
_FEW = np.linspace(-100, 100, 20001)

# operator, float64's function, arguments, largest error over max(1, |result|)
ERRORS: list[tuple[str, Callable[[np.ndarray], np.ndarray], np.ndarray, float]] = [
    ("Cos", np.cos, _FEW, 3e-7),
    ("Tan", np.tan, np.linspace(-1.57, 1.57, 20001), 5e-7),
    ("Atan", np.arctan, _ALL, 4e-7),
    ("Asin", np.arcsin, _ONE, 4e-7),
    ("Acos", np.arccos, _ONE, 6e-7),
    ("Sinh", np.sinh, np.linspace(-20, 20, 20001), 5e-7),
    ("Cosh", np.cosh, np.linspace(-20, 20, 20001), 5e-7),
    ("Asinh", np.arcsinh, _ALL, 5e-7),
    ("Acosh", np.arccosh, _LARGE, 5e-7),
    ("Atanh", np.arctanh, np.linspace(-0.999, 0.999, 20001), 5e-7),
]


@pytest.mark.parametrize(("kind", "function", "x", "bound"), ERRORS, ids=[row[0] for row in ERRORS])
def test_errors_stay_as_small_as_float32_allows(
    kind: str, function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, bound: float
) -> None:
    x = x.astype(np.float32)
    program = onnx2nnapi.convert(model_of(case(kind, x=x)), feature_level=3)
    got = onnx2nnapi.Session(program, backend="host").run({"x": x})["y0"]
    want = function(x.astype(np.float64))
    assert (np.abs(got - want) / np.maximum(1, np.abs(want))).max() < bound
