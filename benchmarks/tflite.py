"""Writes an NNAPI model as a .tflite file, operation by operation, so that LiteRT can be measured on the same graph.

python benchmarks/tflite.py MODEL.nnapi TARGET.tflite

TFLite's operations have NNAPI's tensors in NNAPI's order and its scalars as options. It differs in two things: padding
is SAME or VALID, so that any other becomes a PAD before; and per-channel weights ask for int8 activations, so uint8
becomes int8 throughout, codes and zero points 128 less.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as tflite

import onnx2nnapi
from onnx2nnapi.nnapi.codes import OperandCode, PaddingCode
from onnx2nnapi.nnapi.model import Operation, Subgraph
from onnx2nnapi.nnapi.rules import Argument, Bound, bind
from onnx2nnapi.nnapi.schema import SCHEMAS, Role, Slot
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.nnapi.window import Window

RENAMED = {
    "ARGMAX": "ARG_MAX",
    "ARGMIN": "ARG_MIN",
    "PAD_V2": "PADV2",
    "REDUCE_SUM": "SUM",
    "RELU1": "RELU_N1_TO_1",
}
TYPES = {
    OperandCode.TENSOR_FLOAT32: tflite.TensorType.FLOAT32,
    OperandCode.TENSOR_INT32: tflite.TensorType.INT32,
    OperandCode.TENSOR_BOOL8: tflite.TensorType.BOOL,
    OperandCode.TENSOR_QUANT8_ASYMM: tflite.TensorType.INT8,
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: tflite.TensorType.INT8,
    OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL: tflite.TensorType.INT8,
}
ACTIVATION = {"fusedActivationFunction": "fuse_code"}  # the numbers are NNAPI's
STRIDES = {"strideW": "stride_width", "strideH": "stride_height"}
DILATIONS = {"dilationWFactor": "dilation_width", "dilationHFactor": "dilation_height"}
FILTER = {"filterWidth": "filter_width", "filterHeight": "filter_height"}
# The options table of an operation, and the scalar that each option is.
OPTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "CONV_2D": ("Conv2DOptions", STRIDES | DILATIONS | ACTIVATION),
    "DEPTHWISE_CONV_2D": (
        "DepthwiseConv2DOptions",
        STRIDES | DILATIONS | ACTIVATION | {"depthMultiplier": "depth_multiplier"},
    ),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), ("Pool2DOptions", STRIDES | FILTER | ACTIVATION)),
    **{name: (f"{name.title()}Options", ACTIVATION) for name in ("ADD", "SUB", "MUL", "DIV")},
    "FULLY_CONNECTED": ("FullyConnectedOptions", ACTIVATION),
    "BATCH_MATMUL": ("BatchMatMulOptions", {"adjX": "transpose_input", "adjY": "transpose_other"}),
    "CONCATENATION": ("ConcatenationOptions", {"axis": "axis"}),
    "GATHER": ("GatherOptions", {"axis": "axis"}),
    "SOFTMAX": ("SoftmaxOptions", {"beta": "beta"}),
    **dict.fromkeys(
        ("MEAN", "REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), ("ReducerOptions", {"keepDims": "keep_dims"})
    ),
}
SCHEMES = {PaddingCode.SAME: tflite.Padding.SAME, PaddingCode.VALID: tflite.Padding.VALID}


class Translator:
    """The main graph of one model on its way to TFLite."""

    def __init__(self, graph: Subgraph) -> None:
        self.graph = graph
        self.buffers = [tflite.BufferT()]
        self.codes: list[int] = []
        self.operators: list[Any] = []
        self.tensors: list[Any] = []
        self.places = {index: self._operand(index) for index, o in enumerate(graph.operands) if o.type.code in TYPES}

    def model(self) -> bytes:
        """The file's bytes."""
        for operation in self.graph.operations:
            self._operation(operation)
        main = tflite.SubGraphT()
        main.tensors, main.operators = self.tensors, self.operators
        main.inputs, main.outputs = ([self.places[i] for i in ends] for ends in (self.graph.inputs, self.graph.outputs))
        model = tflite.ModelT()
        model.version, model.subgraphs, model.buffers = 3, [main], self.buffers
        model.operatorCodes = [tflite.OperatorCodeT() for _ in self.codes]
        for entry, code in zip(model.operatorCodes, self.codes, strict=True):
            entry.builtinCode, entry.deprecatedBuiltinCode = code, min(code, 127)
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _operand(self, index: int) -> int:
        operand = self.graph.operands[index]
        value = None if operand.value is None else operand.array()
        return self._tensor(operand.type, value, operand.name or str(index))

    def _tensor(self, type_: OperandType, value: Any = None, name: str = "") -> int:
        tensor = tflite.TensorT()
        tensor.name, tensor.shape, tensor.type = name, list(type_.shape), TYPES[type_.code]
        shift = 128 if type_.code is OperandCode.TENSOR_QUANT8_ASYMM else 0
        if type_.is_quantized or type_.scale:
            quantization = tflite.QuantizationParametersT()
            channels = type_.channel_quant
            quantization.scale = [type_.scale] if channels is None else list(channels.scales)
            quantization.zeroPoint = [type_.zero_point - shift] * len(quantization.scale)
            quantization.quantizedDimension = 0 if channels is None else channels.channel_dim
            tensor.quantization = quantization
        if value is not None:
            buffer = tflite.BufferT()
            codes = (value.astype(np.int16) - shift).astype(np.int8) if shift else np.ascontiguousarray(value)
            buffer.data = codes.reshape(-1).view(np.uint8)
            tensor.buffer = len(self.buffers)
            self.buffers.append(buffer)
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _operator(self, name: str, inputs: list[int], outputs: list[int]) -> Any:
        code = getattr(tflite.BuiltinOperator, RENAMED.get(name, name))
        if code not in self.codes:
            self.codes.append(code)
        operator = tflite.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = self.codes.index(code), inputs, outputs
        self.operators.append(operator)
        return operator

    def _operation(self, operation: Operation) -> None:
        name = operation.code.name
        operands = [self.graph.operands[index] for index in operation.inputs]
        arguments = [Argument(o.type, None if o.value is None else o.array()) for o in operands]
        bound = bind(SCHEMAS[operation.code], arguments, [self.graph.operands[i].type for i in operation.outputs])
        table, entries = OPTIONS.get(name, ("", {}))
        for slot in bound.slots:
            known = slot.name in entries.values() or slot.name.startswith("padding_")
            if slot.role is Role.SCALAR and not known and not is_default(bound, slot):
                raise SystemExit(f"{name}: TFLite has no {slot.name} {bound.scalar(slot.name)}")
        inputs = [self.places[index] for index in operation.inputs if index in self.places]
        scheme = self._padding(name, bound, inputs) if "strideW" in entries else None
        operator = self._operator(name, inputs, [self.places[index] for index in operation.outputs])
        if table:
            options = getattr(tflite, f"{table}T")()
            for option, scalar in entries.items():
                setattr(options, option, bound.scalar(scalar))
            if scheme is not None:
                options.padding = scheme
            operator.builtinOptionsType, operator.builtinOptions = getattr(tflite.BuiltinOptions, table), options

    def _padding(self, name: str, bound: Bound, inputs: list[int]) -> int:
        """TFLite's padding; where it has none like it, a PAD takes the place of inputs[0]."""
        if bound.has("padding_scheme"):
            return SCHEMES[PaddingCode(bound.scalar("padding_scheme"))]
        sizes = [bound.scalar(f"filter_{axis}") for axis in ("height", "width")]
        window = bound.shape("filter")[1:3] if bound.has("filter") else sizes
        pads, same = [], []
        for axis, head, tail, size, length in zip(
            ("height", "width"), ("top", "left"), ("bottom", "right"), bound.shape("input")[1:3], window, strict=True
        ):
            dilation = bound.scalar(f"dilation_{axis}") if "CONV" in name else 1
            implicit = Window.implicit(PaddingCode.SAME, size, length, bound.scalar(f"stride_{axis}"), dilation)
            same.append([implicit.head, implicit.tail])
            pads.append([bound.scalar(f"padding_{head}"), bound.scalar(f"padding_{tail}")])
        if pads == same:
            return SCHEMES[PaddingCode.SAME]
        if np.any(pads):
            inputs[0] = self._pad(name, bound["input"], inputs[0], [[0, 0], *pads, [0, 0]])
        return SCHEMES[PaddingCode.VALID]

    def _pad(self, name: str, type_: OperandType, source: int, pads: list[list[int]]) -> int:
        paddings = OperandType(OperandCode.TENSOR_INT32, (4, 2))
        result = self._tensor(type_.with_shape(tuple(s + sum(p) for s, p in zip(type_.shape, pads, strict=True))))
        inputs = [source, self._tensor(paddings, np.array(pads, np.int32))]
        if name == "MAX_POOL_2D":
            lowest = {"u": 0, "i": -128, "f": np.finfo(np.float32).min}[type_.dtype.kind]
            inputs.append(self._tensor(type_.with_shape((1,)), np.array([lowest], type_.dtype)))
        elif "CONV" not in name:
            raise SystemExit(f"{name}: TFLite cannot leave explicit padding out of the mean")
        self._operator("PAD" if len(inputs) == 2 else "PAD_V2", inputs, [result])
        return result


def is_default(bound: Bound, slot: Slot) -> bool:
    """Whether a scalar that TFLite lacks has the value that TFLite implies: the last axis, or NNAPI's default."""
    value = bound.scalar(slot.name)
    if slot.name == "axis":
        return bool(value in (-1, len(bound.shape("input")) - 1))
    return bool(value == slot.default)


def main() -> None:
    """Read a .nnapi file of one segment, and write it."""
    if len(sys.argv) != 3:
        sys.exit("usage: tflite.py MODEL.nnapi TARGET.tflite")
    model = onnx2nnapi.load(sys.argv[1]).model
    pathlib.Path(sys.argv[2]).write_bytes(Translator(model.main).model())


if __name__ == "__main__":
    main()
