"""Rules of passes/legalize/elementwise.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import Case, Const, case, check, f32, i64, ints, rows

CASES = [
    case("Exp", x=f32(2, 3), since=3),
    case("Log", x=f32(2, 3, low=0.1), since=3),
    case("Sqrt", x=f32(2, 3, low=0.0), since=3),
    case("Sin", x=f32(2, 3), since=3),
    case("Floor", x=f32(2, 3, 4)),
    case("Ceil", x=f32(2, 3, 4)),
    case("Abs", x=f32(2, 3, 4)),
    case("Neg", x=f32(2, 3)),
    case("Reciprocal", x=f32(2, 3, low=0.5), since=2),
    case("Floor", x=f32(2, 3, 2, 2, 2)),
    case("Neg", x=ints(4), since=3),
    *(case(kind, x=f32(2, 3, 4), y=f32(3, 1)) for kind in ("Add", "Mul", "Sub")),
    *(case(kind, x=f32(2, 3, 4), y=Const(f32(4))) for kind in ("Add", "Mul", "Sub", "Div")),
    case("Div", x=f32(2, 3, 4), y=f32(2, 1, 1, low=1.0), since=2),
    case("Add", x=f32(2, 1, 3, 2, 4), y=f32(3, 1, 1)),
    case("Mul", x=f32(2, 2, 1, 2, 1, 2), y=f32(2, 2, 2, 2, 2, 2)),
    case("Add", x=f32(2, 1, 2, 1, 2), y=f32(1, 3, 1, 3, 1), since=1),
    case("Add", x=ints(3, 4), y=ints(4), since=4),
    case("Div", x=ints(20), y=Const(np.array([7], np.int32)), since=4),
    case("Div", x=ints(20), y=np.where(np.arange(20) % 2, 3, -7).astype(np.int32), since=4),
    case("Mul", x=f32(2, 3), y=Const(np.array(2.5, np.float32))),
    case("Max", a=f32(2, 3), b=f32(3), c=f32(2, 1)),
    case("Min", a=f32(2, 3), b=f32(3), c=f32(2, 1)),
    case("Max", a=ints(4), b=ints(4), since=3),
    case("Sum", a=f32(2, 3), b=f32(3), c=f32(2, 1)),
    case("Mean", a=f32(2, 3), b=f32(3), c=f32(2, 1)),
    case("Mean", a=f32(2, 3)),
    *(case("Pow", x=f32(5, low=0.2), y=Const(np.array(e, np.float32)), since=1) for e in (1.0, 2.0, 3.0, 4.0)),
    *(case("Pow", x=f32(5, low=0.2), y=Const(np.array(e, np.float32)), since=3) for e in (0.5, -0.5, 1.7, -2.0)),
    case("Pow", x=f32(5, low=0.2), y=Const(np.array(-1, np.int64)), since=2),
    case("Pow", x=f32(2, 3, low=0.2), y=f32(3), since=3),
    case("Pow", x=ints(4), y=Const(i64(2)), since=4),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)


def test_a_sum_with_infinities_that_the_caller_sees_is_refused() -> None:
    row = case("Add", x=f32(2, 3), y=Const(np.array([0, -np.inf, 0], np.float32)), refused="infinite elements")
    for level in (1, 4, 8):
        check(row, level)
