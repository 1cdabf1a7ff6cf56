"""The order of nodes: producers before readers, whatever the file says; cycles and undefined names are refused here."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Iterable, Sequence

from onnx import AttributeProto, GraphProto, NodeProto

from onnx2nnapi.errors import InvalidModelError, Origin
from onnx2nnapi.frontend.operators import kind_of

__all__ = ["check_names", "needed_nodes", "origin_of", "reads", "sort_nodes"]


def origin_of(node: NodeProto) -> Origin:
    """Where a node is, for messages."""
    return Origin(node.name, kind_of(node.domain, node.op_type), tuple(name for name in node.output if name))


def reads(node: NodeProto) -> list[str]:
    """The names that a node reads, those that its subgraphs take from outside included."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            names += _captured(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            for graph in attribute.graphs:
                names += _captured(graph)
    return names


def _captured(graph: GraphProto) -> list[str]:
    own = {entry.name for entry in (*graph.input, *graph.initializer)}
    own.update(entry.values.name for entry in graph.sparse_initializer)
    own.update(name for node in graph.node for name in node.output)
    names = [name for node in graph.node for name in reads(node)]
    return [name for name in (*names, *(entry.name for entry in graph.output)) if name and name not in own]


def check_names(graph: GraphProto, where: Origin | str | None = None) -> None:
    """Refuse a graph whose inputs, initializers and results share a name, or lack one.

    Initializers may be inputs too: these have a default, or, before IR version 4, are constant.
    """
    seen: dict[str, str] = {}
    named = (
        ("input", [entry.name for entry in graph.input]),
        ("initializer", [entry.name for entry in graph.initializer]),
        ("initializer", [entry.values.name for entry in graph.sparse_initializer]),
    )
    for what, names in named:
        for name in names:
            if not name:
                raise InvalidModelError(f"an {what} of the graph {graph.name!r} has no name", where=where)
            if name in seen and (seen[name], what) != ("input", "initializer"):
                raise InvalidModelError(f"two {what}s have this name", where=f"{what} {name!r}")
            seen[name] = what
    for node in graph.node:
        for name in node.output:
            if name in seen:
                raise InvalidModelError(f"it writes {name!r}, which is an {seen[name]} too", where=origin_of(node))


def sort_nodes(nodes: Sequence[NodeProto], sees: Callable[[str], bool]) -> Sequence[NodeProto]:
    """The nodes in an order in which each reads only what is defined before it; as they are where that holds.

    Args:
        nodes: of one body.
        sees: whether a name is defined outside of them.

    Raises:
        InvalidModelError: a name is written twice or read and never defined, or nodes form a cycle.
    """
    producers: dict[str, int] = {}
    for at, node in enumerate(nodes):
        for name in node.output:
            if name and (producers.setdefault(name, at) != at or list(node.output).count(name) > 1):
                raise InvalidModelError(
                    f"it writes {name!r}, which {origin_of(nodes[producers[name]])} writes too", where=origin_of(node)
                )
    sorted_already = True
    needs: list[list[int]] = []
    for at, node in enumerate(nodes):
        mine = []
        for name in reads(node):
            producer = producers.get(name)
            if producer is not None:
                mine.append(producer)
                sorted_already &= producer < at
            elif not sees(name):
                raise InvalidModelError(f"it reads {name!r}, which nothing defines", where=origin_of(node))
        needs.append(mine)
    if sorted_already:
        return nodes
    try:
        order = tuple(graphlib.TopologicalSorter(dict(enumerate(needs))).static_order())
    except graphlib.CycleError as error:
        first = nodes[error.args[1][0]]
        raise InvalidModelError(
            "it is part of a cycle", where=origin_of(first), hint="an ONNX graph must be acyclic"
        ) from None
    return [nodes[at] for at in order]


def needed_nodes(nodes: Sequence[NodeProto], wanted: Iterable[str], given: Iterable[str] = ()) -> list[NodeProto]:
    """The nodes that the tensors ``wanted`` are computed by, in the order that they have.

    Args:
        nodes: of one graph.
        wanted: names of tensors.
        given: tensors that need no computing.
    """
    ready = set(given)
    producers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    keep: set[int] = set()
    stack = [name for name in wanted if name not in ready]
    while stack:
        at = producers.get(stack.pop())
        if at is not None and at not in keep:
            keep.add(at)
            stack += [name for name in reads(nodes[at]) if name not in ready]
    return [node for at, node in enumerate(nodes) if at in keep]
