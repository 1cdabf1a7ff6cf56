"""Older opsets' forms of a node become the newest, once, here: no later stage knows that others existed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np

from onnx2nnapi.errors import InvalidModelError, UnsupportedForm
from onnx2nnapi.frontend.tensors import elem_type
from onnx2nnapi.ir.graph import Op
from onnx2nnapi.ir.types import Array, Shape

__all__ = ["Context", "normalize"]


class Context(Protocol):
    """What a rule may ask of the sweep."""

    def shape(self, name: str) -> Shape: ...

    def dtype(self, name: str) -> np.dtype[Any]: ...

    def array(self, name: str | None) -> Array | None:
        """The value of a small constant, else None."""

    def constant(self, stem: str, value: Any, dtype: Any) -> str: ...

    def fresh(self, stem: str) -> str: ...


Rule = Callable[[Op, Context], "Op | list[Op]"]


@dataclass(frozen=True)
class _Entry:
    before: int
    rule: Rule


_RULES: dict[str, list[_Entry]] = {}
ALWAYS = 1 << 30


def normalize(op: Op, since: int, context: Context) -> list[Op]:
    """The operations, in the newest form, that do what ``op`` does in the form that it has since opset ``since``.

    Args:
        op: with that form's defaults filled in.
        since: version of the form.
        context: types and constants of what it reads.

    Raises:
        UnsupportedForm: the form has no equal in newer opsets.
    """
    for entry in _RULES.get(op.kind, ()):
        if since < entry.before:
            result = entry.rule(op, context)
            if isinstance(result, list):
                return result
            op = result
    return [op]


def _normalizes(*kinds: str, before: int = ALWAYS) -> Callable[[Rule], Rule]:
    """Register a rule for forms older than opset ``before``; rules of one operator apply in order."""

    def add(rule: Rule) -> Rule:
        for kind in kinds:
            _RULES.setdefault(kind, []).append(_Entry(before, rule))
        return rule

    return add


def _refuse(op: Op, reason: str) -> NoReturn:
    raise UnsupportedForm(reason, where=op.origin, hint="export the model with a newer opset")


def _stem(op: Op, what: str) -> str:
    return f"{next((name for name in op.outputs if name), op.kind)}.{what}"


# -- attributes that became inputs -----------------------------------------------------------------------------------

_LIKE_INPUT = "the element type of the first input"
_REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare"]

# operator -> (first opset of the new form, (attribute, dtype, scalar) by input position, from 1 on)
_MOVED: dict[str, tuple[int, tuple[tuple[str, Any, bool], ...]]] = {
    **{f"Reduce{name}": (18, (("axes", np.int64, False),)) for name in _REDUCTIONS},
    "ReduceSum": (13, (("axes", np.int64, False),)),
    "Squeeze": (13, (("axes", np.int64, False),)),
    "Unsqueeze": (13, (("axes", np.int64, False),)),
    "Split": (13, (("split", np.int64, False),)),
    "Slice": (10, (("starts", np.int64, False), ("ends", np.int64, False), ("axes", np.int64, False))),
    "Pad": (11, (("pads", np.int64, False), ("value", _LIKE_INPUT, True))),
    "Clip": (11, (("min", _LIKE_INPUT, True), ("max", _LIKE_INPUT, True))),
    "Dropout": (12, (("ratio", np.float32, True),)),
    "Upsample": (9, (("scales", np.float32, False),)),
    "DFT": (20, (("dft_length", None, True), ("axis", np.int64, True))),
}


def _move(op: Op, context: Context) -> Op:
    inputs = list(op.inputs[:1])
    for at, (name, dtype, scalar) in enumerate(_MOVED[op.kind][1], 1):
        value = op.attrs.pop(name, None)
        if value is None:
            inputs.append(op.inputs[at] if at < len(op.inputs) else None)
            continue
        target = context.dtype(str(op.inputs[0])) if dtype is _LIKE_INPUT else np.dtype(dtype)
        inputs.append(context.constant(_stem(op, name), value if scalar else list(value), target))
    while inputs[-1] is None:
        inputs.pop()
    op.inputs = tuple(inputs)
    return op


def _clip_bounds(op: Op, context: Context) -> Op:
    """Clip-6 bounds that are float32's own limits bound nothing."""
    limits = {"min": float(np.finfo(np.float32).min), "max": float(np.finfo(np.float32).max)}
    for name, limit in limits.items():
        if op.attrs.get(name) == limit:
            del op.attrs[name]
    return op


_normalizes("Clip", before=11)(_clip_bounds)
for _kind, (_before, _) in _MOVED.items():
    _normalizes(_kind, before=_before)(_move)


@_normalizes("TopK", before=10)
def _top_k(op: Op, context: Context) -> Op:
    op.inputs = (op.inputs[0], context.constant(_stem(op, "k"), [op.attrs.pop("k")], np.int64))
    return op


# -- the same operator with other rules --------------------------------------------------------------------------------


@_normalizes("Split", before=18)
def _split(op: Op, context: Context) -> Op:
    """Equal parts were a matter of the number of outputs; num_outputs says it now."""
    if len(op.inputs) > 1:
        return op
    shape, parts = context.shape(str(op.inputs[0])), len(op.outputs)
    axis = _axis(op, len(shape), default=0)
    if axis == len(shape):
        raise InvalidModelError(f"its axis {axis} is outside its rank {len(shape)}", where=op.origin)
    size = shape[axis]
    if size % parts:
        raise InvalidModelError(f"{size} elements cannot be split into {parts} equal parts", where=op.origin)
    op.attrs["num_outputs"] = parts
    return op


@_normalizes("Split")
def _split_evenly(op: Op, context: Context) -> Op:
    if len(op.inputs) == 1:
        op.attrs.setdefault("num_outputs", len(op.outputs))
    return op


@_normalizes("Softmax", "LogSoftmax", "Hardmax", before=13)
def _flattening_softmax(op: Op, context: Context) -> Op | list[Op]:
    """Until opset 12 the dimensions from ``axis`` on were one: Reshape, the operator on the last axis, Reshape.

    Where at most one of them is longer than 1, the operator along that one is the same.
    """
    source = str(op.inputs[0])
    shape = context.shape(source)
    axis = _axis(op, len(shape))
    long = [at for at in range(axis, len(shape)) if shape[at] != 1]
    if len(long) <= 1:
        op.attrs["axis"] = long[0] if long else max(len(shape) - 1, 0)
        return op
    merged, result = context.fresh(_stem(op, "merged")), context.fresh(_stem(op, "normalized"))
    flat = (*shape[:axis], math.prod(shape[axis:]))
    into = context.constant(_stem(op, "merged_shape"), flat, np.int64)
    back = context.constant(_stem(op, "shape"), shape, np.int64)
    return [
        Op("Reshape", (source, into), (merged,), {}, op.origins),
        Op(op.kind, (merged,), (result,), {**op.attrs, "axis": axis}, op.origins),
        Op("Reshape", (result, back), op.outputs, {}, op.origins),
    ]


def _axis(op: Op, rank: int, default: int = 1) -> int:
    """The axis counted from the front; ``rank`` itself, which is none, is for operators that flatten."""
    axis = int(op.attrs.get("axis", default))
    if not -rank <= axis <= rank:
        raise InvalidModelError(f"its axis {axis} is outside its rank {rank}", where=op.origin)
    return axis + rank if axis < 0 else axis


@_normalizes("BatchNormalization", before=9)
def _spatial_batch_norm(op: Op, context: Context) -> Op:
    if not op.attrs.get("spatial", 1):
        _refuse(op, "statistics per activation (spatial=0), which opset 9 removed")
    return op


@_normalizes("BatchNormalization", before=14)
def _batch_norm(op: Op, context: Context) -> Op:
    """Further outputs said that it trains."""
    if any(op.outputs[1:]):
        _refuse(op, "the outputs of training mode are read")
    op.outputs = op.outputs[:1]
    return op


@_normalizes("Dropout", before=10)
def _dropout(op: Op, context: Context) -> Op | list[Op]:
    """The mask had the data's type; it is bool now."""
    if len(op.outputs) < 2 or op.outputs[1] is None:
        return op
    mask, wanted = context.fresh(_stem(op, "mask")), op.outputs[1]
    to = elem_type(context.dtype(str(op.inputs[0])))
    op.outputs = (op.outputs[0], mask)
    return [op, Op("Cast", (mask,), (wanted,), {"to": to}, op.origins)]


@_normalizes("Compress")
def _compress(op: Op, context: Context) -> Op | list[Op]:
    """With a constant condition a Gather, of the flattened tensor where no axis is given."""
    condition = context.array(op.inputs[1])
    if condition is None:
        return op
    places = context.constant(_stem(op, "places"), np.flatnonzero(condition), np.int64)
    if "axis" in op.attrs:
        return Op("Gather", (op.inputs[0], places), op.outputs, {"axis": op.attrs["axis"]}, op.origins)
    flat = context.fresh(_stem(op, "flat"))
    shape = context.constant(_stem(op, "flat_shape"), [-1], np.int64)
    return [
        Op("Reshape", (op.inputs[0], shape), (flat,), {}, op.origins),
        Op("Gather", (flat, places), op.outputs, {"axis": 0}, op.origins),
    ]


@_normalizes("Upsample")
def _upsample(op: Op, context: Context) -> Op:
    mode = str(op.attrs.get("mode", "nearest"))
    op.kind = "Resize"
    op.attrs = {
        "mode": "linear" if mode in ("bilinear", "trilinear") else mode,
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    op.inputs = (op.inputs[0], None, op.inputs[1])
    return op


@_normalizes("Resize", before=11)
def _resize_10(op: Op, context: Context) -> Op | list[Op]:
    """Asymmetric; nearest took the floor where it enlarged and the ceiling where it shrank (as onnxruntime does)."""
    source, scales = op.inputs[0], op.inputs[1]
    op.attrs["coordinate_transformation_mode"] = "asymmetric"
    op.inputs = (source, None, scales)
    if op.attrs.get("mode", "nearest") != "nearest":
        return op
    factors = context.array(scales)
    op.attrs["nearest_mode"] = "floor"
    if factors is None or (factors >= 1).all():
        return op
    if (factors <= 1).all():
        op.attrs["nearest_mode"] = "ceil"
        return op
    middle = context.fresh(_stem(op, "enlarged"))
    first, second = (
        context.constant(_stem(op, "scales"), part, np.float32)
        for part in (np.maximum(factors, 1), np.minimum(factors, 1))
    )
    return [
        Op("Resize", (source, None, first), (middle,), dict(op.attrs), op.origins),
        Op("Resize", (middle, None, second), op.outputs, {**op.attrs, "nearest_mode": "ceil"}, op.origins),
    ]


@_normalizes("Resize")
def _resize(op: Op, context: Context) -> Op:
    """Empty tensors in the place of omitted inputs, and a roi that its mode doesn't read, are left out."""
    inputs: list[str | None] = [*op.inputs, *(None,) * (4 - len(op.inputs))]
    for at in (1, 2, 3):
        name = inputs[at]
        if name is not None and 0 in context.shape(name):
            inputs[at] = None
    if op.attrs.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        inputs[1] = None
    while inputs[-1] is None:
        inputs.pop()
    op.inputs = tuple(inputs)
    return op


@_normalizes("Scatter")
def _scatter(op: Op, context: Context) -> Op:
    op.kind = "ScatterElements"
    return op


@_normalizes("GridSample", before=20)
def _grid_sample(op: Op, context: Context) -> Op:
    op.attrs["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(op.attrs["mode"], op.attrs["mode"])
    return op


@_normalizes("RoiAlign", before=16)
def _roi_align(op: Op, context: Context) -> Op:
    op.attrs["coordinate_transformation_mode"] = "output_half_pixel"
    return op


@_normalizes("GroupNormalization", before=21)
def _group_norm(op: Op, context: Context) -> Op | list[Op]:
    """Scale and bias were one a group; they are one a channel now."""
    source, groups = context.shape(str(op.inputs[0])), int(op.attrs["num_groups"])
    channels = source[1] if len(source) > 1 else 1
    if groups <= 0 or channels % groups:
        raise InvalidModelError(f"{channels} channels don't make {groups} groups", where=op.origin)
    ops: list[Op] = []
    inputs: list[str | None] = [op.inputs[0]]
    for name in op.inputs[1:]:
        column, spread, flat = (context.fresh(_stem(op, what)) for what in ("column", "spread", "per_channel"))
        axes = context.constant(_stem(op, "axes"), [1], np.int64)
        shape = context.constant(_stem(op, "spread_shape"), [groups, channels // groups], np.int64)
        whole = context.constant(_stem(op, "channels"), [channels], np.int64)
        ops += [
            Op("Unsqueeze", (name, axes), (column,), {}, op.origins),
            Op("Expand", (column, shape), (spread,), {}, op.origins),
            Op("Reshape", (spread, whole), (flat,), {}, op.origins),
        ]
        inputs.append(flat)
    op.inputs = tuple(inputs)
    return [*ops, op]


@_normalizes("Range")
def _range(op: Op, context: Context) -> list[Op]:
    """Bounds of shape [1], which exporters write and runtimes take, become the scalars that they should be."""
    ops: list[Op] = []
    inputs: list[str | None] = []
    for name, what in zip(op.inputs, ("start", "limit", "delta"), strict=True):
        if name is not None and context.shape(name) == (1,):
            scalar = context.fresh(_stem(op, what))
            ops.append(
                Op("Reshape", (name, context.constant(_stem(op, "scalar"), [], np.int64)), (scalar,), {}, op.origins)
            )
            name = scalar
        inputs.append(name)
    op.inputs = tuple(inputs)
    return [*ops, op]


@_normalizes("Scan", before=9)
def _scan(op: Op, context: Context) -> Op:
    _refuse(op, "the Scan of opset 8, which runs over a batch")


@_normalizes("CastLike")
def _cast_like(op: Op, context: Context) -> Op:
    op.attrs["to"] = elem_type(context.dtype(str(op.inputs[1])))
    op.kind, op.inputs = "Cast", op.inputs[:1]
    return op
