"""Rules of passes/legalize/integers.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, Const, case, check, f32, ints, rows


def u8(*shape: int) -> np.ndarray[Any, Any]:
    return ints(*shape, low=0, high=256, dtype=np.uint8)


def i8(*shape: int) -> np.ndarray[Any, Any]:
    return ints(*shape, low=-128, high=128, dtype=np.int8)


ZERO = Const(np.array(12, np.uint8))
CASES = [
    case("MatMulInteger", x=u8(2, 5, 7), y=Const(u8(7, 3)), zx=ZERO, zy=ZERO, since=3),
    case("MatMulInteger", x=u8(5, 7), y=Const(i8(7, 3)), zx=ZERO, zy=Const(i8(3)), since=3),
    case("MatMulInteger", x=u8(5, 7), y=u8(7, 3), zx=Const(u8(5, 1)), since=3),
    case("MatMulInteger", x=u8(2, 700), y=Const(u8(700, 3)), since=4),
    case("MatMulInteger", x=u8(2, 300), y=u8(300, 3), since=4),
    case("ConvInteger", x=u8(1, 3, 5, 5), w=Const(u8(4, 3, 3, 3)), zx=ZERO, since=3),
    case(
        "ConvInteger", x=u8(1, 3, 5, 5), w=Const(u8(4, 3, 3, 3)), zx=ZERO, zw=Const(u8(4)), pads=[0, 1, 1, 0], since=3
    ),
    case("ConvInteger", x=u8(1, 300, 3, 3), w=Const(u8(2, 300, 2, 2)), since=4),
    case("DynamicQuantizeLinear", x=f32(3, 4), outputs=3, since=3),
    case("DynamicQuantizeLinear", x=f32(3, 4, low=1), outputs=3, since=3),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)
