from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi import validate
from onnx2nnapi.nnapi.types import OperandType
from tests.runtime.kernels.single import model, quantized, run


@pytest.fixture
def rng():
    return np.random.default_rng(8)


@pytest.mark.parametrize(("shape", "axis"), [((7,), 0), ((2, 3, 4), 1), ((2, 3, 4, 5), -1), ((2, 3, 4, 5), -4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_l2_normalization(rng, shape, axis, dtype):
    x = rng.standard_normal(shape).astype(dtype)
    expected = x / np.linalg.norm(x.astype(float), axis=axis, keepdims=True)
    tolerance = 1e-6 if dtype is np.float32 else 1e-3
    np.testing.assert_allclose(run("L2_NORMALIZATION", x, axis=axis), expected, rtol=tolerance, atol=tolerance)


def test_l2_normalization_of_zeros_divides_by_a_millionth():
    assert run("L2_NORMALIZATION", np.zeros((1, 1, 1, 3), np.float32)).tolist() == [[[[0, 0, 0]]]]
    x = np.array([[[[3e-7, 0.0, 0.0]]]], np.float32)
    np.testing.assert_allclose(run("L2_NORMALIZATION", x), x / np.float32(1e-6), rtol=1e-6)


@pytest.mark.parametrize(("dtype", "zero"), [(np.uint8, 128), (np.int8, 0)])
@pytest.mark.parametrize("axis", [-1, 1])
def test_l2_normalization_of_codes_is_off_by_one_at_most(rng, dtype, zero, axis):
    limits = np.iinfo(dtype)
    x = quantized(rng.integers(limits.min, limits.max + 1, (2, 5, 3, 40)), 0.3, 7, dtype)
    centred = x.codes.astype(float) - 7
    exact = centred / np.linalg.norm(centred, axis=axis, keepdims=True) * 128 + zero
    result = run("L2_NORMALIZATION", x, axis=axis)
    assert np.abs(result - exact).max() <= 1.0
    assert np.mean(result == np.clip(np.round(exact), limits.min, limits.max)) > 0.95


@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((2, 3, 4), 1), ((1, 3, 4, 9), -1)])
@pytest.mark.parametrize("radius", [0, 1, 3, 100])
def test_local_response_normalization(rng, shape, axis, radius):
    x = rng.standard_normal(shape).astype(np.float32)
    lines = np.moveaxis(x.astype(float), axis, 0)
    sums = [np.square(lines[max(0, place - radius) : place + radius + 1]).sum(axis=0) for place in range(len(lines))]
    expected = np.moveaxis(lines * (1.5 + 0.3 * np.stack(sums)) ** -0.75, 0, axis)
    result = run("LOCAL_RESPONSE_NORMALIZATION", x, radius=radius, bias=1.5, alpha=0.3, beta=0.75, axis=axis)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_instance_normalization(rng, nchw, dtype):
    x = (rng.standard_normal((2, 4, 5, 3)) * 3 + 2).astype(dtype)
    axes = (2, 3) if nchw else (1, 2)
    exact = x.astype(float)
    exact = exact - exact.mean(axis=axes, keepdims=True)
    exact = exact / np.sqrt(np.square(exact).mean(axis=axes, keepdims=True) + 0.01) * 2 + 0.5
    result = run("INSTANCE_NORMALIZATION", x, gamma=2.0, beta=0.5, epsilon=0.01, nchw=nchw)
    assert result.dtype == dtype
    tolerance = 1e-5 if dtype is np.float32 else 1e-2
    np.testing.assert_allclose(result, exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("operation", "how", "message"),
    [
        ("L2_NORMALIZATION", {"axis": 3}, "'axis' is 3, the input's rank 3 allows -3 to 2"),
        (
            "LOCAL_RESPONSE_NORMALIZATION",
            {"radius": -1, "bias": 1.0, "alpha": 1.0, "beta": 1.0},
            "'radius' is -1, it must not be negative",
        ),
        ("INSTANCE_NORMALIZATION", {"gamma": 1.0, "beta": 0.0, "epsilon": 0.1}, "'input' has rank 3"),
    ],
)
def test_refused_values(operation, how, message):
    with pytest.raises(InvalidModelError, match=message):
        run(operation, np.zeros((1, 2, 3), np.float32), **how)


@pytest.mark.parametrize(
    ("shape", "axis", "level"), [((1, 2, 3, 4), -1, 1), ((1, 2, 3, 4), 3, 3), ((2, 3), -1, 3), ((1, 1, 1, 1), 0, 3)]
)
def test_levels(shape, axis, level):
    made = model("L2_NORMALIZATION", np.zeros(shape, np.float32), axis=axis)
    output = made.main.operands[-1]
    object.__setattr__(output, "type", OperandType(output.type.code, shape))
    assert validate(made) == level
