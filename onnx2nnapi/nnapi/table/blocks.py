"""Rows of the operations that exchange blocks of pixels with channels or with the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import Form, Rank, Rule, SameAs, Schema, Slot, array, optional, register, scalar, tensor
from onnx2nnapi.nnapi.table.movement import copying, integers
from onnx2nnapi.nnapi.table.selection import pads_with_zero_point

Nhwc = tuple[int, int, int, int]


def _in_nhwc(shape_of: Callable[[Bound, Nhwc], Nhwc]) -> Callable[[Bound], Sequence[Shape]]:
    """A shape rule over (batch, height, width, channels) as one over the layout that operand ``nchw`` says."""

    def rule(bound: Bound) -> list[Shape]:
        nchw = bool(bound.scalar("nchw"))
        batch, *rest = bound.shape("input")
        height, width, channels = (*rest[1:], rest[0]) if nchw else rest
        batch, height, width, channels = shape_of(bound, (batch, height, width, channels))
        return [(batch, channels, height, width) if nchw else (batch, height, width, channels)]

    return rule


def _block_size(bound: Bound) -> int:
    size = int(bound.scalar("block_size"))
    if size < 1:
        raise RuleError(f"operand 'block_size' is {size}, it must be positive")
    return size


def _block_sizes(bound: Bound) -> list[int]:
    sizes = integers(bound, "block_sizes", 2)
    if min(sizes) < 1:
        raise RuleError(f"operand 'block_sizes' is {sizes}, both must be positive")
    return sizes


def _divide(size: int, divisor: int, what: str) -> int:
    if size % divisor:
        raise RuleError(f"{size} {what} are no multiple of {divisor}")
    return size // divisor


def _depth_to_space(bound: Bound, shape: Nhwc) -> Nhwc:
    batch, height, width, channels = shape
    block = _block_size(bound)
    return batch, height * block, width * block, _divide(channels, block * block, "channels")


def _space_to_depth(bound: Bound, shape: Nhwc) -> Nhwc:
    batch, height, width, channels = shape
    block = _block_size(bound)
    return batch, _divide(height, block, "rows"), _divide(width, block, "columns"), channels * block * block


def _batch_to_space(bound: Bound, shape: Nhwc) -> Nhwc:
    batch, height, width, channels = shape
    rows, columns = _block_sizes(bound)
    return _divide(batch, rows * columns, "batches"), height * rows, width * columns, channels


def _space_to_batch(bound: Bound, shape: Nhwc) -> Nhwc:
    batch, height, width, channels = shape
    rows, columns = _block_sizes(bound)
    paddings = integers(bound, "paddings", 2, 2)
    if min(paddings) < 0:
        raise RuleError(f"operand 'paddings' is {paddings}, none may be negative")
    height = _divide(height + paddings[0] + paddings[1], rows, "padded rows")
    width = _divide(width + paddings[2] + paddings[3], columns, "padded columns")
    return batch * rows * columns, height, width, channels


def _row(
    code: OperationCode,
    since: int,
    slots: tuple[Slot, ...],
    shape_of: Callable[[Bound, Nhwc], Nhwc],
    doc: str,
    rules: tuple[Rule, ...] = (),
) -> Schema:
    nchw = optional("nchw", OperandCode.BOOL, False, since=3)
    return Schema(
        code,
        since,
        (Form("", (tensor("input"), *slots, nchw)),),
        (tensor("output"),),
        copying(since),
        _in_nhwc(shape_of),
        ranks={"input": Rank(4, 4)},
        rules=rules,
        quantization={"output": SameAs("input")},
        doc=doc,
    )


register(
    _row(
        OperationCode.DEPTH_TO_SPACE,
        1,
        (scalar("block_size"),),
        _depth_to_space,
        "Spreads the channels of each pixel over a block of block_size × block_size pixels, row by row.",
    ),
    _row(
        OperationCode.SPACE_TO_DEPTH,
        1,
        (scalar("block_size"),),
        _space_to_depth,
        "Gathers each block of block_size × block_size pixels in the channels of one pixel.",
    ),
    _row(
        OperationCode.BATCH_TO_SPACE_ND,
        2,
        (array("block_sizes"),),
        _batch_to_space,
        "Interleaves batches as the pixels of blocks of block_sizes (rows, columns).",
    ),
    _row(
        OperationCode.SPACE_TO_BATCH_ND,
        2,
        (array("block_sizes"), array("paddings")),
        _space_to_batch,
        "Pads height and width with zeros, then deals the pixels of each block out to batches.",
        rules=(pads_with_zero_point,),
    ),
)
