"""Reshapes: transposes that move no element become one, they compose, and they move out of the way of activations."""

from __future__ import annotations

import itertools
import math

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.schema import Elementwise
from onnx2nnapi.passes.layout.moves import accepts, trait_of
from onnx2nnapi.passes.layout.permutations import Perm, moves_only_ones, reduced
from onnx2nnapi.passes.layout.rewriter import MAX_RANK, Rewriter

__all__ = ["simplify_reshapes"]


def simplify_reshapes(rewriter: Rewriter) -> bool:
    """Simplify what only gives values another shape; True when the graph has changed."""
    graph = rewriter.graph
    changed = False
    for op in graph.ops:
        if not graph.contains(op):
            continue
        perm = rewriter.perm_of(op)
        if perm is not None:
            changed |= _narrow(rewriter, op, perm)
        elif rewriter.is_reshape(op):
            changed |= _join(rewriter, op)
        elif isinstance(trait_of(op), Elementwise):
            changed |= _lower(rewriter, op)
    return changed


def _narrow(rewriter: Rewriter, op: Op, perm: Perm) -> bool:
    """A transpose that only moves sizes of 1 is a reshape; one of too many dimensions has them merged around it."""
    name, result = str(op.inputs[0]), str(op.outputs[0])
    shape = rewriter.graph[name].shape
    if moves_only_ones(shape, perm):
        _replace(rewriter, op, rewriter.reshaped(name, rewriter.graph[result].shape, op))
        return True
    if len(shape) <= MAX_RANK:
        return False
    sizes, order = reduced(shape, perm)
    current = list(range(len(sizes)))
    while tuple(current) != order:
        name, sizes, current = _swap(rewriter, op, name, sizes, current, order)
    _replace(rewriter, op, rewriter.reshaped(name, rewriter.graph[result].shape, op))
    return True


def _swap(
    rewriter: Rewriter, op: Op, name: str, sizes: Shape, current: list[int], order: Perm
) -> tuple[str, Shape, list[int]]:
    """One transpose of at most four dimensions, towards ``order``: all that are left, or two neighbouring blocks."""
    if len(sizes) <= MAX_RANK:
        perm = tuple(current.index(axis) for axis in order)
        name = rewriter.transposed(rewriter.reshaped(name, sizes, op), perm, op)
        return name, rewriter.graph[name].shape, list(order)
    low = next(at for at, (have, want) in enumerate(zip(current, order, strict=True)) if have != want)
    middle = high = current.index(order[low])
    while high < len(current) and low + high - middle < len(order) and current[high] == order[low + high - middle]:
        high += 1
    cuts = (0, low, middle, high, len(current))
    blocks = [range(start, end) for start, end in itertools.pairwise(cuts)]
    merged = tuple(math.prod(sizes[at] for at in block) for block in blocks)
    name = rewriter.transposed(rewriter.reshaped(name, merged, op), (0, 2, 1, 3), op)
    sequence = [at for which in (0, 2, 1, 3) for at in blocks[which]]
    return name, tuple(sizes[at] for at in sequence), [current[at] for at in sequence]


def _join(rewriter: Rewriter, op: Op) -> bool:
    """Two reshapes in a row are one, and none where the shape is the first one's."""
    graph = rewriter.graph
    name, result = str(op.inputs[0]), str(op.outputs[0])
    shape = graph[result].shape
    source = graph.producer(name)
    if source is not None and rewriter.is_reshape(source):
        name = str(source.inputs[0])
    elif graph[name].shape != shape and not graph.is_constant(name):
        return False
    _replace(rewriter, op, rewriter.reshaped(name, shape, op))
    return True


def _lower(rewriter: Rewriter, op: Op) -> bool:
    """A reshape in front of a unary elementwise operation goes behind it, where it does not keep it from fusion."""
    graph = rewriter.graph
    shaped = [name for name in op.inputs if name is not None and not graph.is_constant(name)]
    if len(set(shaped)) != 1 or len(op.outputs) != 1 or op.outputs[0] is None or graph.uses(shaped[0]) != 1:
        return False
    name, result = shaped[0], graph[op.outputs[0]]
    source = graph.producer(name)
    if source is None or not rewriter.is_reshape(source) or result.shape != graph[name].shape:
        return False
    if result.known.dtype != graph[name].known.dtype:  # a reshape of the result may need a higher level
        return False
    origin = str(source.inputs[0])
    shape = graph[origin].shape
    if len(shape) > MAX_RANK:  # NNAPI reshapes from ranks up to 4 only, and the interface settles the reshape in front
        return False
    if not all(_suits(graph[item], shape, result.shape) for item in op.inputs if item is not None and item != name):
        return False
    inputs = [origin if item == name else item for item in op.inputs]
    bare = Value(result.name, result.known.with_shape(shape))
    operands = [None if item is None else _flat(graph[item], len(shape)) for item in inputs]
    if not accepts(op, operands, op.attrs, [bare], rewriter.level):
        return False
    made = graph.add_value(Value(graph.fresh(f"{result.name}.unshaped"), bare.type))
    inputs = [
        item if item is None or graph[item].rank <= len(shape) else rewriter.reshaped(item, graph[item].shape[-1:], op)
        for item in inputs
    ]
    graph.rewire(op, inputs=inputs, outputs=[made.name])
    rewriter.release([name])
    behind = rewriter.reshaped(made.name, result.shape, op)
    graph[behind].holds = result.holds
    graph.replace_uses(result.name, behind, outputs=True)
    graph.drop_value(result.name)
    return True


def _suits(value: Value, before: Shape, after: Shape) -> bool:
    """Whether a constant broadcasts alike to both: one element, or one for each index of the last dimension."""
    size = value.known.size
    return size == 1 or (size == value.shape[-1] == before[-1] == after[-1])


def _flat(value: Value, rank: int) -> Value:
    """A constant without the dimensions of size 1 that would raise the rank."""
    if value.const is None or value.rank <= rank:
        return value
    shape = value.shape[-1:]
    return Value(value.name, value.known.with_shape(shape), value.const.reshape(shape))


def _replace(rewriter: Rewriter, op: Op, name: str) -> None:
    """Let the readers of the operation's result read ``name``, and remove the operation."""
    graph = rewriter.graph
    result = str(op.outputs[0])
    before = op.inputs
    kept, gone = graph[name], graph[result]
    if kept.rank == gone.rank and kept.shape == gone.shape:
        kept.holds = kept.holds or gone.holds
    graph.remove(op)
    graph.replace_uses(result, name, outputs=True)
    graph.drop_value(result)
    rewriter.release(before)
