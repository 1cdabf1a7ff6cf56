"""Einsum: its operands contracted from the left, each pair by one matrix product."""

from __future__ import annotations

import math
import string
from dataclasses import dataclass

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.matmul import matmul_of
from onnx2nnapi.passes.legalize.movement import gather_axis, transposed
from onnx2nnapi.passes.legalize.reduction import reduce_axes
from onnx2nnapi.passes.legalize.shapes import binary


@dataclass(frozen=True)
class _Term:
    """A tensor, and the label of each of its dimensions."""

    value: Value
    labels: str

    def size(self, label: str) -> int:
        return self.value.shape[self.labels.index(label)] if label in self.labels else 1


@legalizes("Einsum")
def einsum(b: Builder, op: Op) -> Value:
    """Diagonals by GATHER, labels of one operand alone by REDUCE_SUM, what two have in common by a matrix product."""
    values = b.inputs(op)
    ranks = [b.in_type(op, i).rank for i in range(len(values))]
    inputs, output = _labels(b, op.attrs["equation"], ranks)
    terms = [_diagonal(b, _Term(v, labels)) for v, labels in zip(values, inputs, strict=True)]
    while len(terms) > 1:
        first, second, *rest = terms
        needed = set(output).union(*(term.labels for term in rest))
        terms = [_contract(b, _summed(b, first, needed | set(second.labels)),
                           _summed(b, second, needed | set(first.labels)), needed), *rest]  # fmt: skip
    term = _summed(b, terms[0], set(output))
    missing = [label for label in output if label not in term.labels]
    if missing:
        b.unsupported(f"its output has {missing[0]!r}, which no operand has")
    return b.reshape(transposed(b, term.value, [term.labels.index(label) for label in output] or [0]), b.out_shape(op))


def _labels(b: Builder, equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """One letter a dimension for each operand and for the result; an ellipsis is spelled out in unused letters."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        b.unsupported(f"the equation {equation!r} is for {len(inputs)} operands, there are {len(ranks)}")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    dots = [rank - len(labels.replace("...", "")) for labels, rank in zip(inputs, ranks, strict=True)]
    if any(count < 0 or (count and "..." not in labels) for count, labels in zip(dots, inputs, strict=True)):
        b.unsupported(f"the equation {equation!r} doesn't fit operands of ranks {ranks}")
    common = "".join(free[: max(dots)])
    spelled = [labels.replace("...", common[len(common) - n :]) for labels, n in zip(inputs, dots, strict=True)]
    if not arrow:
        every = "".join(inputs).replace(".", "")
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(every) if every.count(c) == 1))
    return spelled, right.replace("...", common)


def _diagonal(b: Builder, term: _Term) -> _Term:
    """A label that an operand has twice: the elements where both indices are equal."""
    for label in dict.fromkeys(term.labels):
        while term.labels.count(label) > 1:
            first = term.labels.index(label)
            second = term.labels.index(label, first + 1)
            shape = term.value.shape
            order = [i for i in range(len(shape)) if i not in (first, second)]
            moved = transposed(b, term.value, [first, second, *order])
            flat = b.reshape(moved, (shape[first] * shape[second], math.prod(shape[i] for i in order)))
            picked = gather_axis(b, flat, np.arange(shape[first]) * (shape[second] + 1), 0)
            labels = label + "".join(term.labels[i] for i in order)
            term = _Term(b.reshape(picked, (shape[first], *(shape[i] for i in order))), labels)
    return term


def _summed(b: Builder, term: _Term, needed: set[str]) -> _Term:
    """Without the dimensions that nobody asks for."""
    axes = tuple(i for i, label in enumerate(term.labels) if label not in needed)
    if not axes:
        return term
    labels = "".join(label for label in term.labels if label in needed)
    return _Term(reduce_axes(b, "REDUCE_SUM", term.value, axes, keep=False), labels)


def _contract(b: Builder, x: _Term, y: _Term, needed: set[str]) -> _Term:
    """The product of two terms, summed over the labels that both have and that nobody asks for."""
    summed = [label for label in x.labels if label in y.labels and label not in needed]
    batch = [label for label in x.labels if label in y.labels and label in needed]
    left = [label for label in x.labels if label not in y.labels]
    right = [label for label in y.labels if label not in x.labels]
    labels = "".join([*batch, *left, *right])
    if not summed:  # nothing is added up: an elementwise product
        parts = [_aligned(b, term, labels) for term in (x, y)]
        return _Term(binary(b, "MUL", *parts), labels)
    sizes = {label: max(x.size(label), y.size(label)) for label in {*x.labels, *y.labels}}
    for label in summed:  # a size of 1 broadcasts, also where it is summed over
        if x.size(label) != y.size(label):
            b.unsupported(f"{label!r} is {x.size(label)} in one operand and {y.size(label)} in another")
    lefts = _grouped(b, x, batch, left, summed)
    rights = _grouped(b, y, batch, summed, right)
    product = matmul_of(b, lefts, rights)
    return _Term(b.reshape(product, [sizes[label] for label in labels] or [1]), labels)


def _aligned(b: Builder, term: _Term, labels: str) -> Value:
    """With all of ``labels`` in their order, those that the term lacks of size 1."""
    order = [term.labels.index(label) for label in labels if label in term.labels]
    return b.reshape(transposed(b, term.value, order or [0]), [term.size(label) for label in labels] or [1])


def _grouped(b: Builder, term: _Term, batch: list[str], rows: list[str], columns: list[str]) -> Value:
    """[batch…, rows, columns], each of the last two merged to one dimension, and the batch too where it has several."""
    moved = transposed(b, term.value, [term.labels.index(label) for label in (*batch, *rows, *columns)] or [0])
    inner = [math.prod(term.size(label) for label in group) for group in (rows, columns)]
    return b.reshape(moved, [*(term.size(label) for label in batch), *inner])
