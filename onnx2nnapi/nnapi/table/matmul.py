"""Rows of the matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import Contracts, Form, Rank, Schema, register, scalar, tensor, type_rows
from onnx2nnapi.nnapi.table.convolution import check_bias_scale, narrow_output_scale
from onnx2nnapi.nnapi.table.sliding import FUSE_CODE, check_fuse_code


def _check_flattening(bound: Bound) -> None:
    """Known sizes must fit each other; a size that is not known divides as 0 does."""
    input_shape, (units, depth), bias = bound.shape("input"), bound.shape("weights"), bound.shape("bias")
    size = 1
    for dim in input_shape:
        size *= dim
    if depth and size % depth:
        raise RuleError(
            f"operand 'input' {list(input_shape)} has {size} elements, no multiple of the weights' {depth} columns"
        )
    if units and bias[0] and bias[0] != units:
        raise RuleError(f"operand 'bias' has {bias[0]} elements, it must have the weights' {units}")


def _fully_connected(bound: Bound) -> Sequence[Shape]:
    units, depth = bound.shape("weights")
    if 0 in (units, depth):
        raise RuleError(f"operand 'weights' has shape {[units, depth]}, it must have no zero")
    if bound.shape("bias") != (units,):
        raise RuleError(f"operand 'bias' has shape {list(bound.shape('bias'))}, it must have [{units}]")
    _check_flattening(bound)
    size = 1
    for dim in bound.shape("input"):
        size *= dim
    return ((size // depth, units),)


def _batch_matmul(bound: Bound) -> Sequence[Shape]:
    left, right = bound.shape("input"), bound.shape("other")
    if len(left) != len(right):
        raise RuleError(f"the operands have ranks {len(left)} and {len(right)}, they must have the same")
    rows, inner = (left[-1], left[-2]) if bound.scalar("transpose_input") else (left[-2], left[-1])
    depth, columns = (right[-1], right[-2]) if bound.scalar("transpose_other") else (right[-2], right[-1])
    if inner != depth or 0 in (rows, inner, columns):
        raise RuleError(f"a matrix of {rows} × {inner} cannot be multiplied by one of {depth} × {columns}")
    if any(b not in (1, a) for a, b in zip(left[:-2], right[:-2], strict=True)):
        raise RuleError(
            f"the batch dimensions {list(left[:-2])} and {list(right[:-2])} differ; "
            "those of 'other' may be 1, not those of 'input' alone"
        )
    return ((*left[:-2], rows, columns),)


register(
    Schema(
        OperationCode.FULLY_CONNECTED,
        1,
        (Form("", (tensor("input"), tensor("weights"), tensor("bias"), FUSE_CODE)),),
        (tensor("output"),),
        type_rows("input weights bias output", ("F32", 1), ("U8 U8 I32 U8", 1), ("F16", 3), ("S8 S8 I32 S8", 4)),
        _fully_connected,
        {"input": Rank(2, 4), "weights": Rank(2, 2), "bias": Rank(1, 1)},
        (_check_flattening, check_fuse_code, check_bias_scale("weights"), narrow_output_scale("weights")),
        layout=Contracts("input", "weights"),
        zero_sized_since=3,
        doc="Product with weights [units, depth] plus a bias; the input is flattened to rows of depth elements.",
    ),
    Schema(
        OperationCode.BATCH_MATMUL,
        6,
        (
            Form(
                "",
                (
                    tensor("input"),
                    tensor("other"),
                    scalar("transpose_input", OperandCode.BOOL, default=False),
                    scalar("transpose_other", OperandCode.BOOL, default=False),
                ),
            ),
        ),
        (tensor("output"),),
        type_rows("input other output", ("F32", 6), ("F16", 6), ("S8", 6), ("I32", 6)),
        _batch_matmul,
        {"input": Rank(2, 4), "other": Rank(2, 4)},
        doc="Products of two batches of matrices, each perhaps transposed first.",
    ),
)
