"""Local steps: transposes cancel, compose, and move past one operation at a time while the cost falls.

The measure that falls at every step is the cost of all transposes; where it stays, a transpose moves one operation
towards the outputs, and adds none. So the steps end, whatever the graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from onnx2nnapi.ir.graph import Op
from onnx2nnapi.nnapi.schema import Elementwise
from onnx2nnapi.passes.layout.moves import Move, data_rank, moves, moves_to, trait_of
from onnx2nnapi.passes.layout.permutations import Perm, compose, identity, invert, is_identity
from onnx2nnapi.passes.layout.rewriter import Rewriter

__all__ = ["move_locally"]


def move_locally(rewriter: Rewriter) -> bool:
    """Take local steps until none is left; True when the graph has changed."""
    changed = False
    while _sweep(rewriter):  # a step may open another at a transpose far away, whose copy has lost a reader
        changed = True
    return changed


def _sweep(rewriter: Rewriter) -> bool:
    """Take steps with every transpose, and with those that come and change on the way."""
    graph = rewriter.graph
    queue = deque(rewriter.transposes())
    waiting = set(queue)
    changed = False
    rewriter.touched.clear()
    while queue:
        op = queue.popleft()
        waiting.discard(op)
        if not graph.contains(op):
            continue
        if _step(rewriter, op):
            changed = True
            rewriter.touched.append(op)
        for other in rewriter.touched:
            if graph.contains(other) and other not in waiting:
                waiting.add(other)
                queue.append(other)
        rewriter.touched.clear()
    return changed


def _step(rewriter: Rewriter, op: Op) -> bool:
    """One step with one transpose: simplify it, or move an operation beside it."""
    graph, perm = rewriter.graph, rewriter.perm_of(op)
    name, result = op.inputs[0], op.outputs[0]
    if perm is None or name is None or result is None:
        return False
    if not graph.uses(result):
        rewriter.release([result])
        return True
    if rewriter.find_copy(name, perm, besides=op) is not None:
        rewriter.set_perm(op, perm)
        return True
    source = graph.producer(name)
    done = rewriter.perm_of(source)
    if graph.is_constant(name):
        _replace(rewriter, op, rewriter.transposed(name, perm, op))
        return True
    if source is not None and done is not None and _composes(rewriter, source, op):
        _replace(rewriter, op, rewriter.transposed(str(source.inputs[0]), compose(done, perm), op))
        return True
    for candidate, move in _candidates(rewriter, op, perm):
        change = _change(rewriter, candidate, move)
        sinks = change == 0 and _sinks(rewriter, candidate, move)
        if change < 0 or sinks:
            rewriter.apply(candidate, move)
            return True
    return False


def _composes(rewriter: Rewriter, first: Op, second: Op) -> bool:
    """Whether one transpose for two in a row costs no more, given who else reads the value between them."""
    graph = rewriter.graph
    origin, between = str(first.inputs[0]), str(second.inputs[0])
    done, perm = rewriter.perm_of(first) or (), rewriter.perm_of(second) or ()
    saved = rewriter.cost(graph[between].known, perm)
    if graph.uses(between) == 1:
        saved += rewriter.cost(graph[origin].known, done)
    return rewriter.copy_cost(origin, compose(done, perm)) <= saved


def _replace(rewriter: Rewriter, op: Op, name: str) -> None:
    """Let the readers of the transpose's result read ``name``."""
    graph = rewriter.graph
    result = str(op.outputs[0])
    kept, gone = graph[name], graph[result]
    kept.holds = kept.holds or gone.holds
    graph.replace_uses(result, name, outputs=True)
    rewriter.release([result])


def _candidates(rewriter: Rewriter, op: Op, perm: Perm) -> Iterator[tuple[Op, Move]]:
    """Operations beside a transpose, and how they would run on its other side."""
    graph, level = rewriter.graph, rewriter.level
    name, result = str(op.inputs[0]), str(op.outputs[0])
    for reader in graph.readers(result):
        rank = data_rank(graph, reader)
        missing = rank - len(perm) if rank is not None and isinstance(trait_of(reader), Elementwise) else 0
        before = (*identity(missing), *(axis + missing for axis in invert(perm)))
        yield from ((reader, move) for move in moves(graph, reader, before, level))
    source = graph.producer(name)
    if source is not None:
        yield from ((source, move) for move in moves_to(graph, source, perm, level))


def _change(rewriter: Rewriter, op: Op, move: Move) -> float:
    """By how much the cost of the graph's transposes changes when the operation moves."""
    graph = rewriter.graph
    change = 0.0
    wanted = dict.fromkeys(
        (name, perm) for name, perm in zip(op.inputs, move.inputs, strict=True) if name is not None and perm is not None
    )
    for name, perm in wanted:
        change += rewriter.copy_cost(name, perm)
    for name in dict.fromkeys(name for name, _ in wanted):
        source = graph.producer(name)
        done = rewriter.perm_of(source)
        if source is not None and done is not None and graph.uses(name) == 1:
            change -= rewriter.cost(graph[str(source.inputs[0])].known, done)
    for output, perm in zip(op.outputs, move.outputs, strict=True):
        if output is None or is_identity(perm):
            continue
        back, type_ = invert(perm), graph[output].known
        permuted = type_.with_shape([type_.shape[axis] for axis in perm])
        needs_copy = output in graph.outputs
        for reader in graph.readers(output):
            done = rewriter.perm_of(reader)
            if done is None:
                needs_copy = True
            else:
                change += rewriter.cost(permuted, compose(back, done)) - rewriter.cost(type_, done)
        if needs_copy:
            change += rewriter.cost(permuted, back)
    return change


def _sinks(rewriter: Rewriter, op: Op, move: Move) -> bool:
    """Whether the move, at equal cost, takes transposes away before the operation and adds none there."""
    graph = rewriter.graph
    gone = 0
    for name, perm in zip(op.inputs, move.inputs, strict=True):
        if name is None or perm is None:
            continue
        if rewriter.copy_cost(name, perm):
            return False
        gone += rewriter.perm_of(graph.producer(name)) is not None and graph.uses(name) == 1
    return gone > 0
