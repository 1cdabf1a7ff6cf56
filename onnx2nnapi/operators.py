"""What is supported, read from the tables: ONNX operators with their rules, NNAPI operations with their rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.schema import REQUIRED, SCHEMAS, Fixed, Form, Rank, Role, SameAs, Schema, Slot

__all__ = [
    "STATUS",
    "OperatorStatus",
    "describe_operation",
    "document",
    "find_operation",
    "onnx_operators",
    "operation_facts",
]


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """An ONNX operator.

    Attributes:
        name: with its domain in front unless it is ONNX's own.
        since: the newest opset that changed it.
        status: a key of ``STATUS``.
        level: the lowest feature level that its plainest form converts at; None where there is none, or no such form.
        note: how it is converted, or why not.
        operations: the NNAPI operations that the note names.
    """

    name: str
    since: int
    status: str
    level: int | None
    note: str
    operations: tuple[str, ...] = ()


STATUS = {
    "rule": "becomes NNAPI operations by a rule of its own",
    "body": "becomes other operators, by its definition in onnx",
    "frontend": "is gone when the model has been read",
    "constant": "is computed when the model is converted, if its inputs are constant; else refused",
    "no": "is refused: NNAPI cannot say it",
}


def onnx_operators() -> list[OperatorStatus]:
    """Every operator of ONNX's newest opset, then those of other domains that have a rule."""
    from onnx import defs

    from onnx2nnapi.passes.legalize import rules

    newest = {schema.name: schema for schema in defs.get_all_schemas() if not schema.domain and not schema.deprecated}
    foreign = sorted(set(rules()) - set(newest))
    return [_status(newest[name]) for name in sorted(newest)] + [
        OperatorStatus(name, 1, "rule", None, *_note(name)) for name in foreign
    ]


def _status(schema: Any) -> OperatorStatus:
    from onnx2nnapi.passes.legalize import rules
    from onnx2nnapi.passes.legalize.refused import REASONS
    from onnx2nnapi.probes import lowest_level

    name, since = str(schema.name), int(schema.since_version)
    foreign = _foreign_values(schema)
    if foreign:
        return OperatorStatus(name, since, "no", None, f"NNAPI has no {foreign}")
    level = lowest_level(schema)
    if name in REASONS and level is None:
        return OperatorStatus(name, since, "no", None, REASONS[name][0])
    if name in rules() and name not in REASONS:
        return OperatorStatus(name, since, "rule", level, *_note(name))
    if schema.has_function or schema.has_context_dependent_function:
        return OperatorStatus(name, since, "body", level, "")
    return OperatorStatus(name, since, "frontend" if level else "constant", level, "")


def _foreign_values(schema: Any) -> str:
    """Kinds of values that every form of an operator takes or gives and that NNAPI lacks."""
    allowed = {entry.type_param_str: list(entry.allowed_type_strs) for entry in schema.type_constraints}
    for parameter in (*schema.inputs, *schema.outputs):
        types = allowed.get(parameter.type_str, [parameter.type_str])
        for kind, mark in (("sequences", "seq("), ("optional values", "optional("), ("maps", "map(")):
            if types and all(mark in text for text in types):
                return kind
        if types and all(text == "tensor(string)" for text in types):
            return "strings"
        if types and all("complex" in text for text in types):
            return "complex numbers"
    return ""


def _note(name: str) -> tuple[str, tuple[str, ...]]:
    """The first line of a rule's docstring, and the operations that it names; of a rule without, its table's entry."""
    from onnx2nnapi.passes.legalize import rules

    rule = rules()[name]
    line = (rule.__doc__ or "").strip().split("\n")[0].replace("``", "`").removesuffix(".")
    direct = _table_entry(rule, name)
    if direct is not None and direct not in line:
        line = f"{direct}: {line}" if line else direct
    words = dict.fromkeys(re.findall(r"\b[A-Z][A-Z0-9_]+\b", line))
    return line, tuple(word for word in words if word in OperationCode.__members__)


def _table_entry(rule: Any, name: str) -> str | None:
    """The NNAPI operation that a table which the rule reads names for the operator."""
    for word in rule.__code__.co_names:
        table = rule.__globals__.get(word)
        entry = table.get(name) if isinstance(table, dict) else None
        if isinstance(entry, str) and entry in OperationCode.__members__:
            return entry
    return None


# -- NNAPI -------------------------------------------------------------------------------------------------------------


def find_operation(name: str) -> Schema:
    """The row of an NNAPI operation, by its name in any case, or its number.

    Raises:
        InvalidModelError: there is none; the error names those that are spelled alike.
    """
    wanted = name.upper().removeprefix("ANEURALNETWORKS_")
    for schema in SCHEMAS.values():
        if wanted in (schema.name, str(int(schema.code))):
            return schema
    import difflib

    known = [schema.name for schema in SCHEMAS.values()]
    close = difflib.get_close_matches(wanted, known, 3, 0.5) or [other for other in known if wanted in other][:3]
    hint = f"did you mean {', '.join(close)}?" if close else "`onnx2nnapi ops` lists them"
    raise InvalidModelError(f"NNAPI has no operation {name!r}", hint=hint)


def operation_facts(schema: Schema) -> dict[str, Any]:
    """A row as plain data."""
    return {
        "name": schema.name,
        "code": int(schema.code),
        "feature_level": schema.since,
        "doc": schema.doc,
        "forms": [{"name": form.name, "operands": [_slot_facts(slot) for slot in form.slots]} for form in schema.forms],
        "outputs": [_slot_facts(slot) for slot in schema.outputs],
        "types": [
            {"feature_level": row.since, "codes": {name: code.name for name, code in row.codes.items()}}
            for row in schema.types
        ],
        "ranks": {name: {"low": rank.low, "high": rank.high} for name, rank in schema.ranks.items()},
        "zero_sized_since": schema.zero_sized_since,
    }


def _slot_facts(slot: Slot) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": slot.name, "role": slot.role.value, "feature_level": slot.since}
    if slot.code is not None:
        facts["type"] = slot.code.name
    if slot.default is not REQUIRED:
        facts["default"] = slot.default
    for flag in ("optional", "omittable", "constant", "variadic"):
        if getattr(slot, flag):
            facts[flag] = True
    return facts


def describe_operation(schema: Schema) -> str:
    """A row as a page of documentation, in Markdown that reads well as it is."""
    return "\n".join(_lines(schema))


def _lines(schema: Schema) -> Iterator[str]:
    yield f"# {schema.name} (operation {int(schema.code)}, feature level {schema.since})"
    if schema.doc:
        yield from ("", schema.doc)
    for form in schema.forms:
        yield ""
        title = f"## Operands, {form.name}" if form.name and len(schema.forms) > 1 else "## Operands"
        yield title
        yield ""
        yield from _form_lines(form, schema)
    yield from ("", "## Outputs", "")
    for number, slot in enumerate(schema.outputs):
        policy = schema.quantization.get(slot.name)
        yield f"{number}. {slot.name}{_details(slot, schema)}{_policy(policy)}"
    if schema.types:
        yield from ("", "## Element types", "")
        yield from _type_lines(schema)
    if schema.zero_sized_since is not None:
        yield from ("", f"Inputs without elements are accepted from level {schema.zero_sized_since} on.")


def _form_lines(form: Form, schema: Schema) -> Iterator[str]:
    for number, slot in enumerate(form.slots):
        yield f"{number}. {slot.name}{_details(slot, schema)}"


def _details(slot: Slot, schema: Schema) -> str:
    parts = [_ROLES[slot.role] + (f" {slot.code.name}" if slot.code is not None else "")]
    rank = schema.ranks.get(slot.name)
    if rank is not None:
        parts.append(_rank_text(rank))
    if slot.variadic:
        parts.append("any number of them")
    if slot.omittable:
        parts.append("may be omitted")
    if slot.constant:
        parts.append("constant")
    if slot.optional:
        parts.append(f"optional, {slot.default!r} when left out")
    elif slot.default is not REQUIRED:
        parts.append(f"{slot.default!r} where nothing else is said")
    if slot.since > 1:
        parts.append(
            f"level {slot.since}" + (" for another value" if slot.optional and not slot.presence_counts else "")
        )
    return ": " + ", ".join(parts)


_ROLES = {Role.TENSOR: "tensor", Role.ARRAY: "array", Role.SCALAR: "scalar", Role.MODEL: "sub-model"}


def _rank_text(rank: Rank) -> str:
    if rank.low == rank.high:
        text = f"rank {rank.low}"
    else:
        text = f"rank {rank.low} or more" if rank.high is None else f"rank {rank.low} to {rank.high}"
    if rank.base is not None and rank.since > 1:
        low, high = rank.base
        base = f"{low}" if low == high else f"{low} or more" if high is None else f"{low} to {high}"
        text += f" ({base} before level {rank.since})"
    return text


def _policy(policy: object) -> str:
    if isinstance(policy, SameAs):
        return f"; scale and zero point of {policy.name}"
    if isinstance(policy, Fixed):
        fixed = ", ".join(f"{code.name} ({scale:g}, {zero})" for code, (scale, zero) in policy.values.items())
        return f"; scale and zero point {fixed}"
    return ""


def _type_lines(schema: Schema) -> Iterator[str]:
    """A table with a column for each operand whose type varies; those that are always alike share one."""
    columns: dict[tuple[OperandCode, ...], list[str]] = {}
    for name in schema.types[0].codes:
        columns.setdefault(tuple(row.codes[name] for row in schema.types), []).append(name)
    yield f"| {' | '.join(', '.join(names) for names in columns.values())} | level |"
    yield "|" + "---|" * (len(columns) + 1)
    for place, row in enumerate(schema.types):
        yield f"| {' | '.join(codes[place].name for codes in columns)} | {row.since} |"


def document() -> str:
    """docs/operators.md."""
    from onnx import defs

    operators = onnx_operators()
    lines = [
        "# Operators",
        "",
        "Generated from the tables by `make docs`; a test holds it against them.",
        "",
        f"## ONNX, opset {defs.onnx_opset_version()}",
        "",
        *(
            f"* **{status}** ({sum(entry.status == status for entry in operators)}): {meaning}"
            for status, meaning in STATUS.items()
        ),
        "",
        "Any operator whose inputs are constant is computed when the model is converted. Which attributes, types and",
        "shapes convert, `onnx2nnapi check` tells for a model. The level is the lowest feature level that the plainest",
        "form converts at, measured; none where that is refused, or where there is no form without a sub-graph.",
        "",
        "| operator | opset | status | level | how |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {entry.name} | {entry.since} | {entry.status} | {entry.level or ''} | {_how(entry)} |"
        for entry in operators
    ]
    lines += [
        "",
        "## NNAPI",
        "",
        f"All {len(SCHEMAS)} operations; `onnx2nnapi ops --nnapi NAME` prints a row: operands, types, ranks, levels.",
        "",
        "| code | operation | level | |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {int(schema.code)} | {schema.name} | {schema.since} | {_cell(schema.doc)} |" for schema in SCHEMAS.values()
    ]
    return "\n".join(lines) + "\n"


def _how(entry: OperatorStatus) -> str:
    """The note as Markdown, with NNAPI's operations as code."""
    return re.sub(
        r"\b[A-Z][A-Z0-9_]+\b",
        lambda word: f"`{word[0]}`" if word[0] in entry.operations else word[0],
        _cell(entry.note),
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
