"""Work along one axis of a tensor of any rank: the dimensions before and after it are merged beyond rank 4."""

from __future__ import annotations

import math
from collections.abc import Callable

from onnx2nnapi.ir.graph import Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize.shapes import MAX_RANK

__all__ = ["along"]


def along(b: Builder, x: Value, axis: int, work: Callable[[Value, int], Value]) -> Value:
    """``work(x, axis)``, which may change the size of that axis and no other."""
    if x.rank <= MAX_RANK:
        return work(x, axis)
    shape = x.shape
    flat = b.reshape(x, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))
    result = work(flat, 1)
    return b.reshape(result, (*shape[:axis], result.shape[1], *shape[axis + 1 :]))
