"""Rows of the operations between element types."""

from __future__ import annotations

from itertools import product

from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.schema import Elementwise, Form, Rank, Schema, register, tensor, type_rows
from onnx2nnapi.nnapi.shapes import shape_of


def _conversion(
    name: str,
    doc: str,
    *rows: tuple[str, int],
    max_rank: int | None = None,
    zero_sized_since: int | None = 3,
) -> Schema:
    return Schema(
        OperationCode[name],
        min(level for _, level in rows),
        (Form("", (tensor("input"),)),),
        (tensor("output"),),
        type_rows("input output", *rows),
        shape_of("input"),
        ranks={"input": Rank(1, max_rank)},
        layout=Elementwise(),
        zero_sized_since=zero_sized_since,
        doc=doc,
    )


register(
    _conversion(
        "QUANTIZE",
        "Codes of real numbers, ties away from zero.",
        ("F32 U8", 3),
        ("F16 U8", 3),
        ("F32 S8", 4),
        ("F16 S8", 4),
    ),
    _conversion(
        "DEQUANTIZE",
        "Real numbers of codes.",
        ("U8 F32", 1),
        ("U8 F16", 3),
        *((f"{code} {to}", 3) for code, to in product(("S8", "Y8", "C8"), ("F32", "F16"))),
        max_rank=4,
    ),
    _conversion(
        "CAST",
        "The same numbers in another element type, cut towards zero; quantization is ignored.",
        *((f"{code} {to}", 3) for code, to in product(("F32", "F16", "I32", "U8"), repeat=2)),
        *((f"{code} {code}", 4) for code in ("BOOL", "A16", "Y16", "S8", "Y8")),
        zero_sized_since=None,
    ),
)
