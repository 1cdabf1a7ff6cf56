"""Types of onnxruntime's own operators, of which onnx has no schema: those that its optimizers and quantizers write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import TensorProto

from onnx2nnapi.frontend.node_types import infer_types
from onnx2nnapi.frontend.operators import newest
from onnx2nnapi.frontend.types import Type, elem_code, sizes, tensor
from onnx2nnapi.ir.graph import Op

__all__ = ["contributed_types"]

Types = Sequence["Type | None"]
Rule = Callable[[Op, Types], "list[Type | None]"]


def contributed_types(op: Op, types: Types) -> list[Type | None]:
    """Types of the outputs of an operator without a schema, None where they are unknown.

    Args:
        op: the operation.
        types: of its inputs, None where one is omitted or unknown.
    """
    rule = _RULES.get(op.kind)
    known = [] if rule is None or not types or types[0] is None else rule(op, types)
    return [*known, *[None] * len(op.outputs)][: len(op.outputs)]


def _same(op: Op, types: Types) -> list[Type | None]:
    return [types[0]]


def _with_sum(op: Op, types: Types) -> list[Type | None]:
    """SkipLayerNormalization: the result, mean and inverse deviation (which training alone has), and the sum."""
    return [types[0], None, None, types[0]]


def _like(kind: str, *positions: int, dtype: int = 0) -> Rule:
    """The shape that operator ``kind`` gives the inputs at ``positions``, with the element type of input ``dtype``."""

    def rule(op: Op, types: Types) -> list[Type | None]:
        operator = newest("", kind)
        if operator is None or op.attrs.get("channels_last"):
            return []
        taken = [types[at] if at < len(types) else None for at in positions]
        while taken and taken[-1] is None:
            taken.pop()
        attrs = {name: value for name, value in op.attrs.items() if name in operator.attribute_types}
        floats = [None if type_ is None else tensor(TensorProto.FLOAT, sizes(type_)) for type_ in taken]
        names = tuple(None if type_ is None else f"i{at}" for at, type_ in enumerate(taken))
        plain = Op(kind, names, op.outputs[:1], {**operator.defaults, **attrs}, op.origins)
        found = infer_types(plain, operator, floats)[0]
        return [tensor(_elem(types, dtype), sizes(found))]

    return rule


def _elem(types: Types, index: int) -> int:
    """Element type of an input; float where it is omitted."""
    type_ = types[index] if index < len(types) else None
    return TensorProto.FLOAT if type_ is None else elem_code(type_)


def _matmul(like: int = 0) -> Rule:
    """A matrix product, transposed as ``transA`` and ``transB`` say, with the element type of input ``like``."""

    def rule(op: Op, types: Types) -> list[Type | None]:
        a, b = sizes(types[0]), sizes(types[1]) if len(types) > 1 else None
        batches = op.attrs.get("transBatchA") or op.attrs.get("transBatchB")
        if a is None or b is None or len(a) < 2 or len(b) < 2 or batches:
            return []
        a = (*a[:-2], a[-1], a[-2]) if op.attrs.get("transA") else a
        b = (*b[:-2], b[-1], b[-2]) if op.attrs.get("transB") else b
        elem = _elem(types, like)
        operator = newest("", "MatMul")
        if operator is None:
            return []
        flat = [tensor(elem, a), tensor(elem, b)]
        return infer_types(Op("MatMul", ("a", "b"), op.outputs[:1], {}, op.origins), operator, flat)

    return rule


def _concat(op: Op, types: Types) -> list[Type | None]:
    """QLinearConcat: scale and zero point of the result, then value, scale and zero point of each part."""
    operator = newest("", "Concat")
    parts = types[2::3]
    if operator is None or None in parts:
        return []
    names = tuple(f"i{at}" for at in range(len(parts)))
    plain = Op("Concat", names, op.outputs[:1], {"axis": op.attrs.get("axis", 0)}, op.origins)
    return infer_types(plain, operator, parts)


def _quantize(op: Op, types: Types) -> list[Type | None]:
    zero_point = types[2] if len(types) > 2 else None
    elem = TensorProto.UINT8 if zero_point is None else elem_code(zero_point)
    return [tensor(elem, sizes(types[0]))]


def _dequantize(op: Op, types: Types) -> list[Type | None]:
    scale = types[1] if len(types) > 1 else None
    return [] if scale is None else [tensor(elem_code(scale), sizes(types[0]))]


def _attention(op: Op, types: Types) -> list[Type | None]:
    """Attention: [batch, sequence, inputs] and weights [inputs, 3 · hidden] (or the sizes that the node gives)."""
    shape, weights = sizes(types[0]), sizes(types[1]) if len(types) > 1 else None
    if shape is None or len(shape) != 3 or types[0] is None:
        return []
    given = op.attrs.get("qkv_hidden_sizes")
    whole = weights[-1] if weights else None
    hidden = given[2] if given else None if whole is None else whole // 3
    return [tensor(elem_code(types[0]), (*shape[:2], hidden))]


def _multi_head(op: Op, types: Types) -> list[Type | None]:
    """MultiHeadAttention: queries [batch, sequence, …], and values of which the result has the last dimension."""
    query, value = sizes(types[0]), sizes(types[2]) if len(types) > 2 else None
    if query is None or value is None or len(query) != 3 or len(value) != 3 or types[0] is None:
        return []
    return [tensor(elem_code(types[0]), (*query[:2], value[2]))]


def _embedding(op: Op, types: Types) -> list[Type | None]:
    """EmbedLayerNormalization: ids [batch, sequence], word embeddings [words, hidden]."""
    ids, table = sizes(types[0]), sizes(types[2]) if len(types) > 2 else None
    if ids is None or table is None or types[2] is None:
        return []
    elem = elem_code(types[2])
    whole = tensor(elem, (*ids, table[-1]))
    return [whole, tensor(TensorProto.INT32, ids[:1]), whole]


_ORT = "com.microsoft::"
_SAME = [
    "BiasGelu", "FastGelu", "Gelu", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QuickGelu",
    "SimplifiedLayerNormalization",
]  # fmt: skip

_RULES: dict[str, Rule] = {
    **{_ORT + kind: _same for kind in _SAME},
    "SimplifiedLayerNormalization": _same,
    _ORT + "Attention": _attention,
    _ORT + "DequantizeLinear": _dequantize,
    _ORT + "DynamicQuantizeMatMul": _matmul(2),
    _ORT + "EmbedLayerNormalization": _embedding,
    _ORT + "FusedConv": _like("Conv", 0, 1, 2),
    _ORT + "FusedGemm": _like("Gemm", 0, 1, 2),
    _ORT + "FusedMatMul": _matmul(),
    _ORT + "MatMulIntegerToFloat": _matmul(2),
    _ORT + "MultiHeadAttention": _multi_head,
    _ORT + "QGemm": _like("Gemm", 0, 3, dtype=8),
    _ORT + "QLinearAdd": _like("Add", 0, 3),
    _ORT + "QLinearAveragePool": _like("AveragePool", 0),
    _ORT + "QLinearConcat": _concat,
    _ORT + "QLinearGlobalAveragePool": _like("GlobalAveragePool", 0),
    _ORT + "QLinearMul": _like("Mul", 0, 3),
    _ORT + "QuantizeLinear": _quantize,
    _ORT + "SkipLayerNormalization": _with_sum,
    _ORT + "SkipSimplifiedLayerNormalization": _with_sum,
    _ORT + "TransposeMatMul": _matmul(),
}
