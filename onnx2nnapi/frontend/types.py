"""What is known of a value's type: all of it, a TensorType; a part, as a TypeProto, the way onnx spells it."""

from __future__ import annotations

import functools

from onnx import TypeProto

from onnx2nnapi.errors import InvalidModelError, Origin
from onnx2nnapi.frontend.tensors import elem_type, numpy_dtype
from onnx2nnapi.ir.types import TensorType

__all__ = ["ShapeError", "Type", "as_proto", "common_type", "completed", "elem_code", "known_type", "sizes", "tensor"]

Type = TensorType | TypeProto
Sizes = tuple[int | None, ...]


class ShapeError(InvalidModelError):
    """Types or shapes of a node's inputs that its operator doesn't take together."""


@functools.lru_cache(maxsize=4096)
def _proto_of(type_: TensorType) -> TypeProto:
    proto = TypeProto()
    proto.tensor_type.elem_type = elem_type(type_.dtype)
    proto.tensor_type.shape.SetInParent()
    for dim in type_.shape:
        proto.tensor_type.shape.dim.add(dim_value=dim)
    return proto


def as_proto(type_: Type) -> TypeProto:
    """A type as a TypeProto; it may be shared, so is never to be changed."""
    return _proto_of(type_) if isinstance(type_, TensorType) else type_


def known_type(proto: TypeProto | None, where: str) -> Type | None:
    """What a TypeProto states: a TensorType where it states all, None where it states nothing."""
    if proto is None or proto.WhichOneof("value") is None:
        return None
    if proto.WhichOneof("value") != "tensor_type":
        return proto
    shape = sizes(proto)
    if shape is None or None in shape or not proto.tensor_type.elem_type:
        return proto
    return TensorType(numpy_dtype(proto.tensor_type.elem_type, where), shape)  # type: ignore[arg-type]


def sizes(type_: Type | None) -> Sizes | None:
    """The sizes of a tensor, None where one is unknown; None where the rank is, or it is no tensor."""
    if type_ is None or isinstance(type_, TensorType):
        return None if type_ is None else type_.shape
    if not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
        return None
    dims = type_.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None for dim in dims)


def elem_code(type_: Type) -> int:
    """``TensorProto.DataType`` of a tensor's elements, 0 where it is unknown."""
    return elem_type(type_.dtype) if isinstance(type_, TensorType) else int(type_.tensor_type.elem_type)


def tensor(code: int, shape: Sizes | None) -> Type:
    """The type of tensors with elements ``code`` and these sizes, as far as they are known."""
    if code and shape is not None and None not in shape:
        return TensorType(numpy_dtype(code, "a tensor"), shape)  # type: ignore[arg-type]
    proto = TypeProto()
    proto.tensor_type.elem_type = code
    if shape is not None:
        proto.tensor_type.shape.SetInParent()
        for dim in shape:
            proto.tensor_type.shape.dim.add(**({} if dim is None else {"dim_value": dim}))
    return proto


def completed(inferred: Type | None, declared: TypeProto | None, origin: Origin, name: str) -> Type | None:
    """What was inferred, completed by what the model states.

    Raises:
        InvalidModelError: the model states another element type.
    """
    if declared is None or declared.WhichOneof("value") is None:
        return inferred
    if inferred is None:
        return known_type(declared, f"tensor {name!r}")
    ours, theirs = elem_code(inferred), int(declared.tensor_type.elem_type)
    if ours and theirs and ours != theirs:
        computed, stated_name = numpy_dtype(ours, f"tensor {name!r}"), numpy_dtype(theirs, f"tensor {name!r}")
        raise InvalidModelError(
            f"it computes {computed.name} elements, the model states {stated_name.name} for {name!r}", where=origin
        )
    if isinstance(inferred, TensorType) or not inferred.HasField("tensor_type"):
        return inferred
    mine, stated = sizes(inferred), sizes(declared)
    if mine is not None and stated is not None and len(mine) == len(stated):
        stated = tuple(b if a is None else a for a, b in zip(mine, stated, strict=True))
    elif mine is not None:
        stated = mine
    return tensor(ours or theirs, stated)


def common_type(first: Type | None, second: Type | None) -> Type | None:
    """What two types, of which a value has either, agree on."""
    if first is None or second is None or elem_code(first) != elem_code(second) or not elem_code(first):
        return None
    ours, theirs = sizes(first), sizes(second)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return tensor(elem_code(first), None)
    return tensor(elem_code(first), tuple(a if a == b else None for a, b in zip(ours, theirs, strict=True)))


def spelled(type_: Type | None) -> str:
    """A type for messages: float32[1, ?, 3]."""
    if type_ is None or isinstance(type_, TensorType):
        return "of unknown type" if type_ is None else str(type_)
    if not type_.HasField("tensor_type"):
        return str(type_.WhichOneof("value"))
    code, dims = elem_code(type_), sizes(type_)
    name = numpy_dtype(code, "a tensor").name if code else "?"
    if dims is None:
        return f"{name} of unknown rank"
    return f"{name}[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"
