from __future__ import annotations

import math

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from tests.runtime.kernels.single import quantized, run
from tests.runtime.kernels.windows import same, taps

GEOMETRIES = [
    ((2, 2), (2, 2), ((0, 0), (0, 0))),
    ((3, 3), (1, 1), ((1, 1), (1, 1))),
    ((3, 2), (2, 1), ((2, 1), (0, 1))),
    ((4, 5), (3, 3), ((1, 2), (3, 4))),
    ((6, 5), (1, 1), ((5, 5), (0, 0))),
]


def pool(x, function, filters, strides, pads):
    """``function`` of the pixels under the window, each [n, channels], at each place."""
    found = list(taps(x.shape[1:3], filters, strides, pads))
    rows, columns = (index + 1 for index in found[-1][0])
    result = np.empty((len(x), rows, columns, x.shape[3]))
    for place, hits in found:
        result[:, place[0], place[1]] = function(np.stack([x[:, h, w] for _, (h, w) in hits]))
    return result


FUNCTIONS = {
    "MAX_POOL_2D": lambda pixels: pixels.max(axis=0),
    "AVERAGE_POOL_2D": lambda pixels: pixels.mean(axis=0),
    "L2_POOL_2D": lambda pixels: np.sqrt(np.square(pixels).mean(axis=0)),
}


def operands(filters, strides, pads=None):
    names = {
        "filter_height": filters[0],
        "filter_width": filters[1],
        "stride_height": strides[0],
        "stride_width": strides[1],
    }
    if pads is None:
        return names
    (top, bottom), (left, right) = pads
    return names | {"padding_left": left, "padding_right": right, "padding_top": top, "padding_bottom": bottom}


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("filters", "strides", "pads"), GEOMETRIES)
@pytest.mark.parametrize("operation", sorted(FUNCTIONS))
def test_pools_of_floats(rng, operation, filters, strides, pads, dtype, nchw):
    x = rng.standard_normal((2, 6, 5, 3)).astype(dtype)
    expected = pool(x.astype(float), FUNCTIONS[operation], filters, strides, pads)
    if nchw:
        x, expected = np.ascontiguousarray(x.transpose(0, 3, 1, 2)), expected.transpose(0, 3, 1, 2)
    result = run(operation, x, nchw=nchw, **operands(filters, strides, pads))
    assert result.dtype == dtype
    np.testing.assert_allclose(
        result, expected, rtol=2e-3 if dtype is np.float16 else 1e-6, atol=1e-3 if dtype is np.float16 else 1e-6
    )


@pytest.mark.parametrize("operation", sorted(FUNCTIONS))
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_same_padding(rng, operation, strides):
    x = rng.standard_normal((1, 5, 7, 2)).astype(np.float32)
    expected = pool(x.astype(float), FUNCTIONS[operation], (3, 4), strides, same((5, 7), (3, 4), strides))
    result = run(operation, x, padding_scheme=1, **operands((3, 4), strides))
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


def half_away(value):
    return math.floor(abs(value) + 0.5) * (1 if value > 0 else -1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("filters", "strides", "pads"), GEOMETRIES)
def test_means_of_codes_round_half_away_from_zero(rng, dtype, filters, strides, pads):
    limits = np.iinfo(dtype)
    x = quantized(rng.integers(limits.min, limits.max + 1, (2, 6, 5, 3)), 0.5, 3, dtype)
    exact = pool(x.codes.astype(float), FUNCTIONS["AVERAGE_POOL_2D"], filters, strides, pads)
    result = run("AVERAGE_POOL_2D", x, **operands(filters, strides, pads))
    np.testing.assert_array_equal(result, np.vectorize(half_away)(exact))


@pytest.mark.parametrize(("fuse_code", "low", "high"), [(0, -128, 127), (1, 3, 127), (2, 1, 5), (3, 3, 15)])
@pytest.mark.parametrize("operation", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
def test_codes_are_clamped_to_the_activation(operation, fuse_code, low, high):
    x = quantized(np.arange(-128, 128, dtype=np.int8).reshape(1, 16, 16, 1), 0.5, 3, np.int8)
    result = run(operation, x, padding_scheme=2, fuse_code=fuse_code, **operands((1, 1), (1, 1)))
    np.testing.assert_array_equal(result, np.clip(x.codes, low, high))


def test_infinities_become_the_largest_number():
    x = np.full((1, 2, 2, 1), -np.inf, np.float32)
    result = run("MAX_POOL_2D", x, padding_scheme=2, **operands((2, 2), (1, 1)))
    assert result.item() == -np.finfo(np.float32).max


def test_a_batch_of_zero():
    result = run("AVERAGE_POOL_2D", np.zeros((0, 4, 4, 2), np.float32), padding_scheme=2, **operands((2, 2), (2, 2)))
    assert result.shape == (0, 2, 2, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"padding_top": 2}, "'padding_top' is 2, it must be 0 to 1, less than the filter's height of 2"),
        ({"filter_width": 0}, "'filter_width' is 0, it must be positive"),
        ({"stride_height": -1}, "'stride_height' is -1, it must be positive"),
        ({"filter_height": 9}, "the filter's height of 9 is longer than the padded input's 4"),
        ({"fuse_code": 9}, "'fuse_code' is 9"),
    ],
)
def test_refused_values(changes, message):
    how = operands((2, 2), (1, 1), ((0, 0), (0, 0))) | changes
    with pytest.raises(InvalidModelError, match=message):
        run("MAX_POOL_2D", np.zeros((1, 4, 4, 1), np.float32), **how)
