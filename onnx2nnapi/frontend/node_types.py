"""The types of what one node writes, by onnx's own inference; weights never pass through it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TypeProto, shape_inference

from onnx2nnapi.evaluate import node_proto
from onnx2nnapi.frontend.operators import Operator, default_opset
from onnx2nnapi.frontend.types import ShapeError, spelled
from onnx2nnapi.ir.graph import Op
from onnx2nnapi.ir.types import LazyArray

__all__ = ["infer_types"]

_DATA = 1 << 12  # elements up to which inference is given an integer constant
_FLOAT_DATA = frozenset({"Resize"})  # operators whose shape depends on floating-point constants
# What onnx raises for types that don't fit, and what its inference functions do where they trip over them.
_FAULTS = (
    shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
)


def infer_types(
    op: Op, operator: Operator, types: Sequence[TypeProto | None], constants: Sequence[LazyArray | None]
) -> list[TypeProto | None]:
    """Types of an operation's outputs, None where nothing is known.

    Args:
        op: in its newest form, without subgraphs.
        operator: that form.
        types: of its inputs, None where one is omitted or unknown.
        constants: its constant inputs.

    Raises:
        ShapeError: the operator doesn't take these types.
    """
    names = [None if name is None else f"i{at}" for at, name in enumerate(op.inputs)]
    given, data = {}, {}
    for name, type_, const in zip(names, types, constants, strict=True):
        if name is None:
            continue
        if type_ is None:
            return [None] * len(op.outputs)
        given[name] = type_
        if const is not None and const.size <= _DATA and (const.dtype.kind in "iu" or op.kind in _FLOAT_DATA):
            data[name] = onnx.numpy_helper.from_array(np.ascontiguousarray(const.numpy()).reshape(const.shape))
    results = [f"o{at}" for at in range(len(op.outputs))]
    node = node_proto(op.kind, op.attrs, names, results)
    try:
        found = shape_inference.infer_node_outputs(
            operator.schema, node, given, data, opset_imports=_newest_imports(node.domain)
        )
    except _FAULTS as error:
        shown = ", ".join("omitted" if name is None else spelled(given.get(name)) for name in names)
        raise ShapeError(f"{_reason(error)} (its inputs are {shown})", where=op.origin) from None
    return [found.get(name) for name in results]


@functools.lru_cache(maxsize=16)
def _newest_imports(domain: str) -> list[onnx.OperatorSetIdProto]:
    imports = [onnx.OperatorSetIdProto(domain="", version=default_opset())]
    if domain:
        imports.append(onnx.OperatorSetIdProto(domain=domain, version=1))
    return imports


def _reason(error: BaseException) -> str:
    """onnx's message without its prefixes and node dumps."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    while text.startswith("[") and "]" in text:
        text = text[text.index("]") + 1 :].strip()
    return text.rstrip(".") or type(error).__name__
