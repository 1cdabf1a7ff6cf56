"""The minimum cut: which operations run in ONNX's layout and which with channels last, so that transposes cost least.

One binary label for each operation that may choose (source side: as ONNX, sink side: channels last); whatever has no
choice, and the interface, is source or sink itself. A tensor of weight w has two auxiliary nodes, so that one copy
serves all its readers::

    reader → a (∞)     a → producer (w)        cut when the producer has channels last and a reader wants ONNX's layout
    producer → b (w)   b → reader (∞)          cut the other way round
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from onnx2nnapi.ir.graph import Op
from onnx2nnapi.passes.layout.frames import Choice, Frames, toggle
from onnx2nnapi.passes.layout.moves import data_rank, moves
from onnx2nnapi.passes.layout.permutations import is_identity
from onnx2nnapi.passes.layout.rewriter import Rewriter

__all__ = ["cut_frames"]

_SOURCE, _SINK = 0, 1  # also the frames that they stand for
_NEVER = float(1 << 62)  # more than all the weights of any graph


def cut_frames(rewriter: Rewriter) -> bool:
    """Choose all frames at once, region by region; True when the graph has changed."""
    if not rewriter.transposes():
        return False
    frames = Frames(rewriter)
    flips = [choice for region in _regions(frames) for choice in _solve(frames, region)]
    for choice in flips:
        # Earlier flips leave each operation's inputs what they were, by way of copies: the same move is still right.
        rank = data_rank(rewriter.graph, choice.op) or 0
        found = moves(rewriter.graph, choice.op, toggle(rank, choice.frame), rewriter.level)
        move = next((move for move in found if move.outputs == choice.move.outputs), None)
        if move is not None:
            rewriter.apply(choice.op, move)
    return bool(flips)


@dataclass(slots=True)
class _Region:
    """Operations with a choice that share tensors, and those tensors, both in the order of discovery."""

    choices: dict[Op, Choice] = field(default_factory=dict)
    tensors: dict[str, list[str]] = field(default_factory=dict)  # each with all its values, the original first


def _regions(frames: Frames) -> Iterator[_Region]:
    """The parts of the graph around bracketing transposes, each bounded by operations without choice."""
    values: dict[str, list[str]] = {}
    for copy, root in frames.copies.items():
        values.setdefault(root, [root]).append(copy)
    judged: dict[Op, Choice | None] = {}
    seen: set[str] = set()
    for start in values:
        if start in seen:
            continue
        region = _Region()
        queue = [start]
        for root in queue:
            if root in seen:
                continue
            seen.add(root)
            region.tensors[root] = values.get(root, [root])
            for op in _users(frames, region.tensors[root]):
                if op not in judged:
                    judged[op] = frames.choice(op)
                choice = judged[op]
                if choice is not None and op not in region.choices:
                    region.choices[op] = choice
                    queue += _touched(frames, choice)
        yield region


def _users(frames: Frames, names: list[str]) -> Iterator[Op]:
    producer = frames.graph.producer(names[0])
    if producer is not None:
        yield producer
    for name in names:
        yield from (reader for reader in frames.graph.readers(name) if reader.outputs[0] not in frames.copies)


def _touched(frames: Frames, choice: Choice) -> list[str]:
    """The tensors that take part in an operation's choice."""
    op, move = choice.op, choice.move
    outputs = [name for name, perm in zip(op.outputs, move.outputs, strict=True) if name and not is_identity(perm)]
    return [frames.tensor(name)[0] for name in (*frames.tied_inputs(op), *outputs)]


def _solve(frames: Frames, region: _Region) -> list[Choice]:
    """The operations of a region that change frame, none where nothing is gained."""
    network: nx.DiGraph[int] = nx.DiGraph()
    network.add_nodes_from((_SOURCE, _SINK))
    nodes = {op: at for at, op in enumerate(region.choices, 2)}
    cost_now = 0.0
    spare = len(nodes) + 2
    for names in region.tensors.values():
        root, frame = frames.tensor(names[0])
        type_ = frames.graph[root].known
        weight = min(frames.rewriter.cost(type_, toggle(type_.rank, frame)), _NEVER)
        producer, now = _producer(frames, region, nodes, root, frame)
        readers = list(dict.fromkeys(_readers(frames, region, nodes, names)))
        if not weight or not readers:
            continue
        cost_now += weight * any(reader_frame != now for _, reader_frame in readers)
        _add(network, spare, producer, weight)
        _add(network, producer, spare + 1, weight)
        for reader, _ in readers:
            _add(network, reader, spare, None)
            _add(network, spare + 1, reader, None)
        spare += 2
    for op, choice in region.choices.items():
        ends = (nodes[op], _SINK) if choice.frame else (_SOURCE, nodes[op])
        if choice.cost:
            _add(network, *ends, choice.cost)
    if not cost_now:
        return []
    cost, (source_side, _) = nx.minimum_cut(network, _SOURCE, _SINK, flow_func=nx.algorithms.flow.boykov_kolmogorov)
    if cost >= cost_now:
        return []
    return [choice for op, choice in region.choices.items() if (nodes[op] not in source_side) != bool(choice.frame)]


def _producer(frames: Frames, region: _Region, nodes: dict[Op, int], root: str, frame: int) -> tuple[int, int]:
    """The node that decides the frame in which a tensor comes into being, and that frame as it is now."""
    op = frames.graph.producer(root)
    choice = region.choices.get(op) if op is not None else None
    if op is None or choice is None or is_identity(choice.move.outputs[op.outputs.index(root)]):
        return frame, frame
    return nodes[op], frame


def _readers(frames: Frames, region: _Region, nodes: dict[Op, int], names: list[str]) -> Iterator[tuple[int, int]]:
    """The nodes that decide in which frame a tensor is read, and those frames as they are now."""
    for name in names:
        frame = frames.tensor(name)[1]
        for reader in frames.graph.readers(name):
            if reader.outputs[0] in frames.copies:
                continue
            takes_part = reader in region.choices and name in frames.tied_inputs(reader)
            yield (nodes[reader] if takes_part else frame), frame
        if name in frames.graph.outputs:
            yield frame, frame


def _add(network: Any, tail: int, head: int, capacity: float | None) -> None:
    """One more edge, on top of one that is there; None: of infinite capacity."""
    if tail == head:
        return
    edge = network.get_edge_data(tail, head)
    if edge is None:
        network.add_edge(tail, head, **({} if capacity is None else {"capacity": capacity}))
    elif capacity is None:
        edge.pop("capacity", None)
    elif "capacity" in edge:
        edge["capacity"] += capacity
