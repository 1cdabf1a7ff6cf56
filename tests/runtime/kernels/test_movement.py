from __future__ import annotations

import itertools

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Argument, UnknownValue, bind, output_types
from onnx2nnapi.nnapi.schema import SCHEMAS
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels import KERNELS, Call
from tests.runtime.kernels.single import model, quantized, run

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("shape", [(4, 6), (-1,), (3, -1, 2), (1, 24, 1, 1)])
def test_reshape_keeps_the_elements_in_order(shape):
    np.testing.assert_array_equal(run("RESHAPE", X, shape=shape), X.reshape(shape))


@pytest.mark.parametrize("shape", [(5, 5), (-1, -1), (-2, -12), (0, -1), (5, -1)])
def test_reshape_refuses_what_does_not_hold_the_elements(shape):
    with pytest.raises(InvalidModelError, match="'shape'"):
        run("RESHAPE", X, shape=shape)


@pytest.mark.parametrize("perm", list(itertools.permutations(range(3))))
def test_transpose(perm):
    np.testing.assert_array_equal(run("TRANSPOSE", X, perm=perm), np.transpose(X, perm))


def test_transpose_without_perm_is_for_matrices():
    np.testing.assert_array_equal(run("TRANSPOSE", X[0]), X[0].T)
    with pytest.raises(InvalidModelError, match="'perm' may be omitted for matrices only, not for rank 3"):
        run("TRANSPOSE", X)


@pytest.mark.parametrize("perm", [(0, 0, 1), (0, 1, 3), (-1, 0, 1)])
def test_transpose_refuses_what_is_no_permutation(perm):
    with pytest.raises(InvalidModelError, match="no permutation of the dimensions 0 to 2"):
        run("TRANSPOSE", X, perm=perm)


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [((1, 3, 1), None, (3,)), ((1, 3, 1), (0,), (3, 1)), ((1, 3, 1), (-1, 2), (1, 3)), ((1, 1), None, (1,))],
)
def test_squeeze_removes_ones_and_never_leaves_rank_0(shape, axes, expected):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    result = run("SQUEEZE", x, axes=axes)
    assert result.shape == expected
    np.testing.assert_array_equal(result.reshape(-1), x.reshape(-1))


def test_squeeze_refuses_other_sizes():
    with pytest.raises(InvalidModelError, match=r"dimension 1 of \[2, 3, 4\], which is not of size 1"):
        run("SQUEEZE", X, axes=(1,))


@pytest.mark.parametrize("axis", range(-4, 4))
def test_expand_dims(axis):
    np.testing.assert_array_equal(run("EXPAND_DIMS", X, axis=axis), np.expand_dims(X, axis))


@pytest.mark.parametrize("axis", range(3))
def test_concatenation_of_floats(axis):
    parts = [X, X * 2, np.take(X, [0], axis)]
    np.testing.assert_array_equal(run("CONCATENATION", *parts, axis=axis), np.concatenate(parts, axis))


@pytest.mark.parametrize(("dtype", "shift"), [(np.uint8, 0), (np.int8, -128)])
def test_concatenation_requantizes_half_away_from_zero(dtype, shift):
    codes = np.arange(256) + shift
    a, b = quantized(codes, 0.25, 3 + shift, dtype), quantized(codes, 0.5, 200 + shift, dtype)
    result = run("CONCATENATION", a, b, axis=0, quant=[(0.5, 100 + shift)])
    for part, given in zip(np.split(result, 2), (a, b), strict=True):
        steps = given.real / 0.5  # exact: the scales are powers of two
        wanted = np.trunc(steps + np.copysign(0.5, steps)) + 100 + shift
        np.testing.assert_array_equal(part, np.clip(wanted, shift, 255 + shift))


def test_concatenation_copies_codes_of_the_same_quantization():
    a = quantized([[0, 7, 255]], 0.1, 7)
    np.testing.assert_array_equal(run("CONCATENATION", a, a, axis=0, quant=[(0.1, 7)]), [[0, 7, 255]] * 2)


def test_concatenation_refuses_a_negative_axis():
    with pytest.raises(InvalidModelError, match="'axis' is -1, it must be 0 to 2"):
        run("CONCATENATION", X, X, axis=-1)


@pytest.mark.parametrize("axis", range(4))
def test_pack_stacks(axis):
    np.testing.assert_array_equal(run("PACK", X, X + 1, axis=axis), np.stack([X, X + 1], axis))


def test_pack_refuses_another_scale_among_its_inputs():
    with pytest.raises(InvalidModelError, match="same scale and zero point"):
        run("PACK", quantized([1], 0.5), quantized([1], 0.25), axis=0)


@pytest.mark.parametrize(("axis", "count"), [(0, 2), (1, 3), (-1, 2), (2, 1)])
def test_split(axis, count):
    results = run("SPLIT", X, axis=axis, count=count, outputs=count)
    for result, part in zip(results if count > 1 else [results], np.split(X, count, axis), strict=True):
        np.testing.assert_array_equal(result, part)


def test_split_refuses_a_remainder():
    with pytest.raises(InvalidModelError, match="does not divide dimension 1 of size 3"):
        run("SPLIT", X, axis=1, count=2, outputs=2)


@pytest.mark.parametrize("multiples", [(1, 1, 1), (2, 1, 3), (1, 4, 1), (2, 0, 1)])
def test_tile(multiples):
    np.testing.assert_array_equal(run("TILE", X, multiples=multiples), np.tile(X, multiples))


@pytest.mark.parametrize("axis", range(3))
def test_reverse(axis):
    np.testing.assert_array_equal(run("REVERSE", X, axes=[axis]), np.flip(X, axis))


@pytest.mark.parametrize(("axis", "groups"), [(1, 3), (-1, 2), (2, 4), (0, 1)])
def test_channel_shuffle(axis, groups):
    size = X.shape[axis] // groups
    order = [group * size + k for k in range(size) for group in range(groups)]
    np.testing.assert_array_equal(run("CHANNEL_SHUFFLE", X, groups=groups, axis=axis), np.take(X, order, axis))


@pytest.mark.parametrize(("dtype", "value"), [(np.float32, 1.5), (np.float16, -2.0), (np.int32, -7)])
def test_fill(dtype, value):
    constants = model("FILL", dims=[2, 3], value=value, dtype=dtype)
    kernel = KERNELS[OperationCode.FILL]
    result = kernel(Call({}, (constants.main.operands[2].type,)), dims=np.array([2, 3]), value=value)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.full((2, 3), value, dtype))


@pytest.mark.parametrize("rank", range(1, 6))
def test_rank(rank):
    assert run("RANK", np.zeros((1,) * rank, np.float32)) == rank


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("RESHAPE", {"shape": [4, 6]}),
        ("TRANSPOSE", {"perm": [2, 0, 1]}),
        ("EXPAND_DIMS", {"axis": 1}),
        ("TILE", {"multiples": [1, 2, 1]}),
        ("REVERSE", {"axes": [1]}),
        ("CHANNEL_SHUFFLE", {"groups": 2, "axis": 2}),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.uint8, np.int8])
def test_every_type_moves_as_floats_do(name, how, dtype):
    codes = X.astype(dtype)
    given = codes if dtype == np.float16 else quantized(codes, 0.5, 3, dtype)
    result = run(name, given, **how)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, run(name, X, **how).astype(dtype))


@pytest.mark.parametrize(
    ("name", "how"), [("TRANSPOSE", {"perm": np.array([1, 2, 0])}), ("RESHAPE", {"shape": np.array([6, 4])})]
)
def test_a_result_is_written_to_the_plans_buffer(name, how):
    expected = KERNELS[OperationCode[name]](Call({}, ()), input=X, **how)
    out = np.full(expected.shape, np.nan, np.float32)
    assert KERNELS[OperationCode[name]](Call({}, (), (out,)), input=X, **how) is out
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("RESHAPE", {"F32": 1, "F16": 3, "U8": 1, "S8": 4, "I32": 6}),
        ("TRANSPOSE", {"F32": 2, "F16": 3, "U8": 2, "S8": 4}),
        ("EXPAND_DIMS", {"F32": 3, "I32": 3, "S8": 4}),
        ("REVERSE", {"F32": 7, "S8": 7}),
    ],
)
def test_levels_by_element_type(name, types):
    schema = SCHEMAS[OperationCode[name]]
    short = {"F32": "FLOAT32", "F16": "FLOAT16", "U8": "QUANT8_ASYMM", "S8": "QUANT8_ASYMM_SIGNED", "I32": "INT32"}
    since = {row.codes["input"].name: row.since for row in schema.types}
    for code, level in types.items():
        assert since[f"TENSOR_{short[code]}"] == level


def test_sizes_are_inferred_only_when_their_values_are_known():
    schema = SCHEMAS[OperationCode.SPLIT]
    data = Argument(OperandType(OperandCode.TENSOR_FLOAT32, (2, 6)))
    axis, count = (Argument(OperandType(OperandCode.INT32), np.array([value])) for value in (1, 3))
    known = bind(schema, [data, axis, count])
    assert [type_.shape for type_ in output_types(known)] == [(2, 2)] * 3
    fed = bind(schema, [data, axis, Argument(OperandType(OperandCode.INT32))])
    with pytest.raises(UnknownValue, match="count"):
        output_types(fed)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("TILE", {"multiples": [1 << 20, 1 << 20, 1 << 20]}),
        ("PAD", {"paddings": [(1 << 30, 0), (0, 0), (0, 0)]}),
    ],
)
def test_results_that_nnapi_cannot_address_are_refused_before_anything_is_allocated(name, how):
    with pytest.raises(InvalidModelError, match="more than the 4294967295 bytes"):
        run(name, X, **how)
