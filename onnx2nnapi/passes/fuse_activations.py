"""fuse_activations: an activation that an operation can apply itself goes into its fuse_code.

Before::

    t = CONV_2D(x, w, b) {fuse_code=0, …}
    y = RELU6(t)

After::

    y = CONV_2D(x, w, b) {fuse_code=3, …}
"""

from __future__ import annotations

import math

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.nnapi.codes import FuseCode, OperationCode
from onnx2nnapi.nnapi.schema import SCHEMAS
from onnx2nnapi.options import Options

__all__ = ["fuse_activations"]

# An activation clamps to an interval; two in a row clamp to what the intervals share.
_INTERVALS = {
    FuseCode.NONE: (-math.inf, math.inf),
    FuseCode.RELU: (0.0, math.inf),
    FuseCode.RELU1: (-1.0, 1.0),
    FuseCode.RELU6: (0.0, 6.0),
}
_CODES = {interval: code for code, interval in _INTERVALS.items()}
_ACTIVATIONS = {"RELU": FuseCode.RELU, "RELU1": FuseCode.RELU1, "RELU6": FuseCode.RELU6}


def fuse_activations(graph: Graph, options: Options) -> bool:
    """Fuse where the result has no other reader, is no output of the graph, and keeps its type and quantization.

    Runs after layout: a transpose between the two is gone then, where it can go.
    """
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= fuse_activations(subgraph, options)
        if op.kind in _ACTIVATIONS:
            changed |= _fuse(graph, op)
    return changed


def _fuse(graph: Graph, activation: Op) -> bool:
    source, result = activation.inputs[0], activation.outputs[0]
    if source is None or result is None or graph.uses(source) != 1:
        return False
    producer = graph.producer(source)
    code = _fused_code(producer, _ACTIVATIONS[activation.kind]) if producer is not None else None
    if producer is None or code is None or graph[source].known != graph[result].known:
        return False
    graph.remove(activation)
    graph.rewire(producer, outputs=[result if name == source else name for name in producer.outputs])
    graph.drop_value(source)
    producer.attrs["fuse_code"] = int(code)
    producer.origins = tuple(dict.fromkeys((*producer.origins, *activation.origins)))
    return True


def _fused_code(producer: Op, activation: FuseCode) -> FuseCode | None:
    """The fuse_code that does the work of both, None where the producer has none or there is none such."""
    if "fuse_code" not in SCHEMAS[OperationCode[producer.kind]].operand_names:
        return None
    intervals = (_INTERVALS[FuseCode(producer.attrs.get("fuse_code", 0))], _INTERVALS[activation])
    low, high = max(low for low, _ in intervals), min(high for _, high in intervals)
    return _CODES.get((low, high))
