"""Rules of passes/legalize/movement.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import Case, Const, bools, case, check, f32, i64, ints, rows

X = f32(2, 3, 4, 5)
CASES = [
    case("Identity", x=f32(2, 3)),
    case("Dropout", x=f32(2, 3)),
    case("Dropout", x=f32(2, 3), outputs=2),
    case("Reshape", x=X, shape=Const(i64(6, -1))),
    case("Reshape", x=X, shape=Const(i64(0, 0, 2, 2, 5))),
    case("Reshape", x=ints(2, 3), shape=Const(i64(3, 2)), since=4),
    case("Reshape", x=bools(2, 3), shape=Const(i64(6)), since=3),
    case("Flatten", x=X, axis=2),
    case("Flatten", x=X, axis=0),
    case("Squeeze", x=f32(1, 3, 1, 2), axes=Const(i64(0, -2))),
    case("Unsqueeze", x=f32(3, 2), axes=Const(i64(0, 3))),
    case("Unsqueeze", x=ints(3, 2), axes=Const(i64(0, 3)), since=3),
    case("Transpose", x=X, perm=[3, 1, 0, 2], since=2),
    case("Transpose", x=f32(2, 3), since=2),
    case("Transpose", x=bools(2, 3), since=3),
    case("Transpose", x=ints(2, 3), since=4),
    case("Transpose", x=f32(2, 3, 2, 3, 2), perm=[0, 2, 1, 3, 4], since=2),
    case("Transpose", x=f32(2, 3, 2, 3, 2, 2), perm=[0, 1, 4, 2, 5, 3], since=2),
    case("Transpose", x=f32(2, 3, 2, 3, 2), perm=[4, 2, 0, 3, 1], since=2),
    case("Concat", a=f32(2, 3), b=f32(2, 1), axis=1),
    case("Concat", a=f32(2, 3), b=f32(2, 3), axis=-2),
    case("Concat", a=f32(2, 1, 2, 2, 3), b=f32(2, 2, 2, 2, 3), axis=1),
    case("Concat", a=ints(2, 3), b=ints(1, 3), axis=0, since=4),
    case("Concat", a=bools(2, 3), b=bools(1, 3), axis=0, since=3),
    case("Concat", a=f32(2, 3), b=f32(2, 0), axis=1),
    case("Split", x=X, axis=1, num_outputs=3, outputs=3, since=2),
    case("Split", x=X, axis=3, num_outputs=2, outputs=2, since=2),
    case("Split", x=X, split=Const(i64(1, 3)), axis=2, outputs=2, since=2),
    case("Split", x=ints(6, 2), num_outputs=3, axis=0, outputs=3, since=3),
    case("Slice", x=X, s=Const(i64(1, -3)), e=Const(i64(2, 100)), a=Const(i64(1, 3)), since=2),
    case("Slice", x=X, s=Const(i64(-1)), e=Const(i64(-100)), a=Const(i64(2)), st=Const(i64(-1)), since=2),
    case("Slice", x=X, s=Const(i64(3)), e=Const(i64(0)), a=Const(i64(3)), st=Const(i64(-2)), since=2),
    case("Slice", x=X, s=Const(i64(0)), e=Const(i64(5)), a=Const(i64(3)), st=Const(i64(2)), since=2),
    case(
        "Slice",
        x=X,
        s=Const(i64(1, -1)),
        e=Const(i64(2**63 - 1, -(2**63))),
        a=Const(i64(1, 3)),
        st=Const(i64(1, -1)),
        since=2,
    ),
    case("Slice", x=ints(6, 2), s=Const(i64(5)), e=Const(i64(-100)), a=Const(i64(0)), st=Const(i64(-2)), since=3),
    case("Slice", x=f32(2, 3, 2, 4, 3), s=Const(i64(1)), e=Const(i64(3)), a=Const(i64(3)), since=2),
    case("Gather", x=X, i=Const(i64(2)), axis=1, since=2),
    case("Gather", x=X, i=Const(np.array(-1, np.int64)), axis=2, since=2),
    case("Gather", x=X, i=Const(i64(2, 0, 1, -1).reshape(2, 2)), axis=2, since=2),
    case("Gather", x=X, i=i64(2, 0, 1), axis=1, since=3),
    case("Gather", x=X, i=i64(2, -1, 1), axis=1, since=3),
    case("Gather", x=ints(5, 3), i=Const(i64(4, 0)), axis=0, since=3),
    case("Expand", x=f32(3, 1), shape=Const(i64(2, 3, 4))),
    case("Expand", x=ints(3, 1), shape=Const(i64(2, 3, 4)), since=3),
    case("Expand", x=f32(2, 1, 2, 1, 2), shape=Const(i64(2, 3, 2, 3, 2))),
    case("Tile", x=f32(2, 3), r=Const(i64(2, 3))),
    case("Tile", x=bools(2, 3), r=Const(i64(1, 2)), since=3),
    case("Pad", x=X, p=Const(i64(0, 1, 2, 0, 1, 0, 0, 3)), since=2),
    case("Pad", x=X, p=Const(i64(0, 1, 2, 0, 1, 0, 0, 3)), v=Const(np.array(1.5, np.float32)), since=3),
    case("Pad", x=X, p=Const(i64(0, -1, 2, 0, 0, 0, -2, 0)), since=2, oracle="onnxruntime"),
    case("Pad", x=X, p=Const(i64(1, 2)), v=None, a=Const(i64(-1)), since=2),
    *(case("Pad", x=X, p=Const(i64(0, 0, 2, 3, 0, 0, 1, 2)), mode=m, since=2) for m in ("reflect", "edge", "wrap")),
    case("Pad", x=ints(3, 2), p=Const(i64(1, 0, 0, 2)), v=Const(np.array(7, np.int32)), since=4),
    case("Pad", x=f32(2, 3, 2, 2, 2), p=Const(i64(0, 0, 0, 1, 0, 0, 2, 0, 0, 0)), since=2),
    *(case("DepthToSpace", x=f32(1, 12, 2, 3), blocksize=2, mode=m, since=2) for m in ("DCR", "CRD")),
    case("Split", x=f32(2, 3, 2, 4, 3), num_outputs=2, axis=3, outputs=2, since=2),
    case("Gather", x=f32(3, 2, 2, 2, 3), i=Const(np.array(1, np.int64)), axis=0, since=2),
    case("Gather", x=f32(3, 2, 2, 2, 3), i=Const(i64(1, 0, 1)), axis=3, since=2),
    case("Tile", x=f32(2, 1, 2, 1, 2), r=Const(i64(1, 2, 1, 3, 1))),
    case("SpaceToDepth", x=f32(1, 3, 4, 6), blocksize=2, since=2),
    case("SpaceToDepth", x=f32(2, 3, 4, 6), blocksize=2, mode="CRD", since=2),
    case("Dropout", x=f32(2, 3), r=Const(np.array(0.5, np.float32)), t=Const(np.array(True)), refused="training_mode"),
    *(case("DepthToSpace", x=ints(1, 12, 2, 3), blocksize=2, mode=m, since=4) for m in ("DCR", "CRD")),
    *(case("DepthToSpace", x=bools(1, 12, 2, 3), blocksize=2, mode=m, since=3) for m in ("DCR", "CRD")),
    case("SpaceToDepth", x=ints(1, 3, 4, 6, low=-(2**31), high=2**31), blocksize=2, since=4),
    case("Transpose", x=ints(2, 3, 2, 2, 3), since=4),
    case("Transpose", x=bools(2, 3, 2, 2, 3), perm=[3, 1, 4, 2, 0], since=3),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)
