"""Which NNAPI element type holds an ONNX one: integers live in int32, doubles (if allowed) in float32."""

from __future__ import annotations

import functools

import numpy as np

from onnx2nnapi.errors import FeatureLevelError, UnsupportedForm
from onnx2nnapi.ir.types import LazyArray, Quantization, TensorType
from onnx2nnapi.options import Options

__all__ = ["BYTES", "nnapi_constant", "nnapi_type"]

# Plain bytes are quantized tensors of step one: CAST ignores the quantization, and DEQUANTIZE gives the same numbers.
BYTES = Quantization(1.0, 0)

_SAME = {"float32", "float16", "int32", "bool"}
_WIDENED = {"int64", "uint64", "int16", "uint16", "uint32"}
_INT32 = np.iinfo(np.int32)
_SINCE = {"bool": 3, "float16": 3, "int8": 4}  # the others came with level 1


def nnapi_type(type_: TensorType, options: Options, where: str) -> TensorType:
    """The NNAPI-dialect type of an ONNX tensor.

    Raises:
        UnsupportedForm: for element types that NNAPI cannot hold (strings, complex, double unless allowed …).
        FeatureLevelError: for those that came after the target level.
    """
    held, since = _held(type_, options.allow_float64)
    if since > options.feature_level:
        raise FeatureLevelError(
            f"its type {type_.dtype.name}", required=since, target=options.feature_level, where=where
        )
    if held is not None:
        return held
    name = type_.dtype.name
    hint = "pass --allow-float64 to compute it in float32" if name == "float64" else "export the model with float32"
    raise UnsupportedForm(f"NNAPI has no tensors of {name}", where=where, hint=hint)


@functools.lru_cache(maxsize=1 << 14)  # a graph's values are of a few types
def _held(type_: TensorType, allow_float64: bool) -> tuple[TensorType | None, int]:
    """The NNAPI-dialect type, None where there is none, and the level that it came with."""
    name = type_.dtype.name
    shape = type_.shape or (1,)
    since = _SINCE.get(name, 1)
    if name in _SAME:
        return TensorType(type_.dtype, shape, type_.quant), since
    if name in ("uint8", "int8"):
        return TensorType(type_.dtype, shape, type_.quant or BYTES), since
    if name in _WIDENED:
        return TensorType(np.dtype(np.int32), shape), since
    if name == "float64" and allow_float64:
        return TensorType(np.dtype(np.float32), shape), since
    return None, since


def nnapi_constant(const: LazyArray, options: Options, where: str) -> tuple[LazyArray, TensorType]:
    """A constant as the NNAPI dialect holds it; integers that int32 cannot hold are refused.

    Raises:
        UnsupportedForm: the element type or a value does not fit.
    """
    type_ = nnapi_type(TensorType(const.dtype, const.shape), options, where)
    if type_.dtype == const.dtype:
        return const.reshape(type_.shape), type_
    if const.dtype.kind in "iu" and const.dtype.itemsize > 2 and const.size:
        array = const.numpy()
        low, high = int(array.min()), int(array.max())
        if low < _INT32.min or high > _INT32.max:
            raise UnsupportedForm(f"{low if low < _INT32.min else high} is beyond NNAPI's int32", where=where)
    return const.astype(type_.dtype).reshape(type_.shape), type_
