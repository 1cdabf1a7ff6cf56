"""One operation's operands on the host: what its kernel gets, what its results must be, how messages call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnx2nnapi.errors import FeedError, InternalError, InvalidModelError, Onnx2NnapiError
from onnx2nnapi.ir.types import Array, Shape
from onnx2nnapi.nnapi.model import Lifetime, Operand, Operation, Subgraph
from onnx2nnapi.nnapi.rules import RuleError, UnknownValue
from onnx2nnapi.nnapi.schema import SCHEMAS, Role, Schema, Slot
from onnx2nnapi.nnapi.types import OperandType

__all__ = [
    "Submodel",
    "argument_names",
    "checked_results",
    "describe",
    "feed",
    "operand_value",
    "refusal",
    "schema_of",
    "settle",
    "translated",
]

Submodel = Callable[..., "tuple[Array, ...]"]


def schema_of(graph: Subgraph, operation: Operation) -> Schema:
    """The row of an operation."""
    schema = SCHEMAS.get(operation.code)
    if schema is None:
        raise refusal(graph, operation, "the interpreter does not know this operation")
    return schema


def argument_names(slots: Sequence[Slot]) -> list[str]:
    """The operands' names; the variadic ones' with their position: ``name[i]``."""
    names: list[str] = []
    position = 0
    for slot in slots:
        names.append(f"{slot.name}[{position}]" if slot.variadic else slot.name)
        position += slot.variadic
    return names


def operand_value(slot: Slot, value: Array | None) -> Any:
    """An operand's array as kernels take it: scalars as Python numbers."""
    return value.reshape(-1)[0].item() if slot.role is Role.SCALAR and value is not None else value


# -- what goes in and out ----------------------------------------------------------------------------------------------


def feed(operand: Operand, array: Array | None, position: int) -> Array | None:
    """An input as its operand has it: a scalar as an array of rank 0.

    Raises:
        FeedError: wrong element type or sizes.
    """
    if array is None:
        return None
    type_ = operand.type
    array = np.asarray(array)
    if array.dtype == type_.dtype and fits(array.shape, type_):
        return array if type_.code.is_tensor else array.reshape(())
    where = f"input {position}" + (f" {operand.name!r}" if operand.name else "")
    if array.dtype != type_.dtype:
        raise FeedError(f"has element type {array.dtype}, the model takes {type_.dtype}", where=where)
    wanted = list(type_.shape) if type_.code.is_tensor else "a scalar"
    raise FeedError(f"has shape {list(array.shape)}, the model takes {wanted}", where=where)


def fits(shape: Shape, declared: OperandType) -> bool:
    """Whether concrete sizes agree with declared ones, where 0 (and no rank at all) are unspecified."""
    if not declared.code.is_tensor:
        return all(size == 1 for size in shape)
    return not declared.shape or (
        len(shape) == len(declared.shape)
        and all(want in (0, size) for size, want in zip(shape, declared.shape, strict=True))
    )


def settle(graph: Subgraph, operation: Operation, index: int, computed: OperandType) -> OperandType:
    """The type that an operand has from now on: the computed one, which must agree with what the model promises.

    Raises:
        InvalidModelError: the sizes contradict the declared ones, or a model output is to have another quantization.
    """
    operand = graph.operands[index]
    declared = operand.type
    if declared.code.is_tensor and not fits(computed.shape, declared):
        raise refusal(
            graph, operation, f"its result has shape {list(computed.shape)}, declared is {list(declared.shape)}"
        )
    if operand.lifetime is Lifetime.OUTPUT and (computed.code, computed.scale, computed.zero_point) != (
        declared.code,
        declared.scale,
        declared.zero_point,
    ):
        raise refusal(graph, operation, f"its result is {computed}, the model's output is declared as {declared}")
    return computed


def checked_results(
    graph: Subgraph, operation: Operation, result: Any, computed: Sequence[OperandType], *, known: bool
) -> list[tuple[int, Array, OperandType]]:
    """A kernel's results with the operands and types that they are; with ``known`` sizes, they must have these.

    Raises:
        InvalidModelError: they contradict what the model declares.
        InternalError: they contradict what the row says.
    """
    settled = []
    arrays: Sequence[Any] = result if isinstance(result, tuple) else (result,)
    for index, array, type_ in zip(operation.outputs, arrays, computed, strict=False):
        if array is None:
            continue
        array = np.asarray(array)
        if not type_.code.is_tensor:
            array = array.reshape(())
        if array.dtype != type_.dtype or (known and array.shape != type_.shape):
            raise InternalError(
                f"its kernel computed {array.dtype}{list(array.shape)}, not {type_}", where=describe(graph, operation)
            )
        settled.append((index, array, settle(graph, operation, index, type_.with_shape(array.shape))))
    return settled


# -- messages ----------------------------------------------------------------------------------------------------------


def describe(graph: Subgraph, operation: Operation) -> str:
    """An operation for messages: its name, its ONNX nodes, and what it writes."""
    nodes = f" of {', '.join(map(repr, operation.origin[:3]))}" if operation.origin else ""
    return f"{operation.code.name}{nodes} (-> {', '.join(operand_name(graph, index) for index in operation.outputs)})"


def operand_name(graph: Subgraph, index: int) -> str:
    """An operand for messages."""
    name = graph.operands[index].name
    return repr(name) if name else f"operand {index}"


def refusal(graph: Subgraph, operation: Operation, reason: str) -> InvalidModelError:
    """The error that an operation cannot run like this."""
    return InvalidModelError(reason, where=describe(graph, operation))


def translated(error: Exception, graph: Subgraph, operation: Operation) -> Onnx2NnapiError:
    """What went wrong in a kernel, in the operation's name."""
    if isinstance(error, Onnx2NnapiError):
        return error
    if isinstance(error, (RuleError, UnknownValue)):
        return refusal(graph, operation, str(error))
    if isinstance(error, MemoryError):
        return refusal(graph, operation, "there is not enough memory for its result")
    return InternalError(f"the kernel failed: {type(error).__name__}: {error}", where=describe(graph, operation))
