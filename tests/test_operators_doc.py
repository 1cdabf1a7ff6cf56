"""docs/operators.md and `ops` say what the tables say, and what the tables say of ONNX is what converts."""

from __future__ import annotations

import pathlib
import re

import onnx
import pytest
from onnx import defs

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.schema import SCHEMAS
from onnx2nnapi.operators import (
    STATUS,
    OperatorStatus,
    describe_operation,
    document,
    find_operation,
    onnx_operators,
    operation_facts,
)
from onnx2nnapi.passes.legalize import rules
from onnx2nnapi.probes import lowest_level, plain_model

WITHOUT_PLAIN_FORM = {"BitShift"}  # of unsigned integers only, which are quantized tensors in NNAPI


@pytest.fixture(scope="module")
def operators() -> dict[str, OperatorStatus]:
    return {entry.name: entry for entry in onnx_operators()}


@pytest.fixture(scope="module")
def text(checkout: pathlib.Path) -> str:
    found = (checkout / "docs" / "operators.md").read_text(encoding="utf-8")
    opset = re.search(r"ONNX, opset (\d+)", found)
    assert opset is not None
    if int(opset[1]) != defs.onnx_opset_version():
        pytest.skip(f"docs/operators.md is of opset {opset[1]}, onnx {onnx.__version__} has another one")
    return found


def test_the_document_is_current(text: str) -> None:
    assert text == document(), "make docs"


def test_every_operator_of_the_newest_opset_has_a_status(text: str, operators: dict[str, OperatorStatus]) -> None:
    newest = {schema.name for schema in defs.get_all_schemas() if not schema.domain and not schema.deprecated}
    listed = set(
        re.findall(r"^\| ([A-Za-z0-9:.]+) \| \d+ \| (?:rule|body|frontend|constant|no) \|", text, re.MULTILINE)
    )
    assert newest <= listed == set(operators)
    assert {entry.status for entry in operators.values()} <= set(STATUS)


def test_every_nnapi_operation_is_listed(text: str) -> None:
    assert re.findall(r"^\| \d+ \| ([A-Z0-9_]+) \| [1-8] \|", text, re.MULTILINE) == [s.name for s in SCHEMAS.values()]


def test_a_rule_has_a_level_and_says_what_it_does(operators: dict[str, OperatorStatus]) -> None:
    silent = [name for name, entry in operators.items() if entry.status == "rule" and not entry.note]
    assert silent == []
    unmeasured = {name for name, entry in operators.items() if entry.status == "rule" and entry.level is None}
    plain = {name for name in unmeasured if defs.has(name) and plain_model(defs.get_schema(name)) is not None}
    assert plain <= WITHOUT_PLAIN_FORM


@pytest.mark.parametrize(
    ("name", "status", "level"),
    [
        ("Add", "rule", 1),
        ("Conv", "rule", 1),
        ("Transpose", "rule", 2),
        ("Sin", "rule", 3),
        ("Attention", "body", 3),
        ("Shape", "frontend", 1),
        ("StringSplit", "no", None),
        ("Det", "no", None),
        ("SequenceAt", "no", None),
    ],
)
def test_status_and_level(operators: dict[str, OperatorStatus], name: str, status: str, level: int | None) -> None:
    assert (operators[name].status, operators[name].level) == (status, level)


def test_the_note_names_the_entry_of_the_rules_table(operators: dict[str, OperatorStatus]) -> None:
    assert operators["Sigmoid"].operations == ("LOGISTIC",)
    assert "REDUCE_MAX" in operators["ReduceMax"].operations
    assert operators["StringSplit"].note == "NNAPI has no strings"


@pytest.mark.parametrize("name", ["Softmax", "MatMul", "Split", "Gather"])
def test_a_plain_model_is_valid_onnx(name: str) -> None:
    model = plain_model(defs.get_schema(name))
    assert model is not None
    onnx.shape_inference.infer_shapes(model, strict_mode=True)
    assert name in rules()


def test_what_needs_a_sub_graph_has_no_plain_model() -> None:
    assert plain_model(defs.get_schema("Loop")) is None
    assert lowest_level(defs.get_schema("Loop")) is None


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=lambda schema: schema.name)
def test_a_row_is_documented_with_every_operand(schema: object) -> None:
    row = find_operation(schema.name)  # type: ignore[attr-defined]
    page = describe_operation(row)
    assert page.startswith(f"# {row.name} (operation {int(row.code)}, feature level {row.since})")
    assert row.doc in page
    for name in (*row.operand_names, *(slot.name for slot in row.outputs)):
        assert re.search(rf"^\d+\. {name}: ", page, re.MULTILINE), name
    for types in row.types:
        assert all(code.name in page for code in types.codes.values())
    facts = operation_facts(row)
    assert (facts["code"], facts["feature_level"]) == (int(row.code), row.since)
    assert len(facts["types"]) == len(row.types)


def test_a_page_says_levels_defaults_and_ranks() -> None:
    page = describe_operation(find_operation("CONV_2D"))
    assert "11. dilation_width: scalar INT32, optional, 1 when left out, level 3 for another value" in page
    assert "0. input: tensor, rank 4" in page
    assert "| TENSOR_QUANT8_ASYMM_SIGNED | TENSOR_QUANT8_SYMM_PER_CHANNEL | TENSOR_INT32 | 4 |" in page


@pytest.mark.parametrize("spelling", ["conv_2d", "3", "ANEURALNETWORKS_CONV_2D"])
def test_an_operation_is_found_by_any_name(spelling: str) -> None:
    assert find_operation(spelling).code is OperationCode.CONV_2D


def test_an_unknown_operation_is_refused_with_what_is_spelled_alike() -> None:
    with pytest.raises(InvalidModelError, match=r"NNAPI has no operation 'CONV2D'; did you mean .*CONV_2D"):
        find_operation("CONV2D")
    with pytest.raises(InvalidModelError, match="`onnx2nnapi ops` lists them"):
        find_operation("!?")
