"""Rows of the convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import Form, Rank, Rule, Schema, array, register, scalar, tensor, type_rows
from onnx2nnapi.nnapi.table.sliding import (
    DILATIONS,
    EXPLICIT_PADDING,
    FUSE_CODE,
    IMPLICIT_PADDING,
    NCHW,
    STRIDES,
    check_fuse_code,
    check_padding_scheme,
    forms,
    image_shape,
    image_sizes,
    places,
    positive,
    windows,
)
from onnx2nnapi.nnapi.types import QUANT8
from onnx2nnapi.nnapi.window import transposed_padding

__all__ = ["check_bias_scale", "narrow_output_scale"]

_TENSORS = (tensor("input"), tensor("filter"), tensor("bias"))
_NCHW_WRITTEN = scalar("nchw", OperandCode.BOOL, default=False)
_RANKS = {"input": Rank(4, 4), "filter": Rank(4, 4), "bias": Rank(1, 1)}
_TYPES = type_rows(
    "input filter bias output",
    ("F32", 1),
    ("U8 U8 I32 U8", 1),
    ("F16", 3),
    ("U8 C8 I32 U8", 3),
    ("S8 S8 I32 S8", 4),
    ("S8 C8 I32 S8", 4),
)
_TYPES_FROM_3 = type_rows(
    "input filter bias output",
    ("F32", 3),
    ("F16", 3),
    ("U8 U8 I32 U8", 3),
    ("U8 C8 I32 U8", 3),
    ("S8 S8 I32 S8", 4),
    ("S8 C8 I32 S8", 4),
)


# -- rules -------------------------------------------------------------------------------------------------------------


def _product_scale(bound: Bound, weights: str) -> float:
    """The scale of a product of input and weights, in float32 as Android computes it."""
    product: float = np.multiply(bound["input"].scale, bound[weights].scale, dtype=np.float32).item()
    return product


def check_bias_scale(weights: str) -> Rule:
    """A rule that the bias has the scale of the products it is added to; per-channel weights leave it open."""

    def check(bound: Bound) -> None:
        if bound["bias"].code is not OperandCode.TENSOR_INT32 or bound[weights].channel_quant is not None:
            return
        wanted, scale = _product_scale(bound, weights), float(np.float32(bound["bias"].scale))
        if abs(wanted - scale) > 1e-6 * min(wanted, scale):
            raise RuleError(
                f"operand 'bias' has scale {scale:.9g}, it must be the input's times the {weights}' scale, {wanted:.9g}"
            )

    return check


def narrow_output_scale(weights: str, compared: str = "output") -> Rule:
    """A rule for TENSOR_QUANT8_ASYMM: an output scale that is not above that of the products needs level 3.

    That is what the documentation says. Android's own validation of the convolutions takes the scale of the ``input``
    in place of the output's, and its answer is the level that a model gets.
    """

    def level(bound: Bound) -> int | None:
        type_ = bound["input"] if compared == "input" else bound.outputs[0] if bound.outputs else None
        if type_ is None or type_.code is not QUANT8:
            return None
        return None if float(np.float32(type_.scale)) > _product_scale(bound, weights) else 3

    return level


def _channel_dim(dim: int) -> Rule:
    """A rule that per-channel scales go along dimension ``dim`` of the filter."""

    def check(bound: Bound) -> None:
        if bound["filter"].code is not OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL:
            return
        channels = bound["filter"].channel_quant
        if channels is None or channels.channel_dim != dim:
            found = "has no scales" if channels is None else f"is quantized along dimension {channels.channel_dim}"
            raise RuleError(f"operand 'filter' {found}, it must have one for each index along dimension {dim}")

    return check


_RULES = (positive("stride_width", "stride_height"), check_fuse_code, check_padding_scheme, check_bias_scale("filter"))


# -- shapes ------------------------------------------------------------------------------------------------------------


def _check_bias(bound: Bound, channels: int) -> None:
    if bound.shape("bias") != (channels,):
        raise RuleError(f"operand 'bias' has shape {list(bound.shape('bias'))}, the filter gives {channels} channels")


def _filter_sizes(bound: Bound, depth: int) -> tuple[int, int, int]:
    """Output channels, height and width of a filter that must reach over ``depth`` input channels."""
    outputs, height, width, inputs = bound.shape("filter")
    if 0 in (outputs, height, width):
        raise RuleError(f"operand 'filter' has shape {list(bound.shape('filter'))}, it must have no zero")
    if inputs != depth:
        raise RuleError(f"operand 'filter' has {inputs} input channels, it must have {depth} for this input")
    _check_bias(bound, outputs)
    return outputs, height, width


def _slide(
    bound: Bound, sizes: tuple[int, int, int], filters: tuple[int, int], channels: int, dilated: bool
) -> tuple[Shape]:
    batch, height, width = sizes
    vertical, horizontal = windows(bound, (height, width), filters, dilated=dilated)
    return image_shape(bound, batch, places("height", vertical), places("width", horizontal), channels)


def _conv_2d(bound: Bound) -> Sequence[Shape]:
    *sizes, depth = image_sizes(bound)
    channels, *filters = _filter_sizes(bound, depth)
    return _slide(bound, (sizes[0], sizes[1], sizes[2]), (filters[0], filters[1]), channels, dilated=True)


def _grouped_conv_2d(bound: Bound) -> Sequence[Shape]:
    *sizes, depth = image_sizes(bound)
    groups = bound.scalar("groups")
    if depth % groups:
        raise RuleError(f"the input's {depth} channels are not divisible by {groups} groups")
    channels, *filters = _filter_sizes(bound, depth // groups)
    if channels % groups:
        raise RuleError(f"the filter's {channels} output channels are not divisible by {groups} groups")
    return _slide(bound, (sizes[0], sizes[1], sizes[2]), (filters[0], filters[1]), channels, dilated=False)


def _depthwise_conv_2d(bound: Bound) -> Sequence[Shape]:
    *sizes, depth = image_sizes(bound)
    one, height, width, channels = bound.shape("filter")
    multiplier = bound.scalar("depth_multiplier")
    if one != 1:
        raise RuleError(f"operand 'filter' has {one} as its first dimension, it must be 1")
    if 0 in (height, width):
        raise RuleError(f"operand 'filter' has shape {list(bound.shape('filter'))}, it must have no zero")
    if channels != depth * multiplier:
        raise RuleError(
            f"operand 'filter' has {channels} channels, it must have {depth * multiplier}: the input's {depth} times "
            f"depth_multiplier {multiplier}"
        )
    _check_bias(bound, channels)
    return _slide(bound, (sizes[0], sizes[1], sizes[2]), (height, width), channels, dilated=True)


def _transpose_conv_2d(bound: Bound) -> Sequence[Shape]:
    batch, height, width, depth = image_sizes(bound)
    channels, *filters = _filter_sizes(bound, depth)
    result = []
    for axis, size, length, position, head, tail in (
        ("height", height, filters[0], 1, "padding_top", "padding_bottom"),
        ("width", width, filters[1], 2, "padding_left", "padding_right"),
    ):
        stride = bound.scalar(f"stride_{axis}")
        output_shape = bound.array("output_shape")
        if output_shape is None:
            before, after = bound.scalar(head), bound.scalar(tail)
            if before < 0:
                raise RuleError(f"operand {head!r} is {before}, it must not be negative")
        else:
            if output_shape.shape != (4,):
                raise RuleError(f"operand 'output_shape' has shape {list(output_shape.shape)}, it must have [4]")
            wanted = int(output_shape[position + 1 if bound.scalar("nchw") else position])
            before, after = transposed_padding(bound.scalar("padding_scheme"), wanted, length, stride)
        extent = (size - 1) * stride + length - before - after
        if extent <= 0:
            raise RuleError(f"the padding leaves the output no {axis}: {extent}")
        result.append(extent)
    return image_shape(bound, batch, result[0], result[1], channels)


register(
    Schema(
        OperationCode.CONV_2D,
        1,
        forms(_TENSORS, (*STRIDES, FUSE_CODE, NCHW, *DILATIONS)),
        (tensor("output"),),
        _TYPES,
        _conv_2d,
        _RANKS,
        (
            *_RULES,
            positive("dilation_width", "dilation_height"),
            _channel_dim(0),
            narrow_output_scale("filter", "input"),
        ),
        zero_sized_since=3,
        doc="2-D convolution with a filter [out, height, width, in], a bias and a fused activation.",
    ),
    Schema(
        OperationCode.DEPTHWISE_CONV_2D,
        1,
        forms(_TENSORS, (*STRIDES, scalar("depth_multiplier"), FUSE_CODE, NCHW, *DILATIONS)),
        (tensor("output"),),
        _TYPES,
        _depthwise_conv_2d,
        _RANKS,
        (
            *_RULES,
            positive("dilation_width", "dilation_height", "depth_multiplier"),
            _channel_dim(3),
            narrow_output_scale("filter", "input"),
        ),
        zero_sized_since=3,
        doc="2-D convolution of each channel by itself, with a filter [1, height, width, in * depth_multiplier].",
    ),
    Schema(
        OperationCode.GROUPED_CONV_2D,
        3,
        forms(_TENSORS, (*STRIDES, scalar("groups"), FUSE_CODE, _NCHW_WRITTEN)),
        (tensor("output"),),
        _TYPES_FROM_3,
        _grouped_conv_2d,
        _RANKS,
        (*_RULES, positive("groups"), _channel_dim(0)),
        doc="2-D convolution of each group of channels by itself, with a filter [out, height, width, in / groups].",
    ),
    Schema(
        OperationCode.TRANSPOSE_CONV_2D,
        3,
        (
            Form("explicit padding", (*_TENSORS, *EXPLICIT_PADDING, *STRIDES, FUSE_CODE, _NCHW_WRITTEN)),
            Form(
                "implicit padding",
                (*_TENSORS, array("output_shape"), *IMPLICIT_PADDING, *STRIDES, FUSE_CODE, _NCHW_WRITTEN),
            ),
        ),
        (tensor("output"),),
        _TYPES_FROM_3,
        _transpose_conv_2d,
        _RANKS,
        (*_RULES, _channel_dim(0)),
        zero_sized_since=3,
        doc="The transpose (gradient) of a 2-D convolution with a filter [out, height, width, in]; it pads the output.",
    ),
)
