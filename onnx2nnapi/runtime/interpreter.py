"""Runs an NNAPI model on the host with the numpy kernels.

Semantics are those of Android's CPU reference: an operation's result determines its temporary's type, whatever the
model declares for it; only what leaves the model must be as declared. The first run at given sizes binds and checks
every operation; later ones follow the plan that is made from it.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from onnx2nnapi.errors import FeedError, InvalidModelError
from onnx2nnapi.ir.garbage import collector_off
from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.model import Lifetime, Model, Operation, Subgraph
from onnx2nnapi.nnapi.rules import Argument, Bound, RuleError, UnknownValue, bind, expand_slots, level_of, output_types
from onnx2nnapi.nnapi.schema import Role
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.nnapi.validation import execution_order
from onnx2nnapi.runtime.binding import (
    Submodel,
    argument_names,
    checked_results,
    feed,
    operand_name,
    operand_value,
    refusal,
    schema_of,
    translated,
)
from onnx2nnapi.runtime.kernels import KERNELS, Call, Kernel
from onnx2nnapi.runtime.plan import Plan, Traced, Values

__all__ = ["Interpreter", "OperationTime"]

MAX_RECIPES = 8  # combinations of input sizes that are kept ready
Key = tuple["tuple[int, ...] | None", ...]


@dataclass(slots=True)
class OperationTime:
    """How long an operation has taken.

    Attributes:
        operation: the operation.
        seconds: over all runs.
        runs: how often it ran.
    """

    operation: Operation
    seconds: float = 0.0
    runs: int = 0


class Interpreter:
    """Runs a model. ``run`` may be called from several threads; each gets buffers of its own.

    Args:
        model: a valid model (``nnapi.validate``).
        profile: record the time that each operation takes, in ``times``.
    """

    def __init__(self, model: Model, *, profile: bool = False) -> None:
        self.model = model
        self.profile = profile
        self._runners = {id(graph): _GraphRunner(graph, self) for graph in model.graphs}

    def run(self, inputs: Sequence[Array | None]) -> list[Array]:
        """The outputs for ``inputs``, both in the order of the model's; None = an omitted input.

        Raises:
            FeedError: an input does not fit its operand.
            InvalidModelError: an operation refuses the sizes or values that it meets.
        """
        with np.errstate(all="ignore"):
            return self._runners[id(self.model.main)].run(inputs)

    def submodel(self, number: int) -> Submodel:
        """A sub-model as a function of its inputs."""
        runner = self._runners[id(self.model.subgraphs[number])]
        return lambda *arrays: tuple(runner.run(arrays))

    @property
    def times(self) -> list[OperationTime]:
        """What each operation of the main graph has taken, in the order of execution."""
        return list(self._runners[id(self.model.main)].times.values())


@dataclass(slots=True, eq=False)
class _Recipe:
    """What is known of one combination of input sizes, and its plans that no thread uses at the moment."""

    trace: list[Traced]
    types: dict[int, OperandType]
    stray: set[int] = field(default_factory=set)
    idle: list[Plan] = field(default_factory=list)


class _Binding(NamedTuple):
    """An operation bound to its row: the types of its results, and whether their sizes are known before it runs."""

    bound: Bound
    types: tuple[OperandType, ...]
    known: bool


class _GraphRunner:
    """Runs the main graph or a sub-model: traces it at new sizes, plans, and hands out the plans to threads."""

    def __init__(self, graph: Subgraph, owner: Interpreter) -> None:
        self.graph = graph
        self.owner = owner
        self.order = _in_order(graph)
        self.times: dict[Operation, OperationTime] = {}
        self._recipes: OrderedDict[Key, _Recipe] = OrderedDict()
        self._lock = threading.Lock()
        self._last_readers = {index: operation for operation in self.order for index in operation.inputs}
        if owner.profile:
            self.times = {operation: OperationTime(operation) for operation in self.order}

    @functools.cached_property
    def constants(self) -> Values:
        """The arrays that are the same in every run, aligned as BLAS wants them; None for omitted operands."""
        kept = (Lifetime.CONSTANT, Lifetime.NO_VALUE)
        return {
            index: np.require(operand.array(), requirements="A") if operand.lifetime is Lifetime.CONSTANT else None
            for index, operand in enumerate(self.graph.operands)
            if operand.lifetime in kept
        }

    @functools.cached_property
    def _submodels(self) -> Mapping[int, Submodel]:
        return {
            index: self.owner.submodel(operand.subgraph)
            for index, operand in enumerate(self.graph.operands)
            if operand.subgraph is not None
        }

    @property
    def profiled(self) -> bool:
        """Whether operations are timed one by one."""
        return self.owner.profile

    def submodel_values(self) -> Mapping[int, Any]:
        """Sub-models by operand, as functions of arrays."""
        return self._submodels

    def run(self, inputs: Sequence[Array | None]) -> list[Array]:
        """See ``Interpreter.run``."""
        graph = self.graph
        if len(inputs) != len(graph.inputs):
            raise FeedError(f"the model has {len(graph.inputs)} inputs, {len(inputs)} are given")
        fed = [
            feed(graph.operands[index], array, position)
            for position, (index, array) in enumerate(zip(graph.inputs, inputs, strict=True))
        ]
        key = tuple(None if array is None else array.shape for array in fed)
        with self._lock:
            recipe = self._recipes.get(key)
            if recipe is not None:
                self._recipes.move_to_end(key)
            plan = recipe.idle.pop() if recipe is not None and recipe.idle else None
        if recipe is None:
            return self._trace(fed, key)
        if plan is None:
            plan = Plan(self, recipe.trace, recipe.types, set(recipe.stray))
        try:
            return plan.run(fed)
        finally:
            with self._lock:
                recipe.stray |= plan.ignored
                if plan.stray >= recipe.stray:
                    recipe.idle.append(plan)

    def kernel(self, operation: Operation) -> Kernel:
        """The kernel of an operation, timed where times are wanted."""
        kernel = KERNELS.get(operation.code)
        if kernel is None:
            raise refusal(self.graph, operation, "the interpreter has no kernel for it")
        return _timed(kernel, self.times[operation]) if self.times else kernel

    # -- the first run -----------------------------------------------------------------------------------------------

    @collector_off()
    def _trace(self, inputs: Sequence[Array | None], key: Key) -> list[Array]:
        graph = self.graph
        types = {index: operand.type for index, operand in enumerate(graph.operands)}
        values: Values = dict(self.constants)
        for index, array in zip(graph.inputs, inputs, strict=True):
            values[index] = array
            if array is not None and types[index].code.is_tensor:
                types[index] = types[index].with_shape(array.shape)
        settled = {index for index in range(len(graph.operands)) if index in values or index in self._submodels}
        trace = []
        workspace: dict[str, Array] = {}
        for operation in self.order:
            steady = all(index in settled for index in operation.inputs)
            traced = self.step(operation, types, values, workspace, steady=steady)
            traced.call.memo.clear()
            trace.append(traced)
            if traced.steady:
                settled.update(operation.outputs)
            for index in operation.inputs:  # what nobody else reads is let go
                if self._last_readers[index] is operation and index not in graph.outputs:
                    values.pop(index, None)
        workspace.clear()
        with self._lock:
            self._recipes[key] = _Recipe(trace, types)
            while len(self._recipes) > MAX_RECIPES:
                self._recipes.popitem(last=False)
        return [np.array(self._result(index, values)) for index in graph.outputs]

    def _result(self, index: int, values: Values) -> Array:
        value = values.get(index)
        if value is None:
            raise InvalidModelError("nothing computes it", where=operand_name(self.graph, index))
        return value

    def step(
        self,
        operation: Operation,
        types: dict[int, OperandType],
        values: Values,
        workspace: dict[str, Array],
        *,
        steady: bool = False,
    ) -> Traced:
        """Bind an operation with all that is known now, check it, run it, and note what it does.

        Args:
            operation: the operation.
            types: of the operands; those of its results are added.
            values: of the operands; its results are added.
            workspace: of the kernels.
            steady: whether the sizes of its operands are the same in every run.
        """
        graph = self.graph
        try:
            binding = self._bind(operation, types, values) if steady else None
            steady = binding is not None
            binding = binding or self._bind_now(operation, types, values)
        except RuleError as error:
            raise refusal(graph, operation, str(error)) from None
        slots = expand_slots(binding.bound.slots, len(operation.inputs)) or []
        names = argument_names(slots)
        constants = frozenset(
            name for name, index in zip(names, operation.inputs, strict=True) if index in self.constants
        )
        relaxed = self.owner.model.relaxed
        call = Call(binding.bound.operand_types(), binding.types, (), relaxed, constants, workspace=workspace)
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for slot, index in zip(slots, operation.inputs, strict=True):
            value = self._submodels.get(index) or operand_value(slot, values.get(index))
            if slot.variadic:
                positional.append(value)
            else:
                named[slot.name] = value
        try:
            result = self.kernel(operation)(call, *positional, **named)
        except Exception as error:
            raise translated(error, graph, operation) from error
        traced = Traced(operation, slots, names, call, steady, {})
        views_all = not steady or traced.runs_models
        for index, array, type_ in checked_results(graph, operation, result, binding.types, known=binding.known):
            values[index], types[index] = array, type_
            sources = tuple(
                source
                for source in operation.inputs
                if (operand := values.get(source)) is not None and (views_all or np.may_share_memory(array, operand))
            )
            if sources:
                traced.aliases[index] = sources
        return traced

    def _bind(self, operation: Operation, types: Mapping[int, OperandType], values: Values) -> _Binding | None:
        """Find the operands' names and the results' types by what is the same in every run; None if that won't do."""
        lasting = [index not in values or index in self.constants for index in operation.inputs]
        arguments, declared = self._arguments(operation, types, values)
        hidden = [
            argument if argument is None or lasts else Argument(argument.type)
            for argument, lasts in zip(arguments, lasting, strict=True)
        ]
        bound = bind(schema_of(self.graph, operation), hidden, declared)
        for slot, argument in zip(expand_slots(bound.slots, len(hidden)) or (), hidden, strict=True):
            if slot.role is not Role.TENSOR and argument is not None and argument.value is None:
                return None
        level_of(bound)
        try:
            return _Binding(bound, output_types(bound, declared), True)
        except UnknownValue:
            return None

    def _bind_now(self, operation: Operation, types: Mapping[int, OperandType], values: Values) -> _Binding:
        """The same by all values of this run; sizes that only the kernel knows are left as declared."""
        arguments, declared = self._arguments(operation, types, values)
        bound = bind(schema_of(self.graph, operation), arguments, declared)
        level_of(bound)
        try:
            return _Binding(bound, output_types(bound, declared), True)
        except UnknownValue:
            return _Binding(bound, tuple(declared), False)

    def _arguments(
        self, operation: Operation, types: Mapping[int, OperandType], values: Values
    ) -> tuple[list[Argument | None], list[OperandType]]:
        """An operation's operands with their values, None where one is omitted, and its results as declared."""
        operands, models = self.graph.operands, self.owner.model.subgraphs
        arguments: list[Argument | None] = []
        for index in operation.inputs:
            number = operands[index].subgraph
            value = values.get(index) if number is None else models[number]
            arguments.append(None if value is None else Argument(types[index], value))
        return arguments, [operands[index].type for index in operation.outputs]


def _in_order(graph: Subgraph) -> list[Operation]:
    """The operations, each after those whose results it reads; NNAPI takes them in any order."""
    order = execution_order(graph)
    if len(order) < len(graph.operations):
        stuck = min(set(range(len(graph.operations))) - set(order))
        raise refusal(graph, graph.operations[stuck], "it depends on its own result")
    return [graph.operations[position] for position in order]


def _timed(kernel: Kernel, record: OperationTime) -> Kernel:
    def timed(*positional: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return kernel(*positional, **named)
        finally:
            record.seconds += time.perf_counter() - start
            record.runs += 1

    return timed
