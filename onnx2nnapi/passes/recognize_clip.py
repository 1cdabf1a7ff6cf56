"""recognize_clip: whatever spells a clamp to constant bounds becomes one Clip, or Relu, so that it can be fused.

Before::

    a = Relu(x)
    y = Min(a, six)

After::

    y = Clip(x, 0, 6)
"""

from __future__ import annotations

import math

import numpy as np

from onnx2nnapi.errors import Origin
from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.ir.types import LazyArray
from onnx2nnapi.options import Options

__all__ = ["recognize_clip"]

Bounds = tuple[float, float]


def recognize_clip(graph: Graph, options: Options) -> bool:
    """Merge chains of Relu, Clip, Min and Max with constant bounds; ONNX dialect, float tensors."""
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= recognize_clip(subgraph, options)
        found = _bounds(graph, op)
        if found is None:
            continue
        source, (low, high) = found
        origins = op.origins
        before = graph.producer(source)
        inner = _bounds(graph, before) if before is not None else None
        if before is not None and inner is not None and graph.uses(source) == 1:
            source, (inner_low, inner_high) = inner
            low, high = _clamp(inner_low, low, high), _clamp(inner_high, low, high)
            origins = tuple(dict.fromkeys((*before.origins, *op.origins)))
            graph.rewire(op, inputs=(source,))
            graph.remove(before)
            graph.drop_value(str(before.outputs[0]))
        elif op.kind in ("Relu", "Clip"):
            continue
        _write(graph, op, source, (low, high), origins)
        changed = True
    return changed


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _bounds(graph: Graph, op: Op) -> tuple[str, Bounds] | None:
    """What the operator clamps, and to what; None where it is no clamp of a float tensor to constant bounds."""
    result = graph.values.get(op.outputs[0]) if op.outputs[0] is not None else None
    if op.kind not in ("Relu", "Clip", "Min", "Max") or result is None or result.type is None or op.subgraphs:
        return None
    bounds: dict[int, float] = {}
    for at, name in enumerate(op.inputs):
        const = graph.const(name)
        if const is not None and const.size == 1:
            bounds[at] = float(const.numpy().reshape(())[()])
    data = [name for at, name in enumerate(op.inputs) if at not in bounds and name is not None]
    if (
        len(data) != 1
        or data[0] not in graph.values
        or graph[data[0]].type != result.type
        or result.type.dtype.kind != "f"
    ):
        return None
    if any(math.isnan(bound) for bound in bounds.values()):
        return None
    if op.kind == "Relu":
        low, high = 0.0, math.inf
    elif op.kind == "Clip":
        if 0 in bounds:
            return None
        low, high = bounds.get(1, -math.inf), bounds.get(2, math.inf)
    else:
        low = max(bounds.values(), default=-math.inf) if op.kind == "Max" else -math.inf
        high = min(bounds.values(), default=math.inf) if op.kind == "Min" else math.inf
    return (data[0], (low, high)) if low <= high else None


def _write(graph: Graph, op: Op, source: str, bounds: Bounds, origins: tuple[Origin, ...]) -> None:
    """Put one operator in the place of ``op``."""
    result = str(op.outputs[0])
    dtype = graph[result].known.dtype
    low, high = bounds
    if (low, high) == (0.0, math.inf):
        made = Op("Relu", (source,), op.outputs, {})
    else:
        ends = [
            None
            if math.isinf(bound) and bound == end
            else graph.constant(f"{result}.{what}", LazyArray.of(np.asarray(bound, dtype))).name
            for what, bound, end in (("min", low, -math.inf), ("max", high, math.inf))
        ]
        made = Op("Clip", (source, *ends), op.outputs, {})
    made.origins = origins
    graph.replace(op, [made])
