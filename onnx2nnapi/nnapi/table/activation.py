"""Rows of the activation operations."""

from __future__ import annotations

from collections.abc import Mapping

from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.conditions import (
    axis_within,
    declared_output,
    input_scale_above,
    level_beyond_ranks,
    output_quantization_is,
    positive,
)
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import (
    AxisAttr,
    Elementwise,
    Fixed,
    Form,
    Free,
    Quantize,
    Rank,
    Rule,
    SameAs,
    Schema,
    optional,
    register,
    scalar,
    tensor,
    type_rows,
)
from onnx2nnapi.nnapi.shapes import shape_of
from onnx2nnapi.nnapi.types import Q8_SIGNED, QUANT8

_SINCE_1 = (("F32", 1), ("F16", 3), ("U8", 1), ("S8", 4))
_FROM_0_TO_1 = Fixed({QUANT8: (1 / 256, 0), Q8_SIGNED: (1 / 256, -128)})
_FROM_MINUS_1_TO_1 = Fixed({QUANT8: (1 / 128, 128), Q8_SIGNED: (1 / 128, 0)})


def _unary(
    name: str,
    doc: str,
    *rows: tuple[str, int],
    quantization: Quantize,
    max_rank: int | None = 4,
    rules: tuple[Rule, ...] = (),
) -> Schema:
    since = min(level for _, level in rows)
    return Schema(
        OperationCode[name],
        since,
        (Form("", (tensor("input"),)),),
        (tensor("output"),),
        type_rows("input output", *rows),
        shape_of("input"),
        ranks={"input": Rank(1, max_rank)},
        rules=rules,
        quantization={"output": quantization},
        layout=Elementwise(),
        zero_sized_since=max(3, since),
        doc=doc,
    )


def _swish_scale(bound: Bound) -> None:
    """The fixed-point arithmetic has 7 bits more than the codes of the input."""
    if bound["input"].is_quantized:
        scale, least = declared_output(bound).scale, bound["input"].scale / 128
        if not scale > least:
            raise RuleError(f"the output's scale is {scale:.9g}, it must be above {least:.9g}, 1/128 of the input's")


_BETA_CODES: Mapping[str, str] = {"F32": "f32", "F16": "f16", "U8": "f32", "S8": "f32"}


def _scaled_rows(*rows: tuple[str, int]) -> tuple[tuple[str, int], ...]:
    """Rows over "input, scalar, output": the scalar is FLOAT16 beside float16 tensors, else FLOAT32."""
    return tuple((f"{code} {_BETA_CODES[code]} {code}", level) for code, level in rows)


register(
    _unary("RELU", "max(0, x).", *_SINCE_1, quantization=SameAs("input")),
    _unary("RELU1", "x between -1 and 1.", *_SINCE_1, quantization=SameAs("input")),
    _unary("RELU6", "x between 0 and 6.", *_SINCE_1, quantization=SameAs("input")),
    _unary("LOGISTIC", "1 / (1 + exp(-x)).", *_SINCE_1, quantization=_FROM_0_TO_1, rules=(input_scale_above(2**-27),)),
    _unary(
        "TANH",
        "Hyperbolic tangent.",
        ("F32", 1),
        ("F16", 3),
        ("U8", 3),
        ("S8", 4),
        quantization=_FROM_MINUS_1_TO_1,
        rules=(input_scale_above(2**-27),),
    ),
    _unary(
        "HARD_SWISH",
        "x · min(6, max(0, x + 3)) / 6.",
        ("F32", 4),
        ("F16", 4),
        ("U8", 4),
        ("S8", 4),
        quantization=Free(),
        rules=(_swish_scale,),
        max_rank=None,
    ),
    Schema(
        OperationCode.ELU,
        4,
        (Form("", (tensor("input"), scalar("alpha", None, default=1.0))),),
        (tensor("output"),),
        type_rows("input alpha output", *_scaled_rows(("F32", 4), ("F16", 4))),
        shape_of("input"),
        layout=Elementwise(),
        doc="max(0, x) + min(0, alpha · (exp(x) - 1)).",
    ),
    Schema(
        OperationCode.SOFTMAX,
        1,
        (
            Form(
                "",
                (
                    tensor("input"),
                    scalar("beta", None, default=1.0),
                    optional("axis", OperandCode.INT32, -1, since=3),
                ),
            ),
        ),
        (tensor("output"),),
        type_rows("input beta output", *_scaled_rows(*_SINCE_1)),
        shape_of("input"),
        ranks={"input": Rank(1, 4)},
        rules=(
            positive("beta"),
            axis_within(),
            level_beyond_ranks(3, (2, 4)),
            output_quantization_is(_FROM_0_TO_1),
            input_scale_above(2**-26, "beta"),
        ),
        quantization={"output": _FROM_0_TO_1},
        layout=AxisAttr("axis"),
        zero_sized_since=3,
        doc="exp(beta · x) over its sum along a dimension.",
    ),
    Schema(
        OperationCode.LOG_SOFTMAX,
        3,
        (Form("", (tensor("input"), scalar("beta", None, default=1.0), scalar("axis", default=-1))),),
        (tensor("output"),),
        type_rows("input beta output", *_scaled_rows(("F32", 3), ("F16", 3))),
        shape_of("input"),
        rules=(axis_within(),),
        layout=AxisAttr("axis"),
        doc="Logarithm of SOFTMAX.",
    ),
)
