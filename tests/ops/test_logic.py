"""Rules of passes/legalize/logic.py."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.ops.harness import Case, Const, bools, case, check, f32, ints, rows

CASES = [
    *(
        case(k, x=np.round(f32(3, 4)), y=np.round(f32(4)), since=3)
        for k in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    ),
    case("Equal", x=ints(3, 4), y=ints(4), since=3),
    *(case(k, x=bools(3, 4), y=bools(4), since=3) for k in ("And", "Or", "Xor")),
    case("Equal", x=f32(2, 1, 2, 1, 2), y=f32(1, 3, 1, 3, 1), since=3),
    case("Not", x=bools(3, 4), since=3),
    case("Where", c=bools(3, 4), x=f32(3, 4), y=f32(3, 4), since=3),
    case("Where", c=bools(3, 1), x=f32(4), y=Const(np.array(-1e9, np.float32)), since=3),
    case("Where", c=bools(1, 4), x=ints(3, 4), y=ints(3, 1), since=3),
    case("Where", c=bools(3, 4), x=bools(4), y=bools(3, 1), since=3),
    case("Where", c=bools(3, 4), x=ints(4, low=0, dtype=np.uint8), y=ints(3, 1, low=0, dtype=np.uint8), since=3),
    case("Where", c=bools(3, 1), x=ints(4, dtype=np.int8), y=ints(3, 4, dtype=np.int8), since=4),
    case("Cast", x=f32(3, 4), to=TensorProto.FLOAT),
    case("Cast", x=f32(3, 4), to=TensorProto.INT32, since=3),
    case("Cast", x=f32(3, 4), to=TensorProto.INT64, since=3),
    case("Cast", x=ints(3, 4), to=TensorProto.FLOAT, since=3),
    case("Cast", x=np.round(f32(3, 4)), to=TensorProto.BOOL, since=3),
    case("Cast", x=bools(3, 4), to=TensorProto.FLOAT, since=3),
    case("Cast", x=bools(30, 40), to=TensorProto.FLOAT, since=3),
    case("Cast", x=bools(3, 4), to=TensorProto.INT64, since=3),
    case("Cast", x=ints(3, 4, low=0, high=200, dtype=np.uint8), to=TensorProto.FLOAT),
    case("Cast", x=ints(3, 4, dtype=np.int8), to=TensorProto.FLOAT, since=4),
    case("Cast", x=f32(3, 4, low=0, high=200), to=TensorProto.UINT8, since=3),
    case("Cast", x=ints(3, 4), to=TensorProto.UINT8, refused="not known to fit uint8"),
    case("Cast", x=f32(3, 4), to=TensorProto.FLOAT16, since=3, atol=2e-3),
    case("Cast", x=f32(3).astype(np.float64), to=TensorProto.FLOAT, refused="float64"),
    case("Cast", x=f32(3).astype(np.float64), to=TensorProto.FLOAT, options={"allow_float64": True}),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)
