"""The edits that layout makes, and what they cost: permuted copies, moved operations, nothing left behind unused."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from onnx2nnapi.ir.graph import Graph, Op, Provenance, Value
from onnx2nnapi.ir.types import Shape, TensorType
from onnx2nnapi.nnapi.schema import SCHEMAS, Permutes, Regroups, Schema
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.passes.layout.moves import Edit, Move, trait_of
from onnx2nnapi.passes.layout.permutations import (
    Perm,
    arrange_shape,
    compose,
    identity,
    invert,
    is_identity,
    moves_only_ones,
    reduced,
    reindex,
)

__all__ = ["MAX_RANK", "OPERATION", "RESHAPE", "Rewriter"]

OPERATION = 1 << 16  # bytes: what one more operation costs, in the currency of what a transpose moves
RESHAPE = OPERATION >> 6  # a reshape moves nothing
MAX_RANK = 4


@functools.cache
def _permuting() -> tuple[Schema, str]:
    """The row of the operation that permutes, and its attribute that says how."""
    return next((row, row.layout.perm) for row in SCHEMAS.values() if isinstance(row.layout, Permutes))


@functools.cache
def _regrouping() -> tuple[Schema, str]:
    """The row of the operation that regroups, and its attribute that says how."""
    return next((row, row.layout.shape) for row in SCHEMAS.values() if isinstance(row.layout, Regroups))


class Rewriter:
    """Changes a graph, keeping each operation's result right at every step.

    Attributes:
        graph: of the NNAPI dialect.
        level: the target feature level.
        touched: the transposes that came or changed, for whoever looks at them next.
    """

    def __init__(self, graph: Graph, level: int) -> None:
        self.graph = graph
        self.level = level
        self.touched: list[Op] = []
        self._constants: dict[tuple[str, Shape, Perm], str] = {}

    # -- questions -----------------------------------------------------------------------------------------------------

    def perm_of(self, op: Op | None) -> Perm | None:
        """The permutation that an operation is, None where it is something else."""
        trait = trait_of(op) if op is not None else None
        if op is None or not isinstance(trait, Permutes):
            return None
        perm = op.attrs.get(trait.perm)
        return tuple(perm) if perm else identity(self.graph[str(op.inputs[0])].rank)[::-1]

    def is_reshape(self, op: Op | None) -> bool:
        """Whether an operation only gives its input another shape."""
        return op is not None and isinstance(trait_of(op), Regroups)

    def transposes(self) -> list[Op]:
        """Every operation that permutes, in order."""
        return [op for op in self.graph.ops if self.perm_of(op) is not None]

    def cost(self, type_: TensorType, perm: Perm) -> float:
        """What permuting a value of this type costs; infinite where the element type cannot be permuted."""
        return 0 if is_identity(perm) else _cost(type_, perm)

    def copy_cost(self, name: str, perm: Perm) -> float:
        """What ``input_for`` would add to the graph."""
        value = self.graph[name]
        missing = len(perm) - value.rank
        if value.const is not None:
            return 0
        if missing and perm[:missing] != identity(missing):
            lifted = value.known.with_shape((1,) * missing + value.shape)
            if math.prod(lifted.shape) == 1:
                return 0
            return RESHAPE if moves_only_ones(lifted.shape, perm) else RESHAPE + self.cost(lifted, perm)
        return self._cheapest(name, tuple(axis - missing for axis in perm[missing:]))[0]

    def _cheapest(self, name: str, perm: Perm) -> tuple[float, str, Perm]:
        """What one more copy costs, and the value and permutation to make it of; a transposed value has two ways."""
        ways = [(name, perm)]
        source = self.graph.producer(name)
        done = self.perm_of(source)
        if source is not None and done is not None:
            ways.insert(0, (str(source.inputs[0]), compose(done, perm)))
        priced = [
            (0 if self.find_copy(*way) is not None else self.cost(self.graph[way[0]].known, way[1]), *way)
            for way in ways
        ]
        return min(priced, key=lambda way: way[0])

    def find_copy(self, name: str, perm: Perm, besides: Op | None = None) -> str | None:
        """The permuted copy of a value that the graph has already, not counting what ``besides`` writes."""
        shape = self.graph[name].shape
        if is_identity(perm) or (moves_only_ones(shape, perm) and arrange_shape(shape, perm) == shape):
            return name
        for reader in self.graph.readers(name):
            if reader is not besides and self.perm_of(reader) == perm:
                return str(reader.outputs[0])
        return None

    # -- edits ---------------------------------------------------------------------------------------------------------

    def transposed(self, name: str, perm: Perm, op: Op) -> str:
        """The name of the value permuted: an existing copy, a constant, or a new operation in ``op``'s name."""
        value = self.graph[name]
        if value.const is not None:
            return self._constant(name, value.shape, perm)
        _, name, perm = self._cheapest(name, perm)
        value = self.graph[name]
        found = self.find_copy(name, perm)
        if found is not None:
            return found
        copy = self._value(f"{name}.permuted", value.known.with_shape(arrange_shape(value.shape, perm)))
        copy.holds = _permuted(value.holds, perm)
        self._transpose(name, copy, perm, op)
        return copy.name

    def reshaped(self, name: str, shape: Shape, op: Op) -> str:
        """The name of the value in another shape, by a new operation in ``op``'s name where it is not constant."""
        value = self.graph[name]
        if value.shape == shape:
            return name
        if value.const is not None:
            return self._constant(name, shape, identity(len(shape)))
        copy = self._value(f"{name}.reshaped", value.known.with_shape(shape))
        schema, attr = _regrouping()
        self.graph.add(Op(schema.name, (name,), (copy.name,), {attr: shape}, op.origins[:1]), at=op)
        return copy.name

    def input_for(self, name: str, perm: Perm, op: Op) -> str:
        """The name of the value as an operation of rank ``len(perm)`` needs it: 1 in front where its rank is lower."""
        value = self.graph[name]
        missing = len(perm) - value.rank
        if perm[:missing] == identity(missing):
            return self.transposed(name, tuple(axis - missing for axis in perm[missing:]), op)
        shape = (1,) * missing + value.shape
        if math.prod(shape) == 1:
            return name
        if value.const is not None:
            return self._constant(name, shape, perm)
        if moves_only_ones(shape, perm):
            return self.reshaped(name, arrange_shape(shape, perm), op)
        return self.transposed(self.reshaped(name, shape, op), perm, op)

    def apply(self, op: Op, move: Move) -> None:
        """Let an operation run as ``move`` says; readers that want its results as they were get transposes."""
        before = list(op.inputs)
        for edit in move.edits:
            self._edit(edit)
        inputs = [
            name if name is None or perm is None else self.input_for(name, perm, op)
            for name, perm in zip(op.inputs, move.inputs, strict=True)
        ]
        op.attrs = dict(move.attrs)
        self.graph.rewire(op, inputs=inputs)
        for shuffled in move.shuffled:
            self.graph[shuffled].holds = None
        for result, perm in zip(op.outputs, move.outputs, strict=True):
            if result is not None and not is_identity(perm):
                self._permute_output(result, perm, op)
        self.release(before)

    def _permute_output(self, name: str, perm: Perm, op: Op) -> None:
        """Let the value be its permuted copy from now on."""
        graph, value, back = self.graph, self.graph[name], invert(perm)
        readers = graph.readers(name)
        others = [reader for reader in readers if self.perm_of(reader) is None]
        natural, holds = value.known, value.holds
        value.type = natural.with_shape(arrange_shape(natural.shape, perm))
        value.holds = _permuted(holds, perm)
        if others or name in graph.outputs:
            copy = self._value(f"{name}.permuted", natural)
            copy.holds = holds
            for reader in others:
                graph.redirect(reader, name, copy.name)
            graph.outputs = [copy.name if item == name else item for item in graph.outputs]
            self._transpose(name, copy, back, op)
        for reader in readers:
            done = self.perm_of(reader)
            if done is not None and reader not in others:
                self.set_perm(reader, compose(back, done))

    def set_perm(self, op: Op, perm: Perm) -> None:
        """Let a transpose permute by ``perm``; where the graph has that copy already, it goes."""
        trait = trait_of(op)
        name, result = op.inputs[0], op.outputs[0]
        if not isinstance(trait, Permutes) or name is None or result is None:
            return
        found = self.find_copy(name, perm, besides=op)
        if found is None:
            op.attrs = {**op.attrs, trait.perm: perm}
            self.touched.append(op)
            return
        kept, gone = self.graph[found], self.graph[result]
        kept.holds = kept.holds or gone.holds
        self.graph.remove(op)
        self.graph.replace_uses(result, found, outputs=True)
        self.graph.drop_value(result)

    def release(self, names: Sequence[str | None]) -> None:
        """Remove what only these values needed: movement that nobody reads any more, and the values themselves."""
        for name in names:
            if name is None or name not in self.graph.values or self.graph.uses(name):
                continue
            source = self.graph.producer(name)
            if source is not None and (self.perm_of(source) is not None or self.is_reshape(source)):
                self.graph.remove(source)
                self.graph.drop_value(name)
                self.release(source.inputs)

    def _edit(self, edit: Edit) -> None:
        name = str(edit.op.inputs[edit.input])
        value = self.graph[name]
        if value.const is None:
            return
        const = reindex(value.const, edit.axis, edit.sizes, edit.perm)
        made = self.graph.constant(f"{name}.permuted", const, value.type)
        inputs = list(edit.op.inputs)
        inputs[edit.input] = made.name
        self.graph.rewire(edit.op, inputs=inputs)

    def _constant(self, name: str, shape: Shape, perm: Perm) -> str:
        """A constant, reshaped and permuted, shared by all that want it so."""
        value = self.graph[name]
        arranged = arrange_shape(shape, perm)
        if value.const is None or (arranged == value.shape and moves_only_ones(shape, perm)):
            return name
        key = (name, shape, perm)
        if key not in self._constants:
            const = value.const.reshape(shape).transpose(perm)
            holds = _permuted(value.holds, perm) if shape == value.shape else None
            made = self.graph.constant(f"{name}.permuted", const, value.known.with_shape(arranged), holds)
            self._constants[key] = made.name
        return self._constants[key]

    def _transpose(self, name: str, copy: Value, perm: Perm, op: Op) -> None:
        schema, attr = _permuting()
        made = Op(schema.name, (name,), (copy.name,), {attr: perm}, op.origins[:1])
        self.touched.append(self.graph.add(made, at=op))

    def _value(self, stem: str, type_: TensorType) -> Value:
        return self.graph.add_value(Value(self.graph.fresh(stem), type_))


@functools.lru_cache(maxsize=1 << 14)  # the same few questions in every block of a network
def _cost(type_: TensorType, perm: Perm) -> float:
    if not _is_movable(type_):
        return math.inf
    if moves_only_ones(type_.shape, perm):
        return 0 if arrange_shape(type_.shape, perm) == type_.shape else RESHAPE
    plain = type_.nbytes + OPERATION
    if type_.rank <= MAX_RANK:
        return plain
    excess = max(0, len(reduced(type_.shape, perm)[0]) - MAX_RANK)  # more than one transpose, with reshapes around
    return plain + excess * plain + 2 * RESHAPE


def _permuted(holds: Provenance | None, perm: Perm) -> Provenance | None:
    """What a permuted copy holds."""
    return None if holds is None else Provenance(holds.name, compose(holds.perm or identity(len(perm)), perm))


def _is_movable(type_: TensorType) -> bool:
    """Whether there is a transpose for the element type."""
    code = OperandType.of(type_).code
    return any(code in row.codes.values() for row in _permuting()[0].types)
