"""Rules of passes/legalize/normalization.py."""

from __future__ import annotations

import numpy as np
import pytest

import onnx2nnapi
from tests.ops.harness import Case, Const, case, check, f32, model_of, rows


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
    case("LayerNormalization", x=f32(2, 3, 4), s=Const(f32(4)), b=Const(f32(4)), outputs=3, since=3, atol=1e-4),
    case("GroupNormalization", x=f32(2, 4, 3, 2), s=Const(f32(4)), b=Const(f32(4)), num_groups=2, since=2, atol=1e-4),
    case("GroupNormalization", x=f32(2, 4, 3, 2, 2), s=f32(4), b=f32(4), num_groups=4, since=2, atol=1e-4),
    case("RMSNormalization", x=f32(2, 3, 4), s=Const(f32(4)), since=2, atol=1e-4),
    case("RMSNormalization", x=f32(2, 3, 4), s=f32(3, 4), axis=1, since=2, atol=1e-4),
    case("MeanVarianceNormalization", x=f32(2, 3, 4, 5), since=3, atol=1e-4),
    case("MeanVarianceNormalization", x=f32(2, 3, 4, 5), axes=[2, 3], since=2, atol=1e-4),
    case("LpNormalization", x=f32(2, 3, 4), axis=-1),
    case("LpNormalization", x=f32(2, 3, 4, 5), axis=1, since=2),
    case("LpNormalization", x=f32(2, 3, 4), axis=2, p=1, since=2, opset=21, oracle="onnxruntime"),
    case("LpNormalization", x=np.zeros((2, 3), np.float32), axis=1),
    case("LpNormalization", x=f32(2, 2, 3, 2, 2), axis=2, since=2),
    case("LRN", x=f32(1, 6, 3, 3), size=3, since=2, oracle="onnxruntime"),
    case("LRN", x=f32(1, 6, 3, 3), size=5, alpha=0.1, beta=0.6, bias=2.0, since=2, oracle="onnxruntime"),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)


def test_an_even_lrn_by_its_definition() -> None:
    """onnxruntime lacks even sizes, and onnx.reference sums other channels than the operator's text says."""
    x = f32(1, 6, 3, 3)
    model = model_of(case("LRN", x=x, size=4, alpha=0.5))
    with onnx2nnapi.Session(onnx2nnapi.convert(model, feature_level=3), backend="host") as session:
        got = session.run({"x": x})["y0"]
    sums = np.stack([np.square(x[:, max(c - 1, 0) : c + 3]).sum(axis=1) for c in range(6)], axis=1)
    np.testing.assert_allclose(got, x / (1 + 0.5 / 4 * sums) ** 0.75, rtol=1e-5)
