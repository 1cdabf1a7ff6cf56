"""Rows of the operations that run sub-models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, UnknownValue
from onnx2nnapi.nnapi.schema import Form, Schema, register, submodel, tensor

if TYPE_CHECKING:
    from onnx2nnapi.nnapi.types import OperandType


def _results(bound: Bound, name: str) -> list[OperandType]:
    argument = bound.arguments[name]
    if argument is None or not hasattr(argument.value, "output_types"):
        raise UnknownValue(name)
    types: list[OperandType] = argument.value.output_types()
    if not all(type_.is_specified for type_ in types):
        raise UnknownValue(name)
    return types


def _of_branches(bound: Bound) -> Sequence[Shape]:
    """The sizes that both branches give; where they differ, the run tells."""
    then, other = _results(bound, "then_model"), _results(bound, "else_model")
    if [type_.shape for type_ in then] != [type_.shape for type_ in other]:
        raise UnknownValue("then_model")
    return [type_.shape for type_ in then]


def _of_loop(bound: Bound) -> Sequence[Shape]:
    """The sizes that the body gives, which are those of the first inputs where the loop does not run once."""
    body = [type_.shape for type_ in _results(bound, "body_model")][: len(bound.outputs)]
    given = [argument.type.shape for argument in bound.variadic[: len(body)]]
    if not body or body != given:
        raise UnknownValue("body_model")
    return body


register(
    Schema(
        OperationCode.IF,
        4,
        (
            Form(
                "",
                (
                    tensor("condition", OperandCode.TENSOR_BOOL8),
                    submodel("then_model"),
                    submodel("else_model"),
                    tensor("inputs", variadic=True),
                ),
            ),
        ),
        (tensor("outputs", variadic=True),),
        (),
        _of_branches,
        doc="Runs one of two sub-models.",
    ),
    Schema(
        OperationCode.WHILE,
        4,
        (Form("", (submodel("condition_model"), submodel("body_model"), tensor("inputs", variadic=True))),),
        (tensor("outputs", variadic=True),),
        (),
        _of_loop,
        doc="Runs a sub-model on its own results while another one answers true.",
    ),
)
