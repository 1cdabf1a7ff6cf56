"""Rules of passes/legalize/selection.py, cumulative.py and einsum.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import Case, Const, bools, case, check, f32, i64, ints, rows

TIES = np.array([[3, 1, 3, 2, 1], [0, 0, 0, 0, 0]], np.float32)
K = Const(i64(3))
MASK = np.where(np.arange(16).reshape(4, 4) % 3, 1, -np.inf).astype(np.float32)
WIDE = ints(3, 6, low=-(2**31), high=2**31 - 1)

CASES = [
    case("TopK", x=TIES, k=K, outputs=2, since=3),
    case("TopK", x=TIES, k=K, largest=0, outputs=2, since=3),
    case("TopK", x=f32(3, 5, 2), k=K, axis=1, outputs=2, since=3),
    case("TopK", x=f32(2, 1, 2, 5, 3), k=K, axis=3, outputs=2, since=3),
    case("TopK", x=f32(9), k=K, outputs=2, since=3),
    case("TopK", x=TIES.astype(np.int64), k=K, outputs=2, since=3),
    case("TopK", x=ints(2, 5), k=K, largest=0, outputs=2, since=4),
    case("Hardmax", x=TIES, since=3),
    case("Hardmax", x=f32(2, 3, 4), axis=1, since=3),
    case("Hardmax", x=f32(2, 1, 3, 2, 2), axis=2, since=3),
    case("OneHot", i=i64(0, 2, -1, 7), depth=Const(np.array(4)), v=Const(np.array([0, 1], np.float32)), since=3),
    case("OneHot", i=ints(2, 3, low=0, high=5), depth=Const(np.array(5)), v=Const(f32(2)), axis=1, since=3),
    case("OneHot", i=i64(0, 2), depth=Const(np.array(3)), v=f32(2), axis=0, since=3),
    case(
        "OneHot", i=f32(3, low=0, high=0) + 1, depth=Const(np.array(4)), v=Const(np.array([5, -2], np.int32)), since=3
    ),
    case("Trilu", x=f32(2, 4, 5)),
    case("Trilu", x=f32(2, 4, 5), k=Const(np.array(-1)), upper=0),
    case("Trilu", x=ints(3, 4), k=Const(np.array(1)), since=3),
    case("Trilu", x=bools(3, 4), since=3),
    case("Trilu", x=f32(2, 2, 2, 3, 3)),
    case("EyeLike", x=f32(3, 4), k=1),
    case("EyeLike", x=f32(3, 4), dtype=6, since=1),
    *(
        case("CumSum", x=f32(2, 5, 3), axis=Const(np.array(1)), reverse=r, exclusive=e, since=2)
        for r in (0, 1)
        for e in (0, 1)
    ),
    case("CumSum", x=f32(5), axis=Const(np.array(0))),
    case("CumSum", x=f32(2, 600), axis=Const(np.array(1)), since=2, atol=1e-4),
    case("CumSum", x=f32(2, 1, 4, 2, 2), axis=Const(np.array(-3)), since=2),
    case("CumSum", x=WIDE, axis=Const(np.array(1)), since=4),
    case("CumSum", x=ints(3, 6, dtype=np.int64), axis=Const(np.array(1)), exclusive=1, since=4),
    *(
        case("CumProd", x=f32(2, 5, 3), axis=Const(np.array(1)), reverse=r, exclusive=e, since=2)
        for r in (0, 1)
        for e in (0, 1)
    ),
]

# equation and the shapes of its operands
EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("bhij,bhjd->bhid", (2, 2, 3, 4), (2, 2, 4, 5)),
    ("bnqd,bnkd->bqnk", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("i,j->ij", (3,), (4,)),
    ("i,i", (3,), (3,)),
    ("ij->ji", (3, 4)),
    ("ij->j", (3, 4)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("bij->b", (2, 3, 4)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...ij,jk->...ik", (2, 2, 3, 4), (4, 5)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2)),
    ("abc,cde->abde", (2, 3, 4), (4, 3, 2)),
    ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)),
    ("abcde,ce->abd", (2, 2, 3, 2, 3), (3, 3)),
]


def einsum(equation: str, *shapes: tuple[int, ...]) -> Case:
    operands = {f"x{i}": f32(*shape) for i, shape in enumerate(shapes)}
    return case("Einsum", equation=equation, **operands, since=3)


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)


_SOME_LEVELS = [*(einsum(*entry) for entry in EQUATIONS), case("Trilu", x=MASK, upper=0)]


@pytest.mark.parametrize(("row", "level"), [param for param in rows(_SOME_LEVELS) if param.values[1] > 2])
def test_rule_from_level_3(row: Case, level: int) -> None:
    check(row, level)
