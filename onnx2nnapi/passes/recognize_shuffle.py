"""recognize_shuffle: channels regrouped by reshape, transpose, reshape become one CHANNEL_SHUFFLE.

Before::

    a: [n, 2, 3, h·w] = RESHAPE(x: [n, 6, h, w])
    b: [n, 3, 2, h·w] = TRANSPOSE(a, perm=[0, 2, 1, 3])
    y: [n, 6, h, w] = RESHAPE(b)

After::

    y: [n, 6, h, w] = CHANNEL_SHUFFLE(x, groups=2, axis=1)
"""

from __future__ import annotations

import math

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.ir.types import Shape
from onnx2nnapi.options import Options

__all__ = ["recognize_shuffle"]

_LEVEL = 3
_MAX_RANK = 4


def recognize_shuffle(graph: Graph, options: Options) -> bool:
    """Recognize shuffles of one dimension; NNAPI dialect, floats, from the level that has CHANNEL_SHUFFLE."""
    if options.feature_level < _LEVEL:
        return False
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= recognize_shuffle(subgraph, options)
        if op.kind == "TRANSPOSE" and graph.contains(op):
            changed |= _recognize(graph, op)
    return changed


def _recognize(graph: Graph, op: Op) -> bool:
    swapped = _swapped(graph[str(op.inputs[0])].shape, op.attrs["perm"])
    if swapped is None:
        return False
    before, groups, size, after = swapped
    last = _last_reshape(graph, op)
    source = _first_source(graph, str(op.inputs[0]))
    if last is None or source is None:
        return False
    value, result = graph[source], graph[str(last.outputs[0])]
    if value.shape != result.shape or value.rank > _MAX_RANK or value.known.dtype not in (np.float32, np.float16):
        return False
    axis = next(
        (
            at
            for at, extent in enumerate(value.shape)
            if extent == groups * size
            and math.prod(value.shape[:at]) == before
            and math.prod(value.shape[at + 1 :]) == after
        ),
        None,
    )
    if axis is None:
        return False
    origins = tuple(dict.fromkeys((*op.origins, *last.origins)))
    made = Op("CHANNEL_SHUFFLE", (source,), last.outputs, {"groups": groups, "axis": axis}, origins)
    name = str(last.inputs[0])
    graph.replace(last, [made])
    while name not in graph.outputs and not graph.uses(name) and (producer := graph.producer(name)) is not None:
        graph.remove(producer)
        graph.drop_value(name)
        name = str(producer.inputs[0])
        if producer.kind not in ("RESHAPE", "TRANSPOSE") or name == source:
            break
    return True


def _swapped(shape: Shape, perm: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """Sizes (before, first, second, after) where ``perm`` swaps two neighbouring groups of dimensions, else None."""
    moved = [axis for axis in perm if shape[axis] != 1]
    kept = sorted(moved)
    low = next((at for at, axis in enumerate(moved) if axis != kept[at]), None)
    if low is None:
        return None
    high = max(at for at, axis in enumerate(moved) if axis != kept[at]) + 1
    start = kept.index(moved[low])  # where the second group begins among the dimensions as they were
    if moved != [*kept[:low], *kept[start:high], *kept[low:start], *kept[high:]]:
        return None
    sizes = [shape[axis] for axis in kept]
    parts = (sizes[:low], sizes[low:start], sizes[start:high], sizes[high:])
    before, first, second, after = (math.prod(part) for part in parts)
    return before, first, second, after


def _first_source(graph: Graph, name: str) -> str | None:
    """What the reshapes before read."""
    found = None
    while (producer := graph.producer(name)) is not None and producer.kind == "RESHAPE":
        found = name = str(producer.inputs[0])
    return found


def _last_reshape(graph: Graph, op: Op) -> Op | None:
    """The last of the reshapes after, each of which alone reads what is before it."""
    found, name = None, str(op.outputs[0])
    while name not in graph.outputs and graph.uses(name) == 1:
        reader = graph.readers(name)[0]
        if reader.kind != "RESHAPE":
            break
        found, name = reader, str(reader.outputs[0])
    return found
