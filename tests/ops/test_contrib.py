"""Rules of passes/legalize/contrib.py, held to onnxruntime, whose operators these are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, Const, case, check, f32, ints, rows


def fused(op_type: str, **keywords: Any) -> Case:
    return case(op_type, **{"domain": "com.microsoft", "oracle": "onnxruntime", "opset": 21, **keywords})


X = f32(2, 5, 8)
HEADS = {"num_heads": 2}
QKV = {"x": X, "w": Const(f32(8, 24, low=-0.5, high=0.5)), "b": Const(f32(24))}
WHOLE = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
IDS = ints(2, 5, low=0, high=7)
TABLES = {"words": Const(f32(7, 8)), "places": Const(f32(6, 8)), "segments": Const(f32(2, 8))}
CONV = {"x": f32(1, 3, 6, 6), "w": Const(f32(4, 3, 3, 3))}
GAMMA = {"g": Const(f32(8)), "t": Const(f32(8))}

CASES = [
    fused("Gelu", x=X),
    fused("BiasGelu", x=X, b=Const(f32(8))),
    fused("FastGelu", x=X),
    fused("FastGelu", x=X, b=Const(f32(8))),
    fused("QuickGelu", x=X),
    fused("QuickGelu", x=X, alpha=1.0),
    fused("FusedConv", **CONV, b=Const(f32(4)), activation="Relu", since=2, atol=1e-4),
    fused("FusedConv", **CONV, activation="LeakyRelu", activation_params=[0.3], since=2, atol=1e-4),
    fused("FusedConv", **CONV, b=Const(f32(4)), z=f32(1, 4, 4, 4), activation="Relu", since=2, atol=1e-4),
    fused("FusedConv", **CONV, activation="Clip", activation_params=[-1.0, 2.0], since=2, atol=1e-4),
    fused("FusedGemm", x=f32(3, 4), w=Const(f32(4, 5)), b=Const(f32(5)), activation="Relu"),
    fused("FusedMatMul", x=f32(2, 3, 4), y=f32(2, 5, 4), transB=1, alpha=0.5, since=2),
    fused("FusedMatMul", x=f32(4, 3), y=Const(f32(4, 5)), transA=1, since=2),
    fused("TransposeMatMul", x=f32(4, 3), y=Const(f32(4, 5)), transA=1, since=2),
    case("SimplifiedLayerNormalization", x=X, g=Const(f32(8)), opset=21, oracle="onnxruntime", since=2, atol=1e-4),
    fused("SkipLayerNormalization", x=X, s=f32(2, 5, 8), **GAMMA, b=Const(f32(8)), epsilon=1e-5, since=2, atol=1e-4),
    fused("SkipLayerNormalization", x=X, s=f32(2, 5, 8), g=Const(f32(8)), epsilon=1e-5, since=2, atol=1e-4),
    fused("SkipSimplifiedLayerNormalization", x=X, s=f32(2, 5, 8), g=Const(f32(8)), since=2, atol=1e-4),
    fused(
        "EmbedLayerNormalization", ids=IDS, sids=ints(2, 5, low=0, high=2), **TABLES, **GAMMA, epsilon=1e-5,
        outputs=2, since=3, atol=1e-4,
    ),
    fused(
        "EmbedLayerNormalization", ids=IDS, sids=None, words=TABLES["words"], places=TABLES["places"], segments=None,
        **GAMMA, mask=WHOLE, outputs=2, since=3, atol=1e-4,
    ),
    fused("Attention", **QKV, **HEADS, since=2, atol=1e-4),
    fused("Attention", **QKV, mask=WHOLE, **HEADS, since=3, atol=1e-4),
    fused("Attention", **QKV, **HEADS, unidirectional=1, scale=0.25, since=2, atol=1e-4),
    fused("MultiHeadAttention", q=X, k=f32(2, 4, 8), v=f32(2, 4, 8), **HEADS, since=2, atol=1e-4),
    fused("MultiHeadAttention", q=X, k=f32(2, 4, 8), v=f32(2, 4, 6), b=Const(f32(22)), **HEADS, since=2, atol=1e-4),
]  # fmt: skip


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)
