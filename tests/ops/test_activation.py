"""Rules of passes/legalize/activation.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

import onnx2nnapi
from tests.ops.harness import Case, Const, case, check, f32, ints, model_of, rows

CASES = [
    case("Sigmoid", x=f32(2, 3)),
    case("Tanh", x=f32(2, 3, 2, 2, 2)),
    case("Relu", x=f32(2, 3, 4)),
    case("Relu", x=ints(6), since=3),
    *(
        case("Clip", x=f32(4, 5, low=-9, high=9), lo=Const(np.float32(a)), hi=Const(np.float32(b)))
        for a, b in [(0, 6), (-1, 1), (0, 4), (-2.5, 3), (1, 1), (0, np.inf)]
    ),
    case("Clip", x=f32(4, 5), lo=Const(np.float32(-0.5))),
    case("Clip", x=f32(4, 5), lo=None, hi=Const(np.float32(0.5))),
    case("Clip", x=f32(4, 5)),
    case("Clip", x=f32(4, 5), lo=np.array(-0.5, np.float32), hi=np.array(0.75, np.float32)),
    case("Clip", x=ints(8, dtype=np.int64), lo=Const(np.int64(-7)), hi=Const(np.int64(9)), since=3),
    case("LeakyRelu", x=f32(2, 3, 4), alpha=0.1),
    case("LeakyRelu", x=f32(2, 3, 4), alpha=1.5),
    case("PRelu", x=f32(2, 3, 4, 4), slope=Const(f32(3, 1, 1))),
    case("PRelu", x=f32(2, 3), slope=f32(3)),
    case("HardSigmoid", x=f32(2, 3, low=-6, high=6)),
    case("HardSigmoid", x=f32(2, 3, low=-6, high=6), alpha=1 / 6, beta=0.5),
    case("HardSwish", x=f32(2, 3, low=-6, high=6)),
    case("Elu", x=f32(2, 3), alpha=1.3, since=3),
    case("Elu", x=f32(2, 3), alpha=-0.5, since=3),
    case("Softplus", x=f32(2, 3, low=-90, high=90), since=3),
    case("Softmax", x=f32(2, 3, 4, 5), axis=-1),
    *(case("Softmax", x=f32(2, 3, 4, 5), axis=axis, since=2) for axis in (0, 1, 2)),
    case("Softmax", x=f32(2, 3), axis=1),
    case("Softmax", x=f32(7), axis=0),
    case("Softmax", x=f32(2, 3, 2, 3, 2), axis=2, since=2),
    case("Softmax", x=f32(2, 3, 4), axis=1, opset=11, oracle="onnxruntime"),
    case("LogSoftmax", x=f32(2, 3, 4), axis=1, since=3),
    case("LogSoftmax", x=f32(2, 3, 4), axis=0, opset=9, since=3, oracle="onnxruntime"),
    case("Erf", x=f32(50, low=-5, high=5), atol=1e-6, rtol=0),
    case("Selu", x=f32(2, 3, 4), since=3),
    case("Celu", x=f32(2, 3, 4), alpha=2.0, since=3),
    case("Swish", x=f32(2, 3, 4)),
    case("Swish", x=f32(2, 3, 4), alpha=0.5),
    case("Mish", x=f32(2, 3, 4, low=-80, high=80), since=2),
    case("Softsign", x=f32(2, 3, 4), since=2),
    case("ThresholdedRelu", x=f32(2, 3, 4), alpha=0.75),
    case("ThresholdedRelu", x=np.array([-0.5, 0.0, -0.49999997, 2.0], np.float32), alpha=-0.5),
    case("Shrink", x=f32(2, 3, 4), lambd=1.0, bias=0.25),
    case("Shrink", x=ints(2, 3), lambd=1.5, bias=1.5, since=3),
    case("Gelu", x=f32(50, low=-5, high=5), atol=2e-6, rtol=1e-5),
    case("Gelu", x=f32(50, low=-5, high=5), approximate="tanh", atol=2e-6, rtol=1e-5),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)


def test_erf_keeps_its_stated_error_over_all_of_float32() -> None:
    x = np.concatenate(
        [np.linspace(-6, 6, 20001), np.geomspace(1e-30, 3e38, 2000), -np.geomspace(1e-30, 3e38, 2000)]
    ).astype(np.float32)
    program = onnx2nnapi.convert(model_of(case("Erf", x=x)), feature_level=1)
    got = onnx2nnapi.Session(program, backend="host").run({"x": x})["y0"]
    want = np.array([math.erf(value) for value in x.astype(np.float64)])
    assert np.abs(got - want).max() < 2e-7
