from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from tests.runtime.kernels.single import quantized, run

X = np.linspace(-3, 2, 24, dtype=np.float32).reshape(2, 3, 4)
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float16])
AXES = pytest.mark.parametrize("axes", [[0], [-1], [0, 2], [1, 1, -2], [0, 1, 2]])
KEEP = pytest.mark.parametrize("keep", [False, True])


def over(axes):
    return tuple({axis % 3 for axis in axes})


@DTYPES
@AXES
@KEEP
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("MEAN", np.mean),
        ("REDUCE_SUM", np.sum),
        ("REDUCE_PROD", np.prod),
        ("REDUCE_MAX", np.max),
        ("REDUCE_MIN", np.min),
    ],
)
def test_reductions_of_floats(name, function, axes, keep, dtype):
    result = run(name, X.astype(dtype), axes=axes, keep_dims=int(keep) if name == "MEAN" else keep)
    wanted = np.atleast_1d(function(X.astype(np.float64), axis=over(axes), keepdims=keep))
    assert result.shape == wanted.shape  # a full reduction has shape [1]
    np.testing.assert_allclose(result, wanted, rtol=1e-5 if dtype is np.float32 else 3e-2, atol=1e-5)


@AXES
@KEEP
def test_reductions_of_booleans(axes, keep):
    x = X > 0.5
    np.testing.assert_array_equal(
        run("REDUCE_ANY", x, axes=axes, keep_dims=keep), np.atleast_1d(x.any(axis=over(axes), keepdims=keep))
    )
    np.testing.assert_array_equal(
        run("REDUCE_ALL", x, axes=axes, keep_dims=keep), np.atleast_1d(x.all(axis=over(axes), keepdims=keep))
    )


@pytest.mark.parametrize(("dtype", "wanted"), [(np.uint8, [2, 3]), (np.int8, [-2, 3])])
def test_a_mean_of_codes_is_cut_towards_zero(dtype, wanted):
    codes = [[2, 3, 3], [3, 4, 4]] if dtype is np.uint8 else [[-2, -3, -3], [3, 4, 4]]
    np.testing.assert_array_equal(run("MEAN", quantized(codes, 0.5, 9, dtype), axes=[1], keep_dims=0), wanted)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_extrema_of_codes(dtype):
    x = quantized([[1, 9], [7, 3]], 0.5, 9, dtype)
    np.testing.assert_array_equal(run("REDUCE_MAX", x, axes=[0], keep_dims=False), [7, 9])
    np.testing.assert_array_equal(run("REDUCE_MIN", x, axes=[1], keep_dims=False), [1, 3])


def test_a_sum_in_half_precision_is_rounded_after_each_element():
    x = np.full((1, 4096), 1.0, np.float16)
    assert run("REDUCE_SUM", x, axes=[1], keep_dims=False)[0] == 2048  # 2048 + 1 is 2048 in float16
    assert run("MEAN", x, axes=[1], keep_dims=0)[0] == 1


def test_extrema_are_finite_and_ignore_what_is_no_number():
    x = np.array([[-np.inf, np.nan], [np.nan, 1.0]], np.float32)
    np.testing.assert_array_equal(run("REDUCE_MAX", x, axes=[1], keep_dims=False), [np.finfo(np.float32).min, 1])


@pytest.mark.parametrize("axes", [[3], [-4], [0, 7]])
def test_axes_are_dimensions_of_the_input(axes):
    with pytest.raises(InvalidModelError, match="a tensor of rank 3 has the dimensions -3 to 2"):
        run("MEAN", X, axes=axes, keep_dims=0)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_index_of_the_extremum_is_the_first(axis, dtype):
    x = np.array([[3, 1, 3], [1, 4, 4]], dtype)
    np.testing.assert_array_equal(run("ARGMAX", x, axis=axis), x.argmax(axis=axis))
    np.testing.assert_array_equal(run("ARGMIN", x, axis=axis), x.argmin(axis=axis))


def test_index_of_codes_and_of_a_vector():
    assert run("ARGMAX", quantized([5, 9, 9], 0.5, 9), axis=0).tolist() == [1]
    assert run("ARGMIN", quantized([5, -9, -9], 0.5, 9, np.int8), axis=-1).tolist() == [1]


def test_what_is_no_number_is_never_found_unless_it_is_first():
    x = np.array([[1, np.nan, 2], [np.nan, 1, 2]], np.float32)
    assert run("ARGMAX", x, axis=1).tolist() == [2, 0]
    assert run("ARGMIN", x, axis=1).tolist() == [0, 0]
