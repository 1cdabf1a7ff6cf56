"""Rows of the normalizations."""

from __future__ import annotations

from collections.abc import Sequence

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import AxisAttr, Fixed, Form, Rank, Schema, optional, register, scalar, tensor, type_rows
from onnx2nnapi.nnapi.types import Q8_SIGNED, QUANT8

_AXIS = optional("axis", OperandCode.INT32, -1, since=3)
_UP_TO_4 = {"input": Rank(1, 4, since=3, base=(4, 4))}


def _same(bound: Bound) -> Sequence[Shape]:
    return (bound.shape("input"),)


def _check_axis(bound: Bound) -> None:
    axis, rank = bound.scalar("axis"), len(bound.shape("input"))
    if not -rank <= axis < rank:
        raise RuleError(f"operand 'axis' is {axis}, the input's rank {rank} allows {-rank} to {rank - 1}")


def _unspecified_rank(bound: Bound) -> int | None:
    """A rank that is known only when the model runs may be any, which needs level 3."""
    return None if bound["input"].shape else 3


def _check_radius(bound: Bound) -> None:
    radius = bound.scalar("radius")
    if radius < 0:
        raise RuleError(f"operand 'radius' is {radius}, it must not be negative")


register(
    Schema(
        OperationCode.L2_NORMALIZATION,
        1,
        (Form("", (tensor("input"), _AXIS)),),
        (tensor("output"),),
        type_rows("input output", ("F32", 1), ("F16", 3), ("U8", 3), ("S8", 4)),
        _same,
        _UP_TO_4,
        (_check_axis, _unspecified_rank),
        {"output": Fixed({QUANT8: (1 / 128, 128), Q8_SIGNED: (1 / 128, 0)})},
        AxisAttr("axis"),
        doc="Divides by the Euclidean norm along an axis.",
    ),
    Schema(
        OperationCode.LOCAL_RESPONSE_NORMALIZATION,
        1,
        (
            Form(
                "",
                (
                    tensor("input"),
                    scalar("radius"),
                    scalar("bias", None),
                    scalar("alpha", None),
                    scalar("beta", None),
                    _AXIS,
                ),
            ),
        ),
        (tensor("output"),),
        type_rows("input bias alpha beta output", ("F32 f32 f32 f32 F32", 1), ("F16 f16 f16 f16 F16", 3)),
        _same,
        _UP_TO_4,
        (_check_axis, _unspecified_rank, _check_radius),
        layout=AxisAttr("axis"),
        doc="Divides by (bias + alpha * the sum of squares within radius along an axis) ** beta.",
    ),
    Schema(
        OperationCode.INSTANCE_NORMALIZATION,
        3,
        (
            Form(
                "",
                (
                    tensor("input"),
                    scalar("gamma", None),
                    scalar("beta", None),
                    scalar("epsilon", None),
                    scalar("nchw", OperandCode.BOOL, default=False),
                ),
            ),
        ),
        (tensor("output"),),
        type_rows("input gamma beta epsilon output", ("F32 f32 f32 f32 F32", 3), ("F16 f16 f16 f16 F16", 3)),
        _same,
        {"input": Rank(4, 4)},
        doc="Brings each channel of each image to zero mean and unit variance, times gamma plus beta.",
    ),
)
