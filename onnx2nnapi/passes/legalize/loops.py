"""Sub-models: what a rule computes inside of IF and WHILE, and the values around them that it reads there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnx2nnapi.ir.graph import Graph, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize.logic import select
from onnx2nnapi.passes.legalize.shapes import MAX_RANK, binary, unary

__all__ = ["Inside", "placed", "submodels", "while_loop"]

Inside = Callable[[Builder, Sequence[Value]], Sequence[Value]]


def submodels(
    b: Builder, state: Sequence[Value], *insides: Inside, instead: Value | None = None
) -> tuple[list[Graph], list[Value]]:
    """Build sub-models that take the same operands: ``state``, then every value of this graph that one of them reads.

    Args:
        b: builder of the enclosing graph.
        state: operands that each sub-model gets as inputs of its own.
        insides: what each computes, from its builder and the inputs that stand for ``state``; its outputs.
        instead: a value that they take where they would take none, which NNAPI does not allow.

    Returns:
        The sub-models, and their operands. Ranks above 4 pass the border, both ways, with all dimensions merged.
    """
    builders = []
    operands = [_merged(b, value) for value in state]
    for inside in insides:
        inner = b.inside()
        inputs = [inner.stand_in(value) for value in operands]
        given = [inner.reshape(own, value.shape) for own, value in zip(inputs, state, strict=True)]
        inner.graph.outputs = [_merged(inner, value).name for value in inside(inner, given)]
        inner.graph.inputs = [value.name for value in inputs]
        b.graph.approximations.update(inner.graph.approximations)
        builders.append(inner)
    captured = list({value.name: value for inner in builders for value in inner.captured}.values())
    if not state and not captured and instead is not None:
        captured = [instead]
    for inner in builders:
        inner.graph.inputs += [inner.capture(value).name for value in captured]
    return [inner.graph for inner in builders], [*operands, *captured]


def _merged(b: Builder, value: Value) -> Value:
    return value if value.rank <= MAX_RANK else b.reshape(value, (value.known.size,))


def while_loop(
    b: Builder, state: Sequence[Value], condition: Callable[[Builder, Sequence[Value]], Value], body: Inside, count: int
) -> list[Value]:
    """WHILE: ``state`` becomes what ``body`` makes of it as long as ``condition`` is true of it.

    Args:
        b: builder of the enclosing graph.
        state: the values at the start.
        condition: gives a boolean of one element.
        body: gives the next state, of the same types.
        count: how many of the last state's values are wanted, from the front.
    """
    b.needs_level(4, "a loop")
    (test, step), operands = submodels(b, state, lambda inner, values: [condition(inner, values)], body)
    types = [value.known for value in operands[:count]]
    made = b.emit_all("WHILE", *operands, condition_model=test, body_model=step, types=types)
    return [b.reshape(result, value.shape) for result, value in zip(made, state, strict=False)]


def placed(b: Builder, rows: Value, index: Value, row: Value) -> Value:
    """``rows`` [count, size] with ``row`` [1, size] in the place ``index`` [1]."""
    places = b.const(np.arange(rows.shape[0], dtype=np.int32).reshape(-1, 1))
    here = binary(b, "EQUAL", places, index)
    if rows.known.dtype.kind == "b":
        kept = binary(b, "LOGICAL_AND", rows, unary(b, "LOGICAL_NOT", here))
        return binary(b, "LOGICAL_OR", kept, binary(b, "LOGICAL_AND", here, row))
    return select(b, here, row, rows)
