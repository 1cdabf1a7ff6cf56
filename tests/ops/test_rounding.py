"""Rules of passes/legalize/rounding.py and bits.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import Case, Const, case, check, f32, ints, rows

_HALVES = (np.arange(-20, 21) / 4).astype(np.float32)
_EDGES = np.array(
    [0.5, 0.49999997, 0.50000006, 1.4999999, 2.5, 8388609.0, 8388607.5, -8388607.5, 3e38, -0.49999997, 1e-45],
    np.float32,
)
_SPECIAL = np.array([1.0, np.nan, np.inf, -np.inf, 0.0, -2.0], np.float32)
_SMALL = np.array([1e-45, -1e-45, 0.0, 3e38, -3e38, np.inf, -np.inf, 1e-38], np.float32)


def u8(*shape: int, high: int = 256) -> np.ndarray:
    return ints(*shape, low=0, high=high, dtype=np.uint8)


def whole(*shape: int) -> np.ndarray:
    return ints(*shape, low=-(2**31), high=2**31 - 1)


CASES = [
    case("Round", x=_HALVES),
    case("Round", x=_EDGES, atol=0, rtol=0),
    case("Round", x=f32(2, 1, 3, 2, 2, low=-9, high=9)),
    case("Round", x=_HALVES.astype(np.float16), since=3),
    case("Sign", x=_SMALL, atol=0),
    case("Sign", x=f32(2, 3, 4)),
    case("Sign", x=ints(2, 3), since=3),
    case("Sign", x=ints(6, dtype=np.int64), since=3),
    case("Mod", x=f32(4, 5, low=-20, high=20), y=f32(5, low=1), fmod=1, since=2),
    case("Mod", x=f32(4, 5, low=-20, high=20), y=np.array([-3, 2, -1.5, 0.1, 7], np.float32), fmod=1, since=2),
    case("Mod", x=f32(4, 3, low=-20, high=20), y=Const(np.array([-3, 2, 0.5], np.float32)), fmod=0),
    case("Mod", x=f32(4), y=f32(4), fmod=0, refused="divisor not constant"),
    case("Mod", x=ints(4, 5), y=Const(np.array([7, -7, 3, -2, 5], np.int32)), since=4),
    case("Mod", x=ints(4, 5), y=Const(np.array([7, -7, 3, -2, 5], np.int32)), fmod=1, since=4),
    case("Mod", x=u8(4, 5), y=np.array([7, 200, 3, 2, 5], np.uint8), since=4),
    case("IsNaN", x=_SPECIAL, since=3),
    case("IsInf", x=_SPECIAL, since=3),
    case("IsInf", x=_SPECIAL, detect_positive=0, since=3),
    case("IsInf", x=_SPECIAL, detect_negative=0, since=3),
    case("BitShift", x=u8(2, 6), y=Const(np.arange(6, dtype=np.uint8)), direction="RIGHT", since=4),
    case(
        "BitShift", x=u8(2, 6), y=np.arange(6, dtype=np.uint8), direction="LEFT", refused="known to be at most|level 3"
    ),
    case("BitShift", x=u8(2, 6), y=Const(np.arange(6, dtype=np.uint8)), direction="LEFT", since=4),
    case("BitShift", x=u8(4).astype(np.uint32), y=Const(np.array(3, np.uint32)), direction="LEFT", refused="int32"),
    case("BitwiseNot", x=ints(4, 2), since=4),
    case("BitwiseNot", x=u8(4, 2), since=4),
    case("BitwiseNot", x=u8(4).astype(np.uint32), refused="beyond"),
    *(case(f"Bitwise{kind}", x=u8(4, 5), y=u8(5), since=4) for kind in ("And", "Or", "Xor")),
    *(case(f"Bitwise{kind}", x=whole(4, 1), y=whole(3), since=4) for kind in ("And", "Or", "Xor")),
    case("BitwiseAnd", x=ints(2, 1, 2, 3, dtype=np.int16), y=Const(np.array(255, np.int16)), since=4),
    case(
        "BitwiseXor", x=ints(2, 3, low=-128, high=127, dtype=np.int8), y=np.array([[-128, 127, -1]], np.int8), since=4
    ),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)
