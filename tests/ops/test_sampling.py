"""Rules of passes/legalize/sampling.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, f32, i64, rows

IMAGE, GRID = f32(2, 3, 5, 6), f32(2, 4, 3, 2, low=-1.6, high=1.6)
ROIS = np.array([[0, 0, 7, 5], [1.5, 2.25, 6, 9], [0.5, 0.5, 0.75, 0.6]], np.float32)

CASES = [
    *(
        case("GridSample", x=IMAGE, grid=GRID, mode=mode, padding_mode=padding, align_corners=aligned, since=3)
        for mode in ("linear", "nearest", "cubic")
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    ),
    case("GridSample", x=f32(1, 2, 3, 4, 5), grid=f32(1, 2, 3, 2, 3, low=-1.2, high=1.2), since=3),
    case("GridSample", x=IMAGE, grid=GRID, opset=16, since=3),
    case(
        "RoiAlign", x=f32(1, 2, 10, 10), rois=ROIS, at=i64(0, 0, 0), output_height=3, output_width=4,
        coordinate_transformation_mode="output_half_pixel", sampling_ratio=2, since=3, atol=1e-4,
    ),
    case("RoiAlign", x=f32(1, 2, 10, 10), rois=ROIS, at=i64(0, 0, 0), refused="half_pixel|level 3"),
    case("RoiAlign", x=f32(1, 2, 10, 10), rois=ROIS, at=i64(0, 0, 0), mode="max", refused="averages"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "level"), [p for p in rows(CASES) if p.values[1] in (2, 3, 4, 7)])
def test_rule(row: Case, level: int) -> None:
    check(row, level)
