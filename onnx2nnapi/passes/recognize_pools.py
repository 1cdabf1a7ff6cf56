"""recognize_pools: the root of the mean of squares in windows becomes one L2_POOL_2D.

Before::

    a = MUL(x, x)
    b = TRANSPOSE(a) {perm=[0, 2, 3, 1]}
    c = AVERAGE_POOL_2D(b) {filter_width=3, …}
    d = TRANSPOSE(c) {perm=[0, 3, 1, 2]}
    y = SQRT(d)

After::

    b = TRANSPOSE(x) {perm=[0, 2, 3, 1]}
    c = L2_POOL_2D(b) {filter_width=3, …}
    y = TRANSPOSE(c) {perm=[0, 3, 1, 2]}
"""

from __future__ import annotations

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.options import Options

__all__ = ["recognize_pools"]

_MOVES = ("RESHAPE", "TRANSPOSE")


def recognize_pools(graph: Graph, options: Options) -> bool:
    """Recognize pools by the Euclidean norm; NNAPI dialect, before activations are fused, floats."""
    changed = False
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= recognize_pools(subgraph, options)
        if op.kind == "AVERAGE_POOL_2D":
            changed |= _recognize(graph, op)
    return changed


def _recognize(graph: Graph, pool: Op) -> bool:
    before, after = _before(graph, str(pool.inputs[0])), _after(graph, str(pool.outputs[0]))
    if before is None or after is None or graph[str(pool.inputs[0])].known.dtype.kind != "f":
        return False
    (square, came), (root, went) = before, after
    source, result = str(square.inputs[0]), str(root.outputs[0])
    origins = tuple(dict.fromkeys((*square.origins, *pool.origins, *root.origins)))
    graph.remove(square)
    graph.remove(root)
    graph.replace_uses(came[-1], source)
    made = Op("L2_POOL_2D", pool.inputs, pool.outputs, pool.attrs, origins)
    graph.replace(pool, [made])
    graph.rewire(graph.producer(went[-1]) or made, outputs=(result,))
    for name in (came.pop(), went.pop()):
        graph.drop_value(name)
    for name in (*came, *went):
        graph[name].holds = None  # squares, and means of squares, are what they were
    return True


def _before(graph: Graph, name: str) -> tuple[Op, list[str]] | None:
    """The product of a value with itself that, moved, is ``name``, and the names back to it, each for one reader."""
    names = [name]
    while graph.uses(name) == 1 and (op := graph.producer(name)) is not None:
        if op.kind == "MUL" and op.inputs[0] == op.inputs[1] and not op.attrs.get("fuse_code"):
            return op, names
        if op.kind not in _MOVES:
            break
        name = str(op.inputs[0])
        names.append(name)
    return None


def _after(graph: Graph, name: str) -> tuple[Op, list[str]] | None:
    """The root of what ``name`` is moved to, and the names up to there, each for one reader."""
    names = [name]
    while name not in graph.outputs and graph.uses(name) == 1:
        op = graph.readers(name)[0]
        if op.kind == "SQRT":
            return op, names
        if op.kind not in _MOVES:
            break
        name = str(op.outputs[0])
        names.append(name)
    return None
