"""Names that are no UTF-8: protobuf hands these out as bytes, which nothing after the door expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from onnx2nnapi.errors import InvalidModelError

__all__ = ["check_encoding"]


def check_encoding(model: ModelProto, label: str) -> None:
    """Refuse a model with a name, symbol or file name that is no UTF-8.

    Args:
        model: just parsed.
        label: of the model, for the message.
    """
    own = chain((entry.domain for entry in model.opset_import), _graph_texts(model.graph))
    for text in chain(own, *(_function_texts(function) for function in model.functions)):
        if not isinstance(text, str):
            raise InvalidModelError(f"a name in it, {text!r}, is no UTF-8", where=label, hint="the file is damaged")


def _function_texts(function: FunctionProto) -> Iterator[object]:
    yield from (function.name, function.domain, getattr(function, "overload", ""))
    yield from chain(function.input, function.output, function.attribute)
    yield from (entry.domain for entry in function.opset_import)
    yield from _attribute_texts(function.attribute_proto)
    yield from _node_texts(function.node)


def _graph_texts(graph: GraphProto) -> Iterator[object]:
    yield graph.name
    yield from _node_texts(graph.node)
    tensors: Iterable[TensorProto] = chain(
        graph.initializer, *((s.values, s.indices) for s in graph.sparse_initializer)
    )
    for tensor in tensors:
        yield from _tensor_texts(tensor)
    values: Iterable[ValueInfoProto] = chain(graph.input, graph.output, graph.value_info)
    for value in values:
        yield value.name
        yield from _type_texts(value.type)


def _type_texts(type_: TypeProto) -> Iterator[object]:
    for dim in type_.tensor_type.shape.dim:
        if dim.HasField("dim_param"):
            yield dim.dim_param


def _tensor_texts(tensor: TensorProto) -> Iterator[object]:
    yield tensor.name
    for entry in tensor.external_data:
        yield entry.key
        yield entry.value


def _node_texts(nodes: Sequence[NodeProto]) -> Iterator[object]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, getattr(node, "overload", ""))
        yield from node.input
        yield from node.output
        if node.attribute:
            yield from _attribute_texts(node.attribute)


def _attribute_texts(attributes: Sequence[AttributeProto]) -> Iterator[object]:
    kinds = AttributeProto
    for attribute in attributes:
        yield attribute.name
        yield attribute.ref_attr_name
        if attribute.type == kinds.TENSOR:
            yield from _tensor_texts(attribute.t)
        elif attribute.type == kinds.GRAPH:
            yield from _graph_texts(attribute.g)
        elif attribute.type == kinds.SPARSE_TENSOR:
            yield from chain(
                _tensor_texts(attribute.sparse_tensor.values), _tensor_texts(attribute.sparse_tensor.indices)
            )
        elif attribute.type == kinds.TENSORS:
            for tensor in attribute.tensors:
                yield from _tensor_texts(tensor)
