"""Reshapes and transposes of types that NNAPI's lack: bool goes as bytes, int32 as float32 or as two halves.

m: bool → RESHAPE → …   becomes   m → SELECT(1, 0): uint8 → RESHAPE → NOT_EQUAL(0) → …
Runs when layout has removed all moves that it can, so that only what is left pays for it.
"""

from __future__ import annotations

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.schema import SCHEMAS, Permutes, Regroups
from onnx2nnapi.options import Options
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize.carry import carry_move, takes

__all__ = ["carry_types"]


def carry_types(graph: Graph, options: Options) -> bool:
    """Rewrite every move whose operation has no row for its element type at the target level.

    Raises:
        FeatureLevelError: no level up to the target can carry it.
    """
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= carry_types(subgraph, options)
    builder = Builder(graph, options)
    moves = [op for op in graph.ops if _is_move(op) and not takes(builder, op.kind, graph[str(op.inputs[0])])]
    for op in moves:
        builder.op = op
        name = str(op.outputs[0])
        moved = graph[str(op.inputs[0])]
        moved.bounds = moved.bounds or graph[name].bounds
        result = carry_move(builder, moved, op)
        result.holds = graph[name].holds
        graph.remove(op)
        graph.replace_uses(name, result.name, outputs=True)
        graph.drop_value(name)
    return changed or bool(moves)


def _is_move(op: Op) -> bool:
    return isinstance(SCHEMAS[OperationCode[op.kind]].layout, (Permutes, Regroups))
