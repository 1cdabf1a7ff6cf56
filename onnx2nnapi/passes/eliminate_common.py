"""eliminate_common: of operations that compute the same, and of equal constants, one is enough.

Before::

    a = TRANSPOSE(x) {perm=[0, 2, 3, 1]}
    b = TRANSPOSE(x) {perm=[0, 2, 3, 1]}
    y = ADD(a, b)

After::

    a = TRANSPOSE(x) {perm=[0, 2, 3, 1]}
    y = ADD(a, a)
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.ir.types import ArraySource, LazyArray
from onnx2nnapi.options import Options

__all__ = ["eliminate_common"]

_SMALL = 1 << 12  # bytes; constants up to this size are compared by value, larger ones by where they come from


def eliminate_common(graph: Graph, options: Options) -> bool:
    """Merge equal constants and equal operations, in both dialects; the earlier one stays.

    Operations that draw random numbers or hold subgraphs are never merged.
    """
    changed = _merge_constants(graph)
    seen: dict[Hashable, Op] = {}
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= eliminate_common(subgraph, options)
        if op.subgraphs or "RANDOM" in op.kind.upper() or op.kind in _DRAWS:
            continue
        key = (op.kind, op.inputs, _attributes(op), tuple(_type(graph, name) for name in op.outputs))
        first = seen.setdefault(key, op)
        if first is not op:
            _merge(graph, first, op)
            changed = True
    return changed


_DRAWS = {"Bernoulli", "Multinomial"}


def _merge(graph: Graph, first: Op, second: Op) -> None:
    graph.remove(second)
    for kept, gone in zip(first.outputs, second.outputs, strict=True):
        if kept is not None and gone is not None:
            graph.replace_uses(gone, kept, outputs=True)
            graph.drop_value(gone)


def _type(graph: Graph, name: str | None) -> Hashable:
    return None if name is None else graph[name].type


def _attributes(op: Op) -> Hashable:
    return tuple((key, _hashable(value)) for key, value in sorted(op.attrs.items()))


def _hashable(value: Any) -> Hashable:
    if isinstance(value, LazyArray):
        return _signature(value)
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(item) for item in value)
    return (type(value).__name__, repr(value))  # 1, 1.0 and True are equal in Python, 0.0 and -0.0 too


def _merge_constants(graph: Graph) -> bool:
    changed = False
    seen: dict[Hashable, Value] = {}
    for value in list(graph.values.values()):
        if value.const is None:
            continue
        first = seen.setdefault((value.type, _signature(value.const)), value)
        if first is not value:
            graph.replace_uses(value.name, first.name, outputs=True)
            graph.drop_value(value.name)
            changed = True
    return changed


def _signature(const: LazyArray) -> Hashable:
    """Equal for constants that are surely equal."""
    if const.nbytes <= _SMALL:
        return (const.dtype.str, const.shape, const.numpy().tobytes())
    source = const.source.array if isinstance(const.source, ArraySource) else const.source
    return (id(source), *(_step(label, function) for label, function in const.steps))


def _step(label: str, function: Any) -> Hashable:
    """Steps that their label says completely are equal by label, the others when they are the same function."""
    return label if label.startswith(("cast[", "reshape[", "transpose[")) else id(function)
