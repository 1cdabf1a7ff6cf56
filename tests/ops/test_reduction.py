"""Rules of passes/legalize/reduction.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import Case, Const, case, check, f32, i64, ints, rows

X = f32(2, 3, 4, 5)
CASES = [
    *(
        case(k, x=X, a=Const(i64(1, -1)), keepdims=d, since=2 if k in ("ReduceMean", "ReduceSum") else 3)
        for k in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd")
        for d in (0, 1)
    ),
    case("ReduceMean", x=X, since=2),
    case("ReduceMean", x=X, keepdims=0, since=2),
    case("ReduceSum", x=X, noop_with_empty_axes=1),
    case("ReduceMax", x=X, axes=[2], opset=11, since=3),
    case("ReduceMean", x=f32(2, 3, 2, 3, 2), a=Const(i64(1, 3)), keepdims=0, since=2),
    case("ReduceMax", x=f32(2, 3, 2, 3, 2, 2), a=Const(i64(0, 2, 4)), since=3),
    case("ReduceMax", x=ints(3, 7), a=Const(i64(1)), since=3),
    case("ReduceSum", x=ints(3, 5), a=Const(i64(1)), keepdims=0, since=4),
    case("ReduceProd", x=ints(2, 3, low=-5, high=6), a=Const(i64(0, 1)), keepdims=0, since=4),
    case("ReduceL1", x=X, a=Const(i64(1)), since=2),
    case("ReduceL2", x=X, a=Const(i64(1)), since=3),
    case("ReduceSumSquare", x=X, a=Const(i64(1)), keepdims=0, since=2),
    case("ReduceLogSum", x=f32(2, 3, low=0.5), a=Const(i64(1)), since=3),
    case("ReduceLogSumExp", x=f32(2, 3, low=-200, high=200), a=Const(i64(1)), keepdims=0, since=3),
    *(
        case(k, x=np.round(f32(3, 4, 5)), axis=1, keepdims=d, select_last_index=s, since=3)
        for k in ("ArgMax", "ArgMin")
        for d in (0, 1)
        for s in (0, 1)
    ),
    case("ArgMax", x=f32(7), axis=0, since=3),
    case("ArgMax", x=f32(2, 3, 2, 3, 2), axis=2, keepdims=0, since=3),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)
