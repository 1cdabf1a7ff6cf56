from __future__ import annotations

import math

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from tests.runtime.kernels.single import quantized, run

MODES = [(False, False), (True, False), (False, True)]


def coordinate(place, size, count, align_corners, half_pixel_centers):
    """Where in the input an element of the output lies, in float32 as Android computes it."""
    aligned = align_corners and count > 1
    step = np.float32(size - aligned) / np.float32(count - aligned)
    return float(np.float32(place + 0.5) * step) if half_pixel_centers else float(np.float32(place) * step)


def nearest(x, rows, columns, modes):
    def pick(place, size, count):
        exact = coordinate(place, size, count, *modes)
        return min(math.floor(exact + 0.5) if modes[0] else math.floor(exact), size - 1)

    chosen = [[pick(i, x.shape[axis], count) for i in range(count)] for axis, count in ((1, rows), (2, columns))]
    return x[:, chosen[0]][:, :, chosen[1]]


def bilinear(x, rows, columns, modes):
    result = np.zeros((len(x), rows, columns, x.shape[3]))
    for row in range(rows):
        for column in range(columns):
            places = []
            for place, size, count in ((row, x.shape[1], rows), (column, x.shape[2], columns)):
                exact = coordinate(place, size, count, *modes) - 0.5 * modes[1]
                low = math.floor(exact)
                places.append(((max(low, 0), 1 - (exact - low)), (min(low + 1, size - 1), exact - low)))
            for h, down in places[0]:
                for w, across in places[1]:
                    result[:, row, column] += x[:, h, w].astype(float) * down * across
    return result


@pytest.fixture
def rng():
    return np.random.default_rng(9)


@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("size", [(8, 10), (3, 2), (1, 1), (7, 13)])
@pytest.mark.parametrize("operation", ["RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"])
def test_floats(rng, operation, size, modes, nchw):
    x = rng.standard_normal((2, 4, 5, 3)).astype(np.float32)
    function = nearest if operation == "RESIZE_NEAREST_NEIGHBOR" else bilinear
    expected = function(x, *size, modes)
    if nchw:
        x, expected = np.ascontiguousarray(x.transpose(0, 3, 1, 2)), expected.transpose(0, 3, 1, 2)
    how = {"align_corners": modes[0], "half_pixel_centers": modes[1], "nchw": nchw}
    result = run(operation, x, output_height=size[0], output_width=size[1], **how)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_codes_are_cut_off_toward_zero_after_half_is_added(rng, dtype, modes):
    limits = np.iinfo(dtype)
    x = quantized(rng.integers(limits.min, limits.max + 1, (1, 4, 4, 5)), 0.5, 3, dtype)
    expected = np.trunc(bilinear(x.codes, 8, 8, modes) + 0.5)  # the weights are dyadic, or nothing is near an integer
    how = {"align_corners": modes[0], "half_pixel_centers": modes[1]}
    result = run("RESIZE_BILINEAR", x, output_height=8, output_width=8, **how)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("operation", ["RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"])
def test_by_scale(rng, operation, dtype):
    x = rng.standard_normal((1, 4, 5, 2)).astype(dtype)
    result = run(operation, x, scale_height=1.75, scale_width=0.5)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, run(operation, x, output_height=7, output_width=2))


def test_a_batch_of_zero():
    x = np.zeros((0, 4, 4, 2), np.float32)
    assert run("RESIZE_BILINEAR", x, output_height=3, output_width=5).shape == (0, 3, 5, 2)
    assert run("RESIZE_NEAREST_NEIGHBOR", x, output_height=3, output_width=5).shape == (0, 3, 5, 2)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"output_height": 0, "output_width": 1}, "the output's height is 0, it must be positive"),
        ({"scale_height": 0.1, "scale_width": 1.0}, "the output's height is 0"),
        ({"scale_height": 1.0, "scale_width": math.inf}, "the output's width is 0"),
        (
            {"output_height": 2, "output_width": 2, "align_corners": True, "half_pixel_centers": True},
            "'align_corners' and 'half_pixel_centers' are both true",
        ),
    ],
)
def test_refused_values(how, message):
    with pytest.raises(InvalidModelError, match=message):
        run("RESIZE_BILINEAR", np.zeros((1, 4, 4, 1), np.float32), **how)
