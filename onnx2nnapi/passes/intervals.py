"""Bounds on the values of integer tensors, so that int64 may be int32 and int32 may pass through float32 with proof."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op, Value

__all__ = ["INT32", "Interval", "Intervals"]

_SMALL = 4096  # constants up to this many elements are read for their bounds


@dataclass(frozen=True, slots=True)
class Interval:
    """The closed interval that holds every element."""

    low: float
    high: float

    def within(self, bound: int) -> bool:
        return -bound <= self.low and self.high <= bound

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Interval) -> Interval:
        corners = [_product(x, y) for x in (self.low, self.high) for y in (other.low, other.high)]
        return Interval(min(corners), max(corners))

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


def _product(x: float, y: float) -> float:
    return 0.0 if x == 0 or y == 0 else x * y


INT32 = Interval(-(2**31), 2**31 - 1)
_EVERYTHING = Interval(-math.inf, math.inf)
Rule = Callable[["Intervals", Op], Interval]


class Intervals:
    """Intervals of a graph's values (ONNX dialect), computed once each, on demand."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._known: dict[str, Interval] = {}

    def of(self, name: str) -> Interval:
        """The interval of a value; for integers at least that of its type."""
        stack = [name]
        while stack:
            current = stack[-1]
            op = None if current in self._known else self._producer(current)
            missing = (
                [n for n in op.inputs if n and n not in self._known and n in self.graph.values]
                if op is not None and op.kind in _RULES
                else []
            )
            if missing:
                stack.extend(missing)
                continue
            if current not in self._known:
                self._known[current] = self._compute(current, op)
            stack.pop()
        return self._known[name]

    def _producer(self, name: str) -> Op | None:
        return self.graph.producer(name) if name in self.graph.values else None

    def input(self, op: Op, index: int = 0) -> Interval:
        """The interval of an operation's input, which must be known by now."""
        name = op.inputs[index]
        return self._known.get(name, _EVERYTHING) if name is not None else _EVERYTHING

    def _compute(self, name: str, op: Op | None) -> Interval:
        value = self.graph.values.get(name)
        natural = _natural(value)
        if value is not None and value.const is not None:
            if 0 < value.const.size <= _SMALL and value.const.dtype.kind in "iuf":
                array = value.const.numpy()
                low, high = float(array.min()), float(array.max())
                return natural if math.isnan(low) or math.isnan(high) else Interval(low, high)
            return natural
        if op is None or op.kind not in _RULES:
            return natural
        derived = _RULES[op.kind](self, op)
        return (
            Interval(max(derived.low, natural.low), min(derived.high, natural.high))
            if derived.low <= natural.high and derived.high >= natural.low
            else natural
        )


def _natural(value: Value | None) -> Interval:
    """What the element type alone says; 64-bit and unsigned 32-bit integers live in int32 and are taken as such."""
    if value is None or value.type is None:
        return _EVERYTHING
    dtype = value.type.dtype
    if dtype.kind == "b":
        return Interval(0, 1)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return Interval(max(limits.min, INT32.low), min(limits.max, INT32.high))
    return _EVERYTHING


def _hull_of_inputs(intervals: Intervals, op: Op) -> Interval:
    result: Interval | None = None
    for index, name in enumerate(op.inputs):
        if name is not None:
            item = intervals.input(op, index)
            result = item if result is None else result.hull(item)
    return result or _EVERYTHING


def _first(intervals: Intervals, op: Op) -> Interval:
    return intervals.input(op, 0)


def _index_of(axis_input: int = 0) -> Rule:
    def rule(intervals: Intervals, op: Op) -> Interval:
        name = op.inputs[axis_input]
        type_ = intervals.graph.values[name].type if name in intervals.graph.values else None
        return Interval(0, max(type_.shape, default=1) - 1) if type_ is not None else _EVERYTHING

    return rule


def _cast(intervals: Intervals, op: Op) -> Interval:
    source = intervals.input(op, 0)
    return Interval(
        math.floor(source.low) if math.isfinite(source.low) else source.low,
        math.ceil(source.high) if math.isfinite(source.high) else source.high,
    )


def _reduced_sum(intervals: Intervals, op: Op) -> Interval:
    name = op.inputs[0]
    type_ = intervals.graph.values[name].type if name in intervals.graph.values else None
    count = type_.size if type_ is not None else 0
    return intervals.input(op, 0) * Interval(0, count) if count else _EVERYTHING


_MOVES = (
    "Identity Reshape Flatten Squeeze Unsqueeze Transpose Slice Split Gather GatherElements GatherND Expand Tile "
    "ReduceMax ReduceMin DepthToSpace SpaceToDepth ReverseSequence"
)

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_MOVES.split(), _first),
    **dict.fromkeys(("Concat", "Max", "Min"), _hull_of_inputs),
    "Add": lambda i, op: i.input(op, 0) + i.input(op, 1),
    "Sub": lambda i, op: i.input(op, 0) - i.input(op, 1),
    "Mul": lambda i, op: i.input(op, 0) * i.input(op, 1),
    "Neg": lambda i, op: i.input(op, 0) * Interval(-1, -1),
    "Where": lambda i, op: i.input(op, 1).hull(i.input(op, 2)),
    "Clip": lambda i, op: Interval(
        max(i.input(op, 0).low, i.input(op, 1).low if len(op.inputs) > 1 and op.inputs[1] else -math.inf),
        min(i.input(op, 0).high, i.input(op, 2).high if len(op.inputs) > 2 and op.inputs[2] else math.inf),
    ),
    "Cast": _cast,
    "ReduceSum": _reduced_sum,
    "ArgMax": _index_of(),
    "ArgMin": _index_of(),
    "Sigmoid": lambda i, op: Interval(0, 1),
    "Softmax": lambda i, op: Interval(0, 1),
    "Tanh": lambda i, op: Interval(-1, 1),
    "Relu": lambda i, op: Interval(max(i.input(op, 0).low, 0), max(i.input(op, 0).high, 0)),
}
