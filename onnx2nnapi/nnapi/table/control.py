"""Rows of the operations that run sub-models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.model import Subgraph
from onnx2nnapi.nnapi.rules import Bound, RuleError, UnknownValue
from onnx2nnapi.nnapi.schema import Form, Schema, register, submodel, tensor
from onnx2nnapi.nnapi.shapes import agree
from onnx2nnapi.nnapi.types import OperandType

if TYPE_CHECKING:
    from onnx2nnapi.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class _Border:
    """The types of a sub-model's inputs and outputs."""

    inputs: list[OperandType]
    outputs: list[OperandType]


def _border(bound: Bound, name: str) -> _Border:
    """Of a sub-model, which is a graph of the IR until it is lowered."""
    argument = bound.arguments[name]
    if argument is None or argument.value is None:
        raise UnknownValue(name)
    model: Subgraph | Graph = argument.value
    if isinstance(model, Subgraph):
        return _Border(model.input_types(), model.output_types())
    return _Border(*([OperandType.of(model[name].known) for name in names] for names in (model.inputs, model.outputs)))


def _results(bound: Bound, name: str) -> list[OperandType]:
    types = _border(bound, name).outputs
    if not all(type_.is_specified for type_ in types):
        raise UnknownValue(name)
    return types


def _expect(what: str, outer: Sequence[OperandType | None], inner: Sequence[OperandType]) -> None:
    """Types on both sides of a sub-model's border: the same but for sizes that are unspecified."""
    if len(outer) != len(inner):
        raise RuleError(f"{what}: there are {len(inner)}, it must be {len(outer)}")
    for position, (given, own) in enumerate(zip(outer, inner, strict=True)):
        if given is None:
            continue
        same = (given.code, given.scale, given.zero_point, given.channel_quant) == (
            own.code,
            own.scale,
            own.zero_point,
            own.channel_quant,
        )
        if not same or not agree(given.shape, own.shape):
            raise RuleError(f"{what}: number {position} is {own}, it must be {given}")


def _expect_condition(what: str, type_: OperandType) -> None:
    if type_.code is not OperandCode.TENSOR_BOOL8 or type_.shape != (1,):
        raise RuleError(f"{what} is {type_}, it must be TENSOR_BOOL8[1]")


def _branches_fit(bound: Bound) -> None:
    """Both branches take the inputs and give the outputs."""
    _expect_condition("operand 'condition'", bound["condition"])
    inputs = [argument.type for argument in bound.variadic]
    for name in ("then_model", "else_model"):
        border = _border(bound, name)
        _expect(f"inputs of {name!r}", inputs, border.inputs)
        if bound.outputs:
            _expect(f"outputs of {name!r}", bound.outputs, border.outputs)


def _loop_fits(bound: Bound) -> None:
    """The condition takes the inputs; the body too, and gives the first of them: the outputs, then more state."""
    inputs = [argument.type for argument in bound.variadic]
    condition, body = _border(bound, "condition_model"), _border(bound, "body_model")
    _expect("inputs of 'condition_model'", inputs, condition.inputs)
    results = condition.outputs
    if len(results) != 1:
        raise RuleError(f"'condition_model' has {len(results)} outputs, it must be 1")
    _expect_condition("the output of 'condition_model'", results[0])
    _expect("inputs of 'body_model'", inputs, body.inputs)
    state = body.outputs
    if not len(bound.outputs) <= len(state) <= len(inputs):
        raise RuleError(
            f"'body_model' has {len(state)} outputs, it must be {len(bound.outputs)} to {len(inputs)}: the loop's "
            "outputs and the state that only the loop sees"
        )
    _expect("outputs of 'body_model'", bound.outputs, state[: len(bound.outputs)])
    _expect("outputs of 'body_model'", body.inputs[: len(state)], state)


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
        rules=(_branches_fit,),
        doc="Runs one of two sub-models.",
    ),
    Schema(
        OperationCode.WHILE,
        4,
        (Form("", (submodel("condition_model"), submodel("body_model"), tensor("inputs", variadic=True))),),
        (tensor("outputs", variadic=True),),
        (),
        _of_loop,
        rules=(_loop_fits,),
        doc="Runs a sub-model on its own results while another one answers true.",
    ),
)
