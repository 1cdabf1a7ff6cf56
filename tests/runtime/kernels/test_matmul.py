from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi import validate
from tests.runtime.kernels.single import model, quantized, run
from tests.runtime.kernels.windows import requantized


@pytest.fixture
def rng():
    return np.random.default_rng(6)


@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 4), (2, 2, 2, 3), (0, 8)])
@pytest.mark.parametrize("constant", [False, True])
def test_fully_connected_flattens_to_rows(rng, shape, constant):
    depth = {8: 8, 4: 6, 3: 4}[shape[-1]]
    x, w, b = (rng.standard_normal(size).astype(np.float32) for size in (shape, (5, depth), (5,)))
    expected = np.maximum(x.astype(float).reshape(-1, depth) @ w.astype(float).T + b, 0)
    result = run("FULLY_CONNECTED", x, w, b, fuse_code=1, constant=constant)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_fully_connected_in_blocks(rng):
    x, w, b = (rng.standard_normal(size).astype(np.float32) for size in ((2050, 4), (333, 4), (333,)))
    result = run("FULLY_CONNECTED", x, w, b, constant=True)
    np.testing.assert_allclose(result, x.astype(float) @ w.astype(float).T + b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_fully_connected_codes(rng, dtype):
    limits = np.iinfo(dtype)
    x = quantized(rng.integers(limits.min, limits.max + 1, (40, 9)), 0.1, 3, dtype)
    w = quantized(rng.integers(limits.min, limits.max + 1, (11, 9)), 0.02, -2 if dtype is np.int8 else 99, dtype)
    scale = np.float32(0.1) * np.float32(0.02)
    b = quantized(rng.integers(-5000, 5000, 11), scale, dtype=np.int32)
    sums = (x.codes.astype(int) - 3) @ (w.codes.astype(int) - w.zero_point).T + b.codes
    for output_scale in (0.11, 0.003):
        expected = requantized(sums, scale, output_scale, 17, limits.min, limits.max)
        result = run("FULLY_CONNECTED", x, w, b, quant=[(output_scale, 17)])
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 7), (3, 4), (3,)), "14 elements, no multiple of the weights' 4 columns"),
        (((2, 4), (3, 4), (4,)), r"'bias' has (4 elements|shape \[4\])"),
        (((4,), (3, 4), (3,)), "'input' has rank 1"),
    ],
)
def test_fully_connected_refuses(shapes, message):
    with pytest.raises(InvalidModelError, match=message):
        run("FULLY_CONNECTED", *(np.zeros(shape, np.float32) for shape in shapes))


@pytest.mark.parametrize(("scale", "level"), [(0.03, 1), (0.02, 3), (0.01, 3)])
def test_an_output_scale_not_above_the_products_needs_level_3(scale, level):
    x, w = quantized(np.zeros((1, 2)), 0.1), quantized(np.zeros((1, 2)), 0.2)
    b = quantized([0], np.float32(0.1) * np.float32(0.2), dtype=np.int32)
    made = model("FULLY_CONNECTED", x, w, b, quant=[(scale, 0)])
    output = made.main.operands[-1]
    object.__setattr__(output, "type", output.type.with_shape((1, 1)))
    assert validate(made) == level


@pytest.mark.parametrize(("a", "b"), [((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 2, 3, 4), (1, 2, 4, 5))])
@pytest.mark.parametrize("transpose_input", [False, True])
@pytest.mark.parametrize("transpose_other", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_batch_matmul(rng, a, b, transpose_input, transpose_other, dtype):
    left, right = (rng.integers(-9, 9, shape).astype(dtype) for shape in (a, b))  # exact in every type
    expected = left.astype(int) @ right.astype(int)
    how = {"transpose_input": transpose_input, "transpose_other": transpose_other}
    left = np.ascontiguousarray(left.swapaxes(-1, -2)) if transpose_input else left
    right = np.ascontiguousarray(right.swapaxes(-1, -2)) if transpose_other else right
    np.testing.assert_array_equal(run("BATCH_MATMUL", left, right, **how), expected.astype(dtype))


def test_float16_is_summed_in_float16():
    left = np.array([[2048.0, 1.0, 1.0, 1.0]], np.float16)  # 2048 + 1 rounds to 2048
    assert run("BATCH_MATMUL", left, np.ones((4, 1), np.float16)).item() == 2048.0


def test_int32_wraps():
    big = np.array([[2**31 - 1, 2**31 - 1]], np.int32)
    assert run("BATCH_MATMUL", big, np.array([[2**31 - 1], [2]], np.int32)).item() == -1


def test_batch_matmul_of_codes_rounds_twice(rng):
    x = quantized(rng.integers(-128, 128, (2, 20, 6)), 0.1, -3, np.int8)
    y = quantized(rng.integers(-128, 128, (2, 6, 30)), 0.2, 11, np.int8)
    sums = (x.codes.astype(int) + 3) @ (y.codes.astype(int) - 11)
    scale = np.float32(0.1) * np.float32(0.2)
    expected = requantized(sums, scale, 3.0, 4, -128, 127)
    np.testing.assert_array_equal(run("BATCH_MATMUL", x, y, quant=[(3.0, 4)]), expected)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((2, 3), (4, 5), "a matrix of 2 × 3 cannot be multiplied by one of 4 × 5"),
        ((2, 3), (1, 3, 5), "the operands have ranks 2 and 3"),
        ((1, 2, 3), (2, 3, 4), r"batch dimensions \[1\] and \[2\] differ"),
    ],
)
def test_batch_matmul_refuses(a, b, message):
    with pytest.raises(InvalidModelError, match=message):
        run("BATCH_MATMUL", np.zeros(a, np.float32), np.zeros(b, np.float32))
