"""capture_constants: what a body reads of the constants around it becomes a constant of its own.

The passes and rules after this one look for constants in the graph at hand; the array is shared, not copied.

Before::

    w = constant
    y = If(c) {then: () -> (Conv(x, w)), …}

After::

    w = constant
    y = If(c) {then: () -> (Conv(x, w_1)) with w_1 = constant, …}
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx2nnapi.ir.graph import Graph, Value
from onnx2nnapi.options import Options

__all__ = ["capture_constants"]


def capture_constants(graph: Graph, options: Options) -> bool:
    """Give the subgraphs constants of their own; both dialects."""
    return _capture(graph, {})


def _capture(graph: Graph, around: Mapping[str, Value]) -> bool:
    changed = False
    for name in graph.free:
        value = around.get(name)
        if value is not None and value.const is not None:
            own = graph.constant(f"{name}.captured", value.const, value.type, value.holds)
            for op in list(graph):
                if name in (*op.inputs, *op.captured):
                    graph.redirect(op, name, own.name)
            graph.outputs = [own.name if output == name else output for output in graph.outputs]
            changed = True
    inside = {**around, **graph.values}
    for op in graph.ops:
        captured = op.captured
        for subgraph in op.subgraphs.values():
            changed |= _capture(subgraph, inside)
        if op.captured != captured:
            graph.rewire(op)  # it reads less of this graph now
    return changed
