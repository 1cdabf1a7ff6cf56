"""fold_pad: a Pad becomes the padding of the Conv or pool that alone reads it.

Before::

    a = Pad(x, [0, 0, 1, 1, 0, 0, 1, 1])
    y = Conv(a, w) {pads=[0, 0, 0, 0]}

After::

    y = Conv(x, w) {pads=[1, 1, 1, 1]}
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.options import Options

__all__ = ["fold_pad"]


def fold_pad(graph: Graph, options: Options) -> bool:
    """Fold constant padding of the spatial dimensions into Conv, AveragePool and MaxPool; ONNX dialect."""
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= fold_pad(subgraph, options)
        if op.kind in ("Conv", "AveragePool", "MaxPool"):
            changed |= _fold(graph, op)
    return changed


def _fold(graph: Graph, op: Op) -> bool:
    name = op.inputs[0]
    pad = graph.producer(name) if name is not None and name in graph.values and graph.uses(name) == 1 else None
    if pad is None or pad.kind != "Pad" or pad.attrs.get("mode", "constant") != "constant" or pad.inputs[0] is None:
        return False
    spatial = _spatial(graph, pad)
    own = _own(op, len(spatial) // 2 if spatial else 0)
    if spatial is None or own is None or op.attrs.get("ceil_mode", 0):
        return False
    value = _value(graph, pad)
    if value is None or not _fits(graph, op, pad, value, spatial, own):
        return False
    op.attrs["pads"] = tuple(a + b for a, b in zip(spatial, own, strict=True))
    op.attrs["auto_pad"] = "NOTSET"
    if op.kind == "AveragePool":
        op.attrs["count_include_pad"] = 1
    op.origins = tuple(dict.fromkeys((*op.origins, *pad.origins)))
    graph.rewire(op, inputs=[pad.inputs[0], *op.inputs[1:]])
    graph.remove(pad)
    graph.drop_value(str(name))
    return True


def _spatial(graph: Graph, pad: Op) -> tuple[int, ...] | None:
    """The padding as Conv spells it, begins before ends; None where it is computed, negative, or not of space alone."""
    rank = graph[str(pad.outputs[0])].rank
    given = [graph.const(name) for name in pad.inputs[1:]]
    amounts = given[0].numpy().reshape(-1).tolist() if given and given[0] is not None else None
    if amounts is None or (len(pad.inputs) > 3 and pad.inputs[3] is not None and given[2] is None):
        return None
    axes = range(rank) if len(given) < 3 or given[2] is None else [int(axis) % rank for axis in given[2].numpy()]
    pads = np.zeros((2, rank), int)
    pads[:, list(axes)] = np.reshape(amounts, (2, -1))
    if pads[:, :2].any() or (pads < 0).any():
        return None
    return tuple(pads[:, 2:].reshape(-1).tolist())


def _own(op: Op, dims: int) -> tuple[int, ...] | None:
    """The padding that the operator has already; None where its sizes decide it."""
    auto = op.attrs.get("auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID"):
        return None
    pads = op.attrs.get("pads") if auto == "NOTSET" else None
    return tuple(pads) if pads else (0,) * (2 * dims)


def _value(graph: Graph, pad: Op) -> float | None:
    """What is padded with; None where it is computed."""
    if len(pad.inputs) < 3 or pad.inputs[2] is None:
        return 0.0
    const = graph.const(pad.inputs[2])
    return None if const is None else float(const.numpy().reshape(-1)[0])


def _fits(graph: Graph, op: Op, pad: Op, value: float, spatial: Sequence[int], own: Sequence[int]) -> bool:
    """Whether the operator's own padding means the same as the Pad."""
    if op.kind == "Conv":
        return value == 0
    kernel = op.attrs["kernel_shape"]
    inside = all(a + b < size for a, b, size in zip(spatial, own, (*kernel, *kernel), strict=True))
    if not inside or any(dilation != 1 for dilation in op.attrs.get("dilations") or ()):
        return False
    if op.kind == "AveragePool":
        return value == 0 and (not any(own) or bool(op.attrs.get("count_include_pad", 0)))
    # a pool's padding never is the maximum; zeros never are beside numbers that are not negative
    harmless = value == 0 and not any(own) and _is_positive(graph, str(pad.inputs[0]))
    return harmless or value <= np.finfo(np.float32).min


def _is_positive(graph: Graph, name: str) -> bool:
    """Whether the tensor holds no negative numbers."""
    source = graph.producer(name) if name in graph.values else None
    if source is None:
        return False
    if source.kind == "Clip" and len(source.inputs) > 1 and source.inputs[1] is not None:
        low = graph.const(source.inputs[1])
        return low is not None and bool((low.numpy() >= 0).all())
    return source.kind in ("Relu", "Sigmoid", "HardSigmoid", "Softmax")
