"""fold_bias: a constant added to what has a bias goes into the bias.

Before::

    a = FULLY_CONNECTED(x, w, zeros)
    y = ADD(a, c)                # c: one number for each unit

After::

    y = FULLY_CONNECTED(x, w, c)
"""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.ir.types import LazyArray
from onnx2nnapi.nnapi.codes import FuseCode, OperationCode
from onnx2nnapi.nnapi.infer import slot_names
from onnx2nnapi.nnapi.schema import SCHEMAS
from onnx2nnapi.options import Options

__all__ = ["fold_bias"]


def fold_bias(graph: Graph, options: Options) -> bool:
    """Fold ADDs of a constant, one number for each index of the last dimension; float tensors.

    Runs after layout, when the last dimension is that of the bias, and before the activation of the ADD is looked for.
    """
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= fold_bias(subgraph, options)
        if op.kind == "ADD":
            changed |= _fold(graph, op)
    return changed


def _fold(graph: Graph, addition: Op) -> bool:
    left, right = (str(name) for name in addition.inputs)
    source, term = (right, left) if graph.is_constant(left) else (left, right)
    producer, const, result = graph.producer(source), graph[term].const, graph[str(addition.outputs[0])]
    if producer is None or const is None or graph.uses(source) != 1 or graph[source].type != result.type:
        return False
    if result.known.dtype.kind != "f" or producer.attrs.get("fuse_code", 0) != FuseCode.NONE:
        return False
    if not {"bias", "fuse_code"} <= set(SCHEMAS[OperationCode[producer.kind]].operand_names):
        return False
    at = slot_names(producer).index("bias")
    bias = graph[str(producer.inputs[at])].const
    units = result.shape[-1]
    if bias is None or bias.shape != (units,) or const.size not in (1, units) or const.shape[-1] != const.size:
        return False
    total = (bias.numpy() + const.numpy().reshape(-1)).astype(np.dtype(bias.dtype))
    inputs = list(producer.inputs)
    inputs[at] = graph.constant(f"{result.name}.bias", LazyArray.of(total)).name
    graph.remove(addition)
    graph.rewire(producer, inputs=inputs, outputs=[result.name])
    graph.drop_value(source)
    if addition.attrs.get("fuse_code", 0):
        producer.attrs["fuse_code"] = addition.attrs["fuse_code"]
    producer.origins = tuple(dict.fromkeys((*producer.origins, *addition.origins)))
    return True
