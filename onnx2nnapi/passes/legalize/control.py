"""If, Loop and Scan that only the run decides: IF and WHILE over sub-models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.ir.types import Shape, TensorType
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.element_types import nnapi_type
from onnx2nnapi.passes.inline_control import stays_true, trip_count
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.carry import carried
from onnx2nnapi.passes.legalize.driver import legalize_body
from onnx2nnapi.passes.legalize.elementwise import one, shift
from onnx2nnapi.passes.legalize.logic import select
from onnx2nnapi.passes.legalize.loops import Inside, placed, submodels, while_loop
from onnx2nnapi.passes.legalize.movement import transposed
from onnx2nnapi.passes.legalize.shapes import binary, unary

LAST = 2**31 - 1  # of int32, in which trips are counted

CHEAP_OPS, CHEAP_ELEMENTS = 32, 1 << 18  # of both branches together, where both are computed

# What may fail on values that the other branch is there to avoid: computed indices that are outside, division by zero.
_INDEXED = {"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"}
_FAIL = {"OneHot", "If", "Loop", "Scan"}
_FAIL_ON_INTEGERS = {"Div", "Mod"}


@legalizes("If")
def if_(b: Builder, op: Op) -> list[Value | None]:
    """IF from level 4; at level 3 both branches and SELECT, where they are cheap and no value makes them fail.

    The branches must give tensors of the same shapes.
    """
    (condition,) = b.inputs(op)
    branches: list[Graph] = [op.attrs[key] for key in ("then_branch", "else_branch")]
    results: list[Value | None] = [None] * len(op.outputs)
    wanted = [index for index, name in enumerate(op.outputs) if name is not None]
    for index in wanted:
        _same_in_both(b, op, index, *(_type_in(b, branch, branch.outputs[index]) for branch in branches))
        if not b.out_type(op, index).size:
            empty = nnapi_type(b.out_type(op, index), b.options, f"tensor {op.outputs[index]!r}")
            results[index] = b.const(np.zeros(empty.shape, empty.dtype), quant=empty.quant)
    wanted = [index for index in wanted if results[index] is None]
    if not wanted:
        return results
    condition = b.reshape(condition, (1,))
    if b.at_least(4):
        insides = [
            lambda inner, _, branch=branch: [legalize_body(inner, branch, [])[i] for i in wanted] for branch in branches
        ]
        (then, other), operands = submodels(b, [], *insides, instead=condition)
        types = [then[name].known for name in then.outputs]
        made = b.emit_all("IF", condition, *operands, then_model=then, else_model=other, types=types)
    else:
        _must_be_harmless(b, branches)
        sides = [legalize_body(b, branch, []) for branch in branches]
        made = [_chosen(b, condition, *(side[index] for side in sides)) for index in wanted]
    for index, value in zip(wanted, made, strict=True):
        results[index] = b.reshape(value, b.out_shape(op, index))
    return results


def _type_in(b: Builder, body: Graph, name: str) -> TensorType | None:
    return (body if name in body.values else b.owner(name))[name].type


def _same_in_both(b: Builder, op: Op, index: int, then: TensorType | None, other: TensorType | None) -> None:
    if then is None or other is None:
        b.unsupported(f"the shape of output {op.outputs[index]!r} is not known in both branches")
    if then != other:
        b.unsupported(
            f"output {op.outputs[index]!r} is {then} in one branch and {other} in the other; NNAPI needs one shape",
            "make the condition constant: freeze the input that it depends on with --set, or bind its shape",
        )


def _must_be_harmless(b: Builder, branches: Sequence[Graph]) -> None:
    """Refuse what should not be computed unless it is asked for."""
    ops = [(branch, op) for branch in branches for op in branch.ops]
    elements = 0
    for branch, op in ops:
        made = [branch[name].type for name in op.outputs if name is not None]
        elements += sum(type_.size for type_ in made if type_ is not None)
        integers = any(type_ is not None and type_.dtype.kind in "iu" for type_ in made)
        indexed = op.kind in _INDEXED and not branch.is_constant(op.inputs[1])
        if indexed or op.kind in _FAIL or (op.kind in _FAIL_ON_INTEGERS and integers):
            b.needs_level(4, f"a branch with {op.kind}, which may fail where the other branch is meant,")
    if len(ops) > CHEAP_OPS or elements > CHEAP_ELEMENTS:
        b.needs_level(4, f"a choice between branches of {len(ops)} nodes, too many to compute both,")


def _chosen(b: Builder, condition: Value, then: Value, other: Value) -> Value:
    if then.known.dtype.kind != "b":
        return select(b, condition, then, other)
    first = binary(b, "LOGICAL_AND", then, condition)
    return binary(b, "LOGICAL_OR", first, binary(b, "LOGICAL_AND", other, unary(b, "LOGICAL_NOT", condition)))


@legalizes("Loop")
def loop(b: Builder, op: Op) -> list[Value | None]:
    """WHILE from level 4, where ``inline_control`` has not unrolled it; scan outputs need a constant number of trips.

    What is carried from trip to trip must keep its shape.
    """
    _needs_while(b, op)
    body: Graph = op.attrs["body"]
    start = b.optional_input(op, 1)
    _must_keep_types(b, op, body, op.inputs[2:], body.inputs[2:], body.outputs[1:])
    state = [b.value(str(name)) for name in op.inputs[2:]]
    trips, endless = _trips(b, op), stays_true(body)
    if trips is None and endless and start is None:
        b.unsupported("it never ends: it has no number of trips, and its condition stays true")
    going = [] if endless and start is None else [b.const([True]) if start is None else b.reshape(start, (1,))]
    loop_ = _Loop(b, op, body, state, going, trip_count(b.source, op))
    count = loop_.count

    def goes_on(b: Builder, values: Sequence[Value]) -> Value:
        tests = list(values[count:-1])
        if trips is not None:
            tests.append(binary(b, "LESS", values[-1], b.capture(trips)))
        return tests[0] if len(tests) == 1 else binary(b, "LOGICAL_AND", *tests)

    def step(b: Builder, values: Sequence[Value]) -> list[Value]:
        now = values[-1]
        now.bounds = (0, LAST - 1)
        goes = values[count] if going else b.const([True])
        condition, *results = legalize_body(b, body, [now, goes, *values[: len(state)]])
        return [*loop_.next(b, values, results, now), *([condition] if going else []), shift(b, now, 1)]

    return loop_.run(goes_on, step)


def _needs_while(b: Builder, op: Op) -> None:
    b.needs_level(4, f"a {op.kind} that is too long to unroll, or whose trips only the run tells,")


def _trips(b: Builder, op: Op) -> Value | None:
    """How often a Loop runs at most; None where that is no limit, or more than int32 holds."""
    name = op.inputs[0]
    if name is None:
        return None
    const = b.owner(name)[name].const
    if const is not None and int(const.numpy().reshape(-1)[0]) > LAST:
        return None
    return b.reshape(b.value(name), (1,))


@legalizes("Scan")
def scan(b: Builder, op: Op) -> list[Value | None]:
    """WHILE from level 4, where ``inline_control`` has not unrolled it."""
    _needs_while(b, op)
    body: Graph = op.attrs["body"]
    scans = int(op.attrs["num_scan_inputs"])
    first = len(op.inputs) - scans
    _must_keep_types(b, op, body, op.inputs[:first], body.inputs[:first], body.outputs)
    values = b.inputs(op)
    axes = op.attrs.get("scan_input_axes") or (0,) * scans
    backward = op.attrs.get("scan_input_directions") or (0,) * scans
    scanned = [_front(b, value, axis) for value, axis in zip(values[first:], axes, strict=True)]
    time = scanned[0].shape[0]
    loop_ = _Loop(b, op, body, values[:first], [], time)

    def goes_on(b: Builder, values: Sequence[Value]) -> Value:
        return binary(b, "LESS", values[-1], one(b, values[-1], time))

    def step(b: Builder, values: Sequence[Value]) -> list[Value]:
        now = values[-1]
        now.bounds = (0, time - 1)
        slices = [
            _taken(b, b.capture(value), _at(b, now, time, back), body[own].known.shape)
            for value, back, own in zip(scanned, backward, body.inputs[first:], strict=True)
        ]
        results = legalize_body(b, body, [*values[:first], *slices])
        return [*loop_.next(b, values, results, now), shift(b, now, 1)]

    return loop_.run(goes_on, step)


def _front(b: Builder, value: Value, axis: int) -> Value:
    """``value`` with a dimension before the others."""
    at = axis % value.rank
    return transposed(b, value, [at, *(i for i in range(value.rank) if i != at)])


def _at(b: Builder, now: Value, time: int, backward: int) -> Value:
    return binary(b, "SUB", one(b, now, time - 1), now) if backward else now


def _taken(b: Builder, rows: Value, place: Value, shape: Shape) -> Value:
    """One entry along the first dimension, at a place [1]."""
    flat = b.reshape(rows, (rows.shape[0], rows.known.size // rows.shape[0]))
    row = carried(b, "GATHER", flat, lambda value: b.emit("GATHER", value, place, axis=0))
    return b.reshape(row, shape or (1,))


def _must_keep_types(
    b: Builder, op: Op, body: Graph, given: Sequence[str | None], taken: Sequence[str], made: Sequence[str]
) -> None:
    """Refuse what changes its shape, or its type, from trip to trip."""
    for outer, before, after in zip(given, taken, made, strict=False):
        types = [_type_in(b, b.source, str(outer)), body[before].type, _type_in(b, body, after)]
        if any(type_ is None or type_ != types[0] for type_ in types):
            spelled = " and ".join(dict.fromkeys("of unknown shape" if t is None else str(t) for t in types))
            b.unsupported(
                f"{outer!r}, which it carries from trip to trip, does not keep its shape: it is {spelled}",
                "export the model with the loop unrolled, or cut the graph around it",
            )


class _Loop:
    """What Loop and Scan share: their state is what they carry, the rows that they stack, and what only they see.

    Attributes:
        count: how many values of the state are outputs: those that are carried, and the rows.
    """

    def __init__(
        self, b: Builder, op: Op, body: Graph, state: Sequence[Value], going: Sequence[Value], trips: int | None
    ) -> None:
        self.b, self.op, self.body = b, op, body
        self.going = list(going)
        self.carried = len(state)
        self.state = [*state, *self._rows(trips)]
        self.count = len(self.state)

    def _rows(self, trips: int | None) -> list[Value]:
        """Zeros [trips, size] for each scan output, in which the trips place theirs."""
        b, rows = self.b, []
        for name in self.body.outputs[len(self.body.outputs) - len(self.op.outputs) + self.carried :]:
            type_ = _type_in(b, self.body, name)
            if trips is None or type_ is None:
                b.unsupported(
                    "how many rows its scan outputs have is known after the run only",
                    "make the number of trips constant and the condition true, or leave these outputs out",
                )
            zeros = nnapi_type(type_, b.options, f"tensor {name!r}").with_shape((trips, type_.size))
            rows.append(b.const(np.zeros(zeros.shape, zeros.dtype), quant=zeros.quant))
        return rows

    def next(self, b: Builder, values: Sequence[Value], results: Sequence[Value], now: Value) -> list[Value]:
        """The outputs' part of the state after a trip that made ``results``."""
        rows = values[self.carried : self.count]
        backward = self.op.attrs.get("scan_output_directions") or (0,) * len(rows)
        made = results[self.carried :]
        stacked = [
            placed(b, stack, _at(b, now, stack.shape[0], back), b.reshape(row, (1, row.known.size)))
            for stack, row, back in zip(rows, made, backward, strict=False)
        ]
        return [*results[: self.carried], *stacked]

    def run(self, goes_on: Callable[[Builder, Sequence[Value]], Value], step: Inside) -> list[Value | None]:
        """Emit the loop; the node's outputs."""
        b, op = self.b, self.op
        number = b.const([0], np.int32)
        made: list[Value | None] = [*while_loop(b, [*self.state, *self.going, number], goes_on, step, self.count)]
        axes = op.attrs.get("scan_output_axes") or (0,) * (self.count - self.carried)
        for index, axis in enumerate(axes, self.carried):
            value = made[index]
            if op.outputs[index] is None or value is None:
                made[index] = None
                continue
            shape = b.out_type(op, index).shape
            at = axis % len(shape)
            value = b.reshape(value, (shape[at], *shape[:at], *shape[at + 1 :]))
            made[index] = transposed(b, value, [*range(1, at + 1), 0, *range(at + 1, len(shape))])
        return made
