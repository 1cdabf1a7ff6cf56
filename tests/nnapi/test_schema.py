"""The schema table against the facts of Android's documentation, and its own consistency."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from onnx2nnapi.nnapi.codes import OPERAND_SINCE, OperandCode, OperationCode
from onnx2nnapi.nnapi.schema import REQUIRED, SCHEMAS, Fixed, Role, SameAs, Schema

OPERATIONS = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=lambda schema: schema.name)

# Where Android's code and its documentation differ, the code's verdicts are the contract.
LEVELS_OF_THE_CODE = {
    "CAST": {"TENSOR_BOOL8", "TENSOR_QUANT16_ASYMM", "TENSOR_QUANT16_SYMM", "TENSOR_QUANT8_SYMM"},  # identity: level 4
    "EMBEDDING_LOOKUP": {"TENSOR_INT32"},  # the lookups have it from the start, the values from level 3
}
RANKS_OF_THE_CODE = {"FULLY_CONNECTED": (2, 4)}  # the documentation has rank 1
RANKED_BY_OTHER_OPERANDS = {"HASHTABLE_LOOKUP", "LSH_PROJECTION"}
COUNTED_OTHERWISE = {"WHILE"}  # its inputs are described in prose


@pytest.fixture(scope="module")
def facts(shared: pathlib.Path) -> dict[str, Any]:
    operations = json.loads((shared / "nnapi" / "facts.json").read_text())["operations"]
    return {
        name: entry for name, entry in operations.items() if entry["code"] < 2**16 and name in OperationCode.__members__
    }


def levels_by_type(schema: Schema) -> dict[str, int]:
    """The lowest level at which an operand or result has each tensor type."""
    found: dict[str, int] = {}
    slots = [slot for form in schema.forms for slot in form.slots if slot.role is Role.TENSOR]
    codes = [(code, row.since) for row in schema.types for code in row.codes.values()]
    codes += [(slot.code, schema.since) for slot in slots if slot.code is not None]
    for code, since in codes:
        if code.is_tensor:
            found[code.name] = min(found.get(code.name, 99), max(since, OPERAND_SINCE[code]))
    return found


def test_there_is_a_row_for_every_operation(facts: dict[str, Any]) -> None:
    assert {schema.name: int(schema.code) for schema in SCHEMAS.values()} == {
        name: entry["code"] for name, entry in facts.items()
    }


@OPERATIONS
def test_level(schema: Schema, facts: dict[str, Any]) -> None:
    assert schema.since == facts[schema.name]["since_level"]


@OPERATIONS
def test_number_of_operands_and_results(schema: Schema, facts: dict[str, Any]) -> None:
    if schema.name not in COUNTED_OTHERWISE:
        documented = {len(variant["list"]) for variant in facts[schema.name]["inputs"]}
        assert {len(form.slots) for form in schema.forms} == documented
    assert {len(schema.outputs)} == {len(variant["list"]) for variant in facts[schema.name]["outputs"]}


@OPERATIONS
def test_documented_types_have_their_levels(schema: Schema, facts: dict[str, Any]) -> None:
    found = levels_by_type(schema)
    differ = LEVELS_OF_THE_CODE.get(schema.name, set())
    for levels in facts[schema.name]["supported_types"].values():
        for name, level in levels.items():
            if name.startswith("TENSOR") and name not in differ and schema.types:
                assert found.get(name) == max(level, schema.since, OPERAND_SINCE[OperandCode[name]]), name


@OPERATIONS
def test_no_type_is_undocumented(schema: Schema, facts: dict[str, Any]) -> None:
    entry = facts[schema.name]
    named = {name for levels in entry["supported_types"].values() for name in levels}
    for variant in (*entry["inputs"], *entry["outputs"]):
        named |= {name for operand in variant["list"] for name in operand.get("types_named") or ()}
    assert set(levels_by_type(schema)) <= named | {"TENSOR_INT32"}


@OPERATIONS
def test_rank(schema: Schema, facts: dict[str, Any]) -> None:
    documented = facts[schema.name].get("rank")
    if not documented or schema.name in RANKED_BY_OTHER_OPERANDS or not schema.ranks:
        return
    wanted = RANKS_OF_THE_CODE.get(schema.name, tuple(documented))
    assert wanted in {(rank.low, rank.high) for rank in schema.ranks.values()}


@OPERATIONS
def test_documented_zero_sizes(schema: Schema, facts: dict[str, Any]) -> None:
    documented = facts[schema.name].get("zero_sized_since_level")
    if documented is not None:
        assert schema.zero_sized_since == documented


@OPERATIONS
def test_layout_data_names_of_its_own_operands(schema: Schema) -> None:
    names = set(schema.operand_names)
    assert set(schema.ranks) <= names
    assert set(schema.quantization) <= {slot.name for slot in schema.outputs}
    assert {policy.name for policy in schema.quantization.values() if isinstance(policy, SameAs)} <= names
    for row in schema.types:
        assert set(row.codes) <= names | {slot.name for slot in schema.outputs}
        assert set(row.codes) == set(schema.types[0].codes), "every row ties the same operands"


@OPERATIONS
def test_no_type_combination_stands_twice(schema: Schema) -> None:
    combinations = [tuple(sorted(row.codes.items())) for row in schema.types]
    assert len(combinations) == len(set(combinations))


@OPERATIONS
def test_only_optional_operands_are_trailing_and_have_defaults(schema: Schema) -> None:
    for form in schema.forms:
        flags = [slot.optional for slot in form.slots]
        assert flags == sorted(flags), "optional operands come last"
        assert all(slot.default is not REQUIRED for slot in form.slots if slot.optional)
        assert sum(slot.variadic for slot in form.slots) <= 1
        assert len({slot.name for slot in form.slots}) == len(form.slots)


@OPERATIONS
def test_every_operand_that_no_slot_types_is_tied_by_the_rows(schema: Schema) -> None:
    tied = set(schema.types[0].codes) if schema.types else set()
    slots = [*(slot for form in schema.forms for slot in form.slots), *schema.outputs]
    free = {slot.name for slot in slots if slot.code is None} - tied
    assert free == ({"inputs", "outputs"} if schema.name in ("IF", "WHILE") else set())


@OPERATIONS
def test_fixed_quantization_is_of_quantized_types(schema: Schema) -> None:
    for policy in schema.quantization.values():
        if isinstance(policy, Fixed):
            assert all("QUANT" in code.name and scale > 0 for code, (scale, _) in policy.values.items())


@OPERATIONS
def test_doc_is_one_sentence(schema: Schema) -> None:
    assert schema.doc
    assert "\n" not in schema.doc
    assert schema.doc.endswith(".")
