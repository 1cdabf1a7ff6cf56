"""Rules of passes/legalize/resize.py."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.ops.harness import Case, Const, case, check, f32, i64, ints, rows

X = f32(1, 2, 4, 5)
RULES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
NEAR = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def scales(*values: float) -> Const:
    return Const(np.array(values, np.float32))


def resize(x: np.ndarray, *, since: int, s: Const | None = None, sizes: Const | None = None, **attrs: object) -> Case:
    if sizes is not None:
        return case("Resize", x=x, roi=None, s=None, sizes=sizes, since=since, **attrs)
    return case("Resize", x=x, roi=None, s=s, since=since, **attrs)


CASES = [
    *(
        resize(X, s=scales(1, 1, 2, 2), mode=mode, coordinate_transformation_mode=rule, since=2)
        for mode, rule in itertools.product(("linear", "cubic"), RULES)
    ),
    *(
        resize(X, s=scales(1, 1, 2, 3), mode="nearest", coordinate_transformation_mode=rule, nearest_mode=near, since=2)
        for rule, near in itertools.product(RULES, NEAR)
    ),
    resize(X, sizes=Const(i64(1, 2, 7, 3)), mode="linear", since=2),
    resize(X, sizes=Const(i64(1, 2, 7, 3)), mode="nearest", since=2),
    resize(X, s=scales(1, 1, 0.6, 0.7), mode="linear", antialias=1, since=2),
    resize(X, s=scales(1, 1, 0.6, 0.7), mode="cubic", antialias=1, exclude_outside=1, since=2),
    resize(X, s=scales(1, 1, 0.8, 0.8), mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1, since=2),
    resize(f32(1, 2, 6), s=scales(1, 1, 1.5), mode="linear", since=1),
    resize(f32(1, 2, 6), s=scales(1, 1, 2), mode="nearest", since=2),
    *(  # output 11 of 13 lies at 4.5 in float32, beyond it in float64
        resize(
            f32(1, 1, 2, 6),
            s=scales(1, 1, 1, 2.3),
            mode="nearest",
            nearest_mode=near,
            oracle="onnxruntime",
            since=2,
        )
        for near in NEAR
    ),
    resize(ints(1, 2, 3, 4), s=scales(1, 1, 2, 2), mode="nearest", since=3),
    resize(ints(1, 2, 3, 4, dtype=np.int64), s=scales(1, 1, 2, 1.5), mode="nearest", since=3),
    *(
        case(  # starts at 0.1 · 5, which is 0.5 in float32 alone
            "Resize",
            x=f32(1, 1, 4, 6),
            roi=Const(np.array([0, 0, 0.2, 0.1, 1, 1, 0.9, 0.8], np.float32)),
            s=None,
            sizes=Const(i64(1, 1, 8, 12)),
            mode="nearest",
            nearest_mode=near,
            coordinate_transformation_mode="tf_crop_and_resize",
            oracle="onnxruntime",
            since=2,
        )
        for near in NEAR
    ),
    case(
        "Resize",
        x=X,
        roi=Const(np.array([0, 0, 0.1, -0.2, 1, 1, 0.9, 1.2], np.float32)),
        s=None,
        sizes=Const(i64(1, 2, 3, 4)),
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=9.0,
        since=2,
    ),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)
