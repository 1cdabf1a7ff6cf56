"""Resize: NNAPI's own operations where their coordinates are ONNX's, else gathers and constant weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import Array
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.carry import takes
from onnx2nnapi.passes.legalize.convolution import from_nhwc, to_nhwc
from onnx2nnapi.passes.legalize.matmul import fully_connected
from onnx2nnapi.passes.legalize.movement import concat, gather_axis, transposed
from onnx2nnapi.passes.legalize.shapes import axis_of, binary

__all__ = ["Axis", "apply_weights"]


@dataclass(frozen=True)
class Axis:
    """How one dimension is resized.

    Attributes:
        index, size, out: the dimension, its size before and after.
        scale: out / size as the model gives it.
        coordinates: for each output place, where it lies among the inputs.
        outside: output places that extrapolate (tf_crop_and_resize).
    """

    index: int
    size: int
    out: int
    scale: float
    coordinates: Array
    outside: Array


@legalizes("Resize")
def resize(b: Builder, op: Op) -> Value:
    """RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR where exact, else GATHER or FULLY_CONNECTED, an axis at a time."""
    x = b.inputs(op)[0]
    axes = [axis for axis in _axes(b, op, x) if not _is_identity(axis)]
    if not axes:
        return x
    if x.known.dtype.kind != "f" and op.attrs["mode"] != "nearest":
        b.unsupported(f"interpolation of {x.known.dtype.name}", "cast to float before")
    if op.attrs["mode"] == "nearest":
        return _nearest(b, op, x, axes)
    return _native_bilinear(b, op, x, axes) or _interpolated(b, op, x, axes)


# -- coordinates -------------------------------------------------------------------------------------------------------


def _axes(b: Builder, op: Op, x: Value) -> list[Axis]:
    roi_value, scales_value = (b.optional_input(op, index) for index in (1, 2))
    out_shape = b.out_shape(op)
    listed = op.attrs.get("axes")
    axes = list(range(x.rank)) if listed is None else [axis_of(int(axis), x.rank) for axis in listed]
    scales = (
        None if scales_value is None or not scales_value.known.size else b.constant(scales_value, "scales").reshape(-1)
    )
    roi = None if roi_value is None or not roi_value.known.size else b.constant(roi_value, "roi").reshape(-1)
    result = []
    for position, axis in enumerate(axes):
        size, out = x.shape[axis], out_shape[axis]
        scale = out / size if scales is None else float(scales[position])
        if scales is None and op.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            scale = _aspect_scale(b, op, x, axes)
        window = (0.0, 1.0) if roi is None else (float(roi[position]), float(roi[position + len(axes)]))
        coordinates = _coordinates(b, op.attrs["coordinate_transformation_mode"], size, out, scale, window)
        crop = op.attrs["coordinate_transformation_mode"] == "tf_crop_and_resize"
        outside = (coordinates < 0) | (coordinates > size - 1) if crop else np.zeros(out, np.bool_)
        result.append(Axis(axis, size, out, scale, coordinates, outside))
    return result


def _aspect_scale(b: Builder, op: Op, x: Value, axes: Sequence[int]) -> float:
    """The one scale of all axes where the aspect ratio is kept."""
    wanted = b.constant(b.optional_input(op, 3), "sizes").reshape(-1)
    ratios = [float(size) / x.shape[axis] for size, axis in zip(wanted, axes, strict=True)]
    return min(ratios) if op.attrs["keep_aspect_ratio_policy"] == "not_larger" else max(ratios)


def _coordinates(b: Builder, mode: str, size: int, out: int, scale: float, window: tuple[float, float]) -> Array:
    """Each output's place among the inputs, in float32 as onnxruntime computes it.

    Where a place lies halfway between two inputs, or should be a whole number, the last bit decides what nearest reads.
    """
    places: Array = np.arange(out, dtype=np.float32)
    step, half, last = np.float32(scale), np.float32(0.5), np.float32(size - 1)
    if mode == "asymmetric":
        places = places / step
    elif mode == "half_pixel" or (mode == "pytorch_half_pixel" and out > 1):
        places = (places + half) / step - half
    elif mode == "pytorch_half_pixel":
        places = np.full(out, -half)
    elif mode == "half_pixel_symmetric":
        places = np.float32(size / 2 * (1 - out / (scale * size))) + (places + half) / step - half
    elif mode == "align_corners":  # by the scaled size, which may be no whole number
        last_out = np.float32(scale * size - 1)
        places = places * last / last_out if out > 1 and last_out else np.zeros(out, np.float32)
    elif mode == "tf_crop_and_resize":
        start, end = np.float32(window[0]), np.float32(window[1])
        if out > 1:
            places = start * last + places * (end - start) * last / np.float32(out - 1)
        else:
            places = np.full(out, half * (start + end) * last)
    else:
        b.unsupported(f"coordinate_transformation_mode {mode!r} is unknown")
    return places


def _is_identity(axis: Axis) -> bool:
    return axis.size == axis.out and np.array_equal(axis.coordinates, np.arange(axis.out))


# -- nearest -----------------------------------------------------------------------------------------------------------


def _nearest(b: Builder, op: Op, x: Value, axes: Sequence[Axis]) -> Value:
    places = {axis.index: _nearest_places(b, op.attrs["nearest_mode"], axis) for axis in axes}
    if not any(axis.outside.any() for axis in axes):
        native = _native_nearest(b, x, axes, places)
        if native is not None:
            return native
    for axis in axes:
        x = gather_axis(b, x, places[axis.index], axis.index)
        if axis.outside.any():
            x = _extrapolated(b, op, x, axis)
    return x


def _nearest_places(b: Builder, mode: str, axis: Axis) -> Array:
    c = axis.coordinates
    rounded = {
        "floor": np.floor(c),
        "ceil": np.ceil(c),
        "round_prefer_floor": np.ceil(c - 0.5),
        "round_prefer_ceil": np.floor(c + 0.5),
    }.get(mode)
    if rounded is None:
        b.unsupported(f"nearest_mode {mode!r} is unknown")
    places: Array = np.clip(rounded, 0, axis.size - 1).astype(np.int64)
    return places


def _native_nearest(b: Builder, x: Value, axes: Sequence[Axis], places: dict[int, Array]) -> Value | None:
    """RESIZE_NEAREST_NEIGHBOR in the mode that reads the same places; a whole factor at level 1 by DEPTH_TO_SPACE."""
    if x.rank not in (3, 4) or any(axis.index < 2 for axis in axes) or not takes(b, "TRANSPOSE", x):
        return None
    if b.at_least(3):
        modes: list[dict[str, Any]] = [{}]
        modes += [{"align_corners": True}, {"half_pixel_centers": True}] if b.at_least(4) else []
        for mode in modes:
            if all(np.array_equal(_native_places(axis, **mode), places[axis.index]) for axis in axes):
                return from_nhwc(
                    b, b.emit("RESIZE_NEAREST_NEIGHBOR", to_nhwc(b, x), **_output_size(x, axes), **mode), x.rank
                )
        return None
    return _by_depth(b, x, axes, places)


def _by_depth(b: Builder, x: Value, axes: Sequence[Axis], places: dict[int, Array]) -> Value | None:
    """A whole factor, the same for height and width: copies along the channels, and DEPTH_TO_SPACE."""
    factor = axes[0].out // axes[0].size
    whole = all(np.array_equal(places[axis.index], np.arange(axis.size).repeat(factor)) for axis in axes)
    if x.rank != 4 or len(axes) != 2 or not whole:
        return None
    copies = concat(b, [to_nhwc(b, x)] * factor**2, 3)
    return from_nhwc(b, b.emit("DEPTH_TO_SPACE", copies, block_size=factor), 4)


def _native_places(axis: Axis, *, align_corners: bool = False, half_pixel_centers: bool = False) -> Array:
    """What Android's reference reads (golden/NOTES.md), in its float32."""
    i = np.arange(axis.out, dtype=np.float32)
    if align_corners and axis.out > 1:
        step = np.float32(axis.size - 1) / np.float32(axis.out - 1)
        rounded = np.floor(i * step + np.float32(0.5))
    else:
        step = np.float32(axis.size) / np.float32(axis.out)
        rounded = np.floor((i + np.float32(0.5 if half_pixel_centers else 0)) * step)
    places: Array = np.clip(rounded, 0, axis.size - 1).astype(np.int64)
    return places


def _output_size(x: Value, axes: Sequence[Axis]) -> dict[str, Any]:
    sizes = dict(enumerate(x.shape)) | {axis.index: axis.out for axis in axes}
    return {"output_width": sizes[x.rank - 1], "output_height": sizes[2] if x.rank == 4 else 1}


# -- interpolation -----------------------------------------------------------------------------------------------------


def _native_bilinear(b: Builder, op: Op, x: Value, axes: Sequence[Axis]) -> Value | None:
    """RESIZE_BILINEAR where its coordinates are the model's, within float32."""
    plain = not op.attrs.get("antialias") or all(axis.scale >= 1 for axis in axes)
    if op.attrs["mode"] != "linear" or not plain or op.attrs.get("exclude_outside") or x.rank not in (3, 4):
        return None
    if any(axis.index < 2 or axis.outside.any() for axis in axes):
        return None
    modes: list[dict[str, Any]] = [{}]
    modes += [{"align_corners": True}, {"half_pixel_centers": True}] if b.at_least(4) else []
    for mode in modes:
        if all(
            np.allclose(
                _bounded(axis, _bilinear_places(axis, **mode)), _bounded(axis, axis.coordinates), atol=1e-6 * axis.size
            )
            for axis in axes
        ):
            return from_nhwc(b, b.emit("RESIZE_BILINEAR", to_nhwc(b, x), **_output_size(x, axes), **mode), x.rank)
    return None


def _bounded(axis: Axis, coordinates: Array) -> Array:
    """Beyond the edge the edge is repeated."""
    return np.clip(coordinates, 0, axis.size - 1)


def _bilinear_places(axis: Axis, *, align_corners: bool = False, half_pixel_centers: bool = False) -> Array:
    i = np.arange(axis.out, dtype=np.float64)
    if align_corners and axis.out > 1:
        return i * ((axis.size - 1) / (axis.out - 1))
    offset = 0.5 if half_pixel_centers else 0.0
    return (i + offset) * (axis.size / axis.out) - offset


def _interpolated(b: Builder, op: Op, x: Value, axes: Sequence[Axis]) -> Value:
    for axis in axes:
        weights = _weights(op, axis)
        picks = weights.argmax(axis=1)
        if np.array_equal(weights, np.eye(axis.size)[picks]) and not axis.outside.any():
            x = gather_axis(b, x, picks, axis.index)
            continue
        offset = np.where(axis.outside, op.attrs["extrapolation_value"], 0.0)
        weights[axis.outside] = 0
        x = apply_weights(b, x, axis.index, weights, offset)
    return x


def _weights(op: Op, axis: Axis) -> Array:
    """[out, size]: how much of each input each output takes, by the definition of ONNX Resize."""
    cubic = op.attrs["mode"] == "cubic"
    shrink = min(axis.scale, 1.0) if op.attrs.get("antialias") else 1.0
    reach = math.ceil((2 if cubic else 1) / shrink) + 1
    base = np.floor(axis.coordinates).astype(np.int64)
    taps = base[:, None] + np.arange(-reach, reach + 1)
    distance = np.abs(taps - axis.coordinates[:, None]) * shrink
    values = _cubic(distance, op.attrs["cubic_coeff_a"]) if cubic else np.clip(1 - distance, 0, None)
    if op.attrs.get("exclude_outside"):
        values = np.where((taps >= 0) & (taps < axis.size), values, 0)
    if op.attrs.get("exclude_outside") or shrink < 1:
        values = values / values.sum(axis=1, keepdims=True)
    weights = np.zeros((axis.out, axis.size))
    np.add.at(weights, (np.arange(axis.out)[:, None], np.clip(taps, 0, axis.size - 1)), values)
    return weights


def _cubic(distance: Array, a: float) -> Array:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    result: Array = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
    return result


def apply_weights(b: Builder, x: Value, axis: int, weights: Array, offset: Array | None = None) -> Value:
    """Replace dimension ``axis`` by weights [out, size] times it, plus ``offset`` [out], by FULLY_CONNECTED."""
    dtype: Any = x.known.dtype
    perm = [*(i for i in range(x.rank) if i != axis), axis]
    moved = transposed(b, x, perm)
    rows = b.reshape(moved, (math.prod(moved.shape[:-1]), moved.shape[-1]))
    bias = None if offset is None else b.const(offset.astype(dtype))
    result = fully_connected(b, rows, b.const(weights.astype(dtype)), bias)
    wide = b.reshape(result, (*moved.shape[:-1], weights.shape[0]))
    return transposed(b, wide, np.argsort(perm).tolist())


def _extrapolated(b: Builder, op: Op, x: Value, axis: Axis) -> Value:
    """Put the extrapolation value at the places outside: times a mask of ones, plus the value."""
    shape = tuple(axis.out if i == axis.index else 1 for i in range(x.rank))
    mask = (~axis.outside).astype(x.known.dtype).reshape(shape)
    value = (axis.outside * op.attrs["extrapolation_value"]).astype(x.known.dtype).reshape(shape)
    return binary(b, "ADD", binary(b, "MUL", x, b.const(mask)), b.const(value))
