"""The plainest model of each ONNX operator, to measure from which feature level on it converts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, defs, helper, numpy_helper

from onnx2nnapi.errors import InvalidModelError, UnsupportedError
from onnx2nnapi.ir.types import Array
from onnx2nnapi.options import MAX_LEVEL, MIN_LEVEL, Options

__all__ = ["lowest_level", "plain_model"]

_SHAPE = (1, 4, 4, 4)
_IR_VERSION = 10
# The first element type that an input takes is that of its probe.
_PREFERRED = (TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8)

# Attributes that operators ask for, or whose default leaves nothing to do.
_ATTRIBUTES: dict[str, Any] = {
    "axis": 1,
    "blocksize": 2,
    "direction": "LEFT",
    "kernel_shape": [2, 2],
    "num_groups": 2,
    "size": 3,
    "to": TensorProto.FLOAT,
}
_OWN_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Constant": {"value_float": 1.0},
    "Einsum": {"equation": "abij,abjk->abik"},
    "GRU": {"hidden_size": 4},
    "LSTM": {"hidden_size": 4},
    "Mod": {"fmod": 1},
    "RNN": {"hidden_size": 4},
    "RoiAlign": {"coordinate_transformation_mode": "output_half_pixel", "sampling_ratio": 2},
    "ScatterElements": {"axis": 3},
    "Split": {"num_outputs": 2},
}

_CHANNELS = np.linspace(0.5, 1.5, 4, dtype=np.float32)


def _i64(*values: int) -> Array:
    return np.array(values, np.int64)


def _weights(*shape: int) -> Array:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


# Inputs by operator and name that are constant, or have another shape; optional ones are left out unless they are here.
_INPUTS: dict[str, Mapping[str, Array | tuple[int, ...]]] = {
    "AffineGrid": {"theta": (1, 2, 3), "size": _i64(1, 1, 2, 2)},
    "BatchNormalization": dict.fromkeys(("scale", "B", "input_mean", "input_var"), _CHANNELS),
    "CenterCropPad": {"shape": _i64(1, 4, 2, 2)},
    "Clip": {"min": np.array(0, np.float32), "max": np.array(4, np.float32)},
    "Col2Im": {"input": (1, 4, 4), "image_shape": _i64(3, 3), "block_shape": _i64(2, 2)},
    "ConstantOfShape": {"input": _i64(2, 3)},
    "Conv": {"W": _weights(4, 4, 3, 3)},
    "ConvTranspose": {"W": _weights(4, 4, 2, 2)},
    "CumProd": {"axis": np.array(1, np.int64)},
    "CumSum": {"axis": np.array(1, np.int64)},
    "EyeLike": {"input": (4, 4)},
    "Expand": {"shape": _i64(2, 4, 4, 4)},
    "GRU": {"X": (3, 1, 4), "W": _weights(1, 12, 4), "R": _weights(1, 12, 4)},
    "Gather": {"indices": (2,)},
    "GatherND": {"indices": (2, 2)},
    "Gemm": {"A": (4, 4), "B": _weights(4, 4)},
    "GridSample": {"grid": (1, 2, 2, 2)},
    "GroupNormalization": dict.fromkeys(("scale", "bias"), _CHANNELS),
    "InstanceNormalization": dict.fromkeys(("scale", "B"), _CHANNELS),
    "LSTM": {"X": (3, 1, 4), "W": _weights(1, 16, 4), "R": _weights(1, 16, 4)},
    "LayerNormalization": {"Scale": _CHANNELS},
    "MatMul": {"B": _weights(4, 4)},
    "MaxRoiPool": {"rois": (1, 5)},
    "NegativeLogLikelihoodLoss": {"target": (1, 4, 4)},
    "OneHot": {"depth": _i64(3), "values": np.array([0, 1], np.float32)},
    "PRelu": {"slope": _weights(4, 1, 1)},
    "Pad": {"pads": _i64(0, 0, 1, 1, 0, 0, 1, 1)},
    "Range": {name: np.array(size, np.float32) for name, size in (("start", 0), ("limit", 4), ("delta", 1))},
    "RMSNormalization": {"scale": _CHANNELS},
    "RNN": {"X": (3, 1, 4), "W": _weights(1, 4, 4), "R": _weights(1, 4, 4)},
    "Reshape": {"shape": _i64(4, 16)},
    "Resize": {"scales": np.array([1, 1, 2, 2], np.float32)},
    "ReverseSequence": {"input": (3, 4, 4), "sequence_lens": _i64(1, 2, 3, 3)},
    "RoiAlign": {"rois": (1, 4), "batch_indices": np.zeros(1, np.int64)},
    "RotaryEmbedding": dict.fromkeys(("cos_cache", "sin_cache"), (1, 4, 2)),
    "ScatterElements": {"indices": _i64(0, 2).reshape(1, 1, 1, 2), "updates": (1, 1, 1, 2)},
    "ScatterND": {"indices": _i64(0).reshape(1, 1)},
    "SoftmaxCrossEntropyLoss": {"labels": (1, 4, 4)},
    "Slice": {"starts": _i64(0, 1), "ends": _i64(1, 3)},
    "Squeeze": {"axes": _i64(0)},
    "Tile": {"repeats": _i64(1, 2, 1, 1)},
    "TopK": {"K": _i64(2)},
    "Unsqueeze": {"axes": _i64(0), "data": (4, 4, 4)},
}


def plain_model(schema: defs.OpSchema) -> ModelProto | None:
    """A model of one node with the inputs and attributes that it needs; None where it would need a sub-graph."""
    known = _INPUTS.get(schema.name, {})
    single, variadic = defs.OpSchema.FormalParameterOption.Single, defs.OpSchema.FormalParameterOption.Variadic
    attributes = {**_OWN_ATTRIBUTES.get(schema.name, {})}
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in attributes:
            if name not in _ATTRIBUTES:
                return None
            attributes[name] = _ATTRIBUTES[name]
    names, inputs, constants = [], [], []
    allowed = {entry.type_param_str: entry.allowed_type_strs for entry in schema.type_constraints}
    for parameter in schema.inputs:
        if parameter.option not in (single, variadic) and parameter.name not in known:
            names.append("")
            continue
        for count in range(2 if parameter.option == variadic else 1):
            name = f"{parameter.name}_{count}" if count else parameter.name
            names.append(name)
            given = known.get(parameter.name, _SHAPE)
            if isinstance(given, np.ndarray):
                constants.append(numpy_helper.from_array(given, name))
            else:
                elem = _element_type(allowed.get(parameter.type_str, [parameter.type_str]))
                if elem is None:
                    return None
                inputs.append(helper.make_tensor_value_info(name, elem, given))
    outputs = [entry.name for entry in schema.outputs if entry.option in (single, variadic)]
    outputs = outputs or [entry.name for entry in schema.outputs[:1]]
    if schema.name == "Split":
        outputs = [f"{outputs[0]}_{place}" for place in range(2)]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(schema.name, names, [f"out_{name}" for name in outputs], **attributes)
    results = [helper.make_empty_tensor_value_info(f"out_{name}") for name in outputs]
    graph = helper.make_graph([node], schema.name, inputs, results, constants)
    opset = helper.make_opsetid("", defs.onnx_opset_version())
    return helper.make_model(graph, ir_version=_IR_VERSION, opset_imports=[opset])


def _element_type(types: Sequence[str]) -> int | None:
    for code in _PREFERRED:
        if f"tensor({TensorProto.DataType.Name(code).lower()})" in types:
            return int(code)
    return None


def lowest_level(schema: defs.OpSchema) -> int | None:
    """The lowest feature level that the operator converts at in its plainest form; None where no level has it.

    Images may have their channels last, as NNAPI wants them. 1 is also the level of what is constant.
    """
    model = plain_model(schema)
    if model is None:
        return None
    for level in range(MIN_LEVEL, MAX_LEVEL + 1):
        if _converts(model, Options(feature_level=level)):
            return level
        if level == 1 and model.graph.input:
            first_in, first_out = model.graph.input[0].name, model.graph.output[0].name
            channels_last = Options(
                feature_level=level, input_layouts={first_in: "nhwc"}, output_layouts={first_out: "nhwc"}
            )
            if _converts(model, channels_last):
                return level
    return None


def _converts(model: ModelProto, options: Options) -> bool:
    from onnx2nnapi.api import convert

    try:
        convert(model, options)
    except (UnsupportedError, InvalidModelError):  # the latter: a rank that the operator, or the layout, doesn't take
        return False
    return True
