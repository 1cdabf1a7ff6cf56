"""What onnx.defs says of an operator, once per operator and version: arity, element types, attributes, defaults."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, defs

from onnx2nnapi.errors import InvalidModelError, Origin, UnsupportedForm
from onnx2nnapi.frontend.tensors import TensorReader, elem_type
from onnx2nnapi.ir.types import TensorType

__all__ = ["Operator", "default_opset", "kind_of", "newest", "operator_at", "plain_attribute"]

OLDEST_OPSET = 7


@dataclass(frozen=True)
class Operator:
    """An operator at one version.

    Attributes:
        schema: onnx's own description.
        defaults: attribute values that hold where the node gives none.
    """

    schema: defs.OpSchema
    defaults: Mapping[str, Any]
    parameters: tuple[tuple[str, str, bool, bool], ...]  # name, type string, homogeneous, variadic
    allowed: Mapping[str, frozenset[str]]  # type string -> "tensor(float)" …
    optional_outputs: frozenset[int]
    attribute_types: Mapping[str, int]  # AttributeProto.AttributeType by name

    @property
    def since(self) -> int:
        return int(self.schema.since_version)

    def check_arity(self, inputs: Sequence[str | None], outputs: Sequence[str | None], origin: Origin) -> None:
        """Refuse a node with too few or too many inputs or outputs, or without one that must be there."""
        schema = self.schema
        for what, names, least, most in (
            ("inputs", inputs, schema.min_input, schema.max_input),
            ("outputs", outputs, schema.min_output, schema.max_output),
        ):
            if not least <= len(names) <= most:
                wanted = (
                    f"{least}" if least == most else f"{least} to {most}" if most < 1 << 20 else f"at least {least}"
                )
                raise InvalidModelError(f"it has {len(names)} {what}, the operator takes {wanted}", where=origin)
        single = defs.OpSchema.FormalParameterOption.Single
        for name, parameter in zip(inputs, schema.inputs, strict=False):
            if name is None and parameter.option == single:
                raise InvalidModelError(f"its input {parameter.name!r} is omitted", where=origin)

    def check_types(self, names: Sequence[str | None], types: Sequence[TensorType | None], origin: Origin) -> None:
        """Refuse inputs of element types that the operator doesn't take, or that should be equal and aren't."""
        bound: dict[str, tuple[str, str]] = {}
        last = self.parameters[-1] if self.parameters else None
        for at, (name, type_) in enumerate(zip(names, types, strict=True)):
            if type_ is None or name is None:
                continue
            parameter = self.parameters[at] if at < len(self.parameters) else last
            if parameter is None:
                continue
            label, type_str, homogeneous, _ = parameter
            spelled = type_name(type_.dtype)
            if spelled not in self.allowed.get(type_str, (type_str,)):
                raise InvalidModelError(f"its input {label!r} ({name!r}) is {spelled}", where=origin)
            if homogeneous:
                first, other = bound.setdefault(type_str, (spelled, name))
                if first != spelled:
                    raise InvalidModelError(
                        f"its inputs {other!r} and {name!r} must have one element type, they are {first} and {spelled}",
                        where=origin,
                    )


@functools.lru_cache(maxsize=64)
def type_name(dtype: np.dtype[Any]) -> str:
    """An element type as type strings spell it: tensor(float)."""
    return f"tensor({TensorProto.DataType.Name(elem_type(dtype)).lower()})"


def default_opset() -> int:
    """The newest opset of ONNX's own domain that the installed onnx knows."""
    return int(defs.onnx_opset_version())


def kind_of(domain: str, op_type: str) -> str:
    """The kind of the operation: the operator, with its domain in front unless it is ONNX's own."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"


@functools.lru_cache(maxsize=1024)
def operator_at(domain: str, op_type: str, version: int) -> Operator | None:
    """An operator as opset ``version`` of its domain has it, None where there is none."""
    try:
        schema = defs.get_schema(op_type, version, domain)
        if schema.deprecated and not schema.inputs:  # an empty description: such nodes have the form before it
            schema = defs.get_schema(op_type, schema.since_version - 1, domain)
    except defs.SchemaError:
        return None
    return _operator(schema)


@functools.lru_cache(maxsize=1024)
def newest(domain: str, op_type: str) -> Operator | None:
    """An operator as the newest opset has it, None where there is none (any more)."""
    try:
        schema = defs.get_schema(op_type, domain)
    except defs.SchemaError:
        return None
    return None if schema.deprecated else _operator(schema)


def _operator(schema: defs.OpSchema) -> Operator:
    options = defs.OpSchema.FormalParameterOption
    reader = TensorReader(None)
    return Operator(
        schema,
        {
            name: plain_attribute(attribute.default_value, reader, f"default of {name!r}")
            for name, attribute in schema.attributes.items()
            if attribute.default_value.type != AttributeProto.UNDEFINED
        },
        tuple((p.name, p.type_str, p.is_homogeneous, p.option == options.Variadic) for p in schema.inputs),
        {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints},
        frozenset(at for at, p in enumerate(schema.outputs) if p.option == options.Optional),
        {
            name: int(AttributeProto.AttributeType.Value(str(attribute.type).rpartition(".")[2]))
            for name, attribute in schema.attributes.items()
        },
    )


def check_attribute(operator: Operator, attribute: AttributeProto, origin: Origin) -> None:
    """Refuse an attribute that the operator doesn't have, or that has another type there."""
    known = operator.attribute_types.get(attribute.name)
    if known is None:
        raise InvalidModelError(
            f"it has an attribute {attribute.name!r}, which the operator (since opset {operator.since}) doesn't have",
            where=origin,
        )
    if attribute.type != known:
        names = AttributeProto.AttributeType
        found = names.Name(attribute.type) if attribute.type in names.values() else str(attribute.type)
        raise InvalidModelError(
            f"its attribute {attribute.name!r} is {found}, the operator takes {names.Name(known)}",
            where=origin,
        )


def plain_attribute(attribute: AttributeProto, reader: TensorReader, where: str) -> Any:
    """An attribute as Python data: numbers, text, tuples, LazyArrays; graphs stay GraphProtos for the sweep.

    Raises:
        InvalidModelError, UnsupportedForm: a tensor in it is broken, its type has no Python form.
    """
    kinds = AttributeProto
    kind = attribute.type
    if kind == kinds.INT:
        return attribute.i
    if kind == kinds.INTS:
        return tuple(attribute.ints)
    if kind == kinds.FLOAT:
        return attribute.f
    if kind == kinds.FLOATS:
        return tuple(attribute.floats)
    if kind == kinds.STRING:
        return attribute.s.decode("utf-8", "surrogateescape")
    if kind == kinds.STRINGS:
        return tuple(item.decode("utf-8", "surrogateescape") for item in attribute.strings)
    if kind == kinds.TENSOR:
        return reader.constant(attribute.t, where)
    if kind == kinds.SPARSE_TENSOR:
        return reader.sparse(attribute.sparse_tensor, where)
    if kind == kinds.GRAPH:
        return attribute.g
    if kind == kinds.TYPE_PROTO:
        return attribute.tp
    if kind == kinds.TENSORS:
        return tuple(reader.constant(tensor, where) for tensor in attribute.tensors)
    names = onnx.AttributeProto.AttributeType
    raise UnsupportedForm(f"attributes of type {names.Name(kind) if kind in names.values() else kind}", where=where)
