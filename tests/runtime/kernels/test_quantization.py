from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi import Model, validate
from onnx2nnapi.runtime import Interpreter
from tests.nnapi.descriptions import f32, graph, model, operand
from tests.runtime.kernels.single import quantized, run

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float16])


@DTYPES
@pytest.mark.parametrize(("to", "shift"), [(np.uint8, 0), (np.int8, -128)])
def test_quantize_rounds_ties_away_from_zero(to, shift, dtype):
    x = np.array([-1.25, -0.25, 0.0, 0.25, 0.75, 1e4, -1e4, np.inf], dtype)
    wanted = np.array([97, 99, 100, 101, 102, 255, 0, 255]) + shift
    np.testing.assert_array_equal(run("QUANTIZE", x, dtype=to, quant=[(0.5, 100 + shift)]), wanted)


@DTYPES
def test_dequantize(dtype):
    codes = np.array([0, 100, 255], np.uint8)
    np.testing.assert_array_equal(run("DEQUANTIZE", quantized(codes, 0.5, 100), dtype=dtype), [-50, 0, 77.5])
    symmetric = quantized([-128, 127], 0.25, 0, np.int8, symmetric=True)
    np.testing.assert_array_equal(run("DEQUANTIZE", symmetric, dtype=dtype), [-32, 31.75])


@pytest.mark.parametrize("channel", [0, 1])
def test_dequantize_by_channel(channel):
    scales = [0.5, 2.0]
    codes = operand(
        "TENSOR_QUANT8_SYMM_PER_CHANNEL",
        [2, 2],
        "INPUT",
        channel_quant={"channel_dim": channel, "scales": scales},
    )
    made = Model.from_dict(model(graph([codes, f32("OUTPUT", 2, 2)], [("DEQUANTIZE", [0], [1])])))
    x = np.array([[1, 2], [3, -4]], np.int8)
    wanted = x * np.expand_dims(scales, 1 - channel)
    np.testing.assert_array_equal(Interpreter(made).run([x])[0], wanted)


@pytest.mark.parametrize("source", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("target", [np.float32, np.float16, np.int32])
def test_cast_cuts_towards_zero(source, target):
    x = np.array([-2.75, -0.5, 0.0, 1.5, 300.0]).astype(source)
    np.testing.assert_array_equal(run("CAST", x, dtype=target), np.trunc(x).astype(target) if target is np.int32 else x)


def test_cast_to_codes_saturates_and_ignores_the_scale():
    x = np.array([-7.5, 3.9, 255.5, 1e6], np.float32)
    np.testing.assert_array_equal(run("CAST", x, dtype=np.uint8, quant=[(0.5, 9)]), [0, 3, 255, 255])
    np.testing.assert_array_equal(run("CAST", quantized([0, 9, 255], 0.5, 9), dtype=np.float32), [0, 9, 255])


def test_cast_from_booleans_is_to_booleans_only():
    bools = operand("TENSOR_BOOL8", [2], "INPUT")
    same = operand("TENSOR_BOOL8", [2], "OUTPUT")
    assert validate(Model.from_dict(model(graph([bools, same], [("CAST", [0], [1])])))) == 4
    with pytest.raises(InvalidModelError, match="input: TENSOR_BOOL8, output: TENSOR_FLOAT32"):
        validate(Model.from_dict(model(graph([bools, f32("OUTPUT", 2)], [("CAST", [0], [1])]))))
