"""expand: an operator that no rule converts becomes the operators of its body, as onnx defines it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx import FunctionProto

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.evaluate import node_proto
from onnx2nnapi.frontend.infer import Sweep
from onnx2nnapi.frontend.operators import default_opset, newest
from onnx2nnapi.frontend.tensors import TensorReader
from onnx2nnapi.frontend.types import ShapeError, as_proto
from onnx2nnapi.ir.graph import Graph, Op

__all__ = ["expand", "expand_all"]


def expand_all(graph: Graph, known: Callable[[str], bool]) -> bool:
    """Expand whatever is not ``known``, in the bodies of control flow and of the expanded too; True: something was.

    Args:
        graph: in the ONNX dialect.
        known: whether an operator, by its kind, is converted as it is.

    Raises:
        InvalidModelError: a body doesn't fit what its operation reads.
    """
    changed, pending = False, list(graph.ops)
    while pending:
        op = pending.pop()
        for subgraph in op.subgraphs.values():
            changed |= expand_all(subgraph, known)
        parts = None if known(op.kind) else _expanded(graph, op)
        if parts is not None:
            changed = True
            pending.extend(parts)
    return changed


def expand(graph: Graph, op: Op) -> bool:
    """Replace an operation by its operator's function body.

    Args:
        graph: in the ONNX dialect; what the body's nodes compute from constants becomes constant.
        op: an operation of it, in its newest form.

    Returns:
        False, with nothing changed, where onnx defines no body for the operator in this form, or one that branches,
        repeats itself or has tensors of sizes that depend on data.

    Raises:
        InvalidModelError: the body doesn't fit what the operation reads.
    """
    return _expanded(graph, op) is not None


def _expanded(graph: Graph, op: Op) -> list[Op] | None:
    """The operations that took the place of ``op``, None where its operator has no usable body."""
    function = None if _gives_infinities(graph, op) else _body(graph, op)
    if function is None:
        return None
    attributes = {entry.name: entry for entry in node_proto(op.kind, op.attrs, (), ()).attribute}
    sweep = Sweep(graph, TensorReader(None), {})
    before = set(graph.values)
    try:
        sweep.call(function, attributes, op.inputs, op.outputs, op.origin)
    except ShapeError as error:
        raise InvalidModelError(error.message, where=error.where, hint=error.hint) from None
    for name in op.outputs:
        if name is not None:
            sweep.use(name)
    if any(part.subgraphs or any(n is not None and graph[n].type is None for n in part.outputs) for part in sweep.ops):
        for name in [name for name in graph.values if name not in before]:
            del graph.values[name]
        return None
    for part in sweep.ops:
        part.origins = op.origins
    graph.replace(op, sweep.ops)
    return sweep.ops


def _gives_infinities(graph: Graph, op: Op) -> bool:
    """Whether an Attention has its masked scores as an output: minus infinity there is what NNAPI's sums saturate."""
    masks = [graph[name].type for name in op.inputs[3:4] if name is not None]
    masked = op.attrs.get("is_causal") or any(type_ is not None and type_.dtype.kind == "b" for type_ in masks)
    wanted = op.kind == "Attention" and any(name is not None for name in op.outputs[3:])
    return wanted and bool(masked) and op.attrs.get("qk_matmul_output_mode") in (1, 2)


def _body(graph: Graph, op: Op) -> FunctionProto | None:
    """The function that defines an operation, for the types that it reads where it depends on them."""
    domain, _, op_type = op.kind.rpartition("::")
    operator = newest(domain, op_type)
    if operator is None:
        return None
    schema: Any = operator.schema  # onnx's stubs don't know its functions
    if schema.has_function:
        versions = schema.function_opset_versions
        body = FunctionProto()
        body.ParseFromString(schema.get_function_with_opset_version(max(versions)))
        return body
    if not schema.has_context_dependent_function:
        return None
    types = []
    for name in op.inputs:
        known = None if name is None else graph[name].type
        if name is not None and known is None:
            return None
        types.append(b"" if known is None else as_proto(known).SerializeToString())
    node = node_proto(op.kind, op.attrs, op.inputs, op.outputs)
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= default_opset()]
    data = schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), types)
    if not data:
        return None
    body = FunctionProto()
    body.ParseFromString(data)
    if all(entry.domain not in ("", "ai.onnx") for entry in body.opset_import):
        body.opset_import.add(domain="", version=default_opset())
    return body
