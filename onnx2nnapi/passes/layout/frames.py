"""Frames: which tensors are in ONNX's layout and which have their channels last, and which operations may choose.

A *tensor* here is a value together with its copies in the other frame, which bracketing transposes make. The frame of
each is found by propagation: a bracketing transpose toggles it, and an operation that lets permutations pass ties its
inputs and outputs together. At rank 3 both ways are the same permutation, so there only the parity counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.nnapi.schema import Regroups
from onnx2nnapi.passes.layout.moves import Move, data_inputs, data_rank, moves, trait_of
from onnx2nnapi.passes.layout.permutations import Perm, channels_first, channels_last, is_identity
from onnx2nnapi.passes.layout.rewriter import Rewriter

__all__ = ["Choice", "Frames", "toggle"]

RANKS = (3, 4)


def toggle(rank: int, frame: int) -> Perm:
    """The permutation from ``frame`` (0: as ONNX, 1: channels last) to the other one."""
    return channels_first(rank) if frame else channels_last(rank)


@dataclass(slots=True)
class Choice:
    """An operation that may run in either frame.

    Attributes:
        op: the operation.
        frame: the one that it runs in now.
        move: to the other.
        cost: of what its other-ranked inputs need then.
    """

    op: Op
    frame: int
    move: Move
    cost: float = 0


@dataclass(slots=True)
class _Links:
    """Union-find over tensors with the parity of their frames, and the frames that are known for certain."""

    parent: dict[str, str] = field(default_factory=dict)
    odd: dict[str, int] = field(default_factory=dict)
    anchor: dict[str, int] = field(default_factory=dict)

    def find(self, name: str) -> tuple[str, int]:
        """The representative, and the parity to it."""
        path = []
        parity = 0
        while self.parent.setdefault(name, name) != name:
            path.append((name, parity))
            parity ^= self.odd[name]
            name = self.parent[name]
        for step, before in path:
            self.parent[step], self.odd[step] = name, parity ^ before
        return name, parity

    def tie(self, a: str, b: str, odd: int) -> bool:
        """Say that two tensors have the same frame (``odd``: different ones); False where that is a contradiction."""
        (first, p), (second, q) = self.find(a), self.find(b)
        odd ^= p ^ q
        if first == second:
            return odd == 0
        mine, theirs = self.anchor.get(first), self.anchor.get(second)
        if mine is not None and theirs is not None and mine ^ theirs != odd:
            return False
        self.parent[second], self.odd[second] = first, odd
        if mine is None and theirs is not None:
            self.anchor[first] = theirs ^ odd
        return True

    def fix(self, name: str, frame: int) -> bool:
        """Say which frame a tensor is in; False where that is a contradiction."""
        root, parity = self.find(name)
        return self.anchor.setdefault(root, frame ^ parity) == frame ^ parity

    def frame(self, name: str) -> int:
        root, parity = self.find(name)
        return self.anchor.get(root, 0) ^ parity

    def known(self, name: str) -> bool:
        return self.find(name)[0] in self.anchor


class Frames:
    """The frames of a graph's tensors and the operations that may choose.

    Attributes:
        links: the frames.
        copies: for the result of each bracketing transpose the value that it is a copy of.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self.graph: Graph = rewriter.graph
        self.links = _Links()
        self.copies: dict[str, str] = {}
        self._tied: dict[Op, list[str]] = {}  # what tied_inputs has found
        ops = self.graph.ops
        for op in ops:
            self._bracket(op)
        crossing = [op for op in ops if not self._tie_equal_ranks(op)]
        for op in crossing:
            self._tie_across(op)

    def tensor(self, name: str) -> tuple[str, int]:
        """The tensor that a value belongs to (by the name of its original), and the frame that this value has."""
        root = self.copies.get(name, name)
        frame = self.links.frame(root) if self.has_frame(root) else 0
        return root, frame ^ (root != name)

    def has_frame(self, name: str) -> bool:
        value = self.graph[name]
        return value.const is None and value.rank in RANKS

    def tied_inputs(self, op: Op) -> list[str]:
        """The inputs that an operation takes in one and the same frame: its data of its own rank."""
        tied = self._tied.get(op)
        if tied is None:
            tied = self._tied[op] = []
            rank = data_rank(self.graph, op)
            if rank in RANKS:
                names = dict.fromkeys([str(op.inputs[at]) for at in data_inputs(op)])
                tied += [name for name in names if self.has_frame(name) and self.graph[name].rank == rank]
        return tied

    def choice(self, op: Op) -> Choice | None:
        """The operation's choice, None where it has none."""
        tied = self.tied_inputs(op)
        frames = {self.tensor(name)[1] for name in tied}
        if len(frames) != 1:
            return None
        frame = frames.pop()
        for move in moves(self.graph, op, toggle(self.graph[tied[0]].rank, frame), self.rewriter.level):
            if all(self._keeps_frames(name, perm, frame) for name, perm in zip(op.outputs, move.outputs, strict=True)):
                lifted = sum(
                    self.rewriter.copy_cost(name, perm)
                    for name, perm in zip(op.inputs, move.inputs, strict=True)
                    if name is not None and perm is not None and name not in tied
                )
                return Choice(op, frame, move, lifted)
        return None

    def _keeps_frames(self, name: str | None, perm: Perm, frame: int) -> bool:
        """Whether an output stays in the frames: as it is, or toggled together with the operation."""
        return name is None or is_identity(perm) or (perm == toggle(len(perm), frame) and self.tensor(name)[1] == frame)

    # -- propagation ---------------------------------------------------------------------------------------------------

    def _bracket(self, op: Op) -> None:
        """A transpose between the frames makes a copy of its input, which is thereby known to be in one of them."""
        perm = self.rewriter.perm_of(op)
        name, result = op.inputs[0], op.outputs[0]
        if perm is None or name is None or result is None or not self.has_frame(name):
            return
        root = self.copies.get(name, name)
        rank = len(perm)
        if perm not in (channels_last(rank), channels_first(rank)) or root != name:
            return
        if rank == min(RANKS) or self.links.fix(root, int(perm == channels_first(rank))):
            self.copies[result] = root

    def _tie_equal_ranks(self, op: Op) -> bool:
        """Tie inputs and outputs of one rank; False where the operation changes ranks, so that the frame matters."""
        names = self.tied_inputs(op)
        if not names:
            return True
        outputs = [str(name) for name in op.outputs if name is not None]
        crosses = isinstance(trait_of(op), Regroups) or any(
            self.graph[name].rank != self.graph[names[0]].rank for name in outputs
        )
        for name in [*names[1:], *([] if crosses else outputs)]:
            self._tie(names[0], name)
        return not crosses

    def _tie_across(self, op: Op) -> None:
        """Tie outputs that toggle together with the input: in the frame that is known, or in the first that works."""
        name = self.tied_inputs(op)[0]
        outputs = [str(output) for output in op.outputs if output is not None]
        known = [self.tensor(item)[1] for item in (name, *outputs) if self.has_frame(item) and self._is_known(item)]
        for frame in known[:1] or (0, 1):
            for move in moves(self.graph, op, toggle(self.graph[name].rank, frame), self.rewriter.level):
                if all(len(perm) in RANKS and perm == toggle(len(perm), frame) for perm in move.outputs):
                    root = self.copies.get(name, name)
                    if all(self._tie(name, output) for output in outputs):
                        self.links.fix(root, frame ^ (root != name))
                    return

    def _tie(self, a: str, b: str) -> bool:
        first, second = self.copies.get(a, a), self.copies.get(b, b)
        return self.links.tie(first, second, (first != a) ^ (second != b))

    def _is_known(self, name: str) -> bool:
        return self.links.known(self.copies.get(name, name))
