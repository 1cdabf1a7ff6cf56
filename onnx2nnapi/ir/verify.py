"""Structural checks of a graph of either dialect: what every pass must leave intact, whatever the operations mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from onnx2nnapi.errors import InternalError, InvalidModelError
from onnx2nnapi.ir.graph import Graph, Op

__all__ = ["verify"]

_KINDS = {"nnapi": re.compile(r"[A-Z][A-Z0-9_]*"), "onnx": re.compile(r"(?:[^\s:]+::)?\w+")}


_MAX_RANK = 4  # tensors of a higher rank change hands with dimensions merged (passes/settle_interface.py)


def verify(graph: Graph, *, scope: frozenset[str] = frozenset()) -> None:
    """Check names, edges, constants, order and interface of a graph and of the subgraphs in it.

    Args:
        graph: in either dialect.
        scope: the values of the enclosing graphs, which a subgraph may read.

    Raises:
        InternalError: the first fault, with the operation or value that has it.
    """
    try:
        ops = graph.ops
    except InvalidModelError as error:
        raise InternalError(f"the graph is broken: {error.message}", where=error.where) from None
    for faults in (_values(graph), _operations(graph, ops, scope), _border(graph, scope)):
        for fault in faults:
            raise InternalError(f"the graph is broken: {fault}")
    inner = scope | graph.values.keys()
    for op in ops:
        for subgraph in op.subgraphs.values():
            verify(subgraph, scope=inner)


def _values(graph: Graph) -> Iterator[str]:
    inputs = set(graph.inputs)
    for name, value in graph.values.items():
        written = name in inputs or graph.producer(name) is not None
        if value.name != name:
            yield f"value {value.name!r} is filed under {name!r}"
        if value.const is not None:
            if written:
                yield f"constant {name!r} is written"
            if value.type is None or (value.type.dtype, value.type.shape) != (value.const.dtype, value.const.shape):
                yield f"constant {name!r} is {value.type}, its value {value.const.dtype}{list(value.const.shape)}"
        elif not written and graph.uses(name):
            yield f"value {name!r} is read and never written"
        elif name in inputs and graph.producer(name) is not None:
            yield f"input {name!r} is written"
        perm = value.holds.perm if value.holds is not None else ()
        if perm and value.type is not None and sorted(perm) != list(range(value.type.rank)):
            yield f"value {name!r} of rank {value.type.rank} holds permutation {perm}"


def _operations(graph: Graph, ops: Sequence[Op], scope: frozenset[str]) -> Iterator[str]:
    """Kinds are of the dialect, names are known, and the derived edges say the same as Op.inputs and Op.outputs."""
    writers: dict[str, Op] = {}
    kinds: set[str] = set()
    for op in ops:
        if op.kind not in kinds and not _KINDS[graph.dialect].fullmatch(op.kind):
            yield f"{op.kind!r} is no operation of dialect {graph.dialect}"
        kinds.add(op.kind)
        for name in op.outputs:
            if name is None:
                continue
            if name not in graph.values:
                yield f"{op.origin} writes {name!r}, which is no value"
            if name in writers:
                yield f"{name!r} is written by {writers[name].origin} and by {op.origin}"
            writers[name] = op
        for name in (*op.inputs, *op.captured):
            if name is None:
                continue
            if name not in graph.values and name not in scope:
                yield f"{op.origin} reads {name!r}, which is no value"
        if not graph.is_wired(op):
            yield f"the edges of {op.origin} are not those that it names"


def _border(graph: Graph, scope: frozenset[str]) -> Iterator[str]:
    if len(set(graph.inputs)) != len(graph.inputs):
        yield "an input is named twice"
    for what, names in (("input", graph.inputs), ("output", graph.outputs)):
        for name in names:
            if name not in graph.values and (what == "input" or name not in scope):
                yield f"{what} {name!r} is no value"
    if graph.interface is None:
        return
    scalar = (1,) if graph.dialect == "nnapi" else ()
    for what, names, ports in (
        ("input", graph.inputs, graph.interface.inputs),
        ("output", graph.outputs, graph.interface.outputs),
    ):
        if len(names) != len(ports):
            yield f"there are {len(names)} {what}s for {len(ports)} ports"
        for name, port in zip(names, ports, strict=False):
            type_ = graph[name].type
            merged = graph.dialect == "nnapi" and port.type.rank > _MAX_RANK and type_ and type_.size == port.type.size
            if type_ is not None and type_.shape != (port.type.shape or scalar) and not merged:
                yield f"{what} {name!r} is {type_}, its port {port.name!r} is {port.type}"
