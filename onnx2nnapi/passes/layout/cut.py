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

import networkx as nx

from onnx2nnapi.ir.graph import Op
from onnx2nnapi.passes.layout.frames import Choice, Frames, toggle
from onnx2nnapi.passes.layout.moves import data_rank, moves
from onnx2nnapi.passes.layout.permutations import arrange_shape, compose, invert, is_identity
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
        yield from frames.graph.readers(name)


def _touched(frames: Frames, choice: Choice) -> list[str]:
    """The tensors that take part in an operation's choice."""
    op, move = choice.op, choice.move
    outputs = [name for name, perm in zip(op.outputs, move.outputs, strict=True) if name and not is_identity(perm)]
    return [frames.tensor(name)[0] for name in (*frames.tied_inputs(op), *outputs)]


def _solve(frames: Frames, region: _Region) -> list[Choice]:
    """The operations of a region that change frame, none where nothing is gained."""
    if not region.choices:
        return []
    network = _Network(frames, region)
    for names in region.tensors.values():
        network.add_tensor(names)
    for choice in region.choices.values():
        network.charge(choice.op, choice.frame, (choice.cost, 0) if choice.frame else (0, choice.cost))
    return network.flips() if network.cost_now else []


class _Network:
    """The network of one region.

    Attributes:
        cost_now: what the cut costs that leaves every operation in the frame that it has.
    """

    def __init__(self, frames: Frames, region: _Region) -> None:
        self.frames = frames
        self.region = region
        self.cost_now = 0.0
        self._nodes = {op: at for at, op in enumerate(region.choices, 2)}
        self._spare = len(self._nodes) + 2
        self._capacities: dict[tuple[int, int], float | None] = {}

    def add_tensor(self, names: list[str]) -> None:
        """Charge the copies that a tensor needs: it comes into being in one frame and is read in one or both."""
        graph, rewriter = self.frames.graph, self.frames.rewriter
        root, frame = self.frames.tensor(names[0])
        source = graph.producer(root)
        type_ = graph[root].known
        perm = toggle(type_.rank, frame)
        readers = list(dict.fromkeys(self._readers(names)))
        nodes = list(dict.fromkeys([node for node, _ in readers]))
        if len(nodes) == 1:
            below = above = nodes[0]  # a single reader's node decides itself whether it gets a copy
        else:
            below, above = self._spare, self._spare + 1
            self._spare += 2
        for node in nodes:
            self._add(node, below, None)
            self._add(above, node, None)
        done = rewriter.perm_of(source)
        if source is not None and done is not None:  # a transpose gives either frame, and another copy for both
            origin = graph[str(source.inputs[0])].known
            costs = {frame: rewriter.cost(origin, done), 1 - frame: rewriter.cost(origin, compose(done, perm))}
            self._add(below, _SINK, costs[0])
            self._add(_SOURCE, above, costs[1])
            self.cost_now += sum(costs[now] for now in {now for _, now in readers})
            return
        producer = self._producer(root, frame)
        weight = min(rewriter.cost(type_, perm), _NEVER)
        self._add(below, producer, weight)
        self._add(producer, above, weight)
        self.cost_now += weight * any(now != frame for _, now in readers)
        for other in graph.readers(root):  # a transpose of another kind takes the tensor as it comes
            done = rewriter.perm_of(other)
            if done is not None and other.outputs[0] not in self.frames.copies and source in self._nodes:
                toggled = type_.with_shape(arrange_shape(type_.shape, perm))
                costs = {
                    frame: rewriter.cost(type_, done),
                    1 - frame: rewriter.cost(toggled, compose(invert(perm), done)),
                }
                self._charge(producer, frame, (costs[0], costs[1]))

    def charge(self, op: Op, frame: int, costs: tuple[float, float]) -> None:
        """Let an operation cost ``costs[0]`` as ONNX and ``costs[1]`` with channels last; it is in ``frame`` now."""
        self._charge(self._nodes[op], frame, costs)

    def _charge(self, node: int, frame: int, costs: tuple[float, float]) -> None:
        self._add(node, _SINK, costs[0])
        self._add(_SOURCE, node, costs[1])
        self.cost_now += costs[frame]

    def flips(self) -> list[Choice]:
        """The operations that change frame in a minimum cut."""
        edges: nx.DiGraph[int] = nx.DiGraph()
        edges.add_nodes_from((_SOURCE, _SINK))
        for (tail, head), capacity in self._capacities.items():
            edges.add_edge(tail, head, **({} if capacity is None else {"capacity": capacity}))
        cost, (source_side, _) = nx.minimum_cut(edges, _SOURCE, _SINK, flow_func=nx.algorithms.flow.boykov_kolmogorov)
        if cost >= self.cost_now:
            return []
        nodes = self._nodes
        return [
            choice for op, choice in self.region.choices.items() if (nodes[op] not in source_side) != bool(choice.frame)
        ]

    def _producer(self, root: str, frame: int) -> int:
        """The node that decides the frame in which a tensor comes into being."""
        op = self.frames.graph.producer(root)
        choice = self.region.choices.get(op) if op is not None else None
        if op is None or choice is None or is_identity(choice.move.outputs[op.outputs.index(root)]):
            return frame
        return self._nodes[op]

    def _readers(self, names: list[str]) -> Iterator[tuple[int, int]]:
        """The nodes that decide in which frame a tensor is read, and those frames as they are now."""
        graph = self.frames.graph
        for name in names:
            frame = self.frames.tensor(name)[1]
            for reader in graph.readers(name):
                if name != names[0] or self.frames.rewriter.perm_of(reader) is None:
                    takes_part = reader in self.region.choices and name in self.frames.tied_inputs(reader)
                    yield (self._nodes[reader] if takes_part else frame), frame
            if name in graph.outputs:
                yield frame, frame

    def _add(self, tail: int, head: int, capacity: float | None) -> None:
        """One more edge, on top of one that is there; None: of infinite capacity."""
        if tail == head or capacity == 0:
            return
        before = self._capacities.get((tail, head), 0.0)
        self._capacities[tail, head] = None if before is None or capacity is None else before + capacity
