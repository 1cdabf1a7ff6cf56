"""If, Loop and Scan: a branch that is known to be taken is inlined, the other bodies become Graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx import GraphProto, TensorProto

from onnx2nnapi.errors import InvalidModelError, Origin, UnsupportedOp
from onnx2nnapi.frontend.order import check_names, reads
from onnx2nnapi.frontend.types import ShapeError, Type, common_type, elem_code, sizes, tensor
from onnx2nnapi.ir.graph import Graph, Op, Value

if TYPE_CHECKING:
    from onnx2nnapi.frontend.infer import Sweep
    from onnx2nnapi.frontend.scope import Scope

__all__ = ["take_in"]

Types = list["Type | None"]


def take_in(sweep: Sweep, op: Op, scope: Scope) -> None:
    """Take in a node that holds subgraphs (as GraphProtos).

    Raises:
        InvalidModelError: a body doesn't fit the node. UnsupportedOp: another operator than If, Loop and Scan.
    """
    rules = {"If": _if, "Loop": _loop, "Scan": _scan}
    if op.kind not in rules:
        raise UnsupportedOp("an operator with subgraphs", where=op.origin)
    if scope.depth > 64:
        raise InvalidModelError("subgraphs are nested too deeply", where=op.origin)
    rules[op.kind](sweep, op, scope)


def _body(
    sweep: Sweep, proto: GraphProto, scope: Scope, inputs: Sequence[Type | None], origin: Origin
) -> tuple[Graph, Types]:
    """A body as a Graph of its own, and the types of its outputs."""
    if len(inputs) != len(proto.input):
        raise InvalidModelError(
            f"its body {proto.name!r} has {len(proto.input)} inputs, the node gives it {len(inputs)}", where=origin
        )
    graph = Graph(sweep.graph.dialect, proto.name)
    graph.opset = sweep.graph.opset
    child, inner = sweep.child(graph), scope.inside()
    for entry, type_ in zip(proto.input, inputs, strict=True):
        name = inner.names[entry.name] = child.fresh(entry.name)
        graph.add_value(child.define(Value(name)))
        child.set_type(name, type_)
        graph.inputs.append(name)
    child.take_initializers(proto, inner)
    for node in proto.node:
        for output in node.output:
            if output:
                inner.names[output] = child.fresh(output)
    inner.read = frozenset([*(e.name for e in proto.output), *(name for node in proto.node for name in reads(node))])
    child.declare(proto.value_info, inner)
    child.run(proto.node, inner)
    outputs = [child.resolve(entry.name, inner, origin) for entry in proto.output]
    named = [name for name in outputs if name is not None]
    if len(named) != len(outputs):
        raise InvalidModelError(f"an output of its body {proto.name!r} has no name", where=origin)
    types = [child.type_of(name) for name in named]
    child.finish(named)
    return graph, types


def _if(sweep: Sweep, op: Op, scope: Scope) -> None:
    branches: dict[str, GraphProto] = {key: op.attrs[key] for key in ("then_branch", "else_branch")}
    for key, branch in branches.items():
        if branch.input or len(branch.output) < len(op.outputs):
            raise InvalidModelError(
                f"its {key} has {len(branch.input)} inputs and {len(branch.output)} outputs, it needs 0 and"
                f" {len(op.outputs)}",
                where=op.origin,
            )
        check_names(branch, op.origin)
    condition = sweep.array(op.inputs[0])
    if condition is not None:
        if condition.size != 1:
            raise InvalidModelError(f"its condition has {condition.size} elements", where=op.origin)
        _inline_branch(sweep, branches["then_branch" if condition.reshape(()) else "else_branch"], op, scope)
        return
    results: list[Types] = []
    for key, other in (("then_branch", "else_branch"), ("else_branch", "then_branch")):
        try:
            op.attrs[key], types = _body(sweep, branches[key], scope, [], op.origin)
        except ShapeError as error:
            if not sweep.shapes_chosen:
                raise
            # The branch is for other sizes of the inputs than those bound: with these only the other one can run.
            sweep.assume(f"{op.origin}: {op.inputs[0]!r} selects the {other}; the {key} takes other shapes: {error}")
            _inline_branch(sweep, branches[other], op, scope)
            return
        results.append(types)
    sweep.keep(op, [common_type(*pair) for pair in zip(*results, strict=True)][: len(op.outputs)])


def _inline_branch(sweep: Sweep, branch: GraphProto, op: Op, scope: Scope) -> None:
    inner = scope.inside()
    sweep.take_initializers(branch, inner)
    sweep.inline(branch.node, inner, [entry.name for entry in branch.output], op.outputs, op.origin)


def _loop(sweep: Sweep, op: Op, scope: Scope) -> None:
    proto: GraphProto = op.attrs["body"]
    check_names(proto, op.origin)
    carried: Types = [None if name is None else sweep.type_of(name) for name in op.inputs[2:]]
    if len(proto.output) < 1 + len(carried) or len(op.outputs) > len(proto.output) - 1:
        raise InvalidModelError(
            f"its body has {len(proto.output)} outputs for {len(carried)} carried values and {len(op.outputs)} outputs",
            where=op.origin,
        )
    head: Types = [tensor(TensorProto.INT64, ()), tensor(TensorProto.BOOL, ())]
    graph, carried, types = _settled(sweep, proto, scope, head, carried, [], op.origin)
    op.attrs["body"] = graph
    trips = sweep.array(op.inputs[0] if op.inputs else None)
    start = sweep.array(op.inputs[1]) if len(op.inputs) > 1 and op.inputs[1] else None
    started = len(op.inputs) < 2 or op.inputs[1] is None or (start is not None and bool(start.all()))
    endless = started and _stays_true(graph)
    count = int(trips.reshape(-1)[0]) if trips is not None and endless else None
    scans = [_with_axis(type_, 0, count) for type_ in types[1 + len(carried) :]]
    sweep.keep(op, [*carried, *scans][: len(op.outputs)])


def _stays_true(body: Graph) -> bool:
    """Whether a Loop body hands its condition on, or always wants another trip."""
    name = body.outputs[0]
    value = body.values.get(name)
    if value is not None and value.const is not None:
        return bool(value.const.numpy().all())
    producer = body.producer(name) if value is not None else None
    source = producer.inputs[0] if producer is not None and producer.kind == "Identity" else name
    return source == body.inputs[1]


def _scan(sweep: Sweep, op: Op, scope: Scope) -> None:
    proto: GraphProto = op.attrs["body"]
    check_names(proto, op.origin)
    count = int(op.attrs["num_scan_inputs"])
    types: Types = [None if name is None else sweep.type_of(name) for name in op.inputs]
    states = len(types) - count
    if count < 1 or states < 0 or len(proto.output) < max(states, len(op.outputs)):
        raise InvalidModelError(
            f"it scans {count} of {len(types)} inputs, its body has {len(proto.output)} outputs", where=op.origin
        )
    axes = op.attrs.get("scan_input_axes") or (0,) * count
    slices, lengths = [], []
    for type_, axis in zip(types[states:], axes, strict=False):
        dims = sizes(type_)
        if type_ is None or dims is None or not -len(dims) <= axis < len(dims):
            raise InvalidModelError(f"an input that it scans has no axis {axis}", where=op.origin)
        lengths.append(dims[axis])
        at = axis % len(dims)
        slices.append(tensor(elem_code(type_), dims[:at] + dims[at + 1 :]))
    graph, carried, results = _settled(sweep, proto, scope, [], types[:states], slices, op.origin)
    op.attrs["body"] = graph
    out_axes = op.attrs.get("scan_output_axes") or (0,) * (len(results) - states)
    scans = [_with_axis(type_, axis, lengths[0]) for type_, axis in zip(results[states:], out_axes, strict=False)]
    sweep.keep(op, [*carried, *scans][: len(op.outputs)])


def _settled(
    sweep: Sweep,
    proto: GraphProto,
    scope: Scope,
    head: Types,
    carried: Types,
    tail: Sequence[Type | None],
    origin: Origin,
) -> tuple[Graph, Types, Types]:
    """The body, with types of the carried values that hold on every trip."""
    for _ in range(3):  # as given; sizes that change unknown; ranks that change unknown
        graph, types = _body(sweep, proto, scope, [*head, *carried, *tail], origin)
        offset = len(types) - len(proto.output) + (1 if head else 0)
        after = types[offset : offset + len(carried)]
        stable = [common_type(a, b) for a, b in zip(carried, after, strict=True)]
        if stable == carried:
            break
        carried = stable
    return graph, carried, types


def _with_axis(type_: Type | None, axis: int, size: int | None) -> Type | None:
    dims = sizes(type_)
    if type_ is None or dims is None:
        return None if type_ is None else tensor(elem_code(type_), None)
    at = axis % (len(dims) + 1)
    return tensor(elem_code(type_), (*dims[:at], size, *dims[at:]))
