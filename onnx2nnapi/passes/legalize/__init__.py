"""legalize: each ONNX operator becomes NNAPI operations, by one rule an operator.

A rule is ``@legalizes("Softmax") def softmax(b, op)``; it returns the value(s) that stand for ``op.outputs``.
Refusals are collected: the outputs of a refused node go on as opaque values, and one error names all refusals.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder

__all__ = ["FAMILIES", "Rule", "has_rule", "legalizes", "rule_for", "rules"]

Rule = Callable[[Builder, Op], "Value | Sequence[Value | None]"]
R = TypeVar("R", bound=Rule)

FAMILIES: tuple[str, ...] = (
    "elementwise",
    "activation",
    "convolution",
    "pooling",
    "matmul",
    "reduction",
    "movement",
    "normalization",
    "resize",
    "recurrent",
    "control",
    "logic",
    "rounding",
    "bits",
    "indexing",
    "selection",
    "cumulative",
    "einsum",
    "contrib",
    "integers",
    "sampling",
    "trigonometry",
)

_rules: dict[str, Rule] = {}


def legalizes(*kinds: str) -> Callable[[R], R]:
    """Register a function as the rule of the named operators ("domain::Name" outside ONNX's own domain)."""

    def add(rule: R) -> R:
        for kind in kinds:
            if kind in _rules:
                raise KeyError(f"{kind} has two rules")
            _rules[kind] = rule
        return rule

    return add


@functools.cache  # asked for every node
def rules() -> dict[str, Rule]:
    """Every rule by operator."""
    for family in FAMILIES:
        importlib.import_module(f"{__name__}.{family}")
    return _rules


def rule_for(kind: str) -> Rule | None:
    """The rule of an operator, None where there is none."""
    return rules().get(kind)


def has_rule(kind: str) -> bool:
    """Whether an operator is converted as it is; others by the body that onnx defines for them, if there is one."""
    return kind in rules()
