"""What a program is, in numbers: its operations, what forces its feature level, bytes by type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from onnx2nnapi.cli.display import level_text
from onnx2nnapi.nnapi.model import Lifetime, Model, Operand, Operation
from onnx2nnapi.nnapi.validation import operation_levels
from onnx2nnapi.program import Program

__all__ = [
    "level_with_reasons",
    "listed",
    "models",
    "operand_bytes",
    "operation_names",
    "origin_text",
    "port_facts",
    "reasons_for_level",
]

_SHOWN = 3  # names of nodes that a line holds


def models(program: Program) -> list[Model]:
    """The NNAPI model of each segment."""
    return [segment.model for segment in program.segments]


def operation_names(program: Program) -> list[str]:
    """Every operation, those of sub-models included."""
    return [
        operation.code.name for model in models(program) for graph in model.graphs for operation in graph.operations
    ]


def reasons_for_level(program: Program) -> dict[str, list[str]]:
    """The kinds of operations that need the program's feature level, each with the ONNX nodes that it stems from.

    Empty at level 1, which every operation needs.
    """
    reasons: dict[str, dict[str, None]] = {}  # several operations may stem from one node
    if program.required_level == 1:
        return {}
    for model in models(program):
        for operation, level in zip(model.main.operations, operation_levels(model), strict=True):
            if level == program.required_level:
                reasons.setdefault(operation.code.name, {})[origin_text(operation)] = None
    return {kind: list(nodes) for kind, nodes in reasons.items()}


def level_with_reasons(program: Program) -> str:
    """The feature level, its Android release, and what forces it."""
    text = level_text(program.required_level)
    reasons = reasons_for_level(program)
    if reasons:
        forced = "; ".join(f"{kind} of {listed(nodes)}" for kind, nodes in reasons.items())
        return f"{text}, forced by {forced}"
    relaxed = any(model.relaxed for model in models(program))
    if program.required_level == 1:
        return text
    return f"{text}, forced by {'relaxed float16' if relaxed else 'the types of its operands'}"


def origin_text(operation: Operation) -> str:
    """The ONNX nodes that an operation stems from."""
    return " + ".join(operation.origin) or "?"


def listed(names: list[str]) -> str:
    """The first few of the names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def operand_bytes(program: Program) -> dict[str, dict[str, int]]:
    """By operand type: how many operands, bytes of constants, and bytes of what is fed, computed and given."""
    found: dict[str, Counter[str]] = {}
    for operand in _operands(program):
        entry = found.setdefault(operand.type.code.name, Counter())
        entry["operands"] += 1
        if operand.type.is_specified and operand.lifetime not in (Lifetime.NO_VALUE, Lifetime.SUBGRAPH):
            size = operand.type.nbytes if operand.type.code.is_tensor else operand.type.dtype.itemsize
            entry["constant_bytes" if operand.lifetime is Lifetime.CONSTANT else "computed_bytes"] += size
    keys = ("operands", "constant_bytes", "computed_bytes")
    return {name: {key: entry[key] for key in keys} for name, entry in sorted(found.items())}


def _operands(program: Program) -> Iterator[Operand]:
    for model in models(program):
        for graph in model.graphs:
            yield from graph.operands


def port_facts(program: Program) -> dict[str, Any]:
    """The ONNX interface, for JSON."""
    return {
        key: [{"name": port.name, "dtype": port.dtype, "shape": list(port.shape)} for port in ports]
        for key, ports in (("inputs", program.inputs), ("outputs", program.outputs))
    }
