"""Cuts part of a model out, as a model of its own: for bisecting, and for asking about one operation."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from onnx2nnapi.nnapi.model import Lifetime, Model, Operand, Operation, Subgraph

__all__ = ["extract", "topological_order"]


def extract(model: Model, operations: Sequence[int], outputs: Sequence[int] | None = None) -> Model:
    """The model of some operations of the main graph.

    What they read and none of them writes becomes an input, in the order of first use.

    Args:
        model: the whole.
        operations: their indices, in an order to run in.
        outputs: the operands of the whole that are outputs of the part; None: all that the operations write.

    Returns:
        The part; its operands' names tell the tensors that they hold, as before.
    """
    graph = model.main
    chosen = [graph.operations[index] for index in operations]
    written = dict.fromkeys(operand for operation in chosen for operand in operation.outputs)
    results = list(written) if outputs is None else list(outputs)
    used = dict.fromkeys(index for operation in chosen for index in (*operation.inputs, *operation.outputs))
    place = {old: new for new, old in enumerate(used)}
    operands: list[Operand] = []
    inputs: list[int] = []
    for old, new in place.items():
        operand = graph.operands[old]
        if old in written:
            operand = replace(operand, lifetime=Lifetime.OUTPUT if old in results else Lifetime.TEMPORARY)
        elif operand.lifetime in (Lifetime.INPUT, Lifetime.TEMPORARY, Lifetime.OUTPUT):
            operand = replace(operand, lifetime=Lifetime.INPUT)
            inputs.append(new)
        operands.append(operand)
    parts = tuple(
        Operation(
            operation.code,
            tuple(place[index] for index in operation.inputs),
            tuple(place[index] for index in operation.outputs),
            operation.origin,
        )
        for operation in chosen
    )
    part = Subgraph(tuple(operands), parts, tuple(inputs), tuple(place[index] for index in results))
    return Model(part, model.subgraphs, model.relaxed)


def topological_order(graph: Subgraph) -> list[int]:
    """The operations' indices in an order to run in; NNAPI takes them in any.

    Operations that are part of a cycle are left out; ``validate`` refuses such a model.
    """
    writer = {operand: index for index, operation in enumerate(graph.operations) for operand in operation.outputs}
    waiting = [
        len({writer[operand] for operand in operation.inputs if operand in writer}) for operation in graph.operations
    ]
    readers: list[list[int]] = [[] for _ in graph.operations]
    for index, operation in enumerate(graph.operations):
        for source in {writer[operand] for operand in operation.inputs if operand in writer}:
            readers[source].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)  # the model's own order where it is free
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers[order[-1]]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    return order
