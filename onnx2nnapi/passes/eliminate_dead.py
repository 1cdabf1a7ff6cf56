"""eliminate_dead: operations whose results nobody reads, and values that nothing touches, go.

Before::

    y = Relu(x)
    z = Exp(x)
    output y

After::

    y = Relu(x)
    output y
"""

from __future__ import annotations

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.options import Options

__all__ = ["eliminate_dead"]


def eliminate_dead(graph: Graph, options: Options) -> bool:
    """Remove what no output depends on, in both dialects; the inputs stay, being part of the interface."""
    changed = False
    used = set(graph.outputs)
    for op in reversed(graph.ops):
        for subgraph in op.subgraphs.values():
            changed |= eliminate_dead(subgraph, options)
        if used.isdisjoint(op.outputs):
            graph.remove(op)
            changed = True
        else:
            used.update(name for name in (*op.inputs, *op.captured) if name is not None)
    kept = used | set(graph.inputs)
    for name in list(graph.values):
        if name not in kept and graph.producer(name) is None:
            graph.drop_value(name)
            changed = True
    return changed
