"""Models of one NNAPI operation, written by operand names and run on the host.

``run("SLICE", x, begin=[0], size=[2])`` gives the operation's results. Tensors are arrays, or ``quantized(...)`` where
they have a scale; attributes go by the names of the schema table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx2nnapi.nnapi import Model, validate
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.model import Lifetime, Operand, Operation, Subgraph
from onnx2nnapi.nnapi.rules import arrange
from onnx2nnapi.nnapi.schema import SCHEMAS, Fixed, Role, SameAs
from onnx2nnapi.nnapi.types import ChannelQuant, OperandType
from onnx2nnapi.runtime import Interpreter

Array = np.ndarray[Any, np.dtype[Any]]

PLAIN = {
    "float32": OperandCode.TENSOR_FLOAT32,
    "float16": OperandCode.TENSOR_FLOAT16,
    "int32": OperandCode.TENSOR_INT32,
    "bool": OperandCode.TENSOR_BOOL8,
    "uint8": OperandCode.TENSOR_QUANT8_ASYMM,
    "int8": OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    "int16": OperandCode.TENSOR_QUANT16_SYMM,
    "uint16": OperandCode.TENSOR_QUANT16_ASYMM,
}


@dataclass(frozen=True)
class Quantized:
    """Codes with their scale."""

    codes: Array
    scale: float
    zero_point: int = 0
    symmetric: bool = False
    channels: ChannelQuant | None = None

    @property
    def real(self) -> Array:
        """The numbers that the codes stand for."""
        return (self.codes.astype(np.float64) - self.zero_point) * self.scale


def quantized(
    values: Any, scale: float, zero_point: int = 0, dtype: Any = np.uint8, *, symmetric: bool = False
) -> Quantized:
    """Codes ``values`` of an element type."""
    return Quantized(np.asarray(values, dtype), scale, zero_point, symmetric)


def per_channel(values: Any, scales: Sequence[float], dim: int = 0) -> Quantized:
    """Codes of TENSOR_QUANT8_SYMM_PER_CHANNEL with their scales along a dimension."""
    kept = tuple(float(np.float32(scale)) for scale in scales)
    return Quantized(np.asarray(values, np.int8), 0.0, 0, True, ChannelQuant(dim, kept))


def _type(tensor: Array | Quantized) -> OperandType:
    codes = tensor.codes if isinstance(tensor, Quantized) else tensor
    code = PLAIN[codes.dtype.name]
    if not isinstance(tensor, Quantized):
        return OperandType(code, codes.shape)
    if tensor.channels is not None:
        return OperandType(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, codes.shape, channel_quant=tensor.channels)
    if tensor.symmetric and code is OperandCode.TENSOR_QUANT8_ASYMM_SIGNED:
        code = OperandCode.TENSOR_QUANT8_SYMM
    return OperandType(code, codes.shape, float(np.float32(tensor.scale)), tensor.zero_point)


def model(
    name: str,
    *tensors: Array | Quantized | None,
    quant: Sequence[tuple[float, int]] = (),
    outputs: int | None = None,
    constant: bool = False,
    dtype: Any = None,
    **attrs: Any,
) -> Model:
    """The model: tensors are its inputs (its constants with ``constant``), results are its outputs of any rank.

    Args:
        name: the operation.
        tensors: in the order of the row, None = omitted.
        quant: scale and zero point of each output that the row leaves free.
        outputs: how many there are, where the row lets some out; for a variadic output too.
        constant: weights are constants.
        dtype: of the output, where several rows fit.
        attrs: scalars and arrays by name.
    """
    schema = SCHEMAS[OperationCode[name]]
    _, items = arrange(schema, list(tensors), attrs)
    types = {slot.name: _type(item) for slot, item in items if slot.role is Role.TENSOR and item is not None}
    rows = [
        row
        for row in schema.types
        if all(row.codes.get(key, type_.code) == type_.code for key, type_ in types.items())
        and (dtype is None or any(row.codes.get(s.name) and row.codes[s.name].dtype == dtype for s in schema.outputs))
    ]
    codes = rows[0].codes if rows else {}
    operands: list[Operand] = []
    inputs: list[int] = []
    for slot, item in items:
        if item is None:
            code = codes.get(slot.name, OperandCode.TENSOR_FLOAT32) if slot.code is None else slot.code
            scale = 1.0 if "QUANT" in code.name else 0.0  # NNAPI wants one, though nothing is there
            operands.append(Operand(OperandType(code, (), scale), Lifetime.NO_VALUE))
        elif slot.role is Role.TENSOR:
            array = item.codes if isinstance(item, Quantized) else item
            fixed = constant and slot.name != "input"
            inputs += [] if fixed else [len(operands)]
            lifetime = Lifetime.CONSTANT if fixed else Lifetime.INPUT
            operands.append(Operand(_type(item), lifetime, array if fixed else None))
        else:
            code = codes[slot.name] if slot.code is None else slot.code
            array = np.asarray(item, code.dtype)
            shape = array.shape if code.is_tensor else ()
            operands.append(
                Operand(OperandType(code, shape), Lifetime.CONSTANT, array if code.is_tensor else array.reshape(1))
            )
    slots = [schema.outputs[0]] * (outputs or 1) if schema.outputs[0].variadic else schema.outputs[:outputs]
    count = len(operands)
    for index, slot in enumerate(slots):
        code = codes[slot.name] if slot.code is None else slot.code
        scale, zero_point = quant[index] if index < len(quant) else (0.0, 0)
        policy = schema.quantization.get(slot.name)
        if isinstance(policy, SameAs):
            scale, zero_point = types[policy.name].scale, types[policy.name].zero_point
        elif isinstance(policy, Fixed):
            scale, zero_point = policy.values.get(code, (scale, zero_point))
        operands.append(Operand(OperandType(code, (), float(np.float32(scale)), zero_point), Lifetime.OUTPUT))
    results = tuple(range(count, len(operands)))
    operation = Operation(schema.code, tuple(range(count)), results)
    return Model(Subgraph(tuple(operands), (operation,), tuple(inputs), results))


def run(name: str, *tensors: Array | Quantized | None, **how: Any) -> Any:
    """The result of an operation, or a list where it has several; arguments are those of ``model``."""
    made = model(name, *tensors, **how)
    validate(made)
    arrays = [tensor.codes if isinstance(tensor, Quantized) else tensor for tensor in tensors if tensor is not None]
    if how.get("constant"):
        arrays = arrays[: len(made.main.inputs)]
    results = Interpreter(made).run(arrays)
    return results[0] if len(results) == 1 else results
