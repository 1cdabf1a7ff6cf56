from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi import validate
from tests.runtime.kernels.single import model, quantized, run

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
PAIRS = [(1, 0), (0, 2), (2, 1)]


def test_pad_surrounds_with_zeros():
    np.testing.assert_array_equal(run("PAD", X, paddings=PAIRS), np.pad(X, PAIRS))


@pytest.mark.parametrize(("dtype", "zero_point"), [(np.uint8, 9), (np.int8, -9)])
def test_pad_surrounds_codes_with_the_zero_point(dtype, zero_point):
    result = run("PAD", quantized(X, 0.5, zero_point, dtype), paddings=PAIRS)
    np.testing.assert_array_equal(result, np.pad(X.astype(dtype), PAIRS, constant_values=zero_point))


@pytest.mark.parametrize(("zero_point", "level"), [(0, 2), (9, 3)])
def test_pad_with_a_zero_point_needs_level_3(zero_point, level):
    made = model("PAD", quantized(X, 0.5, zero_point), paddings=PAIRS)
    *operands, output = made.main.operands
    sized = dataclasses.replace(output, type=output.type.with_shape((3, 5, 7)))  # a rank left open needs level 3 itself
    graph = dataclasses.replace(made.main, operands=(*operands, sized))
    assert validate(dataclasses.replace(made, main=graph)) == level


@pytest.mark.parametrize(("x", "value"), [(X, 1.5), (X.astype(np.float16), -2.0), (quantized(X, 0.5, 9), 200)])
def test_pad_v2_surrounds_with_a_value_which_is_a_code_where_codes_are(x, value):
    codes = getattr(x, "codes", x)
    result = run("PAD_V2", x, paddings=PAIRS, pad_value=value)
    np.testing.assert_array_equal(result, np.pad(codes, PAIRS, constant_values=value))


def test_pad_refuses_negative_paddings():
    with pytest.raises(InvalidModelError, match="none may be negative"):
        run("PAD", X, paddings=[(0, 0), (0, 0), (-1, 0)])


@pytest.mark.parametrize(("mode", "numpy_mode"), [(0, "reflect"), (1, "symmetric")])
def test_mirror_pad(mode, numpy_mode):
    pairs = [(1, 0), (2, 2), (0, 3)]
    np.testing.assert_array_equal(run("MIRROR_PAD", X, paddings=pairs, mode=mode), np.pad(X, pairs, mode=numpy_mode))


@pytest.mark.parametrize(("mode", "most"), [(0, 1), (1, 2)])
def test_mirror_pad_mirrors_once_only(mode, most):
    assert run("MIRROR_PAD", X, paddings=[(most, 0), (0, 0), (0, 0)], mode=mode).shape == (2 + most, 3, 4)
    with pytest.raises(InvalidModelError, match=f"padded by at most {most}"):
        run("MIRROR_PAD", X, paddings=[(most + 1, 0), (0, 0), (0, 0)], mode=mode)


@pytest.mark.parametrize(
    ("begin", "size", "taken"),
    [
        ((0, 1, 2), (2, 1, 2), np.s_[:, 1:2, 2:4]),
        ((1, 0, 1), (-1, -1, -1), np.s_[1:, :, 1:]),
        ((0, 3, 0), (2, 0, 4), np.s_[:, 3:3, :]),
    ],
)
def test_slice(begin, size, taken):
    np.testing.assert_array_equal(run("SLICE", X, begin=begin, size=size), X[taken])


@pytest.mark.parametrize(("begin", "size"), [((0, 2, 0), (2, 2, 4)), ((0, -1, 0), (1, 1, 1)), ((3, 0, 0), (-1, 1, 1))])
def test_slice_refuses_what_is_outside(begin, size):
    with pytest.raises(InvalidModelError, match="exceed dimension"):
        run("SLICE", X, begin=begin, size=size)


@pytest.mark.parametrize(
    ("begin", "end", "strides", "masks", "taken"),
    [
        ((0, 0, 0), (2, 3, 4), (1, 2, 3), (0, 0, 0), np.s_[::1, ::2, ::3]),
        ((0, -1, 3), (2, -4, -5), (1, -1, -2), (0, 0, 0), np.s_[:, ::-1, 3::-2]),
        ((1, 1, 1), (1, 1, 1), (1, 1, 1), (0b101, 0b111, 0), np.s_[:, 1:, :]),
        ((1, 1, -1), (2, 9, 4), (1, 1, 1), (0, 0, 0b101), np.s_[1, 1:9, -1]),
        ((9, 0, 0), (12, 3, 4), (1, 1, 1), (0, 0, 0), np.s_[9:12]),
    ],
)
def test_strided_slice_is_pythons(begin, end, strides, masks, taken):
    names = ("begin_mask", "end_mask", "shrink_axis_mask")
    result = run("STRIDED_SLICE", X, begin=begin, end=end, strides=strides, **dict(zip(names, masks, strict=True)))
    np.testing.assert_array_equal(result, X[taken])


def test_strided_slice_of_one_element_keeps_shape_1():
    result = run("STRIDED_SLICE", X[0, 0], begin=[2], end=[3], strides=[1], shrink_axis_mask=1)
    np.testing.assert_array_equal(result, [X[0, 0, 2]])


@pytest.mark.parametrize(("stride", "shrink"), [(0, 0), (-1, 1), (1, 1)])
def test_strided_slice_refuses_no_stride_and_shrinking_more_than_one(stride, shrink):
    with pytest.raises(InvalidModelError, match=r"strides|exactly one index"):
        run("STRIDED_SLICE", X[0, 0], begin=[0], end=[3], strides=[stride], shrink_axis_mask=shrink)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [[1, 0, 1], [[0], [1]], [0]])
def test_gather(axis, indices):
    indices = np.array(indices, np.int32)
    np.testing.assert_array_equal(run("GATHER", X, indices, axis=axis), np.take(X, indices, axis))


@pytest.mark.parametrize("index", [-1, 3])
def test_gather_refuses_what_is_outside(index):
    with pytest.raises(InvalidModelError, match="'indices' must be 0 to 2"):
        run("GATHER", X, np.array([0, index], np.int32), axis=1)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_topk_equals_onnx(k):
    x = np.random.default_rng(1).permutation(24).astype(np.float32).reshape(2, 2, 6)
    node = helper.make_node("TopK", ["x", "k"], ["values", "indices"], axis=-1)
    values, indices = ReferenceEvaluator(node).run(None, {"x": x, "k": np.array([k])})
    got = run("TOPK_V2", x, k=k)
    np.testing.assert_array_equal(got[0], values)
    np.testing.assert_array_equal(got[1], indices)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8, np.int8])
def test_topk_puts_the_later_of_equals_first(dtype):
    x = np.array([5, 7, 7, 1, 7], dtype)
    values, indices = run("TOPK_V2", quantized(x, 0.5, 0, dtype) if x.itemsize == 1 else x, k=4)
    np.testing.assert_array_equal(values, np.array([7, 7, 7, 5], dtype))
    np.testing.assert_array_equal(indices, [4, 2, 1, 0])


def test_topk_refuses_more_than_there_are():
    with pytest.raises(InvalidModelError, match="'k' is 5, it must be 1 to 4"):
        run("TOPK_V2", X, k=5)
