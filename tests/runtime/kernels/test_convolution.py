from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi import validate
from tests.runtime.kernels.single import model, per_channel, quantized, run
from tests.runtime.kernels.windows import conv, requantized, same, transposed_conv

RANGES = {0: (-np.inf, np.inf), 1: (0, np.inf), 2: (-1, 1), 3: (0, 6)}
SCALE_IN, SCALE_OUT = 0.05, 0.3


def floats(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def sides(pads):
    (top, bottom), (left, right) = pads
    return {"padding_left": left, "padding_right": right, "padding_top": top, "padding_bottom": bottom}


def steps(strides, dilations=(1, 1)):
    names = {"stride_height": strides[0], "stride_width": strides[1]}
    return names if dilations == (1, 1) else names | {"dilation_height": dilations[0], "dilation_width": dilations[1]}


def planes(image):
    return np.ascontiguousarray(image.transpose(0, 3, 1, 2))


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("image", "filters", "strides", "dilations", "pads"),
    [
        ((1, 5, 6, 3), (4, 1, 1), (1, 1), (1, 1), ((0, 0), (0, 0))),
        ((2, 5, 6, 3), (4, 1, 1), (2, 3), (1, 1), ((0, 0), (0, 0))),
        ((2, 7, 6, 3), (5, 3, 2), (1, 1), (1, 1), ((1, 2), (0, 1))),
        ((1, 9, 8, 2), (3, 3, 3), (2, 3), (1, 1), ((1, 0), (2, 2))),
        ((1, 9, 8, 2), (3, 3, 2), (1, 1), (2, 3), ((4, 1), (3, 0))),
        ((3, 4, 4, 2), (3, 2, 2), (3, 3), (1, 1), ((0, 0), (0, 0))),
        ((1, 3, 3, 1), (2, 3, 3), (1, 1), (1, 1), ((0, 0), (0, 0))),
    ],
)
def test_conv_2d(rng, image, filters, strides, dilations, pads, constant, nchw):
    x, w, b = floats(rng, *image), floats(rng, *filters, image[3]), floats(rng, filters[0])
    expected = conv(x.astype(float), w.astype(float), strides, pads, dilations) + b
    how = sides(pads) | steps(strides, dilations)
    result = run("CONV_2D", planes(x) if nchw else x, w, b, constant=constant, nchw=nchw, **how)
    np.testing.assert_allclose(result, planes(expected) if nchw else expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scheme", [1, 2])
@pytest.mark.parametrize(("strides", "dilations"), [((1, 1), (1, 1)), ((2, 3), (1, 1)), ((1, 1), (2, 1))])
def test_implicit_padding(rng, scheme, strides, dilations):
    x, w, b = floats(rng, 1, 8, 7, 2), floats(rng, 3, 3, 2, 2), floats(rng, 3)
    pads = same((8, 7), (3, 2), strides, dilations) if scheme == 1 else ((0, 0), (0, 0))
    expected = conv(x.astype(float), w.astype(float), strides, pads, dilations) + b
    result = run("CONV_2D", x, w, b, padding_scheme=scheme, **steps(strides, dilations))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fuse_code", [0, 1, 2, 3])
def test_fused_activation(rng, fuse_code):
    x, w, b = floats(rng, 1, 4, 4, 2) * 9, floats(rng, 3, 2, 2, 2), floats(rng, 3)
    expected = np.clip(conv(x.astype(float), w.astype(float), (1, 1), ((0, 0), (0, 0))) + b, *RANGES[fuse_code])
    result = run("CONV_2D", x, w, b, padding_scheme=2, fuse_code=fuse_code, **steps((1, 1)))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_infinities_become_the_largest_number():
    x = np.array([np.inf, -np.inf], np.float32).reshape(1, 1, 2, 1)
    result = run(
        "CONV_2D", x, np.ones((1, 1, 1, 1), np.float32), np.zeros(1, np.float32), padding_scheme=2, **steps((1, 1))
    )
    limit = np.finfo(np.float32).max
    assert result.reshape(-1).tolist() == [limit, -limit]


@pytest.mark.parametrize("filters", [(300, 1, 1), (300, 3, 3)])
def test_large_images_are_computed_in_bands(rng, filters):
    x, w, b = floats(rng, 1, 64, 61, 8), floats(rng, *filters, 8), floats(rng, 300)
    border = filters[1] // 2
    padded = np.pad(x.astype(float), ((0, 0), (border, border), (border, border), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, filters[1:], axis=(1, 2))
    expected = np.einsum("nhwcab,oabc->nhwo", windows, w.astype(float), optimize=True) + b
    result = run("CONV_2D", x, w, b, constant=True, padding_scheme=1, **steps((1, 1)))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize(
    ("strides", "dilations"), [((1, 1), (1, 1)), ((2, 2), (1, 1)), ((1, 1), (1, 2)), ((1, 2), (1, 1))]
)
@pytest.mark.parametrize("columns", [6, 7])
def test_depthwise_conv_2d(rng, multiplier, strides, dilations, columns):
    x, w = floats(rng, 2, 5, columns, 4), floats(rng, 1, 3, 3, 4 * multiplier)
    b = floats(rng, 4 * multiplier)
    pads = same((5, columns), (3, 3), strides, dilations)
    grouped = w[0].transpose(2, 0, 1)[..., np.newaxis]  # out channel c·m + q belongs to input channel c
    expected = conv(x.astype(float), grouped.astype(float), strides, pads, dilations, groups=4) + b
    result = run(
        "DEPTHWISE_CONV_2D", x, w, b, padding_scheme=1, depth_multiplier=multiplier, **steps(strides, dilations)
    )
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("groups", "inputs", "outputs"), [(1, 3, 4), (2, 4, 6), (3, 3, 6), (4, 4, 4)])
@pytest.mark.parametrize("nchw", [False, True])
def test_grouped_conv_2d(rng, groups, inputs, outputs, nchw):
    x, w, b = floats(rng, 2, 5, 4, inputs), floats(rng, outputs, 3, 2, inputs // groups), floats(rng, outputs)
    pads = ((1, 1), (0, 1))
    expected = conv(x.astype(float), w.astype(float), (2, 1), pads, groups=groups) + b
    how = sides(pads) | steps((2, 1)) | {"groups": groups, "nchw": nchw}
    result = run("GROUPED_CONV_2D", planes(x) if nchw else x, w, b, **how)
    np.testing.assert_allclose(result, planes(expected) if nchw else expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("strides", "pads"),
    [((1, 1), ((0, 0), (0, 0))), ((2, 3), ((1, 0), (1, 1))), ((3, 2), ((0, -2), (2, -1))), ((4, 4), ((0, 0), (1, 0)))],
)
@pytest.mark.parametrize("nchw", [False, True])
def test_transpose_conv_2d_with_explicit_padding(rng, strides, pads, nchw):
    x, w, b = floats(rng, 2, 3, 4, 3), floats(rng, 2, 3, 2, 3), floats(rng, 2)
    output = tuple(
        (size - 1) * stride + length - head - tail
        for size, stride, length, (head, tail) in zip((3, 4), strides, (3, 2), pads, strict=True)
    )
    expected = transposed_conv(x.astype(float), w.astype(float), strides, (pads[0][0], pads[1][0]), output) + b
    how = sides(pads) | steps(strides) | {"nchw": nchw}
    result = run("TRANSPOSE_CONV_2D", planes(x) if nchw else x, w, b, **how)
    np.testing.assert_allclose(result, planes(expected) if nchw else expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (3, 2)])
def test_transpose_conv_2d_gives_the_wanted_size(rng, strides):
    x, w, b = floats(rng, 1, 3, 4, 2), floats(rng, 2, 3, 3, 2), np.zeros(2, np.float32)
    size = (3 * strides[0], 4 * strides[1])
    heads = tuple(head for head, _ in same(size, (3, 3), strides))
    expected = transposed_conv(x.astype(float), w.astype(float), strides, heads, size)
    shape = np.array([1, *size, 2], np.int32)
    result = run("TRANSPOSE_CONV_2D", x, w, b, output_shape=shape, padding_scheme=1, **steps(strides))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_float16_is_computed_in_float32_and_rounded_once(rng):
    x, w, b = (floats(rng, *shape, dtype=np.float16) for shape in ((1, 6, 6, 64), (8, 3, 3, 64), (8,)))
    exact = conv(x.astype(float), w.astype(float), (1, 1), ((1, 1), (1, 1))) + b
    result = run("CONV_2D", x, w, b, padding_scheme=1, **steps((1, 1)))
    assert result.dtype == np.float16
    np.testing.assert_array_max_ulp(result, exact.astype(np.float16), maxulp=1)
    assert np.mean(result == exact.astype(np.float16)) > 0.99


# -- codes ------------------------------------------------------------------------------------------------------------


def codes(rng, dtype, *shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def weights(rng, dtype, shape, kind):
    """A quantized filter, its scales for each output channel, and its codes less their zero point."""
    if kind == "per channel":
        scales = rng.uniform(0.001, 0.01, shape[0])
        w = per_channel(rng.integers(-127, 127, shape), scales)
        return w, np.asarray(w.channels.scales, np.float32), w.codes.astype(np.int64)
    w = quantized(codes(rng, dtype, *shape), 0.004, 7, dtype)
    return w, np.float32(0.004), w.codes.astype(np.int64) - 7


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("kind", ["per tensor", "per channel"])
@pytest.mark.parametrize("operation", ["CONV_2D", "GROUPED_CONV_2D", "TRANSPOSE_CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("fuse_code", [0, 1, 3])
def test_codes_are_those_of_fixed_point_arithmetic(rng, dtype, kind, operation, fuse_code):
    groups = {"GROUPED_CONV_2D": 2, "DEPTHWISE_CONV_2D": 4}.get(operation, 1)
    zero_in, zero_out = (5, -9) if dtype is np.int8 else (131, 40)
    x = quantized(codes(rng, dtype, 2, 6, 5, 4), SCALE_IN, zero_in, dtype)
    w, scales, wide = weights(rng, dtype, (8, 3, 3, 4 // groups), kind)
    products = np.float32(SCALE_IN) * scales
    b = quantized(rng.integers(-9000, 9000, 8), 0.0 if kind == "per channel" else products, dtype=np.int32)
    centred = x.codes.astype(np.int64) - zero_in
    if operation == "TRANSPOSE_CONV_2D":
        sums = transposed_conv(centred, wide, (2, 2), (0, 0), (13, 11))
    else:
        sums = conv(centred, wide, (2, 2), ((0, 0), (0, 0)), groups=groups)
    how = {"GROUPED_CONV_2D": {"groups": 2}, "DEPTHWISE_CONV_2D": {"depth_multiplier": 2}}.get(operation, {})
    if operation == "DEPTHWISE_CONV_2D":
        filters = w.codes[..., 0].transpose(1, 2, 0)[np.newaxis]
        w = per_channel(filters, scales, 3) if kind == "per channel" else quantized(filters, 0.004, 7, dtype)
    limits = np.iinfo(dtype)
    low = limits.min if fuse_code == 0 else zero_out
    high = limits.max if fuse_code != 3 else min(limits.max, zero_out + round(6 / SCALE_OUT))
    expected = requantized(sums + b.codes, products, SCALE_OUT, zero_out, low, high)
    how |= sides(((0, 0), (0, 0))) | steps((2, 2)) | {"fuse_code": fuse_code}
    result = run(operation, x, w, b, quant=[(SCALE_OUT, zero_out)], **how)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("depth", [600, 4608])
def test_sums_beyond_24_bits_are_exact(rng, depth):
    x = quantized(rng.integers(200, 256, (1, 2, 2, depth)), 1.0, 0)
    w = quantized(rng.integers(250, 256, (3, 1, 1, depth)), 1.0, 0)
    b = quantized([2**30, -(2**30), 3], 1.0, dtype=np.int32)
    sums = x.codes.astype(np.int64) @ w.codes.reshape(3, depth).T.astype(np.int64) + b.codes
    assert sums.max() > 2**24
    scale = float(sums.max()) / 200
    expected = requantized(sums, 1.0, scale, 20, 0, 255)
    for constant in (False, True):
        result = run("CONV_2D", x, w, b, constant=constant, quant=[(scale, 20)], padding_scheme=2, **steps((1, 1)))
        np.testing.assert_array_equal(result, expected)


def test_padding_is_the_zero_point():
    x = quantized(np.full((1, 2, 2, 1), 9), 1.0, 9)
    w, b = quantized(np.ones((1, 3, 3, 1)), 1.0), quantized([3], 1.0, dtype=np.int32)
    result = run("CONV_2D", x, w, b, quant=[(1.0, 0)], padding_scheme=1, **steps((1, 1)))
    np.testing.assert_array_equal(result.reshape(-1), [3, 3, 3, 3])


# -- what the rows ask for --------------------------------------------------------------------------------------------

IMAGE = np.zeros((1, 5, 5, 2), np.float32)
FILTER = np.zeros((3, 2, 2, 2), np.float32)
BIAS = np.zeros(3, np.float32)


@pytest.mark.parametrize("operation", ["CONV_2D", "TRANSPOSE_CONV_2D"])
def test_a_batch_of_zero(operation):
    result = run(
        operation, np.zeros((0, 5, 5, 2), np.float32), FILTER, BIAS, **sides(((0, 0), (0, 0))), **steps((1, 1))
    )
    assert result.shape == ((0, 4, 4, 3) if operation == "CONV_2D" else (0, 6, 6, 3))


def test_a_filter_that_does_not_fit_gives_nothing():
    result = run("CONV_2D", IMAGE[:, :1, :1], FILTER, BIAS, padding_scheme=2, **steps((1, 1)))
    assert result.shape == (1, 0, 0, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"padding_left": 2}, "'padding_left' is 2, it must be 0 to 1, less than the filter's width of 2"),
        ({"padding_bottom": -1}, "'padding_bottom' is -1"),
        ({"stride_width": 0}, "'stride_width' is 0, it must be positive"),
        ({"dilation_width": 0, "dilation_height": 1}, "'dilation_width' is 0"),
        ({"fuse_code": 4}, r"'fuse_code' is 4, it must be one of 0 \(NONE\), 1 \(RELU\)"),
    ],
)
def test_refused_values(changes, message):
    how = sides(((0, 0), (0, 0))) | steps((1, 1)) | changes
    with pytest.raises(InvalidModelError, match=message):
        run("CONV_2D", IMAGE, FILTER, BIAS, **how)


@pytest.mark.parametrize(
    ("operation", "tensors", "how", "message"),
    [
        ("CONV_2D", (IMAGE[..., :1], FILTER, BIAS), {}, "2 input channels, it must have 1"),
        ("CONV_2D", (IMAGE, FILTER, BIAS[:2]), {}, r"'bias' has shape \[2\], the filter gives 3 channels"),
        ("CONV_2D", (IMAGE[:, :0], FILTER, BIAS), {}, "height 0, only its batch may be zero"),
        ("CONV_2D", (IMAGE, FILTER[:, :0], BIAS), {}, "it must have no zero"),
        ("CONV_2D", (IMAGE[0], FILTER, BIAS), {}, "'input' has rank 3"),
        ("CONV_2D", (IMAGE, FILTER, BIAS), {"padding_scheme": 3}, r"'padding_scheme' is 3, it must be 1 \(SAME\)"),
        ("DEPTHWISE_CONV_2D", (IMAGE, FILTER[:1], BIAS[:2]), {"depth_multiplier": 2}, "2 channels, it must have 4"),
        ("DEPTHWISE_CONV_2D", (IMAGE, FILTER, BIAS[:2]), {"depth_multiplier": 1}, "first dimension, it must be 1"),
        ("GROUPED_CONV_2D", (IMAGE, FILTER, BIAS), {"groups": 3}, "2 channels are not divisible by 3 groups"),
        ("GROUPED_CONV_2D", (IMAGE, FILTER[..., :1], BIAS), {"groups": 2}, "3 output channels are not divisible by 2"),
        ("GROUPED_CONV_2D", (IMAGE, FILTER, BIAS), {"groups": 0}, "'groups' is 0"),
    ],
)
def test_refused_sizes(operation, tensors, how, message):
    how = ({"padding_scheme": 2} | how) | steps((1, 1))
    with pytest.raises(InvalidModelError, match=message):
        run(operation, *tensors, **how)


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (1.0000003, True), (1.0001, False)])
def test_the_bias_has_the_scale_of_the_products(factor, fits):
    x, w = quantized(np.zeros((1, 2, 2, 1)), 0.5), quantized(np.zeros((1, 1, 1, 1)), 0.25)
    b = quantized([0], 0.125 * factor, dtype=np.int32)
    made = model("CONV_2D", x, w, b, quant=[(1.0, 0)], padding_scheme=2, **steps((1, 1)))
    if fits:
        assert validate(made) == 3  # an output of unspecified rank
    else:
        with pytest.raises(InvalidModelError, match="'bias' has scale"):
            validate(made)


def test_the_channels_of_a_per_channel_filter_are_its_outputs():
    x, b = quantized(np.zeros((1, 2, 2, 1)), 0.5), quantized([0], 0.0, dtype=np.int32)
    w = per_channel(np.zeros((1, 1, 1, 1)), [0.1], dim=3)
    with pytest.raises(
        InvalidModelError, match=r"quantized along dimension 3, it must have one for each .* dimension 0"
    ):
        validate(model("CONV_2D", x, w, b, quant=[(1.0, 0)], padding_scheme=2, **steps((1, 1))))


def test_depthwise_sums_beyond_24_bits_are_exact():
    x = quantized(np.full((1, 20, 20, 2), 255), 1.0, 0)
    w = quantized(np.full((1, 20, 20, 2), 255), 1.0, 0)
    w.codes[0, 0, 0] = 254
    b = quantized([1, 2**30], 1.0, dtype=np.int32)
    sums = 255 * (255 * 399 + 254) + b.codes.astype(np.int64)
    how = {"padding_scheme": 2, "depth_multiplier": 1} | steps((1, 1))
    for scale in (2.0**20, 2.0**23):
        result = run("DEPTHWISE_CONV_2D", x, w, b, quant=[(scale, 1)], **how)
        np.testing.assert_array_equal(result, requantized(sums.reshape(1, 1, 1, 2), 1.0, scale, 1, 0, 255))
