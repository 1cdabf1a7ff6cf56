from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels import KERNELS, Call
from tests.runtime.kernels.single import PLAIN, quantized, run

IMAGE = {"padding_scheme": 1, "stride_width": 1, "stride_height": 1}
CASES = {
    "CONV_2D": ({"input": (1, 5, 6, 3), "filter": (4, 3, 2, 3), "bias": (4,)}, IMAGE),
    "DEPTHWISE_CONV_2D": (
        {"input": (1, 5, 6, 3), "filter": (1, 3, 2, 3), "bias": (3,)},
        {**IMAGE, "depth_multiplier": 1},
    ),
    "GROUPED_CONV_2D": ({"input": (1, 5, 6, 4), "filter": (4, 3, 2, 2), "bias": (4,)}, {**IMAGE, "groups": 2}),
    "FULLY_CONNECTED": ({"input": (2, 6), "weights": (5, 6), "bias": (5,)}, {"fuse_code": 1}),
    "MAX_POOL_2D": ({"input": (1, 5, 6, 3)}, {**IMAGE, "filter_width": 2, "filter_height": 3}),
    "AVERAGE_POOL_2D": ({"input": (1, 5, 6, 3)}, {**IMAGE, "filter_width": 2, "filter_height": 3}),
    "RESIZE_BILINEAR": ({"input": (1, 5, 6, 3)}, {"output_width": 9, "output_height": 7}),
}


def planned(name, arrays, scalars, output, constants):
    """A kernel as a plan calls it: always with the same arrays, whose contents change."""
    types = {key: OperandType(PLAIN[array.dtype.name], array.shape) for key, array in arrays.items()}
    call = Call(types, (OperandType(PLAIN[output.dtype.name], output.shape),), (output,), constants=constants)
    return lambda: KERNELS[OperationCode[name]](call, **arrays, **scalars)


@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", sorted(CASES))
def test_steps_are_run_again_on_what_the_arrays_hold_now(name, constant, nchw):
    rng = np.random.default_rng(10)
    shapes, scalars = CASES[name]
    arrays = {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
    if nchw and name == "FULLY_CONNECTED":
        pytest.skip("it has no layout")
    if nchw:
        arrays["input"] = np.ascontiguousarray(arrays["input"].transpose(0, 3, 1, 2))
        scalars = {**scalars, "nchw": True}
    output = np.empty_like(run(name, *arrays.values(), **scalars))
    kernel = planned(name, arrays, scalars, output, frozenset(["weights", "filter", "bias"] if constant else []))
    for _ in range(3):
        assert kernel() is output
        np.testing.assert_array_equal(output, run(name, *arrays.values(), **scalars))
        for key, array in arrays.items():
            if key == "input" or not constant:
                array[...] = rng.standard_normal(array.shape)


def test_results_without_a_buffer_are_new_each_time():
    arrays = {"input": np.ones((1, 4, 4, 1), np.float32)}
    call = Call({"input": OperandType(PLAIN["float32"], (1, 4, 4, 1))}, (OperandType(PLAIN["float32"], (1, 2, 2, 1)),))
    pool = KERNELS[OperationCode.MAX_POOL_2D]
    how = {"padding_scheme": 2, "stride_width": 2, "stride_height": 2, "filter_width": 2, "filter_height": 2}
    first = pool(call, **arrays, **how)
    arrays["input"][...] = 5
    second = pool(call, **arrays, **how)
    assert (first.max(), second.max()) == (1, 5)


def test_codes_of_several_bands_and_channels_with_their_own_scales():
    rng = np.random.default_rng(11)
    x = quantized(rng.integers(0, 256, (2, 40, 40, 3)), 0.1, 7)
    w = quantized(rng.integers(0, 256, (200, 1, 1, 3)), 0.1, 99)
    b = quantized(rng.integers(-99, 99, 200), np.float32(0.1) * np.float32(0.1), dtype=np.int32)
    exact = (x.codes.astype(int) - 7) @ (w.codes.reshape(200, 3).astype(int) - 99).T + b.codes
    result = run("CONV_2D", x, w, b, quant=[(2.0, 128)], constant=True, **IMAGE)
    assert np.abs(result - np.clip(exact * 0.005 + 128, 0, 255)).max() <= 0.51
