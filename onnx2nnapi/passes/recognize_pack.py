"""recognize_pack: tensors that get a new dimension each and are joined along it become one PACK.

Before::

    a = RESHAPE(x) {shape=[2, 1, 3]}
    b = RESHAPE(y) {shape=[2, 1, 3]}
    z = CONCATENATION(a, b) {axis=1}

After::

    z = PACK(x, y) {axis=1}
"""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.options import Options

__all__ = ["recognize_pack"]

_LEVEL = 6
_DTYPES = (np.float32, np.float16, np.int32)


def recognize_pack(graph: Graph, options: Options) -> bool:
    """Recognize stacks of tensors; NNAPI dialect, types without quantization, from the level that has PACK."""
    if options.feature_level < _LEVEL:
        return False
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= recognize_pack(subgraph, options)
        if op.kind == "CONCATENATION":
            changed |= _recognize(graph, op)
    return changed


def _recognize(graph: Graph, op: Op) -> bool:
    type_ = graph[str(op.outputs[0])].known
    axis = op.attrs["axis"] % len(type_.shape)
    if type_.dtype not in _DTYPES or type_.quant is not None:
        return False
    shape = (*type_.shape[:axis], *type_.shape[axis + 1 :])
    names = [str(name) for name in op.inputs]
    reshapes = [_unsqueezed(graph, name, shape) for name in names]
    found = {reshape.outputs[0]: reshape for reshape in reshapes if reshape is not None}
    if not shape or len(names) != type_.shape[axis] or None in reshapes:
        return False
    origins = dict.fromkeys(origin for item in (*found.values(), op) for origin in item.origins)
    sources = tuple(found[name].inputs[0] for name in names)
    graph.replace(op, [Op("PACK", sources, op.outputs, {"axis": axis}, tuple(origins))])
    for name, reshape in found.items():
        graph.remove(reshape)
        graph.drop_value(str(name))
    return True


def _unsqueezed(graph: Graph, name: str, shape: tuple[int, ...]) -> Op | None:
    """The reshape from ``shape`` that makes a value for one reader."""
    op = graph.producer(name)
    if op is None or op.kind != "RESHAPE" or graph.uses(name) != 1:
        return None
    return op if graph[str(op.inputs[0])].shape == shape else None
