"""settle_submodels: every output of a sub-model is what an operation of it writes, and each is another one.

NNAPI wants that of the graphs that IF and WHILE run, as of a model; what the ONNX body hands through is copied.

Before::

    IF(c, x) {then: (x) -> (x), else: (x) -> (y = RELU(x))}

After::

    IF(c, x) {then: (x) -> (z = CAST(x)), else: (x) -> (y = RELU(x))}
"""

from __future__ import annotations

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.options import Options
from onnx2nnapi.passes.builder import Builder

__all__ = ["settle_submodels"]


def settle_submodels(graph: Graph, options: Options) -> bool:
    """Copy the outputs of sub-models that are inputs, constants or named before; NNAPI dialect."""
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= _settled(subgraph, op, options) | settle_submodels(subgraph, options)
    return changed


def _settled(graph: Graph, op: Op, options: Options) -> bool:
    b = Builder(graph, options)
    b.op = op
    outputs: list[str] = []
    for name in graph.outputs:
        if graph.producer(name) is None or name in outputs:
            type_ = graph[name].known
            name = b.emit("CAST", graph[name], dtype=type_.dtype, quant=type_.quant).name
        outputs.append(name)
    changed = outputs != graph.outputs
    graph.outputs = outputs
    return changed
