"""Operators that move elements without computing: reshape, transpose, slices, joins, pads, gathers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.along import along
from onnx2nnapi.passes.legalize.carry import carried, in_halves, takes
from onnx2nnapi.passes.legalize.convolution import from_nhwc, to_nhwc
from onnx2nnapi.passes.legalize.elementwise import one
from onnx2nnapi.passes.legalize.logic import cast_to
from onnx2nnapi.passes.legalize.shapes import EXACT_IN_FLOAT32, MAX_RANK, axis_of, binary, broadcast_to

__all__ = ["concat", "gather_axis", "gathered", "pad_value", "sliced", "split_axis", "transposed", "wrapped"]


@legalizes("Identity", "Dropout")
def identity(b: Builder, op: Op) -> Value | tuple[Value, Value]:
    """Nothing; a Dropout's mask, where it is wanted, is all true."""
    x = b.value(op.inputs[0] or "")
    training, ratio = (b.setting(op, index, what) for index, what in ((2, "training_mode"), (1, "ratio")))
    if training is not None and training.any() and (ratio is None or ratio.any()):
        b.unsupported("training_mode is set, and nothing in NNAPI draws random masks", "export the model for inference")
    if len(op.outputs) > 1 and op.outputs[1] is not None:
        return x, b.const(np.ones(x.shape, np.bool_))
    return x


@legalizes("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(b: Builder, op: Op) -> Value:
    """RESHAPE to the shape that inference found."""
    return b.reshape(b.inputs(op)[0], b.out_shape(op))


@legalizes("Transpose")
def transpose(b: Builder, op: Op) -> Value:
    """TRANSPOSE, which layout moves, merges and removes."""
    (x,) = b.inputs(op)
    perm = op.attrs.get("perm") or tuple(reversed(range(x.rank)))
    return transposed(b, x, perm)


def transposed(b: Builder, x: Value, perm: Sequence[int]) -> Value:
    """A permutation of any rank: dimensions of size 1 are dropped and neighbours that stay together merged."""
    if x.const is not None or len(perm) <= MAX_RANK:
        return (
            carried(b, "TRANSPOSE", x, lambda value: b.transpose(value, perm))
            if x.const is None
            else b.transpose(x, perm)
        )
    out = tuple(x.shape[axis] for axis in perm)
    moving = [axis for axis in perm if x.shape[axis] != 1]
    groups: list[list[int]] = []
    for axis in moving:
        if groups and _follows(x.shape, groups[-1][-1], axis):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    order = sorted(range(len(groups)), key=lambda i: groups[i][0])
    sizes = [math.prod(x.shape[axis] for axis in groups[i]) for i in order]
    inner = [order.index(i) for i in range(len(groups))]
    if len(groups) > MAX_RANK:
        return b.reshape(_in_two(b, b.reshape(x, sizes), inner), out)
    return b.reshape(transposed(b, b.reshape(x, sizes or [1]), inner or [0]), out)


def _follows(shape: Sequence[int], first: int, second: int) -> bool:
    """Whether ``second`` comes right after ``first``, but for dimensions of size 1."""
    return second > first and all(shape[axis] == 1 for axis in range(first + 1, second))


def _in_two(b: Builder, x: Value, perm: Sequence[int]) -> Value:
    """Rank above 4 after merging: first the result's first dimension, then the rest slice by slice."""
    front = perm[0]
    shape = x.shape
    merged = (math.prod(shape[:front]), shape[front], math.prod(shape[front + 1 :]))
    moved = transposed(b, b.reshape(x, merged), (1, 0, 2))
    moved = b.reshape(moved, (shape[front], *shape[:front], *shape[front + 1 :]))
    rest = [axis - (axis > front) for axis in perm[1:]]
    parts = _unstacked(b, moved)
    permuted = [transposed(b, part, rest) for part in parts]
    joined = concat(b, [b.reshape(part, (1, part.known.size)) for part in permuted], 0)
    return b.reshape(joined, (shape[front], *permuted[0].shape))


def _unstacked(b: Builder, x: Value) -> list[Value]:
    """The slices along the first dimension, without it."""
    flat = b.reshape(x, (x.shape[0], math.prod(x.shape[1:])))
    rows = split_axis(b, flat, 0, [1] * x.shape[0])
    return [b.reshape(row, x.shape[1:]) for row in rows]


@legalizes("Concat")
def concat_operator(b: Builder, op: Op) -> Value:
    """CONCATENATION of everything that has elements."""
    values = [value for value in b.inputs(op) if value.known.size]
    return concat(b, values, axis_of(op.attrs["axis"], max(values[0].rank, 1)))


def concat(b: Builder, values: Sequence[Value], axis: int) -> Value:
    """CONCATENATION in any type and rank."""
    if len(values) == 1:
        return values[0]
    first = values[0]
    if first.rank > MAX_RANK:
        before, after = math.prod(first.shape[:axis]), math.prod(first.shape[axis + 1 :])
        joined = concat(b, [b.reshape(v, (before, v.shape[axis], after)) for v in values], 1)
        return b.reshape(joined, (*first.shape[:axis], joined.shape[1], *first.shape[axis + 1 :]))
    if takes(b, "CONCATENATION", first, "inputs"):
        return b.emit("CONCATENATION", *values, axis=axis)
    if first.known.dtype.kind == "b":
        return _joined_as(b, values, axis)
    return _joined_integers(b, values, axis)


def _joined_as(b: Builder, values: Sequence[Value], axis: int) -> Value:
    return cast_to(b, concat(b, [cast_to(b, value, np.dtype(np.uint8)) for value in values], axis), np.dtype(np.bool_))


def _joined_integers(b: Builder, values: Sequence[Value], axis: int) -> Value:
    """int32, which CONCATENATION lacks: through float32 where that is exact, else in halves from level 4."""
    bound = EXACT_IN_FLOAT32
    if all(b.interval(value).within(bound) or _constant_within(value, bound) for value in values):
        floats = [
            b.const(v.const, np.float32) if v.const is not None else b.emit("CAST", v, dtype=np.float32) for v in values
        ]
        return b.emit("CAST", b.emit("CONCATENATION", *floats, axis=axis), dtype=np.int32)
    b.needs_level(4, "joining int32 tensors whose values are not known to be within 2^24")
    return in_halves(b, values, lambda parts: b.emit("CONCATENATION", *parts, axis=axis))


def _constant_within(value: Value, bound: int) -> bool:
    return value.const is not None and bool((np.abs(value.const.numpy().astype(np.int64)) <= bound).all())


@legalizes("Split")
def split(b: Builder, op: Op) -> list[Value]:
    """SPLIT where the parts are equal, else a slice for each."""
    x, axis = b.inputs(op)[0], axis_of(op.attrs["axis"], b.in_type(op).rank)
    sizes: list[Any] = [
        b.out_type(op, i).shape[axis] if name is not None else None for i, name in enumerate(op.outputs)
    ]
    if any(size is None for size in sizes):
        given = b.optional_input(op, 1)
        sizes = (
            b.constant(given, "split").reshape(-1).tolist() if given is not None else _even(x.shape[axis], len(sizes))
        )
    return split_axis(b, x, axis, [int(size) for size in sizes if size is not None])


def _even(total: int, parts: int) -> list[int]:
    chunk = -(-total // parts)
    return [min(chunk, max(total - i * chunk, 0)) for i in range(parts)]


def split_axis(b: Builder, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """Consecutive parts along an axis."""
    if len(sizes) == 1:
        return [x]
    if x.rank > MAX_RANK:
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        flat = b.reshape(x, (math.prod(before), x.shape[axis], math.prod(after)))
        return [b.reshape(part, (*before, part.shape[1], *after)) for part in split_axis(b, flat, 1, sizes)]
    if b.at_least(3) and len(set(sizes)) == 1 and takes(b, "SPLIT", x):
        return b.emit_all("SPLIT", x, axis=axis, count=len(sizes))
    parts, start = [], 0
    for size in sizes:
        begin = tuple(start if i == axis else 0 for i in range(x.rank))
        extent = tuple(size if i == axis else have for i, have in enumerate(x.shape))
        parts.append(sliced(b, x, begin, extent, (1,) * x.rank) if size else b.const(np.zeros(extent, x.known.dtype)))
        start += size
    return parts


@legalizes("Slice")
def slice_(b: Builder, op: Op) -> Value:
    """SLICE for steps of one, else STRIDED_SLICE; bounds must be constant."""
    x = b.value(op.inputs[0] or "")
    shape = b.in_type(op).shape
    starts, ends, axes, steps = (
        b.setting(op, i, what) for i, what in enumerate(("starts", "ends", "axes", "steps"), 1)
    )
    if starts is None or ends is None:
        b.unsupported("it has no starts or no ends")
    axes = np.arange(len(starts)) if axes is None else axes
    steps = np.ones(len(starts), np.int64) if steps is None else steps
    begin, size, stride = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, start, end, step in zip(axes.tolist(), starts.tolist(), ends.tolist(), steps.tolist(), strict=True):
        axis = axis_of(axis, len(shape))
        span = range(*slice(start, end, step).indices(shape[axis]))
        begin[axis], size[axis], stride[axis] = span.start, len(span), step
    return sliced(b, x, begin, size, stride)


def sliced(b: Builder, x: Value, begin: Sequence[int], size: Sequence[int], stride: Sequence[int]) -> Value:
    """``size`` elements from ``begin`` in steps of ``stride``, in any rank and type."""
    if tuple(size) == x.shape and all(step == 1 for step in stride):
        return x
    moved = [i for i in range(x.rank) if size[i] != x.shape[i] or stride[i] != 1]
    if x.rank > MAX_RANK:
        return _sliced_by_axis(b, x, begin, size, stride, moved)
    if all(stride[i] == 1 for i in moved) and takes(b, "SLICE", x):
        return b.emit("SLICE", x, begin=tuple(begin), size=tuple(size))
    if takes(b, "STRIDED_SLICE", x) or not takes(b, "GATHER", x):
        return carried(b, "STRIDED_SLICE", x, lambda value: _strided(b, value, begin, size, stride))
    for axis in moved:
        x = gather_axis(b, x, begin[axis] + stride[axis] * np.arange(size[axis]), axis)
    return x


def _strided(b: Builder, x: Value, begin: Sequence[int], size: Sequence[int], stride: Sequence[int]) -> Value:
    """STRIDED_SLICE by Python's rules: an end before the first element is left open by its mask."""
    ends = [start + count * step for start, count, step in zip(begin, size, stride, strict=True)]
    mask = sum(1 << i for i, end in enumerate(ends) if end < 0)
    bounded = tuple(max(end, 0) for end in ends)
    steps = tuple(int(step) for step in stride)
    attrs: dict[str, Any] = {"begin": tuple(begin), "end": bounded, "strides": steps}
    return b.emit("STRIDED_SLICE", x, **attrs, begin_mask=0, end_mask=mask, shrink_axis_mask=0)


def _sliced_by_axis(
    b: Builder, x: Value, begin: Sequence[int], size: Sequence[int], stride: Sequence[int], moved: Sequence[int]
) -> Value:
    """Rank above 4: one axis at a time, the dimensions around it merged."""
    for axis in moved:
        shape = x.shape
        flat = b.reshape(x, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))
        cut = sliced(b, flat, (0, begin[axis], 0), (flat.shape[0], size[axis], flat.shape[2]), (1, stride[axis], 1))
        x = b.reshape(cut, (*shape[:axis], size[axis], *shape[axis + 1 :]))
    return x


@legalizes("Gather")
def gather(b: Builder, op: Op) -> Value:
    """GATHER, or a slice where the indices are constant neighbours; negative indices count from the end."""
    x, indices = b.inputs(op)
    axis = axis_of(op.attrs["axis"], b.in_type(op).rank)
    size = x.shape[axis]
    if indices.const is not None:
        index = indices.const.numpy().astype(np.int64)
        index = np.where(index < 0, index + size, index)
        if index.size and not (index.min() >= 0 and index.max() < size):
            worst = int(index.max() if index.max() >= size else index.min())
            b.unsupported(f"index {worst} is outside dimension {axis} of size {size}")
        step = int(index.reshape(-1)[1] - index.reshape(-1)[0]) if index.size > 1 else 1
        if index.size and step and np.all(np.diff(index.reshape(-1)) == step):
            start = int(index.reshape(-1)[0])
            begin = tuple(start if i == axis else 0 for i in range(x.rank))
            extent = tuple(index.size if i == axis else have for i, have in enumerate(x.shape))
            part = sliced(b, x, begin, extent, tuple(step if i == axis else 1 for i in range(x.rank)))
            return b.reshape(part, b.out_shape(op))
        return b.reshape(gather_axis(b, x, index.reshape(-1), axis), b.out_shape(op))
    flat = b.reshape(wrapped(b, indices, size), (indices.known.size,))
    return b.reshape(gathered(b, x, flat, axis), b.out_shape(op))


def wrapped(b: Builder, indices: Value, sizes: int | Sequence[int]) -> Value:
    """Indices with ``sizes`` (one, or one for each of the last dimension) added to the negative ones.

    They stay as they are where their bounds say that none is negative. Below level 4 float32 adds, which is exact for
    indices.
    """
    largest = int(np.max(sizes))
    b.bounded(indices, -largest, largest - 1)
    if b.interval(indices).low >= 0:
        return indices
    dtype = np.dtype(np.int32 if b.at_least(4) else np.float32)
    if dtype.kind == "f" and largest > EXACT_IN_FLOAT32:
        b.needs_level(4, f"indices into dimensions of {sizes} elements")
    negative = binary(b, "LESS", indices, one(b, indices, 0))
    amounts = [np.broadcast_to(np.array(size, dtype), indices.shape) for size in (sizes, 0)]
    added = b.emit("SELECT", negative, *map(b.const, amounts))
    whole = cast_to(b, binary(b, "ADD", cast_to(b, indices, dtype), added), np.dtype(np.int32))
    return b.bounded(whole, 0, largest - 1)


def gather_axis(b: Builder, x: Value, index: np.ndarray[tuple[int, ...], np.dtype[np.int64]], axis: int) -> Value:
    """The elements at constant places along an axis."""
    return gathered(b, x, b.const(index.astype(np.int32)), axis)


def gathered(b: Builder, x: Value, indices: Value, axis: int) -> Value:
    """The elements at ``indices`` (a vector) along an axis, in any rank and type."""
    if x.rank > MAX_RANK:
        return along(b, x, axis, lambda value, inner: gathered(b, value, indices, inner))
    if b.at_least(3):
        return carried(b, "GATHER", x, lambda value: b.emit("GATHER", value, indices, axis=axis))
    if indices.const is None:
        return b.emit("GATHER", x, indices, axis=axis)
    parts = []
    for place in indices.const.numpy().tolist():
        begin = tuple(place if i == axis else 0 for i in range(x.rank))
        parts.append(sliced(b, x, begin, tuple(1 if i == axis else n for i, n in enumerate(x.shape)), (1,) * x.rank))
    return concat(b, parts, axis)


@legalizes("Expand")
def expand(b: Builder, op: Op) -> Value:
    """TILE where a dimension grows from 1."""
    return repeated(b, b.inputs(op)[0], b.out_shape(op))


def repeated(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """``x`` broadcast to ``shape``, in any rank and type."""
    if b.at_least(3):
        return carried(b, "TILE", x, lambda value: broadcast_to(b, value, shape))
    return broadcast_to(b, x, shape)


@legalizes("Tile")
def tile(b: Builder, op: Op) -> Value:
    """TILE; below level 3 a CONCATENATION along each axis."""
    x, repeats = b.inputs(op)
    multiples = b.constant(repeats, "repeats").reshape(-1).tolist()
    if all(count == 1 for count in multiples):
        return x
    if x.rank > MAX_RANK:
        for axis, count in enumerate(multiples):
            x = along(b, x, axis, partial(_repeated, b, int(count)))
        return x
    if b.at_least(3):
        return carried(b, "TILE", x, lambda value: b.emit("TILE", value, multiples=tuple(multiples)))
    for axis, count in enumerate(multiples):
        x = concat(b, [x] * int(count), axis)
    return x


def _repeated(b: Builder, count: int, x: Value, axis: int) -> Value:
    return concat(b, [x] * count, axis)


@legalizes("Pad")
def pad(b: Builder, op: Op) -> Value:
    """PAD and PAD_V2; reflect and edge by MIRROR_PAD (level 7) or by joining slices; negative pads crop."""
    x = b.inputs(op)[0]
    shape = b.in_type(op).shape
    given = b.constant(b.optional_input(op, 1), "pads").reshape(-1).astype(int).tolist()
    axes_given = b.optional_input(op, 3)
    axes = (
        range(len(shape))
        if axes_given is None
        else [axis_of(int(a), len(shape)) for a in b.constant(axes_given, "axes").reshape(-1)]
    )
    before, after = [0] * len(shape), [0] * len(shape)
    for position, axis in enumerate(axes):
        before[axis], after[axis] = given[position], given[position + len(given) // 2]
    begin = [max(-count, 0) for count in before]
    size = [n - start - max(-count, 0) for n, start, count in zip(shape, begin, after, strict=True)]
    x = sliced(b, x, begin, size, (1,) * len(shape))
    paddings = [(max(low, 0), max(high, 0)) for low, high in zip(before, after, strict=True)]
    if not any(map(any, paddings)):
        return x
    mode = op.attrs["mode"]
    if mode == "constant":
        fill = b.optional_input(op, 2)
        value = 0 if fill is None else b.constant(fill, "constant_value").reshape(-1)[0].item()
        return pad_value(b, x, paddings, value)
    return _mirrored(b, x, paddings, mode)


def pad_value(b: Builder, x: Value, paddings: Sequence[tuple[int, int]], value: float) -> Value:
    """Padding with one value, in any rank and type."""
    if x.rank > MAX_RANK:
        return _padded_by_axis(b, x, paddings, value)
    if value == 0:
        return carried(b, "PAD", x, lambda v: b.emit("PAD", v, paddings=tuple(paddings)))
    if x.known.dtype == np.int32:  # 0 is what every carrier pads with
        term = one(b, x, value)
        return binary(b, "ADD", pad_value(b, binary(b, "SUB", x, term), paddings, 0), term)
    return carried(b, "PAD_V2", x, lambda v: b.emit("PAD_V2", v, paddings=tuple(paddings), pad_value=value))


def _padded_by_axis(b: Builder, x: Value, paddings: Sequence[tuple[int, int]], value: float) -> Value:
    for axis, (low, high) in enumerate(paddings):
        if low or high:
            shape = x.shape
            flat = b.reshape(x, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))
            wide = pad_value(b, flat, [(0, 0), (low, high), (0, 0)], value)
            x = b.reshape(wide, (*shape[:axis], wide.shape[1], *shape[axis + 1 :]))
    return x


def _mirrored(b: Builder, x: Value, paddings: Sequence[tuple[int, int]], mode: str) -> Value:
    """Reflect, edge and wrap, as a gather of places along each axis."""
    kinds = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode not in kinds:
        b.unsupported(f"mode is {mode!r}, ONNX knows constant, reflect, edge and wrap")
    if mode == "reflect" and b.at_least(7) and all(max(p) < n for p, n in zip(paddings, x.shape, strict=True)):
        return b.emit("MIRROR_PAD", x, paddings=tuple(paddings), mode=0)
    for axis, padding in enumerate(paddings):
        if any(padding):
            places = np.pad(np.arange(x.shape[axis]), padding, mode=mode)  # type: ignore[call-overload]
            x = gathered(b, x, b.const(places.astype(np.int32)), axis)
    return x


@legalizes("DepthToSpace")
def depth_to_space(b: Builder, op: Op) -> Value:
    """DEPTH_TO_SPACE, whose channel order is DCR's; CRD reorders the channels first."""
    (x,) = b.inputs(op)
    block = op.attrs["blocksize"]
    n, c, h, w = x.shape
    if op.attrs["mode"] == "CRD" and block > 1:
        inner = c // block**2
        split_channels = b.reshape(x, (n, inner, block**2, h * w))
        x = b.reshape(transposed(b, split_channels, (0, 2, 1, 3)), (n, c, h, w))
    return _blocks(b, "DEPTH_TO_SPACE", x, block)


@legalizes("SpaceToDepth")
def space_to_depth(b: Builder, op: Op) -> Value:
    """SPACE_TO_DEPTH, whose channel order is DCR's; CRD reorders the channels after."""
    (x,) = b.inputs(op)
    block = op.attrs["blocksize"]
    result = _blocks(b, "SPACE_TO_DEPTH", x, block)
    if op.attrs.get("mode", "DCR") == "DCR" or block == 1:
        return result
    n, c, h, w = result.shape
    split_channels = b.reshape(result, (n, block**2, c // block**2, h * w))
    return b.reshape(transposed(b, split_channels, (0, 2, 1, 3)), (n, c, h, w))


def _blocks(b: Builder, kind: str, x: Value, block: int) -> Value:
    return carried(b, kind, x, lambda data: from_nhwc(b, b.emit(kind, to_nhwc(b, data), block_size=block), 4))
