"""Rows of the two quantized LSTMs."""

from __future__ import annotations

import functools
import math

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import Fixed, Form, Rank, Schema, Slot, TypeRow, register, scalar, tensor
from onnx2nnapi.nnapi.table.recurrent import GATES, cell_presence, cell_shapes, expect_shapes, lstm_weights

__all__ = ["state_exponent"]

U8, S8, SYMM8 = (
    OperandCode.TENSOR_QUANT8_ASYMM,
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandCode.TENSOR_QUANT8_SYMM,
)
SYMM16, I32 = OperandCode.TENSOR_QUANT16_SYMM, OperandCode.TENSOR_INT32

# QUANTIZED_16BIT_LSTM has one scale for what comes in and out, and one for its state.
ACTIVATION_SCALE, ACTIVATION_ZERO_POINT, STATE_SCALE = 1 / 128, 128, 1 / 2048


def state_exponent(scale: float) -> int | None:
    """log2 of a cell state's scale, None when it is no power of two."""
    if scale <= 0:
        return None
    exponent = math.log2(scale)
    return round(exponent) if abs(exponent - round(exponent)) < 1e-3 else None


def _quantized_lstm(bound: Bound) -> list[Shape]:
    batch, size = bound.shape("input")
    cells, outputs = cell_shapes(bound, "", batch, size)
    return [(batch, outputs), (batch, cells), (batch, outputs)]


def _cell_state_is_fine(bound: Bound) -> None:
    exponent = state_exponent(bound["cell_state_in"].scale)
    if exponent is None or not -15 <= exponent <= -9:
        raise RuleError(
            f"operand 'cell_state_in' has scale {bound['cell_state_in'].scale:g}, it must be a power of two from "
            "2^-15 to 2^-9"
        )


def _outputs_agree(bound: Bound) -> None:
    """The output and the state that it is copied to have the same quantization."""
    if len(bound.outputs) == 3 and bound.outputs[0] is not None and bound.outputs[2] is not None:
        state, output = bound.outputs[0], bound.outputs[2]
        if (state.scale, state.zero_point) != (output.scale, output.zero_point):
            raise RuleError(f"output and output state must have the same quantization, they are {output} and {state}")


def _quantized_16bit_lstm(bound: Bound) -> list[Shape]:
    batch, size = bound.shape("input")
    outputs = bound.shape("output_state_in")[-1]
    expected: dict[str, Shape] = {"cell_state_in": (batch, outputs), "output_state_in": (batch, outputs)}
    for gate in GATES:
        expected[f"input_to_{gate}_weights"] = (outputs, size)
        expected[f"recurrent_to_{gate}_weights"] = (outputs, outputs)
        expected[f"{gate}_gate_bias"] = (outputs,)
    expect_shapes(bound, expected)
    return [(batch, outputs)] * 2


def _scales_are_fixed(bound: Bound) -> None:
    """QUANTIZED_16BIT_LSTM computes with one scale for all weights, and given ones elsewhere."""
    weights = bound["input_to_input_weights"]
    expected = dict.fromkeys(("input", "output_state_in"), (ACTIVATION_SCALE, ACTIVATION_ZERO_POINT))
    expected["cell_state_in"] = (STATE_SCALE, 0)
    for gate in GATES:
        expected[f"input_to_{gate}_weights"] = (weights.scale, weights.zero_point)
        expected[f"recurrent_to_{gate}_weights"] = (weights.scale, weights.zero_point)
        expected[f"{gate}_gate_bias"] = (weights.scale * ACTIVATION_SCALE, 0)
    for name, (scale, zero_point) in expected.items():
        type_ = bound[name]
        close = math.isclose(type_.scale, scale, rel_tol=1e-3 if name == "cell_state_in" else 1e-9)
        if not close or type_.zero_point != zero_point:
            raise RuleError(f"operand {name!r} is {type_}, its scale must be {scale:g} and its zero point {zero_point}")


def _weight_code(name: str) -> OperandCode:
    return I32 if name.endswith("_bias") else SYMM16 if name.startswith("cell_to_") else SYMM8


_CODES = {
    "input": S8,
    **{slot.name: _weight_code(slot.name) for slot in lstm_weights()},
    "output_state_in": S8,
    "cell_state_in": SYMM16,
    **{f"{gate}_layer_norm_weights": SYMM16 for gate in GATES},
}
_OUTPUT_CODES = {"output_state_out": S8, "cell_state_out": SYMM16, "output": S8}
_CODES_16BIT = {
    "input": U8,
    **{f"{source}_to_{gate}_weights": U8 for source in ("input", "recurrent") for gate in GATES},
    **{f"{gate}_gate_bias": I32 for gate in GATES},
    "cell_state_in": SYMM16,
    "output_state_in": U8,
}
_OUTPUT_CODES_16BIT = {"cell_state_out": SYMM16, "output": U8}
_OPTIONAL = {slot.name for slot in lstm_weights() if slot.omittable} | {f"{gate}_layer_norm_weights" for gate in GATES}
_FLOAT = functools.partial(scalar, code=OperandCode.FLOAT32)


def _typed(codes: dict[str, OperandCode], optional: frozenset[str] = frozenset()) -> tuple[Slot, ...]:
    return tuple(tensor(name, omittable=name in optional) for name in codes)


register(
    Schema(
        OperationCode.QUANTIZED_LSTM,
        4,
        (
            Form(
                "",
                (
                    *_typed(_CODES, frozenset(_OPTIONAL)),
                    _FLOAT("cell_clip", default=0.0),
                    _FLOAT("projection_clip", default=0.0),
                    *(_FLOAT(f"{gate}_intermediate_scale") for gate in GATES),
                    scalar("hidden_state_zero_point"),
                    _FLOAT("hidden_state_scale"),
                ),
            ),
        ),
        _typed(_OUTPUT_CODES),
        (TypeRow({**_CODES, **_OUTPUT_CODES}, 4),),
        _quantized_lstm,
        ranks={"input": Rank(2, 2)},
        rules=(cell_presence, _cell_state_is_fine, _outputs_agree),
        doc="One step of an LSTM on 8-bit inputs and weights with a 16-bit state.",
    ),
    Schema(
        OperationCode.QUANTIZED_16BIT_LSTM,
        3,
        (Form("", _typed(_CODES_16BIT)),),
        _typed(_OUTPUT_CODES_16BIT),
        (TypeRow({**_CODES_16BIT, **_OUTPUT_CODES_16BIT}, 3),),
        _quantized_16bit_lstm,
        ranks={"input": Rank(2, 2), "output_state_in": Rank(2, 2)},
        rules=(_scales_are_fixed,),
        quantization={
            "cell_state_out": Fixed({SYMM16: (STATE_SCALE, 0)}),
            "output": Fixed({U8: (ACTIVATION_SCALE, ACTIVATION_ZERO_POINT)}),
        },
        doc="One step of an LSTM on 8-bit inputs and weights with a 16-bit state, of fixed scales.",
    ),
)
