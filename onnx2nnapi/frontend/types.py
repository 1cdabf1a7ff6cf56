"""Element types and shapes as onnx spells them, of which a part may be unknown, beside the IR's own."""

from __future__ import annotations

import functools

import onnx
from onnx import TypeProto

from onnx2nnapi.errors import InvalidModelError, Origin
from onnx2nnapi.frontend.tensors import elem_type, numpy_dtype
from onnx2nnapi.ir.types import TensorType

__all__ = ["ShapeError", "common_type", "completed", "partial_type", "sizes", "spelled", "static_type", "type_proto"]


class ShapeError(InvalidModelError):
    """Types or shapes of a node's inputs that its operator doesn't take together."""


@functools.lru_cache(maxsize=4096)
def type_proto(type_: TensorType) -> TypeProto:
    """A tensor type as a TypeProto; shared, so never to be changed."""
    proto = TypeProto()
    proto.tensor_type.elem_type = elem_type(type_.dtype)
    proto.tensor_type.shape.SetInParent()
    for dim in type_.shape:
        proto.tensor_type.shape.dim.add(dim_value=dim)
    return proto


def static_type(proto: TypeProto | None, name: str) -> TensorType | None:
    """The type that a TypeProto states in full, else None."""
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    tensor = proto.tensor_type
    if not tensor.elem_type or not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in tensor.shape.dim):
        return None
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    return TensorType(numpy_dtype(tensor.elem_type, f"tensor {name!r}"), shape)


def completed(inferred: TypeProto | None, declared: TypeProto | None, origin: Origin, name: str) -> TypeProto | None:
    """What was inferred, completed by what the model states."""
    if inferred is None or not inferred.WhichOneof("value"):
        return declared
    if declared is None or not (inferred.HasField("tensor_type") and declared.HasField("tensor_type")):
        return inferred
    ours, theirs = inferred.tensor_type, declared.tensor_type
    if ours.elem_type and theirs.elem_type and ours.elem_type != theirs.elem_type:
        names = onnx.TensorProto.DataType
        raise InvalidModelError(
            f"it computes {names.Name(ours.elem_type)} elements, the model states {names.Name(theirs.elem_type)} for"
            f" {name!r}",
            where=origin,
        )
    if not ours.HasField("shape"):
        return declared
    if not theirs.HasField("shape") or len(ours.shape.dim) != len(theirs.shape.dim):
        return inferred
    if all(dim.HasField("dim_value") for dim in ours.shape.dim):
        return inferred
    both = TypeProto()
    both.CopyFrom(inferred)
    for mine, other in zip(both.tensor_type.shape.dim, theirs.shape.dim, strict=True):
        if not mine.HasField("dim_value") and other.HasField("dim_value"):
            mine.dim_value = other.dim_value
    return both


def partial_type(code: int, shape: tuple[int | None, ...] | None) -> TypeProto:
    """A tensor type of which sizes (None) or the rank (None for the shape) are unknown."""
    proto = TypeProto()
    proto.tensor_type.elem_type = code
    if shape is not None:
        proto.tensor_type.shape.SetInParent()
        for dim in shape:
            proto.tensor_type.shape.dim.add(**({} if dim is None else {"dim_value": dim}))
    return proto


def sizes(proto: TypeProto | None) -> tuple[int | None, ...] | None:
    """The sizes that a tensor type states, None where one is unknown; None where the rank is."""
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in proto.tensor_type.shape.dim)


def spelled(proto: TypeProto | None) -> str:
    """A type for messages: float32[1, ?, 3]."""
    if proto is None or not proto.HasField("tensor_type"):
        return "of unknown type"
    dims, code = sizes(proto), proto.tensor_type.elem_type
    name = numpy_dtype(code, "a tensor").name if code else "?"
    return (
        f"{name}[{'of unknown rank' if dims is None else ', '.join('?' if dim is None else str(dim) for dim in dims)}]"
    )


def common_type(first: TypeProto | None, second: TypeProto | None) -> TypeProto | None:
    """What two types, of which a value has either, agree on."""
    if first is None or second is None or first.tensor_type.elem_type != second.tensor_type.elem_type:
        return None
    ours, theirs = sizes(first), sizes(second)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return partial_type(first.tensor_type.elem_type, None)
    dims = tuple(a if a == b else None for a, b in zip(ours, theirs, strict=True))
    return partial_type(first.tensor_type.elem_type, dims)
