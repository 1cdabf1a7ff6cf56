"""What one run of an operation costs: the bytes that it reads and writes, and the products that it sums up."""

from __future__ import annotations

import math
from collections.abc import Callable

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.infer import bind_op

__all__ = ["bytes_moved", "multiply_adds"]

# From the shapes of the first two operands and the size of the result; filters are [out, height, width, in].
_PRODUCTS: dict[str, Callable[[Shape, Shape, int], int]] = {
    "CONV_2D": lambda x, w, y: y * math.prod(w[1:]),
    "GROUPED_CONV_2D": lambda x, w, y: y * math.prod(w[1:]),
    "DEPTHWISE_CONV_2D": lambda x, w, y: y * w[1] * w[2],
    "TRANSPOSE_CONV_2D": lambda x, w, y: math.prod(x) * math.prod(w[:3]),
    "FULLY_CONNECTED": lambda x, w, y: y * w[1],
    "BATCH_MATMUL": lambda x, w, y: math.isqrt(math.prod(x) * math.prod(w) * y // max(math.prod(x[:-2]), 1)),
}


def bytes_moved(graph: Graph, op: Op) -> int:
    """The bytes of an operation's operands, constants included, and of its results."""
    return sum(graph[name].known.nbytes for name in (*op.inputs, *op.outputs) if name is not None)


def multiply_adds(graph: Graph, op: Op) -> int:
    """Multiplications by weights, or of two matrices; none where there are none of these.

    A recurrent cell takes each of its matrices once a step and row.
    """
    known = [graph[name].known for name in op.inputs if name is not None]
    products = _PRODUCTS.get(op.kind)
    if products is not None:
        return products(known[0].shape, known[1].shape, sum(graph[name].known.size for name in op.outputs if name))
    matrices = [
        argument.type.size
        for name, argument in bind_op(graph, op).arguments.items()
        if argument is not None and name.endswith("weights") and argument.type.rank == 2
    ]
    return sum(matrices) * math.prod(known[0].shape[:-1]) if matrices else 0
