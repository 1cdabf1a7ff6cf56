"""Rows of the image resizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import Form, Rank, SameAs, Schema, Slot, optional, register, scalar, tensor, type_rows
from onnx2nnapi.nnapi.table.sliding import image_shape, image_sizes

_MODES = tuple(optional(name, OperandCode.BOOL, False, since=4) for name in ("align_corners", "half_pixel_centers"))


def _forms(nchw: Slot) -> tuple[Form, ...]:
    return (
        Form("by size", (tensor("input"), scalar("output_width"), scalar("output_height"), nchw, *_MODES)),
        Form(
            "by scale",
            (
                tensor("input"),
                scalar("scale_width", None, since=3),
                scalar("scale_height", None, since=3),
                nchw,
                *_MODES,
            ),
        ),
    )


def _check_modes(bound: Bound) -> None:
    if bound.scalar("align_corners") and bound.scalar("half_pixel_centers"):
        raise RuleError("operands 'align_corners' and 'half_pixel_centers' are both true, at most one may be")


def _resize(bound: Bound) -> Sequence[Shape]:
    batch, height, width, channels = image_sizes(bound)
    sizes = []
    for axis, size in (("height", height), ("width", width)):
        if bound.has(f"scale_{axis}"):
            scaled = np.float32(size) * np.float32(bound.scalar(f"scale_{axis}"))
            result = math.floor(scaled) if np.isfinite(scaled) else 0
        else:
            result = bound.scalar(f"output_{axis}")
        if not 0 < result < 2**31:
            raise RuleError(f"the output's {axis} is {result}, it must be positive")
        sizes.append(result)
    return image_shape(bound, batch, sizes[0], sizes[1], channels)


def _row(code: OperationCode, since: int, nchw: Slot, doc: str) -> Schema:
    return Schema(
        code,
        since,
        _forms(nchw),
        (tensor("output"),),
        type_rows(
            "input scale_width scale_height output",
            ("F32 f32 f32 F32", since),
            ("F16 f16 f16 F16", 3),
            ("U8 f32 f32 U8", 3),
            ("S8 f32 f32 S8", 4),
        ),
        _resize,
        {"input": Rank(4, 4)},
        (_check_modes,),
        {"output": SameAs("input")},
        zero_sized_since=3,
        doc=doc,
    )


register(
    _row(
        OperationCode.RESIZE_BILINEAR,
        1,
        optional("nchw", OperandCode.BOOL, False, since=3),
        "Resizes images by bilinear interpolation.",
    ),
    _row(
        OperationCode.RESIZE_NEAREST_NEIGHBOR,
        3,
        scalar("nchw", OperandCode.BOOL, default=False),
        "Resizes images, each element a copy of the nearest one.",
    ),
)
