"""Rows of the pools."""

from __future__ import annotations

from collections.abc import Sequence

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.rules import Bound
from onnx2nnapi.nnapi.schema import Rank, SameAs, Schema, register, scalar, tensor, type_rows
from onnx2nnapi.nnapi.table.sliding import (
    FUSE_CODE,
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

_FLOAT = (("F32", 1), ("F16", 3))
_QUANT = (("U8", 1), ("S8", 4))


def _pool(bound: Bound) -> Sequence[Shape]:
    batch, height, width, channels = image_sizes(bound)
    filters = bound.scalar("filter_height"), bound.scalar("filter_width")
    vertical, horizontal = windows(bound, (height, width), filters)
    return image_shape(bound, batch, places("height", vertical), places("width", horizontal), channels)


def _row(code: OperationCode, types: tuple[tuple[str, int], ...], doc: str) -> Schema:
    return Schema(
        code,
        1,
        forms((tensor("input"),), (*STRIDES, scalar("filter_width"), scalar("filter_height"), FUSE_CODE, NCHW)),
        (tensor("output"),),
        type_rows("input output", *types),
        _pool,
        {"input": Rank(4, 4)},
        (
            positive("stride_width", "stride_height", "filter_width", "filter_height"),
            check_fuse_code,
            check_padding_scheme,
        ),
        {"output": SameAs("input")},
        zero_sized_since=3,
        doc=doc,
    )


register(
    _row(OperationCode.AVERAGE_POOL_2D, _FLOAT + _QUANT, "Mean over a sliding window; padding does not count."),
    _row(OperationCode.L2_POOL_2D, _FLOAT, "Square root of the mean square over a sliding window."),
    _row(OperationCode.MAX_POOL_2D, _FLOAT + _QUANT, "Largest element under a sliding window."),
)
