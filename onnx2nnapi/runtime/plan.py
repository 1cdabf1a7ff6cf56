"""A plan: the operations of a graph at known sizes, with all that can be prepared before the inputs' values are there.

The first run of given sizes is traced: it shows which results are views of operands and which borders kernels want.
A plan is built from that trace: kernels with their arguments in place, buffers that are shared by values which are not
alive at the same time, borders around what windows will slide over. A plan serves one run at a time.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from onnx2nnapi.ir.types import Array, Shape
from onnx2nnapi.nnapi.model import Operation, Subgraph
from onnx2nnapi.nnapi.schema import Role, Slot
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.binding import operand_value, translated
from onnx2nnapi.runtime.interleave import interleaved
from onnx2nnapi.runtime.kernels import Border, Call, Kernel, Tape, may_overwrite
from onnx2nnapi.runtime.kernels import Step as KernelStep

__all__ = ["Plan", "Traced", "Values"]

ALIGNMENT = 64
LATENCY = 5  # operations after the last reader of a value before its memory is used again
Values = dict[int, "Array | None"]


@dataclass(slots=True, eq=False)
class Traced:
    """An operation as the first run met it.

    Attributes:
        operation: the operation.
        slots, names: of its operands, in order.
        call: what its kernel was told; its ``prepared`` goes on into the plans.
        steady: whether sizes and scalars are the same in every run, so that nothing needs to be bound again.
        aliases: for each result that shares memory with operands (in some run), these.
    """

    operation: Operation
    slots: list[Slot]
    names: list[str]
    call: Call
    steady: bool
    aliases: dict[int, tuple[int, ...]]

    @property
    def runs_models(self) -> bool:
        """Whether the kernel calls sub-models, so that what it returns is a matter of values."""
        return any(slot.role is Role.MODEL for slot in self.slots)

    def wish(self, index: int) -> Border | None:
        """The border that the kernel wants around an operand; None unless it does wherever it reads it."""
        if not self.call.wishes:
            return None
        names = [name for name, operand in zip(self.names, self.operation.inputs, strict=True) if operand == index]
        wishes = [self.call.wishes[name] for name in names if name in self.call.wishes]
        return wishes[0] if len(names) == len(wishes) == 1 else None


class Runner(Protocol):
    """What a plan asks of the graph's runner."""

    graph: Subgraph

    @property
    def constants(self) -> Values: ...

    @property
    def profiled(self) -> bool: ...

    def kernel(self, operation: Operation) -> Kernel: ...

    def submodel_values(self) -> Mapping[int, Any]: ...

    def step(
        self, operation: Operation, types: dict[int, OperandType], values: Values, workspace: dict[str, Array]
    ) -> Traced: ...


@dataclass(slots=True, eq=False)
class _Step:
    """One kernel call, ready but for the arguments that differ from run to run.

    Attributes:
        traced: the operation.
        kernel, call, positional, named: what is called.
        patches: (container, key, operand) of the arguments that are set in each run.
        out: the buffer of the only result, where that is all there is to keep.
        fresh: (position, shape, dtype) of results that go to the caller.
        replay: what is done instead, when all arrays are known to be the same in every run.
    """

    traced: Traced
    kernel: Kernel
    call: Call
    positional: list[Any] = field(default_factory=list)
    named: dict[str, Any] = field(default_factory=dict)
    patches: list[tuple[Any, Any, int]] = field(default_factory=list)
    out: Array | None = None
    fresh: list[tuple[int, Shape, np.dtype[Any]]] = field(default_factory=list)
    replay: list[KernelStep] = field(default_factory=list)

    @property
    def tape(self) -> Tape | None:
        """What the kernel did, if it will do the same in every run."""
        tape = self.call.tape
        if not self.traced.steady or self.patches or tape is None or tape.result is not self.out:
            return None
        return tape


class Plan:
    """Runs a graph at the sizes of a trace.

    Args:
        runner: of the graph.
        trace: its operations in order.
        types: of the operands, as the trace settled them.
        stray: results that their kernels are known not to write where they are told; a run adds to them.
    """

    def __init__(self, runner: Runner, trace: Sequence[Traced], types: dict[int, OperandType], stray: set[int]) -> None:
        self.runner = runner
        self.stray = stray
        self.ignored: set[int] = set()
        self._types = types
        self._fixed: Values = dict(runner.constants)
        self._workspace: dict[str, Array] = {}
        self._outputs = frozenset(runner.graph.outputs)
        self._buffers = _Buffers(trace, self._outputs)
        self._steps = [step for traced in trace if (step := self._prepare(traced)) is not None]
        self._unsteady = any(not traced.steady for traced in trace)
        self._joined = runner.profiled  # operations that take turns have no times of their own
        self._constant_outputs = {index: self._fixed[index] for index in self._outputs if index in self._fixed}

    # -- building ----------------------------------------------------------------------------------------------------

    def _prepare(self, traced: Traced) -> _Step | None:
        """The step of an operation; None when its results are views of fixed arrays, and so fixed themselves."""
        runner, operation = self.runner, traced.operation
        known = traced.call
        call = Call(
            known.types,
            known.outputs,
            relaxed=known.relaxed,
            constants=known.constants,
            prepared=known.prepared,
            workspace=self._workspace,
        )
        step = _Step(traced, runner.kernel(operation), call)
        if not traced.steady:
            self._buffers.retire(traced)
            return step
        self._place_arguments(step)
        all_views = len(traced.aliases) == len(operation.outputs) and not traced.runs_models
        if all_views and not step.patches and self._is_view(step):
            self._buffers.retire(traced)
            return None
        self._place_results(step)
        self._buffers.retire(traced)
        return step

    def _place_arguments(self, step: _Step) -> None:
        submodels = self.runner.submodel_values()
        traced = step.traced
        for slot, name, index in zip(traced.slots, traced.names, traced.operation.inputs, strict=True):
            fixed = index in submodels or index in self._fixed
            value = submodels[index] if index in submodels else operand_value(slot, self._fixed.get(index))
            if slot.variadic:
                step.positional.append(value)
            else:
                step.named[slot.name] = value
            if not fixed:
                container: Any = step.positional if slot.variadic else step.named
                step.patches.append((container, len(step.positional) - 1 if slot.variadic else slot.name, index))
            whole = self._buffers.whole.get(index)
            wish = traced.wish(index)
            if whole is not None and wish is not None:
                outer, array = whole
                step.call.surroundings[name] = wish.inside(outer, array)

    def _is_view(self, step: _Step) -> bool:
        operation = step.traced.operation
        result = step.kernel(step.call, *step.positional, **step.named)
        arrays = result if isinstance(result, tuple) else (result,)
        sources = [self._fixed.get(index) for index in operation.inputs]
        for array in arrays:
            if array is None or not any(s is not None and np.may_share_memory(array, s) for s in sources):
                return False
        if self._outputs.intersection(operation.outputs):
            return False
        self._fixed.update(zip(operation.outputs, arrays, strict=False))
        return True

    def _place_results(self, step: _Step) -> None:
        traced = step.traced
        out: list[Array | None] = []
        for position, (index, type_) in enumerate(zip(traced.operation.outputs, step.call.outputs, strict=False)):
            out.append(None)
            if index in traced.aliases or index in self.stray or not type_.code.is_tensor:
                continue
            dtype = np.dtype(type_.dtype)
            if index in self._outputs:
                step.fresh.append((position, type_.shape, dtype))
            else:
                places = self._overwritten(traced, type_)
                self._fixed[index] = out[position] = self._buffers.take(index, type_.shape, dtype, places)
        step.call.out = tuple(out)
        if len(out) == 1 and not step.fresh:
            step.out = out[0]

    def _overwritten(self, traced: Traced, type_: OperandType) -> list[int]:
        """The operands that die here and whose memory may become that of a result."""
        if np.dtype(type_.dtype).kind != "f":
            return []
        names = may_overwrite(traced.operation.code)
        operands = dict(zip(traced.names, traced.operation.inputs, strict=True))
        return [
            operands[name]
            for name in names
            if name in operands and traced.call.types[name].shape == type_.shape
            if self._buffers.dies(operands[name], traced)
        ]

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, inputs: Sequence[Array | None]) -> list[Array]:
        """The outputs, in arrays that belong to the caller.

        Raises:
            Onnx2NnapiError: an operation cannot run on these values.
        """
        graph = self.runner.graph
        values = dict(self._fixed) if self._unsteady else dict(self._constant_outputs)
        values.update(zip(graph.inputs, inputs, strict=True))
        types = dict(self._types) if self._unsteady else self._types
        owned: set[int] = set()
        step = None
        try:
            for step in self._steps:
                if step.replay:
                    for again in step.replay:
                        again()
                    continue
                if not step.traced.steady:
                    self.runner.step(step.traced.operation, types, values, self._workspace)
                    continue
                for container, key, index in step.patches:
                    container[key] = values[index]
                if step.fresh:
                    self._provide(step)
                result = step.kernel(step.call, *step.positional, **step.named)
                if step.out is None:
                    self._keep(step, result, values, owned)
                elif result is not step.out:
                    self._copy(step.traced.operation.outputs[0], result, step.out)
        except Exception as error:
            if step is None:
                raise
            raise translated(error, graph, step.traced.operation) from error
        if not self._joined:
            self._join()
        return [_handed_over(values[index], index in owned) for index in graph.outputs]

    def _join(self) -> None:
        """Make one step of operations in a row whose tapes are there after the first run; those in bands take turns."""
        self._joined = True
        steps, self._steps = self._steps, []
        for taped, group in itertools.groupby(steps, lambda step: step.tape is not None):
            if not taped:
                self._steps += group
                continue
            first, *others = group
            tapes = [tape for step in (first, *others) if (tape := step.tape) is not None]
            for several, run in itertools.groupby(tapes, lambda tape: len(tape.bands) > 1):
                row = list(run)
                first.replay += interleaved(row) if several else [step for tape in row for step in tape.steps]
            self._steps.append(first)

    def _provide(self, step: _Step) -> None:
        out = list(step.call.out)
        for position, shape, dtype in step.fresh:
            out[position] = np.empty(shape, dtype)
        step.call.out = tuple(out)

    def _keep(self, step: _Step, result: Any, values: Values, owned: set[int]) -> None:
        """Note the results of a step that has several, or whose arrays differ from run to run."""
        arrays = result if isinstance(result, tuple) else (result,)
        outputs = zip(step.traced.operation.outputs, step.call.outputs, arrays, step.call.out, strict=False)
        for index, type_, array, out in outputs:
            if array is out:
                if index in self._outputs:
                    owned.add(index)
                    values[index] = array
            elif out is not None and index not in self._outputs:
                self._copy(index, array, out)
            else:
                values[index] = array if type_.code.is_tensor else np.asarray(array).reshape(())

    def _copy(self, index: int, result: Any, out: Array) -> None:
        """A kernel wrote elsewhere; the next plan gives it no buffer."""
        np.copyto(out, result)
        self.ignored.add(index)


def _handed_over(array: Array | None, owned: bool) -> Array:
    if array is None:
        raise KeyError  # every output is written: validation holds the model to it
    return array if owned else np.array(array)


class _Buffers:
    """Memory for results: each block serves values one after another, none of which is alive with the next."""

    def __init__(self, trace: Sequence[Traced], outputs: frozenset[int]) -> None:
        self.whole: dict[int, tuple[Border, Array]] = {}  # values within a border: that border and the array with it
        self._readers: dict[int, list[Traced]] = {}
        last: dict[int, Traced] = {}
        order = {traced: position for position, traced in enumerate(trace)}
        for traced in trace:
            for index in traced.operation.inputs:
                self._readers.setdefault(index, []).append(traced)
                last[index] = traced
            for index in traced.operation.outputs:
                last.setdefault(index, traced)
        for traced in reversed(trace):  # a view keeps alive what it is a view of
            for index, sources in traced.aliases.items():
                for source in sources:
                    if index in outputs:
                        last[source] = trace[-1]
                    elif order[last[index]] > order.get(last.get(source, trace[0]), 0):
                        last[source] = last[index]
        self._dying: dict[Traced, list[int]] = {}
        for index, traced in last.items():
            self._dying.setdefault(traced, []).append(index)
        self._outputs = outputs
        self._blocks: dict[int, Array] = {}
        self._retired: deque[Traced] = deque()
        self._free: list[tuple[int, int, Array]] = []  # (bytes, serial number, block), ascending
        self._serial = 0
        self._free_borders: dict[tuple[Any, ...], list[Array]] = {}
        self._border_keys: dict[int, tuple[Any, ...]] = {}

    def take(self, index: int, shape: Shape, dtype: np.dtype[Any], overwritten: Sequence[int] = ()) -> Array:
        """An array for a value, perhaps within a border, or in the place of an operand that is read for the last time.

        Args:
            index: of the value.
            shape: of the array.
            dtype: of the array.
            overwritten: dying operands of this shape and type whose places will do.
        """
        border = self._border(index)
        if border is not None:
            return self._take_bordered(index, border, shape, dtype)
        for operand in overwritten:
            if operand in self._blocks:
                block = self._blocks[index] = self._blocks.pop(operand)
                return block[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        size = math.prod(shape) * dtype.itemsize
        position = bisect.bisect_left(self._free, size, key=lambda item: item[0])
        if position < len(self._free):
            _, _, block = self._free.pop(position)
        else:
            raw = np.empty(size + ALIGNMENT, np.uint8)
            start = -raw.ctypes.data % ALIGNMENT
            block = raw[start : start + size]
        self._blocks[index] = block
        return block[:size].view(dtype).reshape(shape)

    def dies(self, index: int, traced: Traced) -> bool:
        """Whether no operation after ``traced`` reads a value."""
        return index in self._dying.get(traced, ())

    def _border(self, index: int) -> Border | None:
        """The border that all readers of a value want."""
        union: Border | None = None
        for reader in self._readers.get(index, ()):
            wish = reader.wish(index)
            if wish is None or (union is not None and wish.fill != union.fill):
                return None
            union = wish if union is None else union.union(wish)
        return union

    def _take_bordered(self, index: int, border: Border, shape: Shape, dtype: np.dtype[Any]) -> Array:
        sizes = tuple(a + size + b for a, size, b in zip(border.before, shape, border.after, strict=True))
        key = (sizes, border, dtype)
        free = self._free_borders.setdefault(key, [])
        array = free.pop() if free else np.full(sizes, border.fill, dtype)
        self._border_keys[index] = key
        self.whole[index] = (border, array)
        inner: Array = array[tuple(slice(a, a + size) for a, size in zip(border.before, shape, strict=True))]
        return inner

    def retire(self, traced: Traced) -> None:
        """Give back what no later operation reads, but not to the next ones, which may take turns with this one."""
        self._retired.append(traced)
        if len(self._retired) > LATENCY:
            self._give_back(self._retired.popleft())

    def _give_back(self, traced: Traced) -> None:
        for index in self._dying.get(traced, ()):
            if index in self._border_keys:
                self._free_borders[self._border_keys.pop(index)].append(self.whole[index][1])
            block = self._blocks.pop(index, None)
            if block is not None:
                self._serial += 1
                bisect.insort(self._free, (block.nbytes, self._serial, block), key=lambda item: item[:2])
