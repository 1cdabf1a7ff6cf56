"""What a layout trait means: the ways in which an operation can run on permuted inputs, and what it gives then.

One small function a trait. No operation is known here by name; the row's answer decides whether a way is open.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.ir.types import Shape, TensorType
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.infer import bind_values, is_read_by_rules, slot_names
from onnx2nnapi.nnapi.rules import RuleError, UnknownValue, level_of, output_types
from onnx2nnapi.nnapi.schema import (
    REQUIRED,
    SCHEMAS,
    AxesAttr,
    AxisAttr,
    Contracts,
    Elementwise,
    Layout,
    PermutesAttr,
    Regroups,
    Schema,
)
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.passes.layout.permutations import (
    Atoms,
    Perm,
    arrange_shape,
    identity,
    is_identity,
    moves_only_ones,
    orders,
    refine,
)

__all__ = [
    "Edit",
    "Move",
    "accepts",
    "data_inputs",
    "data_rank",
    "moves",
    "moves_to",
    "schema_of",
    "trait_of",
]


@dataclass(frozen=True, slots=True)
class Edit:
    """A constant input that must be reordered along: the factors ``sizes`` of its dimension ``axis``, by ``perm``."""

    op: Op
    input: int
    axis: int
    sizes: Shape
    perm: Perm


@dataclass(frozen=True, slots=True)
class Move:
    """A way in which an operation can run on permuted inputs.

    Attributes:
        inputs: for each input the permutation that it must have (a lower rank counts as filled up with 1 in front),
            None where it stays as it is.
        outputs: for each output the permutation that it has then.
        attrs: the operation's attributes then.
        edits: constants that change along.
        shuffled: values whose elements change places within a dimension: they are no permuted copies any more.
    """

    inputs: tuple[Perm | None, ...]
    outputs: tuple[Perm, ...]
    attrs: Mapping[str, Any]
    edits: tuple[Edit, ...] = ()
    shuffled: tuple[str, ...] = ()


def schema_of(op: Op) -> Schema:
    """The operation's row."""
    return SCHEMAS[OperationCode[op.kind]]


def trait_of(op: Op) -> Layout:
    """The operation's layout trait."""
    return _trait(op.kind)


@functools.cache  # asked for again and again
def _trait(kind: str) -> Layout:
    return SCHEMAS[OperationCode[kind]].layout


def data_rank(graph: Graph, op: Op) -> int | None:
    """The rank of the permutations that ``moves`` takes for this operation, None where its trait lets none pass."""
    trait = trait_of(op)
    if isinstance(trait, Elementwise):
        return None if op.outputs[0] is None else graph[op.outputs[0]].rank
    if isinstance(trait, (AxisAttr, AxesAttr, PermutesAttr, Regroups, Contracts)):
        name = op.inputs[data_inputs(op)[0]]
        return None if name is None else graph[name].rank
    return None


def moves(graph: Graph, op: Op, perm: Perm, level: int) -> Iterator[Move]:
    """The ways in which an operation can run with its data permuted by ``perm``, the most useful one first.

    Args:
        graph: of the NNAPI dialect.
        op: an operation in it.
        perm: over the dimensions of the data inputs (of the output, for elementwise operations).
        level: the target feature level; ways that need more are closed.
    """
    if data_rank(graph, op) != len(perm) or None in op.outputs:
        return
    for move in _ways(trait_of(op), graph, op, perm):
        if _is_accepted(graph, op, move, level):
            yield move


def moves_to(graph: Graph, op: Op, perm: Perm, level: int) -> Iterator[Move]:
    """The ways in which an operation can give its (first) output permuted by ``perm``."""
    rank = data_rank(graph, op)
    if rank is None or op.outputs[0] is None:
        return
    if rank == len(perm) and not isinstance(trait_of(op), Regroups):
        candidates: Iterator[Perm] = iter((perm,))
    elif isinstance(trait_of(op), Regroups):
        candidates = _backwards(graph, op, perm)
    else:
        candidates = (known for known in orders((), rank) if not is_identity(known))
    for candidate in candidates:
        yield from (move for move in moves(graph, op, candidate, level) if move.outputs[0] == perm)


def data_inputs(op: Op) -> list[int]:
    """The inputs that an operation's trait speaks of, by position.

    All of an elementwise operation, the one that the trait names, all the variadic ones, else the first.
    """
    trait = trait_of(op)
    if isinstance(trait, Elementwise):
        return [at for at, name in enumerate(op.inputs) if name is not None]
    names = slot_names(op)
    if isinstance(trait, Contracts):
        return [names.index(trait.input)]
    variadic = _variadic(op.kind)
    return [at for at, name in enumerate(names) if name in variadic] or [0]


@functools.cache
def _variadic(kind: str) -> frozenset[str]:
    """The names of the slots that take any number of tensors."""
    return frozenset(slot.name for form in SCHEMAS[OperationCode[kind]].forms for slot in form.slots if slot.variadic)


def _shape(graph: Graph, name: str | None) -> Shape:
    return () if name is None else graph[name].shape


def _default(op: Op, name: str) -> Any:
    """An attribute's value, its row's default where the operation names none."""
    if name in op.attrs:
        return op.attrs[name]
    slots = (slot for form in schema_of(op).forms for slot in form.slots if slot.name == name)
    return next((slot.default for slot in slots if slot.default is not REQUIRED), None)


# -- one function a trait ----------------------------------------------------------------------------------------------


@functools.singledispatch
def _ways(trait: Layout, graph: Graph, op: Op, perm: Perm) -> Iterator[Move]:
    """No way: the trait lets no permutation pass."""
    return iter(())


@_ways.register
def _elementwise(trait: Elementwise, graph: Graph, op: Op, perm: Perm) -> Iterator[Move]:
    yield Move(tuple(perm if name is not None else None for name in op.inputs), (perm,) * len(op.outputs), op.attrs)


@_ways.register
def _axis(trait: AxisAttr, graph: Graph, op: Op, perm: Perm) -> Iterator[Move]:
    value = _default(op, trait.name)
    if value is None:
        return
    rank = len(perm) + trait.inserts
    axis = int(value) % rank
    if trait.inserts:
        order = [at + (at >= axis) for at in perm]
        for out in orders(order, rank):
            yield _along(op, perm, out, {**op.attrs, trait.name: out.index(axis)})
        return
    place = perm.index(axis)
    default = next((s.default for f in schema_of(op).forms for s in f.slots if s.name == trait.name), None)
    if isinstance(default, int) and default % rank == place:
        place = default  # spelled as the row's default, it may be left out
    stays = not trait.drops if trait.keeps is None else bool(_default(op, trait.keeps))
    yield _along(op, perm, perm if stays else _without(perm, {axis}), {**op.attrs, trait.name: place})


@_ways.register
def _axes(trait: AxesAttr, graph: Graph, op: Op, perm: Perm) -> Iterator[Move]:
    value = _default(op, trait.name)
    if value is None:
        return
    axes = {int(axis) % len(perm) for axis in value}
    stays = not trait.drops if trait.keeps is None else bool(_default(op, trait.keeps))
    attrs = {**op.attrs, trait.name: tuple(sorted(perm.index(axis) for axis in axes))}
    yield _along(op, perm, perm if stays else _without(perm, axes), attrs)


@_ways.register
def _entries(trait: PermutesAttr, graph: Graph, op: Op, perm: Perm) -> Iterator[Move]:
    if any(len(op.attrs.get(name, ())) != len(perm) for name in trait.names):
        return
    attrs = {**op.attrs, **{name: tuple(op.attrs[name][axis] for axis in perm) for name in trait.names}}
    masks = {name: int(_default(op, name) or 0) for name in trait.masks}
    attrs.update((name, sum((mask >> axis & 1) << at for at, axis in enumerate(perm))) for name, mask in masks.items())
    gone = {axis for axis in perm if trait.dropped is not None and masks[trait.dropped] >> axis & 1}
    yield _along(op, perm, _without(perm, gone), attrs)


@_ways.register
def _contracts(trait: Contracts, graph: Graph, op: Op, perm: Perm) -> Iterator[Move]:
    """Batch dimensions keep their order; the others may move when the constant's last dimension moves along."""
    names = slot_names(op)
    at, constant = names.index(trait.input), names.index(trait.constant)
    shape, depth = _shape(graph, op.inputs[at]), _shape(graph, op.inputs[constant])[-1]
    first = _contracted(shape, depth)
    moved = [axis for axis in perm if shape[axis] != 1]
    batch = [axis for axis in range(first) if shape[axis] != 1]
    if (first == len(shape) and depth != 1) or moved[: len(batch)] != batch:
        return
    edits: tuple[Edit, ...] = ()
    order = [axis for axis in perm if axis >= first]
    if not moves_only_ones(shape, [*range(first), *order]):
        if not graph.is_constant(op.inputs[constant]):
            return
        edits = (Edit(op, constant, -1, shape[first:], tuple(axis - first for axis in order)),)
    inputs = tuple(perm if index == at else None for index in range(len(op.inputs)))
    yield Move(inputs, tuple(identity(len(_shape(graph, name))) for name in op.outputs), op.attrs, edits)


@_ways.register
def _regroups(trait: Regroups, graph: Graph, op: Op, perm: Perm) -> Iterator[Move]:
    """Pass what keeps each new dimension together; a new dimension within which elements move must be contracted."""
    before, after = _shape(graph, op.inputs[0]), _shape(graph, op.outputs[0])
    atoms = refine(before, after)
    if atoms is None:
        return
    blocks = _blocks(atoms, [atom for axis in perm for atom in atoms.before[axis]])
    if blocks is None:
        return
    shuffles = {axis: found for axis, found in blocks.items() if list(found) != sorted(found)}
    if not shuffles:
        for out in orders(list(blocks), len(after)):
            yield Move((perm,), (out,), {**op.attrs, trait.shape: arrange_shape(after, out)})
        return
    if list(blocks) != sorted(blocks) or op.outputs[0] is None:
        return
    local = {
        axis: (tuple(atoms.sizes[atom] for atom in sorted(found)), tuple(sorted(found).index(atom) for atom in found))
        for axis, found in shuffles.items()
    }
    absorbed = _absorb(graph, op.outputs[0], local)
    if absorbed is not None:
        yield Move((perm,), (identity(len(after)),), op.attrs, *absorbed)


def _along(op: Op, perm: Perm, out: Perm, attrs: Mapping[str, Any]) -> Move:
    """A move of the data inputs by ``perm`` that permutes all outputs by ``out``."""
    data = data_inputs(op)
    return Move(tuple(perm if at in data else None for at in range(len(op.inputs))), (out,) * len(op.outputs), attrs)


def _without(perm: Perm, gone: set[int]) -> Perm:
    """What is left of a permutation when dimensions go; the last one that goes leaves a dimension of size 1."""
    kept = [axis for axis in perm if axis not in gone]
    order = sorted(kept)
    return tuple(order.index(axis) for axis in kept) or (0,)


# -- reshapes ----------------------------------------------------------------------------------------------------------


def _blocks(atoms: Atoms, sequence: list[int]) -> dict[int, tuple[int, ...]] | None:
    """The atoms of each dimension after, in the order in which ``sequence`` has them; None where they lie scattered."""
    owner = {atom: axis for axis, found in enumerate(atoms.after) for atom in found}
    blocks: dict[int, tuple[int, ...]] = {}
    last = None
    for atom in sequence:
        axis = owner[atom]
        if axis != last and axis in blocks:
            return None
        blocks[axis] = (*blocks.get(axis, ()), atom)
        last = axis
    return blocks


def _backwards(graph: Graph, op: Op, perm: Perm) -> Iterator[Perm]:
    """The permutations of a reshape's input that may give its output permuted by ``perm``."""
    before, after = _shape(graph, op.inputs[0]), _shape(graph, op.outputs[0])
    atoms = refine(after, before)
    blocks = None if atoms is None else _blocks(atoms, [atom for axis in perm for atom in atoms.before[axis]])
    if blocks is not None:
        yield from orders(list(blocks), len(before))


Shuffles = Mapping[int, "tuple[Shape, Perm]"]  # by dimension: its factors, and the order that they come to have


def _absorb(graph: Graph, name: str, shuffles: Shuffles) -> tuple[tuple[Edit, ...], tuple[str, ...]] | None:
    """The constants to edit when the elements of ``name`` move within dimensions that every reader ends up contracting.

    None where a reader does something else with them.
    """
    edits: list[Edit] = []
    names = [name]
    for current in names:
        if current in graph.outputs:
            return None
        for reader in graph.readers(current):
            found = _edits(graph, reader, current, shuffles)
            if found is None:
                return None
            edits += found
            if isinstance(trait_of(reader), Elementwise):
                names += [output for output in reader.outputs if output is not None]
    return tuple(edits), tuple(names)


def _edits(graph: Graph, reader: Op, name: str, shuffles: Shuffles) -> list[Edit] | None:
    trait = trait_of(reader)
    shape = graph[name].shape
    if isinstance(trait, Contracts):
        names = slot_names(reader)
        constant = names.index(trait.constant)
        weights = reader.inputs[constant]
        first = _contracted(shape, _shape(graph, weights)[-1])
        if reader.inputs[names.index(trait.input)] != name or not graph.is_constant(weights) or min(shuffles) < first:
            return None
        return [Edit(reader, constant, -1, *_joined(shape, first, shuffles))]
    if not isinstance(trait, Elementwise) or [_shape(graph, output) for output in reader.outputs] != [shape]:
        return None
    edits = []
    for at, other in enumerate(reader.inputs):
        if other == name or other is None:
            continue
        if not graph.is_constant(other):
            return None
        missing = len(shape) - graph[other].rank
        edits += [
            Edit(reader, at, axis - missing, *shuffles[axis])
            for axis in shuffles
            if axis >= missing and graph[other].shape[axis - missing] != 1
        ]
    return edits


def _contracted(shape: Shape, depth: int) -> int:
    """The first of the trailing dimensions that a contraction of ``depth`` elements takes together."""
    first = len(shape)
    while first and math.prod(shape[first:]) < depth:
        first -= 1
    return first


def _joined(shape: Shape, first: int, shuffles: Shuffles) -> tuple[Shape, Perm]:
    """One shuffle of all the dimensions from ``first`` on, flattened."""
    sizes: list[int] = []
    perm: list[int] = []
    for axis in range(first, len(shape)):
        parts, order = shuffles.get(axis, ((shape[axis],), (0,)))
        perm += [len(sizes) + at for at in order]
        sizes += parts
    return tuple(sizes), tuple(perm)


# -- the row's answer --------------------------------------------------------------------------------------------------


def _is_accepted(graph: Graph, op: Op, move: Move, level: int) -> bool:
    """Whether the row takes the operation as it would be, and gives what the move says."""
    outputs = [graph[str(name)] for name in op.outputs]
    if any(len(perm) != value.rank for perm, value in zip(move.outputs, outputs, strict=True)):
        return False
    inputs = [None if name is None else graph[name] for name in op.inputs]
    return _ask(op.kind, inputs, move.inputs, move.attrs, outputs, move.outputs, level)


def accepts(
    op: Op, inputs: Sequence[Value | None], attrs: Mapping[str, Any], outputs: Sequence[Value], level: int
) -> bool:
    """Whether the operation's row takes other inputs and attributes at ``level``, and gives these outputs."""
    return _ask(op.kind, inputs, (None,) * len(inputs), attrs, outputs, (None,) * len(outputs), level)


def _ask(
    kind: str,
    inputs: Sequence[Value | None],
    arrivals: Sequence[Perm | None],
    attrs: Mapping[str, Any],
    outputs: Sequence[Value],
    departures: Sequence[Perm | None],
    level: int,
) -> bool:
    """The row's answer for inputs and outputs that are permuted (None: as they are)."""
    key: Hashable = None
    if not any(value is not None and is_read_by_rules(value) for value in inputs):
        seen = tuple([None if value is None else (value.type, value.const is None) for value in inputs])
        results = tuple([value.type for value in outputs])
        key = (kind, seen, tuple(arrivals), tuple(attrs.items()), results, tuple(departures), level)
        known = _answers.get(key)
        if known is not None:
            return known
    moved = [None if value is None else _moved(value, perm) for value, perm in zip(inputs, arrivals, strict=True)]
    types = [_moved(value, perm).known for value, perm in zip(outputs, departures, strict=True)]
    answer = _answer(kind, moved, attrs, types, level)
    if key is not None:
        if len(_answers) >= _MOST_ANSWERS:
            _answers.clear()
        _answers[key] = answer
    return answer


_MOST_ANSWERS = 1 << 14
_answers: dict[Hashable, bool] = {}  # networks repeat themselves: most questions have been asked before


def _answer(
    kind: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any], results: Sequence[TensorType], level: int
) -> bool:
    schema = SCHEMAS[OperationCode[kind]]
    declared = [OperandType.of(type_) for type_ in results]
    try:
        bound = bind_values(schema, inputs, attrs, outputs=declared)
        fits = isinstance(schema.layout, Regroups) or level_of(bound) <= level
        return fits and list(output_types(bound, declared)) == declared
    except (RuleError, UnknownValue):
        return False


def _moved(value: Value, perm: Perm | None) -> Value:
    """A stand-in for the value as it would be."""
    if perm is None:
        return value
    type_ = value.known
    shape = (1,) * (len(perm) - type_.rank) + type_.shape
    const = None if value.const is None else value.const.reshape(shape).transpose(perm)
    return Value(value.name, replace(type_, shape=arrange_shape(shape, perm)), const)
