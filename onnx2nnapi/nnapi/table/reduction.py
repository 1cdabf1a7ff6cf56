"""Rows of the operations that reduce dimensions."""

from __future__ import annotations

from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.conditions import axes_within, axis_within
from onnx2nnapi.nnapi.schema import (
    AxesAttr,
    AxisAttr,
    Form,
    Rank,
    SameAs,
    Schema,
    array,
    register,
    scalar,
    tensor,
    type_rows,
)
from onnx2nnapi.nnapi.shapes import reduced, without_axis

_FLOATS = (("F32", 3), ("F16", 3))


def _reduction(name: str, doc: str, *rows: tuple[str, int], keep: OperandCode = OperandCode.BOOL) -> Schema:
    return Schema(
        OperationCode[name],
        min(level for _, level in rows),
        (Form("", (tensor("input"), array("axes"), scalar("keep_dims", keep, default=False))),),
        (tensor("output"),),
        type_rows("input output", *rows),
        reduced(),
        ranks={"input": Rank(1, 4)},
        rules=(axes_within(),),
        quantization={"output": SameAs("input")},
        layout=AxesAttr("axes", keeps="keep_dims"),
        doc=doc,
    )


def _index_of(name: str, doc: str) -> Schema:
    return Schema(
        OperationCode[name],
        3,
        (Form("", (tensor("input"), scalar("axis"))),),
        (tensor("output", OperandCode.TENSOR_INT32),),
        type_rows("input", *_FLOATS, ("I32", 3), ("U8", 3), ("S8", 3)),
        without_axis(),
        rules=(axis_within(),),
        layout=AxisAttr("axis", drops=True),
        doc=doc,
    )


register(
    _reduction(
        "MEAN",
        "Mean over dimensions; of codes cut towards zero.",
        ("F32", 2),
        ("F16", 3),
        ("U8", 2),
        ("S8", 4),
        keep=OperandCode.INT32,
    ),
    _reduction("REDUCE_SUM", "Sum over dimensions.", *_FLOATS),
    _reduction("REDUCE_PROD", "Product over dimensions.", *_FLOATS),
    _reduction("REDUCE_MAX", "Largest over dimensions.", *_FLOATS, ("U8", 3), ("S8", 4)),
    _reduction("REDUCE_MIN", "Smallest over dimensions.", *_FLOATS, ("U8", 3), ("S8", 4)),
    _reduction("REDUCE_ANY", "Whether one is true over dimensions.", ("BOOL", 3)),
    _reduction("REDUCE_ALL", "Whether all are true over dimensions.", ("BOOL", 3)),
    _index_of("ARGMAX", "Index of the largest along a dimension, the first of equals."),
    _index_of("ARGMIN", "Index of the smallest along a dimension, the first of equals."),
)
