"""Rules of passes/legalize/indexing.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, Const, bools, case, check, f32, i64, ints, rows


def index(*shape: int, size: int, dtype: Any = np.int64) -> np.ndarray[Any, Any]:
    """Indices into a dimension, from both its ends."""
    return ints(*shape, low=-size, high=size, dtype=dtype)


X = f32(3, 4, 5)
UNIQUE = np.array([[4], [1], [-4], [7]], np.int64)
CASES = [
    case("GatherElements", x=X, i=index(3, 2, 5, size=4), axis=1, since=3),
    case("GatherElements", x=X, i=Const(index(2, 4, 3, size=3)), since=2, oracle="onnxruntime"),
    case("GatherElements", x=X, i=Const(index(3, 4, 1, size=5)), axis=-1, since=2, oracle="onnxruntime"),
    case("GatherElements", x=ints(3, 4), i=index(3, 4, size=4, dtype=np.int32), axis=1, since=4),
    case("GatherElements", x=bools(3, 4), i=Const(index(3, 2, size=4)), axis=1, since=3),
    case("GatherElements", x=f32(2, 1, 3, 2, 2), i=index(2, 1, 3, 2, 4, size=2), axis=4, since=3),
    case("Compress", x=X, c=Const(np.array([True, False, True])), axis=1, since=2),
    case("Compress", x=X, c=Const(np.array([False, True, True, False, True])), since=2),
    case("Compress", x=X, c=np.array([True, False, True]), axis=1, refused="depends on data"),
    case("GatherND", x=X, i=index(2, 2, 2, size=3), since=3),
    case("GatherND", x=X, i=index(2, 1, size=3), since=3),
    case("GatherND", x=X, i=index(4, 3, size=3), since=3),
    case("GatherND", x=X, i=Const(index(4, 2, size=3)), since=2),
    case("GatherND", x=X, i=index(3, 2, 2, size=4), batch_dims=1, since=3),
    case("GatherND", x=X, i=Const(i64(1, 2).reshape(1, 2)), since=2),
    case("GatherND", x=ints(3, 4), i=Const(index(4, 2, size=3)), since=4),
    case("ScatterElements", x=X, i=Const(np.array([[[0, 3, -1]], [[2, 1, 0]]])), u=f32(2, 1, 3), axis=2, since=2),
    case("ScatterElements", x=f32(6), i=Const(i64(1, 1, 4)), u=f32(3), reduction="add", since=2),
    case("ScatterElements", x=f32(6), i=Const(i64(1, 1, 4)), u=f32(3), reduction="mul", since=2),
    case("ScatterElements", x=f32(6), i=Const(i64(1, 1, 4)), u=f32(3), reduction="max", since=3),
    case("ScatterElements", x=ints(6), i=Const(i64(1, 1, 4)), u=ints(3), reduction="min", since=4),
    case("ScatterElements", x=f32(6), i=i64(1, 1, 4), u=f32(3), refused="indices must be constant"),
    case("ScatterND", x=f32(8, 3), i=Const(UNIQUE), u=f32(4, 3), since=2),
    case("ScatterND", x=f32(8, 3), i=Const(i64(2, 3, 4).reshape(3, 1)), u=f32(3, 3), since=2),
    case("ScatterND", x=X, i=Const(np.array([[0, 1], [2, 3]])), u=f32(2, 5), since=2),
    case("ScatterND", x=X, i=Const(np.array([[0], [0]])), u=f32(2, 4, 5), reduction="add", since=2),
    case("ScatterND", x=ints(8), i=Const(UNIQUE), u=ints(4), since=4),
    case("TensorScatter", x=f32(2, 3, 6, 4), u=f32(2, 3, 2, 4), at=Const(i64(1, 3)), since=2),
    case("TensorScatter", x=f32(2, 6, 4), u=f32(2, 2, 4), at=Const(i64(5, 4)), mode="circular", since=2),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)
