"""Whether NNAPI would accept a model, and the feature level that it needs.

What ANeuralNetworksModel_* would refuse is refused, and what would fail in every execution: sizes are followed through
the graph as far as they are known, and those that only a run tells are left to it. Semantics: Android's
ModelBuilder.cpp and Validation.cpp; each operation's own rules are its row's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi.codes import OPERAND_SINCE, OperandCode
from onnx2nnapi.nnapi.model import Lifetime, Model, Operand, Operation, Subgraph
from onnx2nnapi.nnapi.rules import (
    MAX_BYTES,
    Argument,
    Bound,
    RuleError,
    UnknownValue,
    bind,
    expand_slots,
    level_of,
    output_types,
)
from onnx2nnapi.nnapi.schema import SCHEMAS
from onnx2nnapi.nnapi.shapes import agree
from onnx2nnapi.nnapi.types import OperandType

__all__ = ["execution_order", "operation_levels", "validate"]

MAX_NESTING = 64  # of sub-models in sub-models
RELAXED_SINCE = 2  # ANeuralNetworksModel_relaxComputationFloat32toFloat16
UNSPECIFIED_RANK_SINCE = 3
SUBMODELS_SINCE = 4
_SMALLEST, _LARGEST = float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)


def validate(model: Model) -> int:
    """The feature level that ``model`` needs.

    Raises:
        InvalidModelError: NNAPI would refuse it, or every execution would fail.
    """
    _check_nesting(model)
    level = RELAXED_SINCE if model.relaxed else 1
    if model.subgraphs:
        level = SUBMODELS_SINCE
    seen = _Seen()
    for position, graph in enumerate(model.subgraphs):  # first: what is wrong in them is told in their own terms
        level = max(level, _Validator(model, graph, f"sub-model {position}, ", seen).level())
    level = max(level, _Validator(model, model.main, "", seen).level())
    return level


def operation_levels(model: Model) -> list[int]:
    """The feature level that each operation of the main graph asks for, in the model's order; what forces a model's.

    Raises:
        InvalidModelError: as ``validate`` does of the main graph.
    """
    levels = _Validator(model, model.main, "", _Seen()).levels()[1]
    return [levels[position] for position in range(len(levels))]


def _check_nesting(model: Model) -> None:
    """Refuse sub-models that contain themselves, or are nested too deep to run."""
    references = [
        sorted({operand.subgraph for operand in graph.operands if operand.subgraph is not None})
        for graph in model.subgraphs
    ]
    depth: dict[int, int] = {}
    for start in range(len(references)):
        path = [start]
        while path:
            index = path[-1]
            inside = [other for other in references[index] if other not in depth]
            if any(other in path for other in inside):
                raise InvalidModelError("it contains itself", where=f"sub-model {index}")
            if inside:
                path.append(inside[0])
                continue
            depth[index] = 1 + max((depth[other] for other in references[index]), default=0)
            path.pop()
    deepest = max(depth.values(), default=0)
    if deepest > MAX_NESTING:
        raise InvalidModelError(f"sub-models are nested {deepest} deep, {MAX_NESTING} is the limit")


# -- operands ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kind:
    """What NNAPI asks of an operand of an element type.

    Attributes:
        since: the feature level that brought it.
        tensor: whether it has dimensions.
        bytes: of one element.
        scale: whether the scale must be positive (True), zero (False), or may be either (None).
        zero_points: smallest and largest.
        per_channel: whether its scales are those of channels.
    """

    since: int
    tensor: bool
    bytes: int
    scale: bool | None
    zero_points: tuple[int, int]
    per_channel: bool

    @classmethod
    def of(cls, code: OperandCode) -> _Kind:
        quantized, per_channel = "QUANT" in code.name, code is OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL
        zero_points = (0, 0)
        if "ASYMM" in code.name:
            limits = np.iinfo(code.dtype)  # type: ignore[type-var]
            zero_points = int(limits.min), int(limits.max)
        scale = None if code is OperandCode.TENSOR_INT32 else quantized and not per_channel
        size = 0 if code is OperandCode.MODEL else code.dtype.itemsize
        return cls(OPERAND_SINCE[code], code.is_tensor, size, scale, zero_points, per_channel)


_KINDS = {code: _Kind.of(code) for code in OperandCode}


def _check_type(type_: OperandType) -> int:
    """The level that an operand of this type needs; RuleError with what is wrong."""
    code, shape = type_.code, type_.shape
    kind = _KINDS[code]
    level = kind.since
    if kind.tensor:
        if not shape:
            level = max(level, UNSPECIFIED_RANK_SINCE)
        elif kind.bytes * math.prod([size for size in shape if size]) > MAX_BYTES:
            raise RuleError(f"its dimensions {list(shape)} are more than the {MAX_BYTES} bytes that NNAPI can address")
    elif shape:
        raise RuleError(f"{code.name} is a scalar, it must have no dimensions, not {list(shape)}")
    scale, zero_point = type_.scale, type_.zero_point
    if kind.scale:
        if not _SMALLEST <= scale <= _LARGEST:
            raise RuleError(f"its scale is {scale!r}, that of {code.name} must be a positive float32")
    elif scale != 0 and (kind.scale is False or not _SMALLEST <= scale <= _LARGEST):
        raise RuleError(f"its scale is {scale!r}, that of {code.name} must be {'0' if kind.scale is False else '≥ 0'}")
    low, high = kind.zero_points
    if not low <= zero_point <= high:
        raise RuleError(
            f"its zero point is {zero_point}, that of {code.name} must be {low}" + f" to {high}" * (low < high)
        )
    if kind.per_channel or type_.channel_quant is not None:
        _check_channels(type_, kind)
    return level


def _check_value(operand: Operand) -> None:
    """Whether the lifetime fits the type, and the value of a constant both; RuleError with what is wrong."""
    type_, lifetime, value = operand.type, operand.lifetime, operand.value
    if (type_.code is OperandCode.MODEL) != (lifetime is Lifetime.SUBGRAPH):
        raise RuleError(f"{type_.code.name} and lifetime {lifetime.value} do not go together")
    if lifetime is not Lifetime.CONSTANT:
        return
    if value is None:
        raise RuleError("it is CONSTANT, but has no value")
    if not type_.is_specified:
        raise RuleError(f"it is CONSTANT, all its dimensions must be specified, not {list(type_.shape)}")
    if value.size != type_.size or value.dtype != type_.dtype:
        raise RuleError(f"its value is {value.dtype}{list(value.shape)}, its type is {type_}")


def _check_channels(type_: OperandType, kind: _Kind) -> None:
    channels = type_.channel_quant
    if not kind.per_channel:
        raise RuleError(f"it has scales of channels, which {type_.code.name} must not have")
    if channels is None:
        raise RuleError(f"it has no scales of channels, which {type_.code.name} needs")
    if not 0 <= channels.channel_dim < type_.rank:
        raise RuleError(f"its channel dimension is {channels.channel_dim}, its rank is {type_.rank}")
    count = type_.shape[channels.channel_dim]
    if not count:
        raise RuleError(f"its channel dimension {channels.channel_dim} must be specified")
    if len(channels.scales) != count:
        raise RuleError(
            f"it has {len(channels.scales)} scales of channels, dimension {channels.channel_dim} is {count}"
        )
    for index, scale in enumerate(channels.scales):
        if not _SMALLEST <= scale <= _LARGEST:
            raise RuleError(f"the scale of its channel {index} is {scale!r}, it must be a positive float32")


# -- graphs ------------------------------------------------------------------------------------------------------------


def execution_order(graph: Subgraph) -> list[int]:
    """Positions of the operations, each after those whose results it reads; those that never can run are missing.

    Operations that are in order already stay as they are.
    """
    writers = {index: position for position, op in enumerate(graph.operations) for index in op.outputs}
    waits_for = [{writers[index] for index in op.inputs if index in writers} for op in graph.operations]
    if all(max(before, default=-1) < position for position, before in enumerate(waits_for)):
        return list(range(len(waits_for)))
    readers: list[list[int]] = [[] for _ in waits_for]
    for position, before in enumerate(waits_for):
        for writer in before:
            readers[writer].append(position)
    missing = [len(before) for before in waits_for]
    ready = [position for position, count in enumerate(missing) if not count][::-1]
    order = []
    while ready:
        position = ready.pop()
        order.append(position)
        for reader in reversed(readers[position]):
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return order


@dataclass(slots=True)
class _Seen:
    """What has been checked: models repeat themselves, and a repetition costs a look-up only.

    Attributes:
        types: number and level by type, ``same_types`` by the identity of the object.
        values: number by what rules can see of an operand: its type, and its value where that is small.
        operations: level and computed result types by operation and the numbers of its operands.
    """

    types: dict[OperandType, tuple[int, int]] = field(default_factory=dict)
    same_types: dict[int, tuple[OperandType, int, int]] = field(default_factory=dict)
    values: dict[object, int] = field(default_factory=dict)
    operations: dict[object, tuple[int, tuple[OperandType, ...]]] = field(default_factory=dict)

    def type(self, type_: OperandType) -> tuple[int, int]:
        same = self.same_types.get(id(type_))
        if same is not None:
            return same[1:]
        known = self.types.get(type_)
        if known is None:
            known = self.types[type_] = len(self.types), _check_type(type_)
        self.same_types[id(type_)] = (type_, *known)  # which keeps the object, and so its identity
        return known

    def value(self, operand: Operand, number: int) -> object:
        """What stands for an operand in the key of its operation; ``number`` is its type's."""
        if operand.lifetime is Lifetime.SUBGRAPH:
            return -1, operand.subgraph
        if operand.lifetime is Lifetime.NO_VALUE:
            return None, operand.type.code
        if operand.lifetime is Lifetime.INPUT:
            return number, Lifetime.INPUT  # which may be omitted
        if operand.lifetime is not Lifetime.CONSTANT:
            return number
        code = operand.type.code
        if code.is_tensor and code not in _READ_BY_RULES:
            return number, None
        if operand.type.size > _SMALL:
            return number, id(operand)
        return number, operand.array().tobytes()


_READ_BY_RULES = (OperandCode.TENSOR_INT32, OperandCode.TENSOR_BOOL8)  # dimensions, paddings …; others are only data
_SMALL = 32  # elements
_COUNTED_BY_READERS = (Lifetime.CONSTANT, Lifetime.NO_VALUE)  # Android drops those that nobody needs


class _Validator:
    """Checks one graph of a model.

    Args:
        model: whose sub-models the graph's operands may be.
        graph: the main graph or a sub-model.
        prefix: names a sub-model in messages.
        seen: what the graphs of the model share.
    """

    def __init__(self, model: Model, graph: Subgraph, prefix: str, seen: _Seen) -> None:
        self.model = model
        self.graph = graph
        self.prefix = prefix
        self.seen = seen
        self.types = [operand.type for operand in graph.operands]
        self.keys: list[object] = []

    def level(self) -> int:
        """The feature level that the graph needs; see ``levels``."""
        operands, operations = self.levels()
        return max(operands, *operations.values())

    def levels(self) -> tuple[int, dict[int, int]]:
        """The levels that the operands' types and that each operation need; sub-models are checked by themselves.

        Raises:
            InvalidModelError: naming the operand or operation.
        """
        graph, seen = self.graph, self.seen
        if not graph.operations:
            raise InvalidModelError(f"{self.prefix}the graph has no operations, NNAPI wants one at least")
        level = 1
        for index, operand in enumerate(graph.operands):
            try:
                number, needed = seen.type(operand.type)
                _check_value(operand)
            except RuleError as error:
                raise InvalidModelError(str(error), where=self._operand(index)) from None
            if operand.lifetime not in _COUNTED_BY_READERS:
                level = max(level, needed)
            self.keys.append(seen.value(operand, number))
        self._check_interface(graph.inputs, Lifetime.INPUT)
        self._check_interface(graph.outputs, Lifetime.OUTPUT)
        return level, {position: self._check_operation(position) for position in self._order()}

    def _check_interface(self, indices: Sequence[int], lifetime: Lifetime) -> None:
        """The model's inputs or outputs: at least one, each once, exactly the operands of that lifetime."""
        noun = f"model {lifetime.value.lower()}"
        if not indices:
            raise InvalidModelError(f"{self.prefix}the graph has no {noun}s, NNAPI wants one at least")
        listed, operands = set(indices), self.graph.operands
        marked = {index for index, operand in enumerate(operands) if operand.lifetime is lifetime}
        for index in sorted(listed - marked):
            raise InvalidModelError(
                f"it is listed as {noun}, but is {operands[index].lifetime.value}", where=self._operand(index)
            )
        for index in sorted(marked - listed):
            raise InvalidModelError(f"it is {lifetime.value}, but not listed as {noun}", where=self._operand(index))
        if len(listed) != len(indices):
            twice = next(index for position, index in enumerate(indices) if index in indices[:position])
            raise InvalidModelError(f"it is listed twice as {noun}", where=self._operand(twice))

    def _order(self) -> list[int]:
        """Positions of the operations in an order in which they can run; every result is written by one of them."""
        graph = self.graph
        written: dict[int, int] = {}
        for position, operation in enumerate(graph.operations):
            for index in operation.outputs:
                lifetime = graph.operands[index].lifetime
                if lifetime is not Lifetime.TEMPORARY and lifetime is not Lifetime.OUTPUT:
                    raise InvalidModelError(
                        f"it writes {self._operand(index)}, which is {lifetime.value}; it must be TEMPORARY or OUTPUT",
                        where=self._where(position),
                    )
                if index in written:
                    raise InvalidModelError(
                        f"it writes {self._operand(index)}, which {self._where(written[index])} writes too",
                        where=self._where(position),
                    )
                written[index] = position
        for index, operand in enumerate(graph.operands):
            if operand.lifetime in (Lifetime.TEMPORARY, Lifetime.OUTPUT) and index not in written:
                raise InvalidModelError("no operation writes it", where=self._operand(index))
        order = execution_order(graph)
        if len(order) != len(graph.operations):
            stuck = min(set(range(len(graph.operations))) - set(order))
            raise InvalidModelError("it depends on its own result: the graph has a cycle", where=self._where(stuck))
        return order

    def _check_operation(self, position: int) -> int:
        """The level that an operation needs; what its results are is noted for their readers."""
        graph, seen, keys = self.graph, self.seen, self.keys
        operation = graph.operations[position]
        results = [(keys[index], graph.operands[index].lifetime) for index in operation.outputs]
        key = (operation.code, tuple([keys[index] for index in operation.inputs]), tuple(results))
        known = seen.operations.get(key)
        if known is None:
            try:
                known = seen.operations[key] = self._check(operation)
            except RuleError as error:
                raise InvalidModelError(str(error), where=self._where(position)) from None
        level, computed = known
        for index, type_ in zip(operation.outputs, computed, strict=False):
            if type_ is not self.types[index]:
                self.types[index] = type_
                keys[index] = seen.type(type_)[0]
        return level

    def _check(self, operation: Operation) -> tuple[int, tuple[OperandType, ...]]:
        """The operation's level and the types of its results (none where only the run tells)."""
        schema = SCHEMAS.get(operation.code)
        if schema is None:
            raise RuleError("the operation is not supported")
        arguments = [self._argument(index) for index in operation.inputs]
        declared = [self.types[index] for index in operation.outputs]
        bound = bind(schema, arguments, declared)
        self._check_omitted(operation, bound)
        level = level_of(bound)
        if not all(argument is None or argument.type.is_specified for argument in arguments):
            return level, ()
        try:
            computed = output_types(bound, declared)
        except UnknownValue:
            return level, ()
        if len(computed) != len(declared):
            raise RuleError(f"it has {len(declared)} outputs, {len(computed)} are computed")
        for index, promised, type_ in zip(operation.outputs, declared, computed, strict=True):
            self._compare(index, promised, type_)
            self.seen.type(type_)
        return level, computed

    def _check_omitted(self, operation: Operation, bound: Bound) -> None:
        """An operand without value has the element type that it would have with one."""
        operands = [self.graph.operands[index] for index in operation.inputs]
        omitted = {
            slot.name: (slot, operand.type.code)
            for slot, operand in zip(expand_slots(bound.slots, len(operands)) or (), operands, strict=True)
            if operand.lifetime is Lifetime.NO_VALUE
        }
        for name, (slot, code) in omitted.items():
            if slot.code not in (None, code):
                raise RuleError(f"operand {name!r} is omitted, but {code.name}; it must be {slot.code.name}")
        for row in (bound.row, *bound.schema.types):
            if all(
                code == (omitted[name][1] if name in omitted else bound.row.codes.get(name))
                for name, code in row.codes.items()
            ):
                return
        text = ", ".join(f"{name!r}: {code.name}" for name, (_, code) in omitted.items() if name in bound.row.codes)
        raise RuleError(f"the element types of the omitted operands ({text}) do not go with those of the others")

    def _argument(self, index: int) -> Argument | None:
        operand = self.graph.operands[index]
        if operand.lifetime is Lifetime.NO_VALUE:
            return None
        if operand.subgraph is not None:
            return Argument(operand.type, self.model.subgraphs[operand.subgraph])
        return Argument(self.types[index], operand.value, operand.lifetime is not Lifetime.INPUT)

    def _compare(self, index: int, promised: OperandType, computed: OperandType) -> None:
        """A result is as declared: in its sizes, and where it leaves the model in its quantization."""
        if computed.code.is_tensor and not agree(promised.shape, computed.shape):
            raise RuleError(
                f"its result {self._operand(index)} has shape {list(computed.shape)}, it is declared as "
                f"{list(promised.shape)}"
            )
        if self.graph.operands[index].lifetime is Lifetime.OUTPUT and (
            computed.scale != promised.scale or computed.zero_point != promised.zero_point
        ):
            raise RuleError(f"its result {self._operand(index)} is {computed}, it is declared as {promised}")

    def _operand(self, index: int) -> str:
        name = self.graph.operands[index].name
        return f"{self.prefix}operand {index}" + (f" {name!r}" if name else "")

    def _where(self, position: int) -> str:
        operation = self.graph.operations[position]
        nodes = f" of {', '.join(map(repr, operation.origin[:3]))}" if operation.origin else ""
        return f"{self.prefix}operation {position} {operation.code.name}{nodes}"
