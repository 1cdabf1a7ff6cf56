"""Rows of the elementwise operations."""

from __future__ import annotations

from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.conditions import declared_output, fused_activation, output_scale_above_product
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import (
    Elementwise,
    Form,
    Rank,
    Rule,
    Schema,
    Slot,
    register,
    scalar,
    tensor,
    type_rows,
)
from onnx2nnapi.nnapi.shapes import broadcast, same_shape, shape_of

_BOOL = (("BOOL", 3),)
_BOOL_TENSOR = OperandCode.TENSOR_BOOL8
_FLOATS = (("F32", 3), ("F16", 3))
_QUANTIZED = (("U8", 3), ("S8", 4))


def _binary(
    name: str,
    doc: str,
    *rows: tuple[str, int],
    operands: str = "input1 input2",
    tied: str = "",
    rules: tuple[Rule, ...] = (),
    fused: bool = False,
    result: Slot | None = None,
) -> Schema:
    """A row of two tensors that broadcast; ``fused`` ones have up to four dimensions, and an activation."""
    a, b = operands.split()
    slots = (tensor(a), tensor(b))
    since = min(level for _, level in rows)
    return Schema(
        OperationCode[name],
        since,
        (Form("", (*slots, scalar("fuse_code", default=0)) if fused else slots),),
        (result or tensor("output"),),
        type_rows(tied or f"{operands} output", *rows),
        broadcast(a, b),
        ranks={a: Rank(1, 4), b: Rank(1, 4)} if fused else {},
        rules=(fused_activation, *rules) if fused else rules,
        layout=Elementwise(),
        zero_sized_since=3 if fused else None,
        doc=doc,
    )


def _unary(name: str, doc: str, *rows: tuple[str, int], max_rank: int | None = None) -> Schema:
    return Schema(
        OperationCode[name],
        min(level for _, level in rows),
        (Form("", (tensor("input"),)),),
        (tensor("output"),),
        type_rows("input output", *rows),
        shape_of("input"),
        ranks={"input": Rank(1, max_rank)},
        layout=Elementwise(),
        doc=doc,
    )


def _sum_scale(bound: Bound) -> None:
    """Quantized sums have 20 bits of headroom: the output's scale may not be that much finer than the inputs'."""
    if bound["input1"].is_quantized:
        scale, widest = declared_output(bound).scale, max(bound["input1"].scale, bound["input2"].scale)
        if not scale > widest * 2**-19:
            raise RuleError(f"the output's scale is {scale:.9g}, it must be above 2^-19 of the inputs', {widest:.9g}")


register(
    _binary(
        "ADD",
        "Sum, broadcast, with a fused activation.",
        ("F32", 1),
        ("F16", 3),
        ("U8", 1),
        ("S8", 4),
        ("I32", 4),
        fused=True,
        rules=(_sum_scale,),
    ),
    _binary(
        "SUB",
        "Difference, broadcast, with a fused activation.",
        ("F32", 2),
        ("F16", 3),
        ("U8", 3),
        ("S8", 4),
        ("I32", 4),
        fused=True,
        rules=(_sum_scale,),
    ),
    _binary(
        "MUL",
        "Product, broadcast, with a fused activation.",
        ("F32", 1),
        ("F16", 3),
        ("U8", 1),
        ("S8", 4),
        ("I32", 4),
        fused=True,
        rules=(output_scale_above_product("input1", "input2"),),
    ),
    _binary(
        "DIV",
        "Quotient, broadcast, with a fused activation; integers round down, and a division by zero gives 0.",
        ("F32", 2),
        ("F16", 3),
        ("I32", 4),
        fused=True,
    ),
    _binary("POW", "Power, broadcast.", *_FLOATS, operands="base exponent"),
    _binary(
        "PRELU",
        "The input, times alpha where it is negative, broadcast.",
        *_FLOATS,
        *_QUANTIZED,
        operands="input alpha",
    ),
    _binary("MAXIMUM", "The larger of two, broadcast.", *_FLOATS, ("I32", 3), *_QUANTIZED),
    _binary("MINIMUM", "The smaller of two, broadcast.", *_FLOATS, ("I32", 3), *_QUANTIZED),
    *(
        _binary(
            name,
            f"Whether the first {meaning} the second, broadcast.",
            *_BOOL,
            *_FLOATS,
            ("I32", 3),
            *_QUANTIZED,
            tied="input1 input2",
            result=tensor("output", code=_BOOL_TENSOR),
        )
        for name, meaning in {
            "EQUAL": "equals",
            "NOT_EQUAL": "differs from",
            "LESS": "is below",
            "LESS_EQUAL": "is at most",
            "GREATER": "is above",
            "GREATER_EQUAL": "is at least",
        }.items()
    ),
    _binary("LOGICAL_AND", "Whether both are true, broadcast.", *_BOOL),
    _binary("LOGICAL_OR", "Whether one is true, broadcast.", *_BOOL),
    _unary("LOGICAL_NOT", "Whether it is false.", *_BOOL),
    _unary("ABS", "Absolute value.", *_FLOATS, ("I32", 4)),
    _unary("NEG", "The negative.", *_FLOATS, ("I32", 3)),
    _unary("EXP", "Exponential function.", *_FLOATS),
    _unary("LOG", "Natural logarithm.", *_FLOATS),
    _unary("SIN", "Sine.", *_FLOATS),
    _unary("SQRT", "Square root.", *_FLOATS),
    _unary("RSQRT", "One over the square root.", *_FLOATS, ("U8", 7), ("S8", 7)),
    _unary("FLOOR", "The largest integer that is not above.", ("F32", 1), ("F16", 3), max_rank=4),
    Schema(
        OperationCode.SELECT,
        3,
        (Form("", (tensor("condition", _BOOL_TENSOR), tensor("input1"), tensor("input2"))),),
        (tensor("output"),),
        type_rows("input1 input2 output", *_FLOATS, ("I32", 3), *_QUANTIZED),
        same_shape("condition", "input1", "input2"),
        layout=Elementwise(),
        doc="The first where the condition holds, else the second; all have the same shape.",
    ),
)
