"""Runs an NNAPI model on the host, operation by operation, with the numpy kernels.

Semantics are those of Android's CPU reference: an operation's result determines its temporary's type, whatever the
model declares for it; only what leaves the model must be as declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnx2nnapi.errors import FeedError, InternalError, InvalidModelError, Onnx2NnapiError
from onnx2nnapi.ir.types import Array, Shape
from onnx2nnapi.nnapi.model import Lifetime, Model, Operand, Operation, Subgraph
from onnx2nnapi.nnapi.rules import Argument, Bound, RuleError, UnknownValue, bind, level_of, output_types
from onnx2nnapi.nnapi.schema import SCHEMAS, Role, Schema, Slot
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels import KERNELS, Call

__all__ = ["Interpreter"]

Values = dict[int, "Array | None"]


class Interpreter:
    """Runs a model.

    Args:
        model: a valid model (``nnapi.validate``).
    """

    def __init__(self, model: Model, *, profile: bool = False) -> None:
        self.model = model
        self.profile = profile
        self._graphs = {id(graph): _GraphRunner(graph, model, self._submodel) for graph in model.graphs}

    def run(self, inputs: Sequence[Array | None]) -> list[Array]:
        """The outputs for ``inputs``, both in the order of the model's; None = an omitted input.

        Raises:
            FeedError: an input does not fit its operand.
            InvalidModelError: an operation refuses the sizes or values that it meets.
        """
        with np.errstate(all="ignore"):
            return self._graphs[id(self.model.main)].run(inputs)

    def _submodel(self, graph: Subgraph) -> Callable[..., tuple[Array, ...]]:
        runner = self._graphs[id(graph)]
        return lambda *arrays: tuple(runner.run(arrays))


class _GraphRunner:
    """Runs the main graph or a sub-model."""

    def __init__(
        self, graph: Subgraph, model: Model, submodel: Callable[[Subgraph], Callable[..., tuple[Array, ...]]]
    ) -> None:
        self.graph = graph
        self.model = model
        self.submodel = submodel
        self.order = _topological(graph)
        self.memos: list[dict[str, Any]] = [{} for _ in self.order]

    def run(self, inputs: Sequence[Array | None]) -> list[Array]:
        graph = self.graph
        if len(inputs) != len(graph.inputs):
            raise FeedError(f"the model has {len(graph.inputs)} inputs, {len(inputs)} are given")
        types = {index: operand.type for index, operand in enumerate(graph.operands)}
        values: Values = {
            index: operand.array()
            for index, operand in enumerate(graph.operands)
            if operand.lifetime is Lifetime.CONSTANT
        }
        for position, (index, array) in enumerate(zip(graph.inputs, inputs, strict=True)):
            values[index] = fed = feed(graph.operands[index], array, position)
            if fed is not None:
                types[index] = types[index].with_shape(fed.shape)
        for operation, memo in zip(self.order, self.memos, strict=True):
            self._step(operation, memo, types, values)
        return [self._result(index, values) for index in graph.outputs]

    def _result(self, index: int, values: Values) -> Array:
        value = values.get(index)
        if value is None:
            raise InvalidModelError("nothing computes it", where=_operand_name(self.graph, index))
        return value

    def _step(self, operation: Operation, memo: dict[str, Any], types: dict[int, OperandType], values: Values) -> None:
        graph = self.graph
        schema = schema_of(operation)
        declared = [graph.operands[index].type for index in operation.outputs]
        try:
            bound = bind(schema, [self._argument(index, types, values) for index in operation.inputs], declared)
            level_of(bound)
            computed = output_types(bound, declared)
        except RuleError as error:
            raise _refusal(graph, operation, str(error)) from None
        except UnknownValue:
            computed = tuple(declared)
        call = Call(
            _named_types(bound),
            computed,
            relaxed=self.model.relaxed,
            constants=self._constants(operation, bound),
            memo=memo,
        )
        result = run_kernel(graph, operation, call, *self._operands(operation, bound, values))
        for index, array, type_ in zip(operation.outputs, result, computed, strict=False):
            if array is None:
                continue
            array = np.asarray(array)
            if not type_.code.is_tensor:
                array = array.reshape(())
            if array.dtype != type_.dtype:
                raise InternalError(f"{operation.code.name} computed {array.dtype}, not {type_}")
            values[index] = array
            types[index] = settle(graph, operation, index, type_.with_shape(array.shape))

    def _argument(self, index: int, types: Mapping[int, OperandType], values: Values) -> Argument | None:
        operand = self.graph.operands[index]
        if operand.lifetime is Lifetime.SUBGRAPH:
            return Argument(operand.type, self.model.subgraphs[operand.subgraph or 0])
        value = values.get(index)
        return None if value is None else Argument(types[index], value)

    def _constants(self, operation: Operation, bound: Bound) -> frozenset[str]:
        names = argument_names(bound, len(operation.inputs))
        return frozenset(
            name
            for name, index in zip(names, operation.inputs, strict=True)
            if self.graph.operands[index].lifetime in (Lifetime.CONSTANT, Lifetime.NO_VALUE, Lifetime.SUBGRAPH)
        )

    def _operands(self, operation: Operation, bound: Bound, values: Values) -> tuple[list[Any], dict[str, Any]]:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for slot, index in zip(slots_of(bound, len(operation.inputs)), operation.inputs, strict=True):
            operand = self.graph.operands[index]
            value: Any = values.get(index)
            if operand.lifetime is Lifetime.SUBGRAPH:
                value = self.submodel(self.model.subgraphs[operand.subgraph or 0])
            elif slot.role is Role.SCALAR and value is not None:
                value = value.reshape(-1)[0].item()
            if slot.variadic:
                positional.append(value)
            else:
                named[slot.name] = value
        return positional, named


def run_kernel(
    graph: Subgraph, operation: Operation, call: Call, positional: list[Any], named: dict[str, Any]
) -> tuple[Array | None, ...]:
    """Call an operation's kernel; what goes wrong in it is told in the operation's name."""
    try:
        result = KERNELS[operation.code](call, *positional, **named)
    except (RuleError, UnknownValue) as error:
        raise _refusal(graph, operation, str(error)) from None
    except Onnx2NnapiError:
        raise
    except MemoryError:
        raise _refusal(graph, operation, "there is not enough memory for its result") from None
    except Exception as error:
        raise InternalError(
            f"the kernel failed: {type(error).__name__}: {error}", where=describe(graph, operation)
        ) from error
    return result if isinstance(result, tuple) else (result,)


def schema_of(operation: Operation) -> Schema:
    """The row of an operation."""
    schema = SCHEMAS.get(operation.code)
    if schema is None:
        raise InvalidModelError(f"operation {operation.code.name} is not supported")
    return schema


def slots_of(bound: Bound, count: int) -> list[Slot]:
    """One slot for each of ``count`` operands, the variadic slot repeated."""
    repeat = count - len(bound.slots) + 1
    return [item for slot in bound.slots for item in ([slot] * repeat if slot.variadic else [slot])]


def argument_names(bound: Bound, count: int) -> list[str]:
    """The operands' names; the variadic ones' with their position: ``name[i]``."""
    names: list[str] = []
    position = 0
    for slot in slots_of(bound, count):
        names.append(f"{slot.name}[{position}]" if slot.variadic else slot.name)
        position += slot.variadic
    return names


def _named_types(bound: Bound) -> dict[str, OperandType]:
    types = {name: argument.type for name, argument in bound.arguments.items() if argument is not None}
    variadic = next((slot.name for slot in bound.slots if slot.variadic), "")
    types.update({f"{variadic}[{index}]": argument.type for index, argument in enumerate(bound.variadic)})
    return types


def feed(operand: Operand, array: Array | None, position: int) -> Array | None:
    """An input as its operand has it: a scalar as an array of rank 0.

    Raises:
        FeedError: wrong element type or sizes.
    """
    if array is None:
        return None
    type_ = operand.type
    where = f"input {position}" + (f" {operand.name!r}" if operand.name else "")
    array = np.asarray(array)
    if array.dtype != type_.dtype:
        raise FeedError(f"has element type {array.dtype}, the model takes {type_.dtype}", where=where)
    if not type_.code.is_tensor:
        if array.size != 1:
            raise FeedError(f"has shape {list(array.shape)}, the model takes a scalar", where=where)
        return array.reshape(())
    if not fits(array.shape, type_.shape):
        raise FeedError(f"has shape {list(array.shape)}, the model takes {list(type_.shape)}", where=where)
    return array


def fits(shape: Shape, declared: Shape) -> bool:
    """Whether concrete sizes agree with declared ones, where 0 (and no rank at all) are unspecified."""
    return not declared or (
        len(shape) == len(declared) and all(want in (0, size) for size, want in zip(shape, declared, strict=True))
    )


def settle(graph: Subgraph, operation: Operation, index: int, computed: OperandType) -> OperandType:
    """The type that an operand has from now on: the computed one, which must agree with what the model promises.

    Raises:
        InvalidModelError: the sizes contradict the declared ones, or a model output is to have another quantization.
    """
    operand = graph.operands[index]
    declared = operand.type
    if declared.code.is_tensor and not fits(computed.shape, declared.shape):
        raise _refusal(
            graph, operation, f"its result has shape {list(computed.shape)}, declared is {list(declared.shape)}"
        )
    if operand.lifetime is Lifetime.OUTPUT and (computed.code, computed.scale, computed.zero_point) != (
        declared.code,
        declared.scale,
        declared.zero_point,
    ):
        raise _refusal(graph, operation, f"its result is {computed}, the model's output is declared as {declared}")
    return computed


def describe(graph: Subgraph, operation: Operation) -> str:
    """An operation for messages: its name, its ONNX nodes, and what it writes."""
    nodes = f" of {', '.join(map(repr, operation.origin[:3]))}" if operation.origin else ""
    return f"{operation.code.name}{nodes} (-> {', '.join(_operand_name(graph, index) for index in operation.outputs)})"


def _operand_name(graph: Subgraph, index: int) -> str:
    name = graph.operands[index].name
    return repr(name) if name else f"operand {index}"


def _refusal(graph: Subgraph, operation: Operation, reason: str) -> InvalidModelError:
    return InvalidModelError(reason, where=describe(graph, operation))


def _topological(graph: Subgraph) -> list[Operation]:
    """The operations in an order in which each comes after those that it reads; NNAPI takes them in any order."""
    writer = {index: operation for operation in graph.operations for index in operation.outputs}
    waiting = {
        operation: len({writer[index] for index in operation.inputs if index in writer})
        for operation in graph.operations
    }
    readers: dict[Operation, dict[Operation, None]] = {}
    for operation in graph.operations:
        for index in operation.inputs:
            if index in writer:
                readers.setdefault(writer[index], {})[operation] = None
    ready = [operation for operation in graph.operations if not waiting[operation]][::-1]
    order = []
    while ready:
        operation = ready.pop()
        order.append(operation)
        for reader in reversed(list(readers.get(operation, ()))):
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    if len(order) != len(graph.operations):
        stuck = next(operation for operation in graph.operations if waiting[operation])
        raise _refusal(graph, stuck, "it is part of a cycle")
    return order
