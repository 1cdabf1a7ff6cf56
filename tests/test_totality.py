"""Nothing of NNAPI is declared without the rest: a row, a kernel with its operands, results as the row infers them."""

from __future__ import annotations

import inspect

import pytest

from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.schema import SCHEMAS, Barrier, Elementwise, Schema
from onnx2nnapi.runtime.kernels import KERNELS, Call

OPERATIONS = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=lambda schema: schema.name)


def test_every_operation_has_a_row_and_a_kernel() -> None:
    assert len(OperationCode) == 106
    assert set(SCHEMAS) == set(KERNELS) == set(OperationCode)


def operands_of(schemas: list[Schema]) -> tuple[set[str], set[str]]:
    """Names of the operands, and of those that are variadic."""
    slots = [slot for schema in schemas for form in schema.forms for slot in form.slots]
    return {slot.name for slot in slots if not slot.variadic}, {slot.name for slot in slots if slot.variadic}


@OPERATIONS
def test_a_kernels_parameters_are_its_operands(schema: Schema) -> None:
    """A kernel that several operations share takes the operands of all; one with ``**weights`` need not name them."""
    function = KERNELS[schema.code]
    call, *parameters = inspect.signature(function).parameters.values()
    assert call.annotation in (Call, "Call")
    kinds = {parameter.name: parameter.kind for parameter in parameters}
    spread = {name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_POSITIONAL}
    rest = {name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD}
    named = set(kinds) - spread - rest
    operands, variadic = operands_of([schema])
    sharing, _ = operands_of([other for other in SCHEMAS.values() if KERNELS[other.code] is function])
    assert spread == variadic
    assert named <= sharing
    assert rest or operands <= named


@OPERATIONS
def test_what_a_form_may_lack_has_a_default_in_the_kernel(schema: Schema) -> None:
    parameters = inspect.signature(KERNELS[schema.code]).parameters
    always = set.intersection(*({slot.name for slot in slots} for form in schema.forms for slots in form.prefixes()))
    for name in (set(schema.operand_names) - always) & set(parameters):
        assert parameters[name].default is not inspect.Parameter.empty, name


def test_layout_traits_are_those_of_the_schema_module() -> None:
    kinds = {type(schema.layout) for schema in SCHEMAS.values()}
    assert {Elementwise, Barrier} <= kinds
    assert {kind.__module__ for kind in kinds} == {Elementwise.__module__}
