"""Rows of the operations that run sub-models."""

from __future__ import annotations

from collections.abc import Sequence

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.model import Subgraph
from onnx2nnapi.nnapi.rules import Bound, RuleError, UnknownValue
from onnx2nnapi.nnapi.schema import Form, Schema, register, submodel, tensor
from onnx2nnapi.nnapi.shapes import agree
from onnx2nnapi.nnapi.types import OperandType


def _graph(bound: Bound, name: str) -> Subgraph:
    """A sub-model; UnknownValue while it is still a graph of the IR."""
    argument = bound.arguments[name]
    if argument is None or not isinstance(argument.value, Subgraph):
        raise UnknownValue(name)
    return argument.value


def _results(bound: Bound, name: str) -> list[OperandType]:
    types = _graph(bound, name).output_types()
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
        graph = _graph(bound, name)
        _expect(f"inputs of {name!r}", inputs, graph.input_types())
        if bound.outputs:
            _expect(f"outputs of {name!r}", bound.outputs, graph.output_types())


def _loop_fits(bound: Bound) -> None:
    """The condition takes the inputs; the body too, and gives the first of them: the outputs, then more state."""
    inputs = [argument.type for argument in bound.variadic]
    condition, body = _graph(bound, "condition_model"), _graph(bound, "body_model")
    _expect("inputs of 'condition_model'", inputs, condition.input_types())
    results = condition.output_types()
    if len(results) != 1:
        raise RuleError(f"'condition_model' has {len(results)} outputs, it must be 1")
    _expect_condition("the output of 'condition_model'", results[0])
    _expect("inputs of 'body_model'", inputs, body.input_types())
    state = body.output_types()
    if not len(bound.outputs) <= len(state) <= len(inputs):
        raise RuleError(
            f"'body_model' has {len(state)} outputs, it must be {len(bound.outputs)} to {len(inputs)}: the loop's "
            "outputs and the state that only the loop sees"
        )
    _expect("outputs of 'body_model'", bound.outputs, state[: len(bound.outputs)])
    _expect("outputs of 'body_model'", body.input_types()[: len(state)], state)


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
