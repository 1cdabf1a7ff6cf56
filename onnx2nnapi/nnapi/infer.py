"""Binding an operation of an NNAPI-dialect graph to its row: attributes find their slots, values their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Argument, Bound, RuleError, arrange, bind
from onnx2nnapi.nnapi.schema import SCHEMAS, Role, Schema, Slot
from onnx2nnapi.nnapi.types import OperandType

__all__ = ["bind_op", "bind_values"]


def bind_values(
    schema: Schema,
    tensors: Sequence[Value | None],
    attrs: Mapping[str, Any],
    dtype: Any = None,
    outputs: Sequence[OperandType | None] = (),
) -> Bound:
    """Bind an operation of the graph to its row.

    Args:
        schema: the row.
        tensors: its data operands in order.
        attrs: every other operand by name.
        dtype: element type of the output, where it is to choose between type rows.
        outputs: declared output types, where they are known.

    Raises:
        RuleError: where the row refuses it.
    """
    _, items = arrange(schema, tensors, attrs)
    arguments: list[Argument | None] = []
    float_scalar = next(
        (v.known.dtype for v in tensors if v is not None and v.known.dtype.kind == "f"), np.dtype(np.float32)
    )
    for slot, item in items:
        if item is None:
            arguments.append(None)
        elif isinstance(item, Value):
            try:
                type_ = OperandType.of(item.known)
            except KeyError:
                raise RuleError(f"NNAPI has no tensors of {item.known.dtype.name}, which {item.name!r} is") from None
            arguments.append(Argument(type_, item.const))
        else:
            arguments.append(_attribute(schema, slot, item, float_scalar))
    bound = bind(schema, arguments, outputs)
    if dtype is not None and schema.types:
        wanted = np.dtype(dtype)
        rows = [
            row
            for row in schema.types
            if _row_fits(row.codes, bound)
            and any(
                row.codes.get(s.name, s.code) is not None
                and row.codes.get(s.name, s.code or OperandCode.MODEL).dtype == wanted
                for s in schema.outputs
            )
        ]
        if rows:
            bound.row = rows[0]
    return bound


def bind_op(graph: Graph, op: Op) -> Bound:
    """The bound row of an operation that is in an NNAPI-dialect graph, with its outputs' types.

    Raises:
        RuleError: where the row refuses it.
    """
    tensors = [None if name is None else graph[name] for name in op.inputs]
    outputs = [None if name is None else OperandType.of(graph[name].known) for name in op.outputs]
    return bind_values(SCHEMAS[OperationCode[op.kind]], tensors, op.attrs, outputs=outputs)


def _row_fits(codes: Any, bound: Bound) -> bool:
    return all(
        codes.get(name, argument.type.code) == argument.type.code
        for name, argument in bound.arguments.items()
        if argument is not None
    )


def _attribute(schema: Schema, slot: Slot, item: Any, float_dtype: np.dtype[Any]) -> Argument:
    if slot.role is Role.MODEL:
        return Argument(OperandType(OperandCode.MODEL), item)
    if slot.role is Role.ARRAY:
        array = np.asarray(item, dtype=(slot.code or OperandCode.TENSOR_INT32).dtype)
        return Argument(OperandType(slot.code or OperandCode.TENSOR_INT32, array.shape), array)
    code = slot.code or (OperandCode.FLOAT16 if float_dtype == np.float16 else OperandCode.FLOAT32)
    if slot.code is None and not any(row.codes.get(slot.name) == code for row in schema.types):
        code = next((row.codes[slot.name] for row in schema.types if slot.name in row.codes), code)
    return Argument(OperandType(code), np.asarray([item]).astype(code.dtype))
