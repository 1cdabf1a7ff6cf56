"""Rules of passes/legalize/normalization.py."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import Case, Const, case, check, f32, rows


def positive(n: int) -> np.ndarray:
    return f32(n, low=0.5, high=2.0)


CASES = [
    case(
        "BatchNormalization", x=f32(2, 3, 4, 5), s=Const(f32(3)), b=Const(f32(3)), m=Const(f32(3)), v=Const(positive(3))
    ),
    case("BatchNormalization", x=f32(2, 3), s=Const(f32(3)), b=Const(f32(3)), m=Const(f32(3)), v=Const(positive(3))),
    case("BatchNormalization", x=f32(2, 3, 4), s=f32(3), b=f32(3), m=f32(3), v=positive(3), since=3),
    case("InstanceNormalization", x=f32(2, 3, 4, 5), s=Const(f32(3)), b=Const(f32(3)), since=2, atol=1e-4),
    case(
        "InstanceNormalization",
        x=f32(2, 3, 8),
        s=Const(np.ones(3, np.float32)),
        b=Const(np.zeros(3, np.float32)),
        since=2,
        atol=1e-4,
    ),
    case("InstanceNormalization", x=f32(2, 3, 2, 2, 2), s=Const(f32(3)), b=f32(3), since=2, atol=1e-4),
    case("LayerNormalization", x=f32(2, 3, 4), s=Const(f32(4)), b=Const(f32(4)), since=2, atol=1e-4),
    case("LayerNormalization", x=f32(2, 3, 4), s=Const(f32(3, 4)), axis=1, since=2, atol=1e-4),
    case("LRN", x=f32(1, 6, 3, 3), size=3, since=2, oracle="onnxruntime"),
    case("LRN", x=f32(1, 6, 3, 3), size=5, alpha=0.1, beta=0.6, bias=2.0, since=2, oracle="onnxruntime"),
    case("LRN", x=f32(1, 6, 3, 3), size=4, alpha=0.5, since=3, rtol=1e-3),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)
