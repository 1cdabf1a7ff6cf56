"""Whether NNAPI would accept a model, and the feature level that it needs."""

from __future__ import annotations

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi.model import Lifetime, Model, Operand, Subgraph
from onnx2nnapi.nnapi.rules import Argument, RuleError, bind, level_of
from onnx2nnapi.nnapi.schema import SCHEMAS

__all__ = ["validate"]


def validate(model: Model) -> int:
    """The feature level that ``model`` needs.

    Raises:
        InvalidModelError: NNAPI would refuse it.
    """
    level = 1
    for graph in model.graphs:
        for index, operation in enumerate(graph.operations):
            where = f"operation {index} {operation.code.name}"
            if operation.code not in SCHEMAS:
                raise InvalidModelError("it is not supported", where=where)
            arguments = [_argument(model, graph.operands[operand]) for operand in operation.inputs]
            outputs = [graph.operands[operand].type for operand in operation.outputs]
            try:
                level = max(level, level_of(bind(SCHEMAS[operation.code], arguments, outputs)))
            except RuleError as error:
                raise InvalidModelError(str(error), where=where) from None
    return level


def _argument(model: Model, operand: Operand) -> Argument | None:
    if operand.lifetime is Lifetime.NO_VALUE:
        return None
    graph: Subgraph | None = model.subgraphs[operand.subgraph] if operand.subgraph is not None else None
    return Argument(operand.type, graph if graph is not None else operand.value)
