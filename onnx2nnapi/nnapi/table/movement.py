"""Rows of the operations that move whole tensors: other shapes, other orders, joining, splitting and repeating."""

from __future__ import annotations

import math

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import (
    AxesAttr,
    AxisAttr,
    Form,
    Permutes,
    PermutesAttr,
    Rank,
    Regroups,
    SameAs,
    Schema,
    TypeRow,
    array,
    register,
    scalar,
    tensor,
    type_rows,
)

__all__ = ["axis_of", "copying", "integers", "keeps_quantization"]


def copying(since: int, *, int32: int | None = None, names: str = "input output") -> tuple[TypeRow, ...]:
    """Type rows of an operation that copies elements: float16 from level 3, QUANT8_ASYMM_SIGNED from level 4.

    Args:
        since: level of the operation, with float32 and QUANT8_ASYMM.
        int32: level of TENSOR_INT32, None where the operation lacks it.
        names: the operands that have this element type.
    """
    rows = [("F32", since), ("F16", max(since, 3)), ("U8", since), ("S8", max(since, 4))]
    return type_rows(names, *rows, *([] if int32 is None else [("I32", int32)]))


def axis_of(bound: Bound, rank: int, *, negative: bool = True) -> int:
    """Operand ``axis``, counted from the front; RuleError when it is none of ``rank`` dimensions."""
    axis = int(bound.scalar("axis"))
    low = -rank if negative else 0
    if not low <= axis < rank:
        raise RuleError(f"operand 'axis' is {axis}, it must be {low} to {rank - 1}")
    return axis % rank


def integers(bound: Bound, name: str, *shape: int) -> list[int]:
    """The values of an INT32 array operand, flat; RuleError when it has another shape."""
    if bound.shape(name) != shape:
        raise RuleError(f"operand {name!r} has shape {list(bound.shape(name))}, it must be {list(shape)}")
    value = bound.array(name)
    return [] if value is None else [int(item) for item in value.reshape(-1)]


def keeps_quantization(bound: Bound) -> None:
    """Refuse outputs and further inputs whose quantization is not the first input's, which NNAPI checks early here."""
    inputs = [argument.type for argument in bound.variadic] or [bound["input"]]
    first = inputs[0]
    for type_ in (*inputs[1:], *(type_ for type_ in bound.outputs if type_ is not None)):
        if first.is_quantized and (type_.scale, type_.zero_point) != (first.scale, first.zero_point):
            raise RuleError(f"all tensors must have the same scale and zero point: {type_} beside {first}")


# -- shapes ------------------------------------------------------------------------------------------------------------


def _reshape(bound: Bound) -> list[Shape]:
    wanted = integers(bound, "shape", math.prod(bound.shape("shape")))
    size = bound["input"].size
    known = math.prod(dim for dim in wanted if dim != -1)
    if any(dim < -1 for dim in wanted) or wanted.count(-1) > 1:
        raise RuleError(f"operand 'shape' is {wanted}; sizes are positive, and at most one may be -1")
    shape = tuple(size // max(known, 1) if dim == -1 else dim for dim in wanted)
    if math.prod(shape) != size:
        raise RuleError(f"operand 'shape' {wanted} does not hold the {size} elements of {list(bound.shape('input'))}")
    return [shape]


def _transpose(bound: Bound) -> list[Shape]:
    shape = bound.shape("input")
    rank = len(shape)
    if not bound.has("perm"):
        if rank != 2:
            raise RuleError(f"operand 'perm' may be omitted for matrices only, not for rank {rank}")
        return [shape[::-1]]
    perm = integers(bound, "perm", rank)
    if sorted(perm) != list(range(rank)):
        raise RuleError(f"operand 'perm' is {perm}, no permutation of the dimensions 0 to {rank - 1}")
    return [tuple(shape[axis] for axis in perm)]


def _squeeze(bound: Bound) -> list[Shape]:
    shape = bound.shape("input")
    rank = len(shape)
    if bound.has("axes"):
        axes = integers(bound, "axes", math.prod(bound.shape("axes")[:1]))
        for axis in axes:
            if not -rank <= axis < rank or shape[axis] != 1:
                raise RuleError(f"operand 'axes' names dimension {axis} of {list(shape)}, which is not of size 1")
        gone = {axis % rank for axis in axes}
    else:
        gone = {axis for axis, size in enumerate(shape) if size == 1}
    return [tuple(size for axis, size in enumerate(shape) if axis not in gone) or (1,)]


def _expand_dims(bound: Bound) -> list[Shape]:
    shape = bound.shape("input")
    axis = axis_of(bound, len(shape) + 1)
    return [(*shape[:axis], 1, *shape[axis:])]


def _variadic_shapes(bound: Bound) -> list[Shape]:
    shapes = [argument.type.shape for argument in bound.variadic]
    if not shapes:
        raise RuleError(f"{bound.schema.name} needs at least one tensor")
    return shapes


def _concatenation(bound: Bound) -> list[Shape]:
    first, *others = _variadic_shapes(bound)
    axis = axis_of(bound, len(first), negative=False)
    for shape in others:
        if len(shape) != len(first) or (*shape[:axis], *shape[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]):
            raise RuleError(f"inputs differ in more than dimension {axis}: {list(first)} and {list(shape)}")
    return [(*first[:axis], sum(shape[axis] for shape in (first, *others)), *first[axis + 1 :])]


def _pack(bound: Bound) -> list[Shape]:
    first, *others = _variadic_shapes(bound)
    for shape in others:
        if shape != first:
            raise RuleError(f"inputs must have the same shape: {list(first)} and {list(shape)}")
    axis = axis_of(bound, len(first) + 1, negative=False)
    return [(*first[:axis], 1 + len(others), *first[axis:])]


def _split(bound: Bound) -> list[Shape]:
    shape = bound.shape("input")
    axis = axis_of(bound, len(shape))
    count = int(bound.scalar("count"))
    if bound.outputs and len(bound.outputs) != count:
        raise RuleError(f"operand 'count' is {count}, but the operation has {len(bound.outputs)} outputs")
    if count < 1 or shape[axis] % count:
        raise RuleError(f"operand 'count' is {count}, which does not divide dimension {axis} of size {shape[axis]}")
    return [(*shape[:axis], shape[axis] // count, *shape[axis + 1 :])] * count


def _tile(bound: Bound) -> list[Shape]:
    shape = bound.shape("input")
    multiples = integers(bound, "multiples", len(shape))
    if any(multiple < 0 for multiple in multiples):
        raise RuleError(f"operand 'multiples' is {multiples}, none may be negative")
    return [tuple(size * multiple for size, multiple in zip(shape, multiples, strict=True))]


def _reverse(bound: Bound) -> list[Shape]:
    shape = bound.shape("input")
    (axis,) = integers(bound, "axes", 1)
    if not 0 <= axis < len(shape):
        raise RuleError(f"operand 'axes' is [{axis}], it must be 0 to {len(shape) - 1}")
    return [shape]


def _channel_shuffle(bound: Bound) -> list[Shape]:
    shape = bound.shape("input")
    axis = axis_of(bound, len(shape))
    groups = int(bound.scalar("groups"))
    if groups < 1 or shape[axis] % groups:
        raise RuleError(f"operand 'groups' is {groups}, which does not divide dimension {axis} of size {shape[axis]}")
    return [shape]


def _fill(bound: Bound) -> list[Shape]:
    dims = integers(bound, "dims", *bound.shape("dims")[:1])
    if any(dim < 0 for dim in dims):
        raise RuleError(f"operand 'dims' is {dims}, none may be negative")
    return [tuple(dims)]


# -- value rules -------------------------------------------------------------------------------------------------------


def _same_rank(bound: Bound) -> None:
    """PACK's inputs have one rank, its output one more."""
    ranks = {argument.type.rank for argument in bound.variadic if argument.type.rank}
    ranks |= {type_.rank - 1 for type_ in bound.outputs if type_ is not None and type_.rank}
    if len(ranks) > 1:
        raise RuleError("all inputs must have the same rank, and the output one more")


def _requantizes(bound: Bound) -> int | None:
    """Level 3 joins QUANT8_ASYMM tensors of different quantization."""
    for type_ in bound.outputs:
        if type_ is not None and type_.code is OperandCode.TENSOR_QUANT8_ASYMM:
            quantizations = {(argument.type.scale, argument.type.zero_point) for argument in bound.variadic}
            return 3 if quantizations != {(type_.scale, type_.zero_point)} else None
    return None


_UP_TO_4 = {"input": Rank(1, 4)}
_ANY = {"input": Rank(1, None)}
_OUTPUT = (tensor("output"),)
_KEPT = {"output": SameAs("input")}

register(
    Schema(
        OperationCode.RESHAPE,
        1,
        (Form("", (tensor("input"), array("shape"))),),
        _OUTPUT,
        copying(1, int32=6),
        _reshape,
        ranks=_UP_TO_4,
        quantization=_KEPT,
        layout=Regroups(),
        doc="The same elements in another shape; one size may be -1.",
    ),
    Schema(
        OperationCode.TRANSPOSE,
        2,
        (Form("", (tensor("input"), array("perm", default=None, omittable=True))),),
        _OUTPUT,
        copying(2),
        _transpose,
        ranks=_UP_TO_4,
        quantization=_KEPT,
        layout=Permutes(),
        zero_sized_since=3,
        doc="Permutes the dimensions; without perm it transposes a matrix.",
    ),
    Schema(
        OperationCode.SQUEEZE,
        2,
        (Form("", (tensor("input"), array("axes", default=None, omittable=True))),),
        _OUTPUT,
        copying(2),
        _squeeze,
        ranks=_UP_TO_4,
        quantization=_KEPT,
        layout=AxesAttr("axes", drops=True),
        doc="Removes dimensions of size 1: those of axes, or all; what has none left keeps shape [1].",
    ),
    Schema(
        OperationCode.EXPAND_DIMS,
        3,
        (Form("", (tensor("input"), scalar("axis"))),),
        _OUTPUT,
        copying(3, int32=3),
        _expand_dims,
        ranks=_ANY,
        quantization=_KEPT,
        layout=AxisAttr("axis", inserts=True),
        doc="Inserts a dimension of size 1 at axis.",
    ),
    Schema(
        OperationCode.CONCATENATION,
        1,
        (Form("", (tensor("inputs", variadic=True), scalar("axis"))),),
        _OUTPUT,
        copying(1, names="inputs output"),
        _concatenation,
        ranks={"inputs": Rank(1, 4)},
        rules=(_requantizes,),
        layout=AxisAttr("axis"),
        zero_sized_since=3,
        doc="Joins tensors along axis; quantized ones are requantized to the output's scale.",
    ),
    Schema(
        OperationCode.PACK,
        6,
        (Form("", (scalar("axis"), tensor("inputs", variadic=True))),),
        _OUTPUT,
        copying(6, int32=6, names="inputs output"),
        _pack,
        ranks={"inputs": Rank(1, None)},
        rules=(_same_rank, keeps_quantization),
        quantization={"output": SameAs("inputs")},
        layout=AxisAttr("axis", inserts=True),
        doc="Joins tensors along a new dimension.",
    ),
    Schema(
        OperationCode.SPLIT,
        3,
        (Form("", (tensor("input"), scalar("axis"), scalar("count"))),),
        (tensor("outputs", variadic=True),),
        copying(3, int32=3, names="input outputs"),
        _split,
        ranks=_ANY,
        quantization={"outputs": SameAs("input")},
        layout=AxisAttr("axis"),
        doc="Cuts a tensor into count equal parts along axis.",
    ),
    Schema(
        OperationCode.TILE,
        3,
        (Form("", (tensor("input"), array("multiples"))),),
        _OUTPUT,
        copying(3, int32=3),
        _tile,
        ranks=_ANY,
        quantization=_KEPT,
        layout=PermutesAttr(("multiples",)),
        doc="Repeats a tensor multiples[i] times along dimension i.",
    ),
    Schema(
        OperationCode.REVERSE,
        7,
        (Form("", (tensor("input"), array("axes"))),),
        _OUTPUT,
        copying(7, int32=7),
        _reverse,
        ranks={"input": Rank(1, 8)},
        rules=(keeps_quantization,),
        quantization=_KEPT,
        layout=AxesAttr("axes"),
        doc="Reverses the one dimension that axes names.",
    ),
    Schema(
        OperationCode.CHANNEL_SHUFFLE,
        3,
        (Form("", (tensor("input"), scalar("groups"), scalar("axis"))),),
        _OUTPUT,
        copying(3),
        _channel_shuffle,
        ranks=_UP_TO_4,
        quantization=_KEPT,
        layout=AxisAttr("axis"),
        doc="Interleaves the groups of a dimension: output[k·groups + g] = input[g·size + k].",
    ),
    Schema(
        OperationCode.FILL,
        4,
        (Form("", (array("dims"), scalar("value", None))),),
        _OUTPUT,
        type_rows("value output", ("f32 F32", 4), ("f16 F16", 4), ("i32 I32", 4)),
        _fill,
        doc="A tensor of shape dims that holds value everywhere.",
    ),
    Schema(
        OperationCode.RANK,
        4,
        (Form("", (tensor("input"),)),),
        (scalar("output"),),
        type_rows(
            "input", *[(code, 4) for code in ("F32", "F16", "I32", "BOOL", "U8", "S8", "Y8", "C8", "Y16", "A16")]
        ),
        lambda bound: [()],
        ranks=_ANY,
        doc="The number of dimensions, a scalar.",
    ),
)
