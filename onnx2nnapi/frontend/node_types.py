"""The types of what one node writes, by onnx's own inference; weights never pass through it."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence

import numpy as np
import onnx
from onnx import shape_inference

from onnx2nnapi.evaluate import node_proto
from onnx2nnapi.frontend.operators import Operator, default_opset
from onnx2nnapi.frontend.types import ShapeError, Type, as_proto, known_type, spelled
from onnx2nnapi.ir.graph import Op
from onnx2nnapi.ir.types import Array, LazyArray, TensorType

__all__ = ["Memory", "infer_types"]

Memory = dict[Hashable, "list[Type | None]"]

_DATA = 1 << 12  # elements up to which inference is given an integer constant
_FLOAT_DATA = frozenset({"Resize"})  # operators whose shape depends on floating-point constants
_UNCHANGED = frozenset({"GroupNormalization", "MeanVarianceNormalization"})  # onnx has no inference for them
# What onnx raises for types that don't fit, and what its inference functions do where they trip over them.
_FAULTS = (
    shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    MemoryError,
)


def infer_types(
    op: Op,
    operator: Operator,
    types: Sequence[Type | None],
    constants: Sequence[LazyArray | None] = (),
    memory: Memory | None = None,
) -> list[Type | None]:
    """Types of an operation's outputs, None where nothing is known.

    Args:
        op: in its newest form, without subgraphs.
        operator: that form.
        types: of its inputs, None where one is omitted or unknown.
        constants: its constant inputs.
        memory: answers to equal questions; layers repeat.

    Raises:
        ShapeError: the operator doesn't take these types.
    """
    if any(name is not None and type_ is None for name, type_ in zip(op.inputs, types, strict=True)):
        return [None] * len(op.outputs)
    if op.kind in _UNCHANGED:
        return [types[0]]
    data = {
        at: const.numpy()
        for at, const in enumerate(constants)
        if const is not None and const.size <= _DATA and (const.dtype.kind in "iu" or op.kind in _FLOAT_DATA)
    }
    key = None if memory is None else _key(op, types, data)
    if memory is None or key is None:
        return _infer(op, operator, types, data)
    if key not in memory:
        memory[key] = _infer(op, operator, types, data)
    return memory[key]


def _key(op: Op, types: Sequence[Type | None], data: dict[int, Array]) -> Hashable:
    """Everything that inference looks at; None where a part of it cannot be compared."""
    if not all(type_ is None or isinstance(type_, TensorType) for type_ in types):
        return None
    if any(isinstance(value, LazyArray) for value in op.attrs.values()):
        return None
    values = tuple((at, array.tobytes()) for at, array in data.items())
    try:
        key = (op.kind, len(op.outputs), tuple(types), tuple(op.attrs.items()), values)
        hash(key)
    except TypeError:  # an attribute that is a TypeProto
        return None
    return key


def _infer(op: Op, operator: Operator, types: Sequence[Type | None], data: dict[int, Array]) -> list[Type | None]:
    names = [None if type_ is None else f"i{at}" for at, type_ in enumerate(types)]
    results = [f"o{at}" for at in range(len(op.outputs))]
    node = node_proto(op.kind, op.attrs, names, results)
    given = {name: as_proto(type_) for name, type_ in zip(names, types, strict=True) if name and type_ is not None}
    tensors = {
        f"i{at}": onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape))
        for at, array in data.items()
    }
    try:
        found = shape_inference.infer_node_outputs(
            operator.schema, node, given, tensors, opset_imports=_newest_imports(node.domain)
        )
    except _FAULTS as error:
        shown = ", ".join("omitted" if name is None else spelled(t) for name, t in zip(names, types, strict=True))
        raise ShapeError(f"{_reason(error)} (its inputs are {shown})", where=op.origin) from None
    return [known_type(found.get(name), str(op.origin)) for name in results]


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
