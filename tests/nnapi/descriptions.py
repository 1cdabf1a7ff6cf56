"""Descriptions of small models for the tests of reading and of validation; each call makes a new one."""

from __future__ import annotations

from typing import Any

Description = dict[str, Any]


def operand(type_: str, dimensions: list[int], lifetime: str, **more: Any) -> Description:
    """An operand; ``more`` holds scale, zero_point, value, name …."""
    return {"type": type_, "dimensions": dimensions, "lifetime": lifetime, "scale": 0.0, "zero_point": 0} | more


def f32(lifetime: str, *dimensions: int, **more: Any) -> Description:
    """A float tensor."""
    return operand("TENSOR_FLOAT32", list(dimensions), lifetime, **more)


def u8(lifetime: str, *dimensions: int, scale: float = 0.5, zero_point: int = 10, **more: Any) -> Description:
    """A tensor of codes."""
    return operand("TENSOR_QUANT8_ASYMM", list(dimensions), lifetime, scale=scale, zero_point=zero_point, **more)


def i32(value: int) -> Description:
    """A constant scalar."""
    return operand("INT32", [], "CONSTANT", value=[value])


def graph(operands: list[Description], operations: list[tuple[str, list[int], list[int]]]) -> Description:
    """A graph whose inputs and outputs are its operands of these lifetimes, in order."""
    return {
        "operands": operands,
        "operations": [{"op": name, "inputs": inputs, "outputs": outputs} for name, inputs, outputs in operations],
        "inputs": [index for index, entry in enumerate(operands) if entry["lifetime"] == "INPUT"],
        "outputs": [index for index, entry in enumerate(operands) if entry["lifetime"] == "OUTPUT"],
    }


def model(main: Description, *subgraphs: Description, relaxed: bool = False) -> Description:
    """A model of graphs."""
    return {"main": main, "subgraphs": list(subgraphs), "relaxed": relaxed}


def chain() -> Description:
    """ADD of a constant, then RELU, on floats: level 1."""
    operands = [
        f32("INPUT", 2, 3, name="x"),
        f32("CONSTANT", 3, value=[1.0, 2.0, 3.0], name="b"),
        i32(0),
        f32("TEMPORARY", 2, 3, name="sum"),
        f32("OUTPUT", 2, 3, name="y"),
    ]
    return model(graph(operands, [("ADD", [0, 1, 2], [3]), ("RELU", [3], [4])]))


def quantized() -> Description:
    """MUL of two inputs, then SOFTMAX, on codes: level 1."""
    operands = [
        u8("INPUT", 2, 3, name="a"),
        u8("INPUT", 2, 3, name="b"),
        i32(0),
        u8("TEMPORARY", 2, 3, scale=1.0, zero_point=0),
        operand("FLOAT32", [], "CONSTANT", value=[1.0]),
        u8("OUTPUT", 2, 3, scale=1 / 256, zero_point=0),
    ]
    return model(graph(operands, [("MUL", [0, 1, 2], [3]), ("SOFTMAX", [3, 4], [5])]))


def per_channel() -> Description:
    """CONV_2D with a scale for each output channel: level 3."""
    operands = [
        u8("INPUT", 1, 4, 4, 1),
        operand(
            "TENSOR_QUANT8_SYMM_PER_CHANNEL",
            [2, 1, 1, 1],
            "CONSTANT",
            channel_quant={"channel_dim": 0, "scales": [0.5, 0.25]},
            value=[1, -1],
        ),
        operand("TENSOR_INT32", [2], "CONSTANT", value=[0, 0]),
        *(i32(value) for value in (0, 0, 0, 0, 1, 1, 0)),
        u8("OUTPUT", 1, 4, 4, 2, scale=1.0),
    ]
    return model(graph(operands, [("CONV_2D", list(range(10)), [10])]))


def branch() -> Description:
    """IF of two sub-models: level 4."""
    inner = [graph([f32("INPUT", 2), f32("OUTPUT", 2)], [(name, [0], [1])]) for name in ("ABS", "NEG")]
    operands = [
        operand("TENSOR_BOOL8", [1], "INPUT", name="which"),
        operand("SUBGRAPH", [], "SUBGRAPH", subgraph=0),
        operand("SUBGRAPH", [], "SUBGRAPH", subgraph=1),
        f32("INPUT", 2),
        f32("OUTPUT", 2),
    ]
    return model(graph(operands, [("IF", [0, 1, 2, 3], [4])]), *inner)


def loop() -> Description:
    """WHILE x < 10: x = x + 1; level 4."""
    condition = graph(
        [f32("INPUT", 1), f32("CONSTANT", 1, value=[10.0]), operand("TENSOR_BOOL8", [1], "OUTPUT")],
        [("LESS", [0, 1], [2])],
    )
    body = graph(
        [f32("INPUT", 1), f32("CONSTANT", 1, value=[1.0]), i32(0), f32("OUTPUT", 1)], [("ADD", [0, 1, 2], [3])]
    )
    operands = [
        operand("SUBGRAPH", [], "SUBGRAPH", subgraph=0),
        operand("SUBGRAPH", [], "SUBGRAPH", subgraph=1),
        f32("INPUT", 1),
        f32("OUTPUT", 1),
    ]
    return model(graph(operands, [("WHILE", [0, 1, 2], [3])]), condition, body)


VALID = {"chain": chain, "quantized": quantized, "per_channel": per_channel, "branch": branch, "loop": loop}
LEVELS = {"chain": 1, "quantized": 1, "per_channel": 3, "branch": 4, "loop": 4}
