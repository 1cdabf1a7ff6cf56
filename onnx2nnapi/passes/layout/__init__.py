"""layout: removes the transposes that legalize brackets NHWC operations with, by the layout traits of the rows.

Before::

    a = TRANSPOSE(x) {perm=[0, 2, 3, 1]}
    b = CONV_2D(a, …)
    c = TRANSPOSE(b) {perm=[0, 3, 1, 2]}
    d = RELU(c)
    e = TRANSPOSE(d) {perm=[0, 2, 3, 1]}
    f = CONV_2D(e, …)

After::

    a = TRANSPOSE(x) {perm=[0, 2, 3, 1]}
    b = CONV_2D(a, …)
    d = RELU(b)
    f = CONV_2D(d, …)

A transpose is left only where the interface or a real change of layout asks for it. The steps, until none changes the
graph: local moves at falling cost, for any permutation; a minimum cut for the choice between ONNX's layout and channels
last; and reshapes. No operation is known here by name, only by the trait of its row: a missing trait costs speed, never
correctness.
"""

from __future__ import annotations

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.options import Options
from onnx2nnapi.passes.layout.cut import cut_frames
from onnx2nnapi.passes.layout.local import move_locally
from onnx2nnapi.passes.layout.reshapes import simplify_reshapes
from onnx2nnapi.passes.layout.rewriter import Rewriter

__all__ = ["layout"]


def layout(graph: Graph, options: Options) -> bool:
    """Remove transposes; NNAPI dialect."""
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= layout(subgraph, options)
    rewriter = Rewriter(graph, options.feature_level)
    # Each step lowers the cost of the transposes, or leaves it and brings movement nearer to the outputs: this ends.
    while True:
        moved = move_locally(rewriter)
        while cut_frames(rewriter):
            moved = True
            if not move_locally(rewriter):
                break  # nothing has changed since the best choice of frames was found
        changed |= moved
        if not simplify_reshapes(rewriter):
            return changed
        changed = True
