"""The graph: operations and values in a bipartite networkx.DiGraph, and the only functions that change it.

``Op.inputs`` and ``Op.outputs`` are the truth; the edges are derived from them by the mutators, so that ``Add(x, x)``
and operations with several outputs need no multigraph.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from onnx2nnapi.errors import InternalError, InvalidModelError, Origin
from onnx2nnapi.ir.types import LazyArray, Shape, TensorType

__all__ = ["Graph", "Interface", "Op", "Port", "Provenance", "Value"]


@dataclass(frozen=True, slots=True)
class Provenance:
    """The ONNX tensor that a value holds, and the permutation from that tensor's dimensions to the value's."""

    name: str
    perm: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Value:
    """An edge of the dataflow graph: a constant, a graph input, or what one operation writes.

    Attributes:
        name: unique in its graph.
        type: element type and shape; None only before shape inference has reached it.
        const: the value itself, for constants.
        holds: the ONNX tensor that this is a (permuted) copy of.
        bounds: the least and the greatest that an integer's elements can be, where something is known of them.
    """

    name: str
    type: TensorType | None = None
    const: LazyArray | None = None
    holds: Provenance | None = None
    bounds: tuple[float, float] | None = None

    @property
    def known(self) -> TensorType:
        """The type; reading one that nobody could infer is an error that names the tensor."""
        if self.type is None:
            raise InvalidModelError(
                "its shape cannot be inferred",
                where=f"tensor {self.name!r}",
                hint="bind the model's dynamic dimensions with --dim or --input-shape",
            )
        return self.type

    @property
    def shape(self) -> Shape:
        return self.known.shape

    @property
    def rank(self) -> int:
        return len(self.known.shape)


@dataclass(slots=True, eq=False)
class Op:
    """A node: ``kind`` is CamelCase in the ONNX dialect and UPPER_SNAKE in NNAPI's.

    Attributes:
        kind: operator or operation name; an operator of another domain is spelled ``domain::Name``.
        inputs: value names in order, None where an optional input is omitted.
        outputs: value names in order, None where an optional output is not wanted.
        attrs: attributes; in the ONNX dialect every default is filled in. Subgraphs are Graphs, constants LazyArrays.
        origins: the ONNX nodes that this does the work of, the first being the one that errors name.
    """

    kind: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()

    @property
    def origin(self) -> Origin:
        return self.origins[0] if self.origins else Origin("", self.kind, tuple(name for name in self.outputs if name))

    @property
    def subgraphs(self) -> dict[str, Graph]:
        return {name: value for name, value in self.attrs.items() if isinstance(value, Graph)}

    @property
    def captured(self) -> tuple[str, ...]:
        """Values of the enclosing graph that the subgraphs read by name."""
        names: dict[str, None] = {}
        for graph in self.subgraphs.values():
            names.update(dict.fromkeys(graph.free))
        return tuple(names)


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the ONNX model as its callers know it: int64 stays int64, layout options applied."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Interface:
    """What a caller feeds and gets; the frontend fixes it, and no pass changes it."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


class Graph:
    """Operations, values, and the interface.

    Attributes:
        dialect: "onnx" or "nnapi".
        inputs, outputs: value names in the model's order. An output may be an input, a constant, or named twice:
            lower resolves these.
        interface: the ports that ``inputs`` and ``outputs`` serve, position by position (None on subgraphs).
        values: every value by name.
        opset: versions by domain (ONNX dialect).
        name: of the model.
        assumptions: what was taken for granted of the inputs' values, in sentences for the user.
        approximations: ONNX nodes whose operations are no exact form of them, and how far off they are (NNAPI dialect).
    """

    def __init__(self, dialect: str = "onnx", name: str = "") -> None:
        self.dialect = dialect
        self.name = name
        self.opset: dict[str, int] = {}
        self.assumptions: list[str] = []
        self.approximations: dict[Origin, str] = {}
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.interface: Interface | None = None
        self.values: dict[str, Value] = {}
        self._dag: nx.DiGraph[Any] = nx.DiGraph()
        self._rank: dict[Op, int] = {}
        self._next_rank = 0
        self._order: list[Op] | None = None  # what ``ops`` found, until an operation or an edge changes
        self._fresh: dict[str, int] = {}

    # -- values ------------------------------------------------------------------------------------------------------

    def add_value(self, value: Value) -> Value:
        if value.name in self.values:
            raise InternalError(f"a value {value.name!r} is in the graph already")
        self.values[value.name] = value
        self._dag.add_node(value.name)
        return value

    def constant(
        self, name: str, const: LazyArray, type: TensorType | None = None, holds: Provenance | None = None
    ) -> Value:
        """Add a constant under ``name`` (made unique)."""
        return self.add_value(Value(self.fresh(name), type or TensorType(const.dtype, const.shape), const, holds))

    def fresh(self, stem: str) -> str:
        """A value name that is not taken, the stem itself where possible."""
        name = stem
        while name in self.values:
            self._fresh[stem] = self._fresh.get(stem, 0) + 1
            name = f"{stem}_{self._fresh[stem]}"
        return name

    def drop_value(self, name: str) -> None:
        """Remove a value that nothing touches."""
        if self._dag.adj[name] or self._dag.pred[name]:
            raise InternalError(f"value {name!r} is still in use")
        self._dag.remove_node(name)
        del self.values[name]

    # -- operations --------------------------------------------------------------------------------------------------

    def add(self, op: Op, *, at: Op | None = None) -> Op:
        """Add an operation whose values are in the graph; in ``at``'s place in the order of ties, else at the end."""
        for name in op.outputs:
            if name is not None and self.producer(name) is not None:
                raise InternalError(f"value {name!r} is written twice", where=op.origin)
        if at is None:
            self._rank[op] = self._next_rank
            self._next_rank += 1
        else:
            self._rank[op] = self._rank[at]
        self._dag.add_node(op)
        self._connect(op)
        return op

    def remove(self, op: Op) -> None:
        """Remove an operation; its values stay."""
        self._dag.remove_node(op)
        del self._rank[op]
        self._order = None

    def replace(self, op: Op, new: Sequence[Op]) -> None:
        """Put ``new`` (which write the same outputs) in the place of ``op``."""
        rank = self._rank[op]
        self.remove(op)
        for item in new:
            self.add(item)
            self._rank[item] = rank

    def rewire(
        self, op: Op, *, inputs: Sequence[str | None] | None = None, outputs: Sequence[str | None] | None = None
    ) -> None:
        """Change what an operation reads or writes."""
        before, after = self._dag.predecessors(op), self._dag.successors(op)
        self._dag.remove_edges_from([*((name, op) for name in before), *((op, name) for name in after)])
        if inputs is not None:
            op.inputs = tuple(inputs)
        if outputs is not None:
            op.outputs = tuple(outputs)
        self._connect(op)

    def replace_uses(self, old: str, new: str, *, outputs: bool = False) -> None:
        """Let every reader of ``old`` read ``new``, subgraphs included; with ``outputs`` the graph's outputs too."""
        for op in self.readers(old):
            self.redirect(op, old, new)
        if outputs and old in self.outputs:
            self.outputs = [new if name == old else name for name in self.outputs]

    def redirect(self, op: Op, old: str, new: str) -> None:
        """Let one operation, its subgraphs included, read ``new`` where it reads ``old``."""
        for subgraph in op.subgraphs.values():
            if old in subgraph.free:
                subgraph.replace_uses(old, new, outputs=True)
        self.rewire(op, inputs=[new if name == old else name for name in op.inputs])

    def _connect(self, op: Op) -> None:
        edges = [(name, op) for name in (*op.inputs, *op.captured) if name is not None]
        self._dag.add_edges_from([*edges, *((op, name) for name in op.outputs if name is not None)])
        self._order = None

    # -- questions ---------------------------------------------------------------------------------------------------

    def become(self, other: Graph) -> None:
        """Take over everything of ``other``, which must not be used any more; how a pass swaps in a rebuilt graph."""
        self.__dict__.update(other.__dict__)

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def contains(self, op: Op) -> bool:
        return op in self._rank

    def producer(self, name: str) -> Op | None:
        return next(iter(self._dag.predecessors(name)), None)

    def readers(self, name: str) -> list[Op]:
        """The operations that read a value, in the graph's insertion order."""
        if name not in self._dag:  # a subgraph's output that is a value of the enclosing graph
            return []
        found = list(self._dag.successors(name))
        return sorted(found, key=self._rank.__getitem__) if len(found) > 1 else found

    def uses(self, name: str) -> int:
        """How many operations read a value, and once more for each graph output that it is."""
        return len(self._dag.adj[name]) + self.outputs.count(name)

    def is_wired(self, op: Op) -> bool:
        """Whether the edges at an operation are those that it names."""
        reads = {name for name in (*op.inputs, *op.captured) if name is not None}
        writes = {name for name in op.outputs if name is not None}
        return reads == set(self._dag.predecessors(op)) and writes == set(self._dag.successors(op))

    def const(self, name: str | None) -> LazyArray | None:
        """The constant of that name; None for what is computed, omitted, or of an enclosing graph."""
        value = self.values.get(name) if name is not None else None
        return None if value is None else value.const

    def is_constant(self, name: str | None) -> bool:
        return self.const(name) is not None

    @property
    def ops(self) -> list[Op]:
        """The operations in order: a topological sort with ties broken by insertion, the same for the same input."""
        if self._order is None:
            self._order = self._sorted()
        return list(self._order)

    def _sorted(self) -> list[Op]:
        """Kahn's algorithm over the operations alone; of those that may come next the one of the lowest rank does."""
        waits_for = dict.fromkeys(self._rank, 0)
        for op in self._rank:
            for reader in self._following(op):
                waits_for[reader] += 1
        place = {op: (rank, at, op) for at, (op, rank) in enumerate(self._rank.items())}
        ready = [place[op] for op, count in waits_for.items() if not count]
        heapq.heapify(ready)
        order = []
        while ready:
            op = heapq.heappop(ready)[2]
            order.append(op)
            for reader in self._following(op):
                waits_for[reader] -= 1
                if not waits_for[reader]:
                    heapq.heappush(ready, place[reader])
        if len(order) < len(self._rank):
            stuck = next(node for edge in nx.find_cycle(self._dag) for node in edge if isinstance(node, Op))
            raise InvalidModelError("it is part of a cycle", where=stuck.origin, hint="an ONNX graph must be acyclic")
        return order

    def _following(self, op: Op) -> Iterator[Op]:
        """The readers of what an operation writes, once for each value that they read."""
        for name in self._dag.successors(op):
            yield from self._dag.successors(name)

    def __len__(self) -> int:
        return len(self._rank)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    @property
    def free(self) -> tuple[str, ...]:
        """Names that are read here (or in subgraphs) and defined in an enclosing graph."""
        names: dict[str, None] = {}
        for op in self._rank:
            names.update(
                dict.fromkeys(
                    name for name in (*op.inputs, *op.captured) if name is not None and name not in self.values
                )
            )
        names.update(dict.fromkeys(name for name in self.outputs if name not in self.values))
        return tuple(names)
