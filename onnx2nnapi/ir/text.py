"""A graph as text, the same for the same graph: for golden files, ``--dump-ir`` and messages."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.ir.types import LazyArray

__all__ = ["print_graph"]

_FEW = 8  # constants of up to so many elements show their values


def print_graph(graph: Graph) -> str:
    """The graph, one operation a line, in order.

    It looks like this::

        graph "name" (nnapi)
        input  x: float32[1, 8, 8, 3]
        const  w: float32[8, 3, 3, 3] = float32[8, 3, 3, 3] transpose[0, 2, 3, 1]
        y: float32[1, 8, 8, 8] = CONV_2D(x, w, b) {fuse_code=1, stride_width=1}  # Conv 'conv1' (-> 'y')
        output y

    Constants stand before the first operation that reads them; ``@`` tells which ONNX tensor a value is a copy of, and
    by which permutation of its dimensions.
    """
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: Graph) -> list[str]:
    lines = [f'graph "{graph.name}" ({graph.dialect})']
    lines += [f"input  {_value(graph, name)}" for name in graph.inputs]
    shown: set[str] = set()

    def show_constants(names: tuple[str | None, ...] | list[str]) -> None:
        for name in names:
            if name is not None and name not in shown and graph.is_constant(name):
                shown.add(name)
                lines.append(f"const  {_value(graph, name)} = {_constant(graph[name])}")

    for op in graph.ops:
        show_constants((*op.inputs, *op.captured))
        lines.append(_operation(graph, op))
        for key, subgraph in sorted(op.subgraphs.items()):
            lines.append(f"  {key}:")
            lines += [f"    {line}" for line in _lines(subgraph)]
    show_constants(graph.outputs)
    lines += [f"output {name}" for name in graph.outputs]
    return lines


def _operation(graph: Graph, op: Op) -> str:
    outputs = ", ".join("_" if name is None else _value(graph, name) for name in op.outputs)
    inputs = ", ".join("_" if name is None else name for name in op.inputs)
    attrs = ", ".join(
        f"{key}={_attribute(value)}" for key, value in sorted(op.attrs.items()) if not isinstance(value, Graph)
    )
    origins = "; ".join(str(origin) for origin in op.origins)
    return (
        f"{outputs} = {op.kind}({inputs})" + (f" {{{attrs}}}" if attrs else "") + (f"  # {origins}" if origins else "")
    )


def _value(graph: Graph, name: str) -> str:
    value = graph.values.get(name)
    if value is None:
        return name
    text = f"{name}: {value.type if value.type is not None else '?'}"
    holds = value.holds
    if holds is not None and (holds.name != name or holds.perm not in ((), tuple(range(len(holds.perm))))):
        text += f" @{holds.name}{list(holds.perm) if holds.perm else ''}"
    return text


def _constant(value: Value) -> str:
    const = value.const
    if const is None:
        return "?"
    if const.size <= _FEW:
        return str(const.numpy().tolist())
    return " ".join([f"{const.source.dtype.name}{list(const.source.shape)}", *(label for label, _ in const.steps)])


def _attribute(value: Any) -> str:
    if isinstance(value, LazyArray):
        value = value.numpy() if value.size <= _FEW else value
    if isinstance(value, LazyArray):
        return f"{value.dtype.name}{list(value.shape)}"
    if isinstance(value, np.ndarray):
        if value.size > _FEW:
            digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:8]
            return f"{value.dtype.name}{list(value.shape)}:{digest}"
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_attribute(item) for item in value)}]"
    return repr(value)
