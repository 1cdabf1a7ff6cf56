from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnx2nnapi.errors import InvalidModelError
from tests.runtime.kernels.single import quantized, run

X = np.arange(2 * 4 * 6 * 8, dtype=np.float32).reshape(2, 4, 6, 8)


def onnx(op_type, x, **attrs):
    """An ONNX operator on NHWC data."""
    node = helper.make_node(op_type, ["x"], ["y"], **attrs)
    (result,) = ReferenceEvaluator(node).run(None, {"x": x.transpose(0, 3, 1, 2)})
    return result.transpose(0, 2, 3, 1)


def test_depth_to_space_equals_onnx():
    np.testing.assert_array_equal(
        run("DEPTH_TO_SPACE", X, block_size=2), onnx("DepthToSpace", X, blocksize=2, mode="DCR")
    )


def test_space_to_depth_equals_onnx():
    np.testing.assert_array_equal(run("SPACE_TO_DEPTH", X, block_size=2), onnx("SpaceToDepth", X, blocksize=2))


def test_batch_to_space_deals_batches_to_the_pixels_of_a_block():
    x = np.arange(6 * 2 * 3 * 1, dtype=np.float32).reshape(6, 2, 3, 1)
    result = run("BATCH_TO_SPACE_ND", x, block_sizes=[2, 3])
    assert result.shape == (1, 4, 9, 1)
    for row in range(2):
        for column in range(3):
            np.testing.assert_array_equal(result[0, row::2, column::3], x[row * 3 + column])


def test_space_to_batch_pads_and_is_the_inverse():
    padded = np.pad(X, [(0, 0), (1, 1), (0, 3), (0, 0)])
    dealt = run("SPACE_TO_BATCH_ND", X, block_sizes=[2, 3], paddings=[(1, 1), (0, 3)])
    assert dealt.shape == (12, 3, 3, 8)
    np.testing.assert_array_equal(run("BATCH_TO_SPACE_ND", dealt, block_sizes=[2, 3]), padded)


def test_space_to_batch_pads_codes_with_the_zero_point():
    x = quantized(np.ones((1, 1, 1, 1)), 0.5, 77)
    result = run("SPACE_TO_BATCH_ND", x, block_sizes=[1, 2], paddings=[(0, 0), (1, 0)])
    np.testing.assert_array_equal(result.reshape(-1), [77, 1])


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("DEPTH_TO_SPACE", {"block_size": 2}),
        ("SPACE_TO_DEPTH", {"block_size": 2}),
        ("BATCH_TO_SPACE_ND", {"block_sizes": [1, 2]}),
        ("SPACE_TO_BATCH_ND", {"block_sizes": [2, 2], "paddings": [(0, 0), (1, 1)]}),
    ],
)
def test_nchw_is_the_transposed_result(name, how):
    planes = run(name, np.ascontiguousarray(X.transpose(0, 3, 1, 2)), nchw=True, **how)
    np.testing.assert_array_equal(planes.transpose(0, 2, 3, 1), run(name, X, **how))


@pytest.mark.parametrize(
    ("name", "how", "what"),
    [
        ("DEPTH_TO_SPACE", {"block_size": 3}, "8 channels are no multiple of 9"),
        ("SPACE_TO_DEPTH", {"block_size": 3}, "4 rows are no multiple of 3"),
        ("SPACE_TO_DEPTH", {"block_size": 0}, "'block_size' is 0"),
        ("BATCH_TO_SPACE_ND", {"block_sizes": [3, 1]}, "2 batches are no multiple of 3"),
        ("SPACE_TO_BATCH_ND", {"block_sizes": [2, 2], "paddings": [(1, 0), (0, 0)]}, "5 padded rows"),
        ("SPACE_TO_BATCH_ND", {"block_sizes": [2, 2], "paddings": [(-2, 0), (0, 0)]}, "none may be negative"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(name, how, what):
    with pytest.raises(InvalidModelError, match=what):
        run(name, X, **how)
