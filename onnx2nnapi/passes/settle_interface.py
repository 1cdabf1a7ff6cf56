"""Tensors of a rank above 4 that only reshapes touch change hands in the reshaped form.

x[2,3,4,5,6] → RESHAPE → y[24,5,6] …   becomes   x[24,5,6] …: the session gives the caller's array the operand's shape.
Needs the reshapes composed (layout), since NNAPI reshapes from ranks up to 4 only.
"""

from __future__ import annotations

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.schema import SCHEMAS, Regroups
from onnx2nnapi.options import Options

__all__ = ["settle_interface"]

_MAX_RANK = 4


def settle_interface(graph: Graph, options: Options) -> bool:
    """Give inputs and outputs of rank above 4 the shape that the first reshape beside them gives or takes."""
    changed = False
    for name in graph.inputs:
        value = graph[name]
        readers = graph.readers(name)
        if value.rank <= _MAX_RANK or name in graph.outputs or not readers or not all(map(_reshapes, readers)):
            continue
        shape = next((graph[str(op.outputs[0])].shape for op in readers if len(op.attrs["shape"]) <= _MAX_RANK), None)
        if shape is None:
            continue
        value.type, value.holds = value.known.with_shape(shape), None
        for op in readers:
            output = str(op.outputs[0])
            if graph[output].shape == shape:
                graph.replace_uses(output, name, outputs=True)
                graph.remove(op)
        changed = True
    for position, name in enumerate(graph.outputs):
        producer = graph.producer(name)
        if graph[name].rank > _MAX_RANK and producer is not None and _reshapes(producer):
            graph.outputs[position] = str(producer.inputs[0])
            changed = True
    return changed


def _reshapes(op: Op) -> bool:
    return isinstance(SCHEMAS[OperationCode[op.kind]].layout, Regroups)
