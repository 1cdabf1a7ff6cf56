"""fold_constants: what depends on constants only becomes a constant; nothing constant is computed on the device.

Before::

    t = Mul(w, scale)            # w, scale constant
    y = Add(x, t)

After::

    y = Add(x, t)                # t constant

Small results are computed now. Large ones are recorded as what to do when the constant is read: as steps on the array
where the operation only views, permutes or casts it, else as the evaluation itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.evaluate import run_graph
from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.ir.types import Array, LazyArray, Shape
from onnx2nnapi.options import Options

__all__ = ["fold_constants"]

SMALL = 1 << 16  # bytes; operations on more than this are left to whoever reads the constant

# Operators whose result differs from run to run: their constant inputs say nothing about it.
_RANDOM = {
    "Bernoulli", "Multinomial", "RANDOM_MULTINOMIAL", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}  # fmt: skip


def fold_constants(graph: Graph, options: Options) -> bool:
    """Replace operations that read constants only; both dialects."""
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= fold_constants(subgraph, options)
        if _is_foldable(graph, op):
            changed |= _fold(graph, op)
    return changed


def _is_foldable(graph: Graph, op: Op) -> bool:
    return (
        op.kind not in _RANDOM
        and not op.subgraphs
        and any(op.inputs)
        and all(name is None or graph.is_constant(name) for name in op.inputs)
        and all(name is None or graph[name].type is not None for name in op.outputs)
    )


def _fold(graph: Graph, op: Op) -> bool:
    wanted = [graph[name] for name in op.outputs if name is not None]
    touched = [*wanted, *(graph[name] for name in op.inputs if name is not None)]
    alone = _alone(graph, op)
    if max(value.known.nbytes for value in touched) > SMALL:
        results = [_view(op, graph, value) or LazyArray.of(Deferred(alone, at)) for at, value in enumerate(wanted)]
    else:
        try:
            results = [LazyArray.of(array) for array in run_graph(alone, {})]
        except InvalidModelError:
            return False  # nothing here computes it; a rule may still know it, or refuses it by name
    for value, const in zip(wanted, results, strict=True):
        if (const.dtype, const.shape) != (value.known.dtype, value.known.shape):
            return False
    graph.remove(op)
    for value, const in zip(wanted, results, strict=True):
        value.const = const
    return True


def _alone(graph: Graph, op: Op) -> Graph:
    """A graph of the operation by itself, which stays as it is whatever becomes of ``graph``."""
    alone = Graph(graph.dialect)
    alone.opset = dict(graph.opset)
    for name in dict.fromkeys((*op.inputs, *op.outputs)):
        if name is not None:
            alone.add_value(Value(name, graph[name].type, graph[name].const))
    alone.add(Op(op.kind, op.inputs, op.outputs, dict(op.attrs), op.origins))
    alone.outputs = [name for name in op.outputs if name is not None]
    return alone


@dataclass(frozen=True, slots=True, eq=False)
class Deferred:
    """The source of a large constant: a graph of constants, run whenever the constant is read."""

    graph: Graph
    index: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.graph[self.graph.outputs[self.index]].known.dtype

    @property
    def shape(self) -> Shape:
        return self.graph[self.graph.outputs[self.index]].shape

    def read(self) -> Array:
        return run_graph(self.graph, {})[self.index]


# -- operations that are a step on the array ---------------------------------------------------------------------------


def _view(op: Op, graph: Graph, value: Value) -> LazyArray | None:
    """The result as a step on the first input, for the operations that have one."""
    first = op.inputs[0]
    const = graph[first].const if first is not None else None
    step = _STEPS.get(op.kind)
    return step(op, const, value) if step is not None and const is not None else None


def _reshaped(op: Op, const: LazyArray, value: Value) -> LazyArray:
    return const.reshape(value.shape)


def _transposed(op: Op, const: LazyArray, value: Value) -> LazyArray:
    return const.transpose(op.attrs.get("perm") or tuple(reversed(range(len(const.shape)))))


def _cast(op: Op, const: LazyArray, value: Value) -> LazyArray | None:
    """Between the floating-point types, and widening integers; saturation and truncation are the evaluator's."""
    target = value.known.dtype
    if np.can_cast(const.dtype, target, "safe") or (const.dtype.kind == target.kind == "f"):
        return const.astype(target)
    return None


_STEPS: dict[str, Callable[[Op, LazyArray, Value], LazyArray | None]] = {
    **dict.fromkeys(("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"), _reshaped),
    **dict.fromkeys(("EXPAND_DIMS", "RESHAPE", "SQUEEZE"), _reshaped),
    **dict.fromkeys(("Transpose", "TRANSPOSE"), _transposed),
    **dict.fromkeys(("Cast", "CAST"), _cast),
}
