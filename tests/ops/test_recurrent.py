"""Rules of passes/legalize/recurrent.py and cells.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx2nnapi
from tests.ops.harness import Case, Const, case, check, f32, ints, model_of, rows

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
TIME, BATCH, SIZE, HIDDEN = 5, 2, 3, 4


def weight(*shape: int) -> Const:
    return Const(f32(*shape, low=-0.8, high=0.8))


def layer(
    op_type: str,
    *,
    time: int = TIME,
    bias: bool = True,
    lengths: Any = None,
    initial: bool = False,
    peepholes: bool = False,
    **keywords: Any,
) -> Case:
    """A row of one node with all its outputs, held to onnxruntime; layout 1, which that lacks, to onnx.reference."""
    directions = 2 if keywords.get("direction") == "bidirectional" else 1
    gates, last = GATES[op_type], bool(keywords.get("layout"))
    state = (BATCH, directions, HIDDEN) if last else (directions, BATCH, HIDDEN)
    arrays = {
        "x": f32(BATCH, time, SIZE) if last else f32(time, BATCH, SIZE),
        "w": weight(directions, gates * HIDDEN, SIZE),
        "r": weight(directions, gates * HIDDEN, HIDDEN),
        "b": weight(directions, 2 * gates * HIDDEN) if bias else None,
        "lens": lengths,
        "h0": f32(*state) if initial else None,
    }
    if op_type == "LSTM":
        arrays |= {"c0": f32(*state) if initial else None, "p": weight(directions, 3 * HIDDEN) if peepholes else None}
    while list(arrays.values())[-1] is None:
        arrays.popitem()
    fields = {"opset": 17, "oracle": "reference" if last else "onnxruntime"}
    fields |= {"outputs": 3 if op_type == "LSTM" else 2, "hidden_size": HIDDEN}
    return case(op_type, **arrays, **(fields | keywords))


LENGTHS = Const(np.array([2, 4], np.int32))
CASES = [
    *(
        layer(kind, direction=direction, **forms)
        for kind in GATES
        for direction in ("forward", "reverse", "bidirectional")
        for forms in ({"initial": True}, {"bias": False, "outputs": 1})
    ),
    layer("LSTM", time=1, initial=True),
    layer("LSTM", outputs=2, direction="reverse"),
    layer("LSTM", peepholes=True, initial=True),
    layer("LSTM", peepholes=True, direction="bidirectional", clip=0.3),
    layer("LSTM", initial=True, clip=0.4),
    layer("LSTM", peepholes=True, input_forget=1),
    layer("LSTM", activations=["Sigmoid", "Relu", "Relu"]),
    layer("LSTM", activations=["Sigmoid", "Tanh", "Relu"]),
    layer(
        "LSTM",
        direction="bidirectional",
        activations=["HardSigmoid", "ScaledTanh", "Tanh", "HardSigmoid", "Affine", "LeakyRelu"],
        activation_alpha=[0.3, 1.5, 0.25, 0.5, 0.1],
        activation_beta=[0.4, 0.7, 0.45, 0.2],
    ),
    layer("GRU", linear_before_reset=1, initial=True),
    layer("GRU", linear_before_reset=1, direction="bidirectional"),
    layer("GRU", clip=0.5, activations=["Sigmoid", "Relu"]),
    *(layer("RNN", activations=[name]) for name in ("Relu", "Sigmoid", "Tanh")),
    layer("RNN", activations=["Affine"], activation_alpha=[0.5], activation_beta=[0.1]),
    layer("RNN", activations=["Elu"], activation_alpha=[0.7], since=3),
    layer("RNN", activations=["Softplus"], since=3),
    layer("RNN", clip=0.6),
    *(
        layer(kind, direction=direction, lengths=LENGTHS, initial=True)
        for kind in GATES
        for direction in ("forward", "reverse", "bidirectional")
    ),
    layer("LSTM", lengths=Const(np.array([TIME, TIME], np.int32))),
    layer("LSTM", lengths=Const(np.array([3, 3], np.int32)), direction="bidirectional"),
    layer("GRU", lengths=np.array([1, 5], np.int32), direction="reverse", since=3),
    *(layer(kind, layout=1, initial=True, since=2) for kind in GATES),
    layer("GRU", time=140, direction="reverse", initial=True),
    layer("LSTM", time=140, lengths=Const(np.array([139, 3], np.int32)), clip=3.0, outputs=1),
    layer("RNN", time=140, outputs=2, clip=0.9, direction="bidirectional"),
    case("ReverseSequence", x=f32(4, 3, 2), lens=Const(np.array([4, 2, 3], np.int64)), since=2),
    case("ReverseSequence", x=f32(4, 3, 2), lens=Const(np.array([3, 3, 3], np.int64)), since=2),
    case("ReverseSequence", x=f32(3, 4), lens=Const(np.array([4, 1, 2], np.int64)), batch_axis=0, time_axis=1, since=2),
    case(
        "ReverseSequence", x=f32(4, 3, 2), lens=np.array([4, 2, 0], np.int64), since=3, oracle="onnxruntime", opset=17
    ),
    case("ReverseSequence", x=f32(3, 4), lens=np.array([4, 1, 2], np.int64), batch_axis=0, time_axis=1, since=3),
    case("ReverseSequence", x=ints(4, 3), lens=Const(np.array([4, 2, 3], np.int64)), since=4),
]


@pytest.mark.parametrize(("row", "level"), rows(CASES))
def test_rule(row: Case, level: int) -> None:
    check(row, level)


def operations(row: Case, level: int) -> list[str]:
    program = onnx2nnapi.convert(model_of(row), feature_level=level)
    return [operation.code.name for operation in program.model.main.operations]


@pytest.mark.parametrize(
    ("row", "level", "kind", "count"),
    [
        (layer("LSTM"), 1, "LSTM", TIME),
        (layer("LSTM"), 3, "LSTM", TIME),  # no operation over a sequence gives the last cell state before level 4
        (layer("LSTM", outputs=2), 3, "UNIDIRECTIONAL_SEQUENCE_LSTM", 1),
        (layer("LSTM", direction="bidirectional"), 4, "BIDIRECTIONAL_SEQUENCE_LSTM", 1),
        (layer("RNN"), 2, "RNN", TIME),
        (layer("RNN", direction="bidirectional"), 3, "BIDIRECTIONAL_SEQUENCE_RNN", 1),
        (layer("GRU", time=140, direction="bidirectional"), 4, "WHILE", 2),
        (layer("GRU", time=140), 3, "WHILE", 0),
    ],
    ids=str,
)
def test_the_operation_that_a_level_has(row: Case, level: int, kind: str, count: int) -> None:
    assert operations(row, level).count(kind) == count
