"""Rules of passes/legalize/matmul.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import Case, Const, case, check, f32, rows

CASES = [
    case("Gemm", a=f32(2, 3), b=Const(f32(3, 4)), c=Const(f32(4))),
    case("Gemm", a=f32(2, 3), b=Const(f32(4, 3)), c=Const(f32(1, 4)), transB=1, alpha=0.5, beta=2.0),
    case("Gemm", a=f32(3, 2), b=Const(f32(3, 4)), transA=1, since=2),
    case("Gemm", a=f32(2, 3), b=Const(f32(3, 4)), c=Const(f32(2, 4))),
    case("Gemm", a=f32(2, 3), b=Const(f32(3, 4)), c=Const(f32(2, 1)), beta=0.5),
    case("Gemm", a=f32(2, 3), b=Const(f32(3, 4)), c=Const(np.array(1.5, np.float32))),
    case("Gemm", a=f32(2, 3), b=f32(3, 4), c=f32(4), since=2),
    case("Gemm", a=f32(2, 3), b=f32(4, 3), transB=1, alpha=2.0),
    case("MatMul", a=f32(2, 3), b=Const(f32(3, 4))),
    case("MatMul", a=f32(2, 5, 3), b=Const(f32(3, 4))),
    case("MatMul", a=f32(2, 2, 5, 3), b=Const(f32(1, 3, 4))),
    case("MatMul", a=f32(3), b=Const(f32(3, 4))),
    case("MatMul", a=f32(2, 3), b=Const(f32(3))),
    case("MatMul", a=f32(3), b=f32(3), since=1),
    case("MatMul", a=f32(2, 3), b=f32(3, 4), since=2),
    case("MatMul", a=f32(2, 5, 3), b=f32(2, 3, 4), since=2),
    case("MatMul", a=f32(2, 1, 5, 3), b=f32(3, 3, 4), since=2),
    case("MatMul", a=f32(5, 3), b=f32(2, 3, 4), since=2),
    case("MatMul", a=f32(2, 2, 2, 2, 3), b=f32(2, 1, 2, 3, 2), since=2),
    case("MatMul", a=Const(f32(5, 3)), b=f32(2, 3, 4), since=2),
    case("MatMul", a=Const(f32(2, 5, 3)), b=f32(2, 3, 4), since=2),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)
