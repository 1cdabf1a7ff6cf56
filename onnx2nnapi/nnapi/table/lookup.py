"""Rows of the lookups: embeddings, hash tables, hashing projections, and random drawing."""

from __future__ import annotations

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import Fixed, Form, Rank, SameAs, Schema, array, register, scalar, tensor, type_rows

__all__ = ["DENSE", "SPARSE"]

# Types of LSH_PROJECTION: one number of bits for each hash, or each bit a number of its own.
SPARSE_DEPRECATED, DENSE, SPARSE = 1, 2, 3


def _embedding_lookup(bound: Bound) -> list[Shape]:
    return [(*bound.shape("lookups"), *bound.shape("values")[1:])]


def _hashtable_lookup(bound: Bound) -> list[Shape]:
    keys, values = bound.shape("keys"), bound.shape("values")
    if keys != values[:1]:
        raise RuleError(f"operand 'keys' has shape {list(keys)}, the first dimension of 'values' is {values[0]}")
    lookups = bound.shape("lookups")
    return [(*lookups, *values[1:]), lookups]


def _lsh_projection(bound: Bound) -> list[Shape]:
    hashes, bits = bound.shape("hash")
    if bits > 32:
        raise RuleError(f"operand 'hash' asks for {bits} bits, at most 32 fit")
    kind = bound.scalar("type")
    if kind not in (SPARSE_DEPRECATED, DENSE, SPARSE):
        raise RuleError(f"operand 'type' is {kind}, it must be 1, 2 (dense) or 3 (sparse)")
    weight = bound.arguments["weight"]
    surplus = kind != DENSE and weight is not None and weight.certain
    if surplus or (kind == DENSE and weight is None):
        raise RuleError("operand 'weight' goes with the dense type (2), and only with it")
    items = bound.shape("input")[:1]
    if kind == DENSE and bound.shape("weight") != items:
        raise RuleError(f"operand 'weight' has shape {list(bound.shape('weight'))}, it must be {list(items)}")
    return [(hashes * bits if kind == DENSE else hashes,)]


def _random_multinomial(bound: Bound) -> list[Shape]:
    count = int(bound.scalar("sample_count"))
    if count < 1:
        raise RuleError(f"operand 'sample_count' is {count}, it must be positive")
    if bound.shape("seeds") != (2,):
        raise RuleError(f"operand 'seeds' has shape {list(bound.shape('seeds'))}, it must be [2]")
    return [(bound.shape("input")[0], count)]


register(
    Schema(
        OperationCode.EMBEDDING_LOOKUP,
        1,
        (Form("", (tensor("lookups", OperandCode.TENSOR_INT32), tensor("values"))),),
        (tensor("output"),),
        type_rows("values output", ("F32", 1), ("F16", 4), ("I32", 3), ("U8", 3), ("S8", 4)),
        _embedding_lookup,
        ranks={"lookups": Rank(1, 1), "values": Rank(2, None)},
        quantization={"output": SameAs("values")},
        doc="The slices of values along its first dimension that lookups name.",
    ),
    Schema(
        OperationCode.HASHTABLE_LOOKUP,
        1,
        (
            Form(
                "",
                (
                    tensor("lookups", OperandCode.TENSOR_INT32),
                    tensor("keys", OperandCode.TENSOR_INT32),
                    tensor("values"),
                ),
            ),
        ),
        (tensor("output"), tensor("hits", OperandCode.TENSOR_QUANT8_ASYMM)),
        type_rows("values output", ("F32", 1), ("I32", 1), ("U8", 1)),
        _hashtable_lookup,
        ranks={"lookups": Rank(1, 1), "keys": Rank(1, 1), "values": Rank(1, None)},
        quantization={"output": SameAs("values"), "hits": Fixed({OperandCode.TENSOR_QUANT8_ASYMM: (1.0, 0)})},
        doc="The slices of values whose key (rising) is looked up, zeros where there is none; hits says 1 or 0.",
    ),
    Schema(
        OperationCode.LSH_PROJECTION,
        1,
        (Form("", (tensor("hash"), tensor("input"), tensor("weight", omittable=True), scalar("type"))),),
        (tensor("output", OperandCode.TENSOR_INT32),),
        type_rows(
            "hash input weight",
            *((f"F32 {code} F32", 1) for code in ("F32", "F16", "I32", "U8")),
            *((f"F16 {code} F16", 3) for code in ("F32", "F16", "I32", "U8")),
        ),
        _lsh_projection,
        ranks={"hash": Rank(2, 2), "input": Rank(1, None)},
        doc="Projects an input to the sign bits of hashes of its items, seeded by hash and weighted.",
    ),
    Schema(
        OperationCode.RANDOM_MULTINOMIAL,
        3,
        (Form("", (tensor("input"), scalar("sample_count"), array("seeds"))),),
        (tensor("output", OperandCode.TENSOR_INT32),),
        type_rows("input", ("F32", 3), ("F16", 3)),
        _random_multinomial,
        ranks={"input": Rank(2, 2)},
        doc="Draws sample_count classes for each row of unnormalized log-probabilities; seeds of 0 draw at random.",
    ),
)
