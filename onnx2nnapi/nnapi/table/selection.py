"""Rows of the operations that take a part of a tensor, or surround it: slices, gathering, padding, top k."""

from __future__ import annotations

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import (
    AxisAttr,
    Form,
    PermutesAttr,
    Rank,
    SameAs,
    Schema,
    array,
    register,
    scalar,
    tensor,
    type_rows,
)
from onnx2nnapi.nnapi.table.movement import axis_of, copying, integers, keeps_quantization

__all__ = ["pads_with_zero_point", "strided_ranges"]

REFLECT, SYMMETRIC = 0, 1  # modes of MIRROR_PAD


# -- padding -----------------------------------------------------------------------------------------------------------


def _pad(bound: Bound) -> list[Shape]:
    shape = bound.shape("input")
    flat = integers(bound, "paddings", len(shape), 2)
    if any(size < 0 for size in flat):
        raise RuleError(f"operand 'paddings' is {flat}, none may be negative")
    return [tuple(before + size + after for before, size, after in zip(flat[::2], shape, flat[1::2], strict=True))]


def _mirror_pad(bound: Bound) -> list[Shape]:
    mode = bound.scalar("mode")
    if mode not in (REFLECT, SYMMETRIC):
        raise RuleError(f"operand 'mode' is {mode}, it must be 0 (reflect) or 1 (symmetric)")
    shapes = _pad(bound)
    shape = bound.shape("input")
    for axis, (before, after) in enumerate(zip(*[iter(integers(bound, "paddings", len(shape), 2))] * 2, strict=True)):
        most = shape[axis] - (mode == REFLECT)
        if max(before, after) > most:
            raise RuleError(f"dimension {axis} of size {shape[axis]} can be padded by at most {most} in this mode")
    return shapes


def pads_with_zero_point(bound: Bound) -> int | None:
    """Level 3 pads QUANT8_ASYMM with its zero point; before, what was padded with was 0."""
    type_ = bound["input"]
    return 3 if type_.code is OperandCode.TENSOR_QUANT8_ASYMM and type_.zero_point else None


def _pad_value_is_code(bound: Bound) -> None:
    type_ = bound["input"]
    value = bound.scalar("pad_value")
    low, high = (-128, 127) if type_.code is OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else (0, 255)
    if type_.is_quantized and not low <= value <= high:
        raise RuleError(f"operand 'pad_value' is {value}, {type_.code.name} holds {low} to {high}")


def _paddings_are_pairs(bound: Bound) -> None:
    """MIRROR_PAD's paddings are checked as soon as their shape is known."""
    shape = bound.shape("paddings")
    rank = len(bound.shape("input"))
    if len(shape) != 2 or shape[0] not in (0, rank) or shape[1] not in (0, 2):
        raise RuleError(f"operand 'paddings' has shape {list(shape)}, it must be [{rank}, 2]")


# -- parts -------------------------------------------------------------------------------------------------------------


def _slice(bound: Bound) -> list[Shape]:
    shape = bound.shape("input")
    begins, sizes = integers(bound, "begin", len(shape)), integers(bound, "size", len(shape))
    result = []
    for axis, (extent, begin, size) in enumerate(zip(shape, begins, sizes, strict=True)):
        length = extent - begin if size == -1 else size
        if not 0 <= begin <= extent or length < 0 or begin + length > extent:
            raise RuleError(f"{size} elements from {begin} on exceed dimension {axis} of size {extent}")
        result.append(length)
    return [tuple(result)]


def strided_ranges(bound: Bound) -> list[range]:
    """The indices that STRIDED_SLICE takes of each dimension.

    Raises:
        RuleError: a stride of 0, or a dimension to shrink of which not exactly one index is taken.
    """
    shape = bound.shape("input")
    begins, ends, strides = (integers(bound, name, len(shape)) for name in ("begin", "end", "strides"))
    begin_mask, end_mask, shrink = (int(bound.scalar(f"{name}_mask")) for name in ("begin", "end", "shrink_axis"))
    result = []
    for axis, (extent, begin, end, stride) in enumerate(zip(shape, begins, ends, strides, strict=True)):
        bit = 1 << axis
        if stride == 0:
            raise RuleError(f"operand 'strides' is 0 in dimension {axis}")
        taken = slice(None if begin_mask & bit else begin, None if end_mask & bit else end, stride)
        result.append(range(extent)[taken])
        if shrink & bit and (stride < 0 or len(result[-1]) != 1):
            raise RuleError(f"dimension {axis} is to shrink: exactly one index, by a positive stride, must be taken")
    return result


def _strided_slice(bound: Bound) -> list[Shape]:
    ranges = strided_ranges(bound)
    shrink = int(bound.scalar("shrink_axis_mask"))
    return [tuple(len(taken) for axis, taken in enumerate(ranges) if not shrink >> axis & 1) or (1,)]


def _gather(bound: Bound) -> list[Shape]:
    shape = bound.shape("input")
    axis = axis_of(bound, len(shape))
    return [(*shape[:axis], *bound.shape("indices"), *shape[axis + 1 :])]


def _topk(bound: Bound) -> list[Shape]:
    shape = bound.shape("input")
    k = int(bound.scalar("k"))
    if not 0 < k <= shape[-1]:
        raise RuleError(f"operand 'k' is {k}, it must be 1 to {shape[-1]}, the size of the last dimension")
    return [(*shape[:-1], k)] * 2


_OUTPUT = (tensor("output"),)
_KEPT = {"output": SameAs("input")}
_UP_TO_4 = {"input": Rank(1, 4)}
_ANY = {"input": Rank(1, None)}

register(
    Schema(
        OperationCode.PAD,
        2,
        (Form("", (tensor("input"), array("paddings"))),),
        _OUTPUT,
        copying(2),
        _pad,
        ranks=_UP_TO_4,
        rules=(pads_with_zero_point,),
        quantization=_KEPT,
        layout=PermutesAttr(("paddings",)),
        doc="Surrounds a tensor with zeros: paddings holds (before, after) for each dimension.",
    ),
    Schema(
        OperationCode.PAD_V2,
        3,
        (Form("", (tensor("input"), array("paddings"), scalar("pad_value", None))),),
        _OUTPUT,
        type_rows("input pad_value output", ("F32 f32 F32", 3), ("F16 f16 F16", 3), ("U8 i32 U8", 3), ("S8 i32 S8", 4)),
        _pad,
        ranks=_UP_TO_4,
        rules=(_pad_value_is_code,),
        quantization=_KEPT,
        layout=PermutesAttr(("paddings",)),
        doc="Surrounds a tensor with pad_value, which is a raw code where the tensor is quantized.",
    ),
    Schema(
        OperationCode.MIRROR_PAD,
        7,
        (Form("", (tensor("input"), array("paddings"), scalar("mode"))),),
        _OUTPUT,
        copying(7, int32=7),
        _mirror_pad,
        ranks=_ANY,
        rules=(keeps_quantization, _paddings_are_pairs),
        quantization=_KEPT,
        layout=PermutesAttr(("paddings",)),
        doc="Surrounds a tensor with its mirror image, without (mode 0) or with (1) the elements at the border.",
    ),
    Schema(
        OperationCode.SLICE,
        3,
        (Form("", (tensor("input"), array("begin"), array("size"))),),
        _OUTPUT,
        copying(3, int32=3),
        _slice,
        ranks=_ANY,
        quantization=_KEPT,
        layout=PermutesAttr(("begin", "size")),
        zero_sized_since=3,
        doc="The size[i] elements from begin[i] on, of each dimension i; size -1 means all that follow.",
    ),
    Schema(
        OperationCode.STRIDED_SLICE,
        2,
        (
            Form(
                "",
                (
                    tensor("input"),
                    *(array(name) for name in ("begin", "end", "strides")),
                    *(scalar(name, default=0) for name in ("begin_mask", "end_mask", "shrink_axis_mask")),
                ),
            ),
        ),
        _OUTPUT,
        copying(2),
        _strided_slice,
        ranks=_UP_TO_4,
        quantization=_KEPT,
        layout=PermutesAttr(
            ("begin", "end", "strides"),
            masks=("begin_mask", "end_mask", "shrink_axis_mask"),
            dropped="shrink_axis_mask",
        ),
        doc="Python's input[begin:end:strides]; masks leave out begin or end, or the dimension.",
    ),
    Schema(
        OperationCode.GATHER,
        3,
        (Form("", (tensor("input"), scalar("axis"), tensor("indices", OperandCode.TENSOR_INT32))),),
        _OUTPUT,
        copying(3, int32=3),
        _gather,
        ranks=_ANY,
        quantization=_KEPT,
        layout=AxisAttr("axis"),
        doc="Takes the slices at indices along axis; the dimensions of indices replace axis.",
    ),
    Schema(
        OperationCode.TOPK_V2,
        3,
        (Form("", (tensor("input"), scalar("k"))),),
        (tensor("values"), tensor("indices", OperandCode.TENSOR_INT32)),
        copying(3, int32=3, names="input values"),
        _topk,
        ranks=_ANY,
        quantization={"values": SameAs("input")},
        doc="The k largest values of the last dimension, falling, and their indices; of equal ones the last first.",
    ),
)
