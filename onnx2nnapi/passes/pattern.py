"""Patterns of operators: trees that are matched from their root down, and replaced by one operator.

A pattern says what makes a value. Whether an operand stands left or right, how constants are spread over a product, and
whether a part that occurs twice is computed once or twice makes no difference. What a match would remove must have no
reader outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Protocol

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op
from onnx2nnapi.options import Options

__all__ = ["Apply", "Either", "Input", "Made", "Match", "Number", "Pattern", "Product", "Rule", "Setting", "rewrite"]

_COMMUTATIVE = {"ADD", "Add", "Max", "Min", "MUL", "Mul"}
_ROUNDING = 4 * float(np.finfo(np.float32).eps)  # exporters compute constants in float32, in a step or two


@dataclass(frozen=True, slots=True)
class Match:
    """What a pattern has found so far.

    Attributes:
        values: the names of inputs and constants by the pattern's names for them.
        ops: the operators, each after those that read it.
        named: those that the pattern has a name for.
    """

    values: dict[str, str] = field(default_factory=dict)
    ops: tuple[Op, ...] = ()
    named: dict[str, Op] = field(default_factory=dict)

    def bind(self, name: str, value: str) -> Match:
        return Match({**self.values, name: value}, self.ops, self.named)

    def take(self, op: Op, name: str = "") -> Match:
        """With one more operator; the one that is matched again keeps its place."""
        named = {**self.named, name: op} if name else self.named
        return Match(self.values, self.ops if op in self.ops else (*self.ops, op), named)


class Pattern(Protocol):
    """What can be asked whether it makes a value, in every way that it can."""

    def match(self, graph: Graph, value: str, found: Match) -> Iterator[Match]: ...

    def is_possible(self, kinds: Container[str]) -> bool:
        """Whether a graph with operators of these kinds can have it, as far as that can be told from the kinds."""


class Root(Pattern, Protocol):
    """A pattern that begins with an operator."""

    @property
    def kinds(self) -> frozenset[str]:
        """What that operator can be."""


class _Leaf:
    def is_possible(self, kinds: Container[str]) -> bool:
        return True


@dataclass(frozen=True)
class Input(_Leaf):
    """Any computed value, the same one wherever the name occurs."""

    name: str

    def match(self, graph: Graph, value: str, found: Match) -> Iterator[Match]:
        if self.name in found.values:
            if found.values[self.name] == value:
                yield found
        elif value in graph.values and not graph.is_constant(value):
            yield found.bind(self.name, value)


@dataclass(frozen=True)
class Setting(_Leaf):
    """Any constant, of the same value wherever the name occurs."""

    name: str

    def match(self, graph: Graph, value: str, found: Match) -> Iterator[Match]:
        const, before = graph.const(value), graph.const(found.values.get(self.name))
        if const is None:
            return
        if before is None:
            yield found.bind(self.name, value)
        elif const is before or np.array_equal(const.numpy(), before.numpy()):
            yield found


@dataclass(frozen=True)
class Number(_Leaf):
    """A constant of one element with this value, but for rounding."""

    number: float

    def match(self, graph: Graph, value: str, found: Match) -> Iterator[Match]:
        number = scalar(graph, value)
        if number is not None and _is_close(graph, value, number, self.number):
            yield found


class Apply:
    """An operator of ``kind`` on ``inputs``, exactly these, with ``attrs`` among its attributes."""

    def __init__(self, kind: str, *inputs: Pattern | None, name: str = "", **attrs: Any) -> None:
        self.kind, self.inputs, self.name, self.attrs = kind, inputs, name, attrs
        self.kinds = frozenset({kind})

    def is_possible(self, kinds: Container[str]) -> bool:
        return self.kind in kinds and all(each is None or each.is_possible(kinds) for each in self.inputs)

    def match(self, graph: Graph, value: str, found: Match) -> Iterator[Match]:
        op = _producer(graph, value)
        if op is None or op.kind != self.kind or any(op.attrs.get(name) != it for name, it in self.attrs.items()):
            return
        given = _trimmed(op.inputs)
        if len(given) != len(self.inputs):
            return
        taken = found.take(op, self.name)
        yield from _match_all(graph, self.inputs, given, taken)
        if op.kind in _COMMUTATIVE and len(given) == 2 and given[0] != given[1]:
            yield from _match_all(graph, self.inputs, given[::-1], taken)


class Either:
    """The first of the alternatives that matches, and the others where that leads nowhere."""

    def __init__(self, *patterns: Pattern) -> None:
        self.patterns = patterns

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset().union(*(pattern.kinds for pattern in self.patterns if isinstance(pattern, _ROOTS)))

    def is_possible(self, kinds: Container[str]) -> bool:
        return any(pattern.is_possible(kinds) for pattern in self.patterns)

    def match(self, graph: Graph, value: str, found: Match) -> Iterator[Match]:
        for pattern in self.patterns:
            yield from pattern.match(graph, value, found)


class Product:
    """``coefficient`` times ``factors``, multiplied in any order, by Mul, Div by constants, and powers."""

    kinds = frozenset({"Mul", "Div", "Pow"})

    def __init__(self, coefficient: float, *factors: Pattern) -> None:
        self.coefficient, self.factors = coefficient, factors

    def is_possible(self, kinds: Container[str]) -> bool:
        return any(kind in kinds for kind in self.kinds) and all(factor.is_possible(kinds) for factor in self.factors)

    def match(self, graph: Graph, value: str, found: Match) -> Iterator[Match]:
        ops: list[Op] = []
        factors: list[str] = []
        coefficient = _factorize(graph, value, ops, factors, len(self.factors))
        complete = bool(ops) and len(factors) == len(self.factors)
        if not complete or not _is_close(graph, value, coefficient, self.coefficient):
            return
        for op in ops:
            found = found.take(op)
        for order in dict.fromkeys(permutations(factors)):
            yield from _match_all(graph, self.factors, order, found)


_ROOTS = (Apply, Either, Product)


def scalar(graph: Graph, value: str | None) -> float | None:
    """The number that a constant of one element holds; an exponent may be an integer."""
    const = graph.const(value)
    if const is None or const.size != 1 or const.dtype.kind not in "fi":
        return None
    return float(const.numpy().reshape(())[()])


def _is_close(graph: Graph, value: str, number: float, expected: float) -> bool:
    """Whether a number in the formula of ``value`` is the expected one, rounded to its element type."""
    type_ = graph[value].type
    rounding = _ROUNDING if type_ is None else max(_ROUNDING, float(np.finfo(type_.dtype).eps))
    return abs(number - expected) <= rounding * abs(expected)


def _trimmed(inputs: Sequence[str | None]) -> tuple[str | None, ...]:
    """Without those omitted at the end."""
    count = max((at for at, name in enumerate(inputs, 1) if name is not None), default=0)
    return tuple(inputs[:count])


def _producer(graph: Graph, value: str) -> Op | None:
    """What computes a value and nothing else that is needed."""
    op = graph.producer(value) if value in graph.values else None
    if op is None or op.outputs[0] != value or op.subgraphs:
        return None
    return None if any(name is not None and graph.uses(name) for name in op.outputs[1:]) else op


def _match_all(
    graph: Graph, patterns: Sequence[Pattern | None], values: Sequence[str | None], found: Match
) -> Iterator[Match]:
    if not patterns:
        yield found
        return
    pattern, value = patterns[0], values[0]
    if pattern is None or value is None:
        if pattern is None and value is None:
            yield from _match_all(graph, patterns[1:], values[1:], found)
        return
    for each in pattern.match(graph, value, found):
        yield from _match_all(graph, patterns[1:], values[1:], each)


def _factorize(graph: Graph, value: str, ops: list[Op], factors: list[str], limit: int) -> float:
    """The constant coefficient of a product; its operators go to ``ops``, and up to ``limit`` + 1 factors to theirs."""
    op = _producer(graph, value)
    if op is None or len(factors) > limit or (ops and graph.uses(value) != 1):
        factors.append(value)
        return 1.0
    left, right = (*op.inputs, None)[:2]
    number = scalar(graph, right)
    if op.kind == "Mul" and left is not None and right is not None:
        ops.append(op)
        result = 1.0
        for name in (left, right):
            known = scalar(graph, name)
            result *= _factorize(graph, name, ops, factors, limit) if known is None else known
        return result
    if op.kind == "Div" and left is not None and number:
        ops.append(op)
        known = scalar(graph, left)
        return (_factorize(graph, left, ops, factors, limit) if known is None else known) / number
    if op.kind == "Pow" and left is not None and number in (2.0, 3.0):
        ops.append(op)
        factors.extend([left] * int(number))
        return 1.0
    factors.append(value)
    return 1.0


# -- replacement -------------------------------------------------------------------------------------------------------

Made = tuple[str, tuple[str | None, ...], dict[str, Any]]  # an operator's kind, inputs and attributes


@dataclass(frozen=True)
class Rule:
    """A pattern and what takes its place.

    Attributes:
        pattern: of float tensors; its "x" has the type of the result, unless ``keeps_type`` is False.
        make: gives the operator that replaces a match, None where none does exactly the same.
    """

    pattern: Root
    make: Callable[[Graph, Match], Made | None]
    keeps_type: bool = True


def rewrite(graph: Graph, options: Options, rules: Sequence[Rule]) -> bool:
    """Replace what the rules match, the largest first, in a graph and its subgraphs; True where there was any."""
    changed = False
    ops = graph.ops
    present = {op.kind for op in ops}
    by_kind: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.pattern.is_possible(present):
            for kind in rule.pattern.kinds:
                by_kind.setdefault(kind, []).append(rule)
    for op in reversed(ops):
        for subgraph in op.subgraphs.values():
            changed |= rewrite(subgraph, options, rules)
        if op.kind in by_kind and op.outputs[0] is not None and graph.contains(op):
            changed |= any(_apply(graph, op, op.outputs[0], rule) for rule in by_kind[op.kind])
    return changed


def _apply(graph: Graph, op: Op, result: str, rule: Rule) -> bool:
    type_ = graph[result].type
    if type_ is None or type_.dtype.kind != "f":
        return False
    for found in rule.pattern.match(graph, result, Match()):
        if rule.keeps_type and graph[found.values["x"]].type != type_:
            continue
        inner = [item for item in found.ops if item is not op]
        made = rule.make(graph, found) if _is_private(graph, found.ops, inner) else None
        if made is not None:
            kind, inputs, attrs = made
            origins = tuple(dict.fromkeys(origin for item in reversed(found.ops) for origin in item.origins))
            graph.replace(op, [Op(kind, inputs, op.outputs, attrs, origins)])
            _remove(graph, inner)
            return True
    return False


def _is_private(graph: Graph, ops: Sequence[Op], inner: Sequence[Op]) -> bool:
    """Whether what ``inner`` writes is read by ``ops`` alone."""
    names = [str(op.outputs[0]) for op in inner]
    return all(name not in graph.outputs and all(op in ops for op in graph.readers(name)) for name in names)


def _remove(graph: Graph, ops: Sequence[Op]) -> None:
    for op in ops:
        graph.remove(op)
    for op in ops:
        for name in op.outputs:
            if name is not None:
                graph.drop_value(name)
