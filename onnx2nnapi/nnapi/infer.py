"""Binding an operation of an NNAPI-dialect graph to its row: attributes find their slots, values their types."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Argument, Bound, RuleError, arrange, bind
from onnx2nnapi.nnapi.schema import SCHEMAS, Role, Schema, Slot, TypeRow
from onnx2nnapi.nnapi.types import OperandType

__all__ = ["bind_op", "bind_values", "is_read_by_rules", "signature", "slot_names"]


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
    types = [_operand_type(item) if isinstance(item, Value) else None for _, item in items]
    codes = {slot.name: type_.code for (slot, _), type_ in zip(items, types, strict=True) if type_ is not None}
    codes |= {slot.name: type_.code for slot, type_ in zip(schema.outputs, outputs, strict=False) if type_ is not None}
    rows = [row for row in schema.types if _row_fits(row, codes) and (dtype is None or _gives(row, schema, dtype))]
    arguments: list[Argument | None] = []
    for (slot, item), type_ in zip(items, types, strict=True):
        if type_ is not None:
            arguments.append(Argument(type_, item.const))
        else:
            arguments.append(None if item is None else _attribute(slot, item, rows or schema.types))
    bound = bind(schema, arguments, outputs)
    if dtype is not None:
        bound.row = next(iter(rows), bound.row)
    return bound


def bind_op(graph: Graph, op: Op) -> Bound:
    """The bound row of an operation that is in an NNAPI-dialect graph, with its outputs' types.

    Raises:
        RuleError: where the row refuses it.
    """
    tensors = [None if name is None else graph[name] for name in op.inputs]
    outputs = [None if name is None else OperandType.of(graph[name].known) for name in op.outputs]
    return bind_values(SCHEMAS[OperationCode[op.kind]], tensors, op.attrs, outputs=outputs)


def signature(graph: Graph, op: Op) -> Hashable | None:
    """Equal for operations of which the row says the same; None where the elements of a constant decide."""
    values = [None if name is None else graph[name] for name in op.inputs]
    if any(value is not None and is_read_by_rules(value) for value in values):
        return None
    seen = tuple([None if value is None else (value.type, value.const is None) for value in values])
    results = tuple([None if name is None else graph[name].type for name in op.outputs])
    return op.kind, seen, tuple(op.attrs.items()), results


def is_read_by_rules(value: Value) -> bool:
    """Whether a row may ask for the elements: of constant sizes, positions and conditions; all others are only data."""
    return value.const is not None and value.known.quant is None and value.known.dtype.kind in "ib"


def _operand_type(value: Value) -> OperandType:
    try:
        return OperandType.of(value.known)
    except KeyError:
        raise RuleError(f"NNAPI has no tensors of {value.known.dtype.name}, which {value.name!r} is") from None


def slot_names(op: Op) -> list[str]:
    """For each input of an operation of the graph the name of its operand.

    Raises:
        RuleError: where the row has no form for its attributes.
    """
    return list(_slot_names(op.kind, len(op.inputs), tuple(sorted(op.attrs))))


@functools.cache
def _slot_names(kind: str, count: int, attrs: tuple[str, ...]) -> tuple[str, ...]:
    _, items = arrange(SCHEMAS[OperationCode[kind]], list(range(count)), dict.fromkeys(attrs))
    return tuple(slot.name for slot, item in items if slot.role is Role.TENSOR and item is not None)


def _row_fits(row: TypeRow, codes: Mapping[str, OperandCode]) -> bool:
    return all(row.codes.get(name, code) == code for name, code in codes.items())


def _gives(row: TypeRow, schema: Schema, dtype: Any) -> bool:
    """Whether an output has this element type."""
    codes = [row.codes.get(slot.name, slot.code) for slot in schema.outputs]
    return any(code is not None and code.dtype == np.dtype(dtype) for code in codes)


def _attribute(slot: Slot, item: Any, rows: Sequence[TypeRow]) -> Argument:
    """An attribute as an operand; a scalar whose type the rows tie to the tensors' has that of the first row."""
    if slot.role is Role.MODEL:
        return Argument(OperandType(OperandCode.MODEL), item)
    if slot.role is Role.ARRAY:
        array = np.asarray(item, dtype=(slot.code or OperandCode.TENSOR_INT32).dtype)
        return Argument(OperandType(slot.code or OperandCode.TENSOR_INT32, array.shape), array)
    tied = (row.codes[slot.name] for row in rows if slot.name in row.codes)
    code = next(tied, OperandCode.FLOAT32) if slot.code is None else slot.code
    return Argument(OperandType(code), np.asarray([item]).astype(code.dtype))
