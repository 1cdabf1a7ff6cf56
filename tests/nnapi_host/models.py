"""Small models for the tests of the device runtime, as descriptions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx2nnapi.nnapi import Model

F32, I32 = "TENSOR_FLOAT32", "TENSOR_INT32"


def operand(lifetime: str, dims: Sequence[int] = (), type_: str = F32, **more: Any) -> dict[str, Any]:
    return {"type": type_, "dimensions": list(dims), "scale": 0.0, "zero_point": 0, "lifetime": lifetime, **more}


def scalar(value: float, type_: str = "INT32") -> dict[str, Any]:
    return operand("CONSTANT", (), type_, value=[value])


def case(
    operands: list[dict[str, Any]],
    operations: list[tuple[str, list[int], list[int]]],
    inputs: list[int],
    outputs: list[int],
) -> dict[str, Any]:
    return {
        "operands": operands,
        "operations": [{"op": op, "inputs": ins, "outputs": outs} for op, ins, outs in operations],
        "inputs": inputs,
        "outputs": outputs,
    }


def model(main: dict[str, Any], *subgraphs: dict[str, Any], relaxed: bool = False) -> Model:
    return Model.from_dict({"main": main, "subgraphs": list(subgraphs), "relaxed": relaxed})


def add(dims: Sequence[int] = (2, 3), *, relaxed: bool = False) -> Model:
    """x + y."""
    operands = [operand("INPUT", dims, name="x"), operand("INPUT", dims, name="y"), scalar(0)]
    return model(case([*operands, operand("OUTPUT", dims, name="sum")], [("ADD", [0, 1, 2], [3])], [0, 1], [3]),
                 relaxed=relaxed)  # fmt: skip


def add_constant(count: int = 64, value: np.ndarray | None = None) -> Model:
    """x + c, whose constant is larger than what NNAPI copies at once."""
    constant = np.arange(count, dtype=np.float32) if value is None else value
    operands = [operand("INPUT", [count]), operand("CONSTANT", [count], value=constant.tolist()), scalar(0)]
    return model(case([*operands, operand("OUTPUT", [count])], [("ADD", [0, 1, 2], [3])], [0], [3]))


def chain() -> Model:
    """RELU, then TANH, then MUL by itself: three operations whose intermediate values are named."""
    operands = [
        operand("INPUT", [4], name="x"),
        operand("TEMPORARY", [4], name="relu"),
        operand("TEMPORARY", [4], name="tanh"),
        scalar(0),
        operand("OUTPUT", [4], name="square"),
    ]
    operations = [("RELU", [0], [1]), ("TANH", [1], [2]), ("MUL", [2, 2, 3], [4])]
    return model(case(operands, operations, [0], [4]))


def per_channel() -> Model:
    """CONV_2D of uint8 by a filter with one scale for each channel; level 3."""
    operands = [
        operand("INPUT", [1, 2, 2, 1], "TENSOR_QUANT8_ASYMM", scale=0.5, zero_point=128),
        operand("CONSTANT", [2, 1, 1, 1], "TENSOR_QUANT8_SYMM_PER_CHANNEL", value=[2, 4],
                channel_quant={"channel_dim": 0, "scales": [0.5, 0.25]}),
        operand("CONSTANT", [2], I32, value=[0, 0]),
        *(scalar(value) for value in (0, 0, 0, 0, 1, 1, 0)),
        operand("OUTPUT", [1, 2, 2, 2], "TENSOR_QUANT8_ASYMM", scale=1.0, zero_point=128),
    ]  # fmt: skip
    return model(case(operands, [("CONV_2D", list(range(10)), [10])], [0], [10]))


def conditional() -> Model:
    """IF condition THEN x + x ELSE x * x; level 4."""

    def branch(op: str) -> dict[str, Any]:
        return case([operand("INPUT", [3]), scalar(0), operand("OUTPUT", [3])], [(op, [0, 0, 1], [2])], [0], [2])

    operands = [
        operand("INPUT", [1], "TENSOR_BOOL8"),
        operand("SUBGRAPH", type_="SUBGRAPH", subgraph=0),
        operand("SUBGRAPH", type_="SUBGRAPH", subgraph=1),
        operand("INPUT", [3]),
        operand("OUTPUT", [3]),
    ]
    return model(case(operands, [("IF", [0, 1, 2, 3], [4])], [0, 3], [4]), branch("ADD"), branch("MUL"))


def dynamic(output: Sequence[int] = (0,)) -> Model:
    """EXPAND (TILE) of x by an input, whose output's size only a run tells; level 3."""
    operands = [operand("INPUT", [4]), operand("INPUT", [1], I32), operand("OUTPUT", output)]
    return model(case(operands, [("TILE", [0, 1], [2])], [0, 1], [2]))


def unspecified_input() -> Model:
    """RELU of a vector of any length."""
    return model(case([operand("INPUT", [0]), operand("OUTPUT", [0])], [("RELU", [0], [1])], [0], [1]))


def transposed() -> Model:
    """TRANSPOSE whose permutation is omitted: the axes reversed."""
    operands = [operand("INPUT", [2, 3]), operand("NO_VALUE", [2], I32), operand("OUTPUT", [3, 2])]
    return model(case(operands, [("TRANSPOSE", [0, 1], [2])], [0], [2]))


def add_array(constant: np.ndarray) -> Model:
    """x + constant, where the array stays the caller's (one in a mapped file, say)."""
    plain = add_constant(constant.size).main
    operands = list(plain.operands)
    operands[1] = dataclasses.replace(operands[1], value=constant)
    return Model(dataclasses.replace(plain, operands=tuple(operands)))
