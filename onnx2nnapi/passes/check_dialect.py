"""The check of the whole NNAPI dialect: every operation is one that its row accepts, with the results it says."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from onnx2nnapi.errors import FeatureLevelError, InternalError, UnsupportedError, UnsupportedForm
from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.infer import bind_op, signature
from onnx2nnapi.nnapi.rules import RuleError, UnknownValue, level_of, output_types
from onnx2nnapi.nnapi.schema import SCHEMAS, Permutes, Regroups
from onnx2nnapi.options import Options

__all__ = ["check_levels", "verify_dialect"]


def verify_dialect(graph: Graph, options: Options) -> None:
    """Hold every operation against its row, sub-models included.

    Level, rank and type of operations that only move data are left to ``check_levels``: layout may remove them.

    Raises:
        InternalError: naming the operation and what its row says.
    """
    accepted: set[Hashable] = set()  # networks repeat themselves
    for owner, op in _all_ops(graph):
        key = signature(owner, op)
        if key is None or key not in accepted:
            _verify_op(owner, op, options.feature_level)
            accepted.add(key)


def _verify_op(graph: Graph, op: Op, target: int) -> None:
    try:
        bound = bind_op(graph, op)
        level = 1 if _is_late(op) else level_of(bound)
        inferred = output_types(bound, bound.outputs)
    except (KeyError, RuleError) as error:
        if _is_late(op):
            return
        raise InternalError(f"{op.kind} is not accepted: {error}", where=op.origin) from None
    except UnknownValue:
        return
    if level > target:
        raise InternalError(f"{op.kind} came to need feature level {level}", where=op.origin)
    for type_, declared in zip(inferred, bound.outputs, strict=False):
        if declared is not None and type_ != declared:
            raise InternalError(f"{op.kind} gives {type_}, its output is {declared}", where=op.origin)


def check_levels(graph: Graph, options: Options) -> bool:
    """Refuse the operations that only move data and that the target lacks, in the name of the node that asked for them.

    Runs after layout, which removes most of them. Changes nothing.

    Raises:
        UnsupportedError: with every refusal in its ``problems``.
    """
    problems: list[UnsupportedError] = []
    for owner, op in _all_ops(graph):
        if not _is_late(op):
            continue
        try:
            level = level_of(bind_op(owner, op))
        except RuleError as error:
            problems.append(UnsupportedForm(str(error), where=op.origin))
            continue
        if level > options.feature_level:
            problems.append(
                FeatureLevelError(f"its {op.kind}", required=level, target=options.feature_level, where=op.origin)
            )
    if problems:
        raise UnsupportedError.collected(problems)
    return False


def _all_ops(graph: Graph) -> Iterator[tuple[Graph, Op]]:
    for op in graph.ops:
        yield graph, op
        for subgraph in op.subgraphs.values():
            yield from _all_ops(subgraph)


def _is_late(op: Op) -> bool:
    return isinstance(SCHEMAS[OperationCode[op.kind]].layout, (Permutes, Regroups))
