"""Graph of the NNAPI dialect → Program: operands and operations in order, and a border that NNAPI accepts.

The schema table knows what an operation's operands are; nothing here knows any operation. NNAPI has no outputs that
are inputs, constants or repeated, no models without inputs, and no tensors of zero size: the program's interface takes
these.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from onnx2nnapi import program
from onnx2nnapi.errors import FeatureLevelError, InternalError, InvalidModelError, UnsupportedForm
from onnx2nnapi.evaluate import run_graph
from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.ir.graph import Port as OnnxPort
from onnx2nnapi.ir.sources import FileSource
from onnx2nnapi.ir.types import Array, LazyArray
from onnx2nnapi.nnapi.codes import MAX_IMMEDIATE_BYTES, OperandCode, OperationCode
from onnx2nnapi.nnapi.infer import bind_op
from onnx2nnapi.nnapi.model import Lifetime, Model, Operand, Operation, Subgraph
from onnx2nnapi.nnapi.rules import Argument, Bound, RuleError, output_types
from onnx2nnapi.nnapi.schema import Role, Slot
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.nnapi.validation import validate
from onnx2nnapi.options import Options
from onnx2nnapi.program import Port, Program, Segment

__all__ = ["lower"]


def lower(
    graph: Graph, options: Options, *, metadata: dict[str, str] | None = None, sources: tuple[str, ...] = ()
) -> Program:
    """Emit a graph whose every operation its row accepts.

    Args:
        graph: of the NNAPI dialect, with an interface.
        options: of the conversion.
        metadata: strings that are saved with the program.
        sources: files that the model was read from.

    Raises:
        FeatureLevelError: the model as a whole needs more than the target's level.
        UnsupportedForm: an operation reads a tensor of zero size, which NNAPI cannot hold.
    """
    if graph.interface is None:
        raise InternalError("the graph has no interface")
    computed = [op for op in graph.ops if any(graph[name].known.size for name in op.outputs if name is not None)]
    fixed: dict[str, Array] = {}
    if computed and not any(graph.readers(name) for name in graph.inputs):
        fixed = dict(zip(graph.outputs, run_graph(graph, {}), strict=True))  # nothing is left for a device to compute
        computed = []
    outputs = tuple(
        _output(graph, name, port, fixed) for name, port in zip(graph.outputs, graph.interface.outputs, strict=True)
    )
    tensors = tuple(dict.fromkeys(port.tensor for port in outputs if port.tensor is not None))
    inputs = tuple(
        _port(port, tensor=name if tensors and graph[name].known.size and graph.readers(name) else None)
        for name, port in zip(graph.inputs, graph.interface.inputs, strict=True)
    )
    segments: tuple[Segment, ...] = ()
    level = 1
    if tensors:
        names = tuple(port.tensor for port in inputs if port.tensor is not None)
        emitter = _Emitter()
        main = emitter.subgraph(graph, computed, names, tensors)
        model = Model(main, tuple(emitter.subgraphs), options.relaxed_float16)
        level = _level(model, options)
        segments = (Segment(model, names, tensors),)
    result = Program(segments, inputs, outputs, level, metadata or {}, sources)
    try:
        program.check(result)
    except InvalidModelError as error:
        raise InternalError(f"lowering broke the interface: {error}") from error
    return result


def _level(model: Model, options: Options) -> int:
    try:
        level = validate(model)
    except InvalidModelError as error:
        raise InternalError(f"lowering made a model that NNAPI refuses: {error}") from error
    if level > options.feature_level:
        raise FeatureLevelError("the model", required=level, target=options.feature_level)
    return level


# -- the interface -----------------------------------------------------------------------------------------------------


def _port(port: OnnxPort, **binding: Any) -> Port:
    return Port(port.name, port.type.dtype.name, tuple(port.type.shape), **binding)


def _output(graph: Graph, name: str, port: OnnxPort, fixed: dict[str, Array]) -> Port:
    value = graph[name]
    if port.type.size == 0:
        return _port(port, constant=np.zeros(port.type.shape, _carried(port)))
    const = LazyArray.of(fixed[name]) if name in fixed else value.const
    if const is not None:
        return _port(port, constant=const.astype(_carried(port)).reshape(port.type.shape))
    if name in graph.inputs:
        return _port(port, source=graph.interface.inputs[graph.inputs.index(name)].name)  # type: ignore[union-attr]
    return _port(port, tensor=name)


def _carried(port: OnnxPort) -> np.dtype[Any]:
    """The element type that a constant output is kept in: bfloat16, which the file lacks, as float32."""
    return np.dtype(np.float32) if port.type.dtype.name == "bfloat16" else port.type.dtype


# -- operands and operations -------------------------------------------------------------------------------------------


class _Emitter:
    """Collects the sub-models of one model; each graph gets its own operands."""

    def __init__(self) -> None:
        self.subgraphs: list[Subgraph] = []
        self._bound: dict[Hashable, Bound] = {}

    def bind(self, graph: Graph, op: Op) -> Bound:
        """The bound row of an operation; networks repeat themselves, and a repetition costs a look-up only."""
        values = [None if name is None else graph[name] for name in (*op.inputs, *op.outputs)]
        seen = tuple([None if value is None else (value.type, value.const is None) for value in values])
        key = (op.kind, len(op.inputs), seen, repr(op.attrs))
        bound = self._bound.get(key)
        if bound is None:
            try:
                bound = self._bound[key] = bind_op(graph, op)
            except RuleError as error:
                raise InternalError(f"{op.kind} is not accepted: {error}", where=op.origin) from error
        return bound

    def subgraph(self, graph: Graph, ops: list[Op], inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Subgraph:
        """Emit one graph; operands are numbered inputs first, then by first use."""
        body = _Body(graph, self, set(outputs))
        read = tuple(body.of_value(graph[name], Lifetime.INPUT) for name in inputs)
        operations = tuple(body.operation(op) for op in ops)
        written = tuple(body.index[name] for name in outputs)
        return Subgraph(tuple(body.operands), operations, read, written)

    def submodel(self, graph: Graph, op: Op) -> int:
        """Emit a graph that an operation runs; its number."""
        for name in graph.outputs:
            if graph.producer(name) is None or graph.outputs.count(name) > 1:
                raise UnsupportedForm(
                    f"the sub-model's output {name!r} is its input, a constant or repeated, which NNAPI forbids",
                    where=op.origin,
                )
        emitted = self.subgraph(graph, graph.ops, tuple(graph.inputs), tuple(graph.outputs))
        self.subgraphs.append(emitted)
        return len(self.subgraphs) - 1


class _Body:
    """The operands of one graph while it is emitted."""

    def __init__(self, graph: Graph, emitter: _Emitter, outputs: set[str]) -> None:
        self.graph = graph
        self.emitter = emitter
        self.outputs = outputs
        self.operands: list[Operand] = []
        self.index: dict[str, int] = {}  # of the operand that a value is
        self._constants: dict[Hashable, int] = {}
        self._attributes: dict[tuple[int, str], int] = {}

    def _add(self, operand: Operand) -> int:
        self.operands.append(operand)
        return len(self.operands) - 1

    def operation(self, op: Op) -> Operation:
        bound = self.emitter.bind(self.graph, op)
        inputs = [self._operand(op, bound, slot, name) for slot, name in _slots(bound, op)]
        outputs = [self._result(op, bound, position) for position in range(len(op.outputs))]
        origin = tuple(origin.name or next(iter(origin.outputs), origin.op_type) for origin in op.origins)
        return Operation(OperationCode[op.kind], tuple(inputs), tuple(outputs), origin)

    def _operand(self, op: Op, bound: Bound, slot: Slot, name: str | None) -> int:
        if name is not None:
            value = self.graph[name]
            if not value.known.size:
                raise UnsupportedForm(
                    f"reads {name!r}, whose shape {list(value.shape)} has no elements; NNAPI cannot hold it",
                    where=op.origin,
                )
            if value.const is not None:
                return self._constant(OperandType.of(value.known), value.const, value.name)
            if name not in self.index:
                raise InternalError(f"{op.kind} reads {name!r} before it is written", where=op.origin)
            return self.index[name]
        argument = None if slot.role is Role.TENSOR else bound.arguments[slot.name]
        if argument is None:
            return self._no_value(bound, slot)
        if slot.role is Role.MODEL:
            number = self.emitter.submodel(argument.value, op)
            return self._add(Operand(OperandType(OperandCode.MODEL), Lifetime.SUBGRAPH, subgraph=number))
        key = id(bound), slot.name  # equal operations share their bound row, which the emitter keeps
        if key not in self._attributes:
            array = LazyArray.of(_attribute_value(argument))
            self._attributes[key] = self._constant(argument.type, array, None)
        return self._attributes[key]

    def _no_value(self, bound: Bound, slot: Slot) -> int:
        code = slot.code or bound.row.codes.get(slot.name) or next(iter(bound.row.codes.values()))
        scale = 1.0 if "QUANT" in code.name else 0.0  # NNAPI wants a scale of every quantized operand, omitted or not
        type_ = OperandType(code, (0,) if code.is_tensor else (), scale)
        key = ("no value", type_)
        if key not in self._constants:
            self._constants[key] = self._add(Operand(type_, Lifetime.NO_VALUE))
        return self._constants[key]

    def _constant(self, type_: OperandType, const: LazyArray, name: str | None) -> int:
        if const.nbytes <= MAX_IMMEDIATE_BYTES:
            const = LazyArray.of(np.ascontiguousarray(const.numpy()))
        key = (type_, _content(const))
        if key not in self._constants:
            value = const if const.nbytes > MAX_IMMEDIATE_BYTES else const.numpy()
            self._constants[key] = self._add(Operand(type_, Lifetime.CONSTANT, value, name=name))
        return self._constants[key]

    def _result(self, op: Op, bound: Bound, position: int) -> int:
        name = op.outputs[position]
        if name is None:
            return self._add(Operand(output_types(bound, bound.outputs)[position], Lifetime.TEMPORARY))
        return self.of_value(self.graph[name], Lifetime.OUTPUT if name in self.outputs else Lifetime.TEMPORARY)

    def of_value(self, value: Value, lifetime: Lifetime) -> int:
        """The operand of a value that is an input or what an operation writes."""
        holds = value.holds
        name, perm = (holds.name, holds.perm) if holds is not None else (value.name, ())
        identity = perm == tuple(range(len(perm)))
        operand = Operand(OperandType.of(value.known), lifetime, name=name, perm=() if identity else perm)
        self.index[value.name] = self._add(operand)
        return self.index[value.name]


def _slots(bound: Bound, op: Op) -> list[tuple[Slot, str | None]]:
    """Each written slot with the value it takes; the variadic slot as often as it takes one."""
    tensors = [slot for slot in bound.slots if slot.role is Role.TENSOR and not slot.variadic]
    repeat = len(op.inputs) - len(tensors)
    names = iter(op.inputs)
    result: list[tuple[Slot, str | None]] = []
    for slot in bound.slots:
        if slot.role is not Role.TENSOR:
            result.append((slot, None))
        else:
            result.extend((slot, next(names, None)) for _ in range(repeat if slot.variadic else 1))
    return result


def _attribute_value(argument: Argument) -> Array:
    array = np.asarray(argument.value, dtype=argument.type.dtype)
    return array.reshape(argument.type.shape if argument.type.code.is_tensor else (1,))


_BY_LABEL = ("reshape[", "transpose[", "cast[")  # steps whose label says all that they do


def _content(const: LazyArray) -> Hashable:
    """Equal for constants that are known to have equal values."""
    if const.nbytes <= MAX_IMMEDIATE_BYTES:
        return const.numpy().tobytes()
    if not all(label.startswith(_BY_LABEL) for label, _ in const.steps):
        return id(const)
    source = const.source
    start: Hashable = id(source)
    if isinstance(source, FileSource):
        start = (source.file.path, source.offset, source.dtype, source.shape)
    return (start, tuple(label for label, _ in const.steps))
