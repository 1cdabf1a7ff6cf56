"""Constants that nodes compute: small ones at once, of large ones the computation is noted until somebody reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx2nnapi.errors import InvalidModelError, Onnx2NnapiError
from onnx2nnapi.evaluate import evaluate
from onnx2nnapi.frontend.operators import default_opset, newest
from onnx2nnapi.frontend.types import Type
from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import Array, LazyArray, Shape, TensorType

__all__ = ["SMALL", "fold"]

SMALL = 1 << 18  # bytes up to which a constant is computed at once
_RANDOM = frozenset(
    ["Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)
# Of these onnx.reference gets some forms wrong; over constants they are computed once they are NNAPI operations.
_UNTRUSTED = frozenset(["AveragePool", "ConvTranspose", "LRN", "LpPool", "MaxPool"])
# A dequantized constant is how a model says that it is quantized: later passes want to see it.
_KEPT = _RANDOM | _UNTRUSTED | {"DequantizeLinear"}
_BY_TYPE = frozenset({"EyeLike", "Shape", "Size"})  # they read nothing but the type of their input


def fold(op: Op, values: Sequence[Value | None], types: Sequence[Type | None]) -> list[LazyArray] | None:
    """What an operation without subgraphs computes, where all that it reads is known; else None.

    Args:
        op: in its newest form.
        values: its inputs.
        types: of all its outputs, as far as they are known.

    Raises:
        InvalidModelError: it cannot be computed.
    """
    if not op.inputs or op.kind in _KEPT:
        return None
    if op.kind in _BY_TYPE and values[0] is not None and values[0].type is not None:
        type_ = values[0].type
        inputs: list[LazyArray | None] = [LazyArray.of(np.broadcast_to(np.zeros((), type_.dtype), type_.shape))]
        read = 0
    elif all(value is None or value.const is not None for value in values):
        inputs = [None if value is None else value.const for value in values]
        read = sum(item.nbytes for item in inputs if item is not None)
    else:
        return None
    opset = _opset_of(op.kind)
    known = [type_ for type_ in types if isinstance(type_, TensorType)]
    if read <= SMALL and all(type_.nbytes <= SMALL for type_ in known):
        arrays = _evaluate(op, opset, [None if item is None else item.numpy() for item in inputs])
        return [LazyArray.of(np.asarray(array)) for array in arrays]
    if len(known) < len(types):
        return None
    return [_noted(op, opset, inputs, at, type_) for at, type_ in enumerate(known)]


@dataclass(frozen=True, slots=True, eq=False)
class _Computed:
    """A constant that an operator computes from constants when it is read."""

    op: Op
    opset: int
    inputs: tuple[LazyArray | None, ...]
    index: int
    dtype: np.dtype[Any]
    shape: Shape

    def read(self) -> Array:
        arrays = [None if item is None else item.numpy() for item in self.inputs]
        result = _evaluate(self.op, self.opset, arrays)[self.index]
        return result.astype(self.dtype, copy=False).reshape(self.shape)


def _noted(op: Op, opset: int, inputs: Sequence[LazyArray | None], index: int, type_: TensorType) -> LazyArray:
    """A large constant result: the steps of a movement, which later ones compose with, or the whole computation."""
    source = inputs[0]
    if source is not None:
        if op.kind in ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"):
            return source.reshape(type_.shape)
        if op.kind == "Transpose":
            return source.transpose(op.attrs.get("perm") or tuple(range(len(source.shape)))[::-1])
        if op.kind == "Cast" and type_.dtype == source.dtype:
            return source
    return LazyArray.of(_Computed(op, opset, tuple(inputs), index, type_.dtype, type_.shape))


def _evaluate(op: Op, opset: int, arrays: Sequence[Array | None]) -> list[Array]:
    try:
        return evaluate(op.kind, op.attrs, opset, arrays, len(op.outputs))
    except Onnx2NnapiError as error:
        raise InvalidModelError(error.message, where=op.origin) from error.__cause__


def _opset_of(kind: str) -> int:
    """The newest version of an operator's domain that the installed onnx knows."""
    domain, _, op_type = kind.rpartition("::")
    operator = newest(domain, op_type) if domain else None
    return operator.since if operator is not None else default_opset()
