"""Comparisons, booleans, selection and casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.element_types import BYTES, nnapi_type
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.carry import from_bool, to_bool
from onnx2nnapi.passes.legalize.shapes import binary, broadcast_to, unary

_COMPARISONS = {
    "And": "LOGICAL_AND",
    "Equal": "EQUAL",
    "Greater": "GREATER",
    "GreaterOrEqual": "GREATER_EQUAL",
    "Less": "LESS",
    "LessOrEqual": "LESS_EQUAL",
    "Or": "LOGICAL_OR",
    "Xor": "NOT_EQUAL",
}


@legalizes(*_COMPARISONS)
def comparison(b: Builder, op: Op) -> Value:
    """One NNAPI comparison; EQUAL to infinity is one with the largest float, at which NNAPI saturates."""
    x, y = b.inputs(op)
    if op.kind == "Equal" and y.const is not None and y.known.size == 1 and y.known.dtype.kind == "f":
        bound = float(y.const.numpy().reshape(-1)[0])
        if np.isinf(bound):
            return saturated(b, x, bound)
    return binary(b, _COMPARISONS[op.kind], x, y)


def saturated(b: Builder, x: Value, bound: float) -> Value:
    """Whether ``x`` is infinite with the sign of ``bound``, or the largest float, to which arithmetic clamps."""
    largest = float(np.finfo(x.known.dtype).max)
    kind, limit = ("GREATER_EQUAL", largest) if bound > 0 else ("LESS_EQUAL", -largest)
    return binary(b, kind, x, b.const(np.array([limit], x.known.dtype)))


@legalizes("Not")
def not_(b: Builder, op: Op) -> Value:
    """LOGICAL_NOT."""
    return unary(b, "LOGICAL_NOT", b.inputs(op)[0])


@legalizes("Where")
def where(b: Builder, op: Op) -> Value:
    """SELECT over operands of one shape; booleans by (c and x) or (not c and y)."""
    condition, x, y = b.inputs(op)
    if x.known.dtype.kind == "b":
        chosen = binary(b, "LOGICAL_AND", condition, x)
        other = binary(b, "LOGICAL_AND", unary(b, "LOGICAL_NOT", condition), y)
        return binary(b, "LOGICAL_OR", chosen, other)
    return select(b, condition, x, y)


def select(b: Builder, condition: Value, x: Value, y: Value) -> Value:
    """SELECT, its operands broadcast to one shape first."""
    b.needs_level(3, "selection by a condition")
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    if condition.shape != shape:
        condition = to_bool(b, broadcast_to(b, from_bool(b, condition, np.dtype(np.uint8)), shape))
    return b.emit("SELECT", condition, broadcast_to(b, x, shape), broadcast_to(b, y, shape), quant=x.known.quant)


@legalizes("Cast")
def cast(b: Builder, op: Op) -> Value:
    """CAST where it means what ONNX means; booleans are x != 0; below level 3 bytes by DEQUANTIZE."""
    target = nnapi_type(b.out_type(op), b.options, f"tensor {op.outputs[0]!r}")
    return cast_to(b, b.inputs(op)[0], target.dtype)


def cast_to(b: Builder, x: Value, dtype: np.dtype[Any]) -> Value:
    """CAST where it means what ONNX means; booleans are x != 0; below level 3 bytes by DEQUANTIZE."""
    source = x.known.dtype
    if source == dtype:
        return x
    if x.const is not None and x.known.size == 1:
        return b.const(
            x.const.numpy().astype(dtype), quant=BYTES if dtype.itemsize == 1 and dtype.kind != "b" else None
        )
    if dtype.kind == "b":
        return to_bool(b, x)
    if source.kind == "b":
        return from_bool(b, x, dtype)
    if source == np.int8:  # CAST has it to itself only
        real = b.emit("DEQUANTIZE", x)
        return real if dtype == np.float32 else cast_to(b, real, dtype)
    if source.kind == "u" and dtype == np.float32 and not b.at_least(3):
        return b.emit("DEQUANTIZE", x)
    if dtype.kind in "iu" and dtype.itemsize == 1 and source.kind in "fi":
        return _to_bytes(b, x, dtype)
    quant = BYTES if dtype.itemsize == 1 else None
    return b.emit("CAST", x, dtype=dtype, quant=quant)


def _to_bytes(b: Builder, x: Value, dtype: np.dtype[Any]) -> Value:
    """CAST saturates where ONNX's integers wrap: with proof only that none is out of range."""
    limits = np.iinfo(dtype)
    if x.known.dtype.kind == "i":
        interval = b.interval(x)
        if interval.low < limits.min or interval.high > limits.max:
            b.unsupported(
                f"its values are not known to fit {dtype.name}, into which ONNX wraps them and NNAPI saturates"
            )
    return narrowed(b, x, dtype)


def narrowed(b: Builder, x: Value, dtype: np.dtype[Any]) -> Value:
    """Numbers that are known to fit a type of one byte in that type; others unchanged where they have ``dtype``."""
    if x.known.dtype == dtype:
        return x
    if dtype == np.int8:
        whole = x if x.known.dtype == np.int32 else b.emit("CAST", x, dtype=np.int32)
        return b.emit("QUANTIZE", b.emit("CAST", whole, dtype=np.float32), dtype=dtype, quant=BYTES)
    return b.emit("CAST", x, dtype=dtype, quant=BYTES)
