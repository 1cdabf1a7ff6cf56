"""verify: each kind of broken graph is found and named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from onnx2nnapi.errors import InternalError
from onnx2nnapi.ir.graph import Graph, Interface, Op, Port, Provenance, Value
from onnx2nnapi.ir.types import LazyArray, TensorType
from onnx2nnapi.ir.verify import verify

F32 = TensorType(np.dtype(np.float32), (2, 3))


def graph() -> Graph:
    made = Graph("nnapi")
    for name in ("x", "y", "z"):
        made.add_value(Value(name, F32))
    made.constant("c", LazyArray.of(np.ones((2, 3), np.float32)))
    made.add(Op("ADD", ("x", "c"), ("y",)))
    made.add(Op("RELU", ("y",), ("z",)))
    made.inputs, made.outputs = ["x"], ["z"]
    made.interface = Interface((Port("x", F32),), (Port("z", F32),))
    return made


def set_field(name: str, field: str, value: object) -> Callable[[Graph], None]:
    return lambda graph: setattr(graph[name], field, value)


FAULTS: dict[str, Callable[[Graph], object]] = {
    "value 'w' is filed under 'y'": set_field("y", "name", "w"),
    "constant 'y' is written": set_field("y", "const", LazyArray.of(np.ones((2, 3), np.float32))),
    "constant 'c' is float32": set_field("c", "type", F32.with_shape((3, 2))),
    "value 'c' is read and never written": set_field("c", "const", None),
    "holds permutation": set_field("y", "holds", Provenance("y", (0, 2))),
    "is no operation of dialect nnapi": lambda graph: setattr(graph.ops[0], "kind", "Add"),
    "are not those that it names": lambda graph: setattr(graph.ops[0], "inputs", ("c", "c")),
    "an input is named twice": lambda graph: graph.inputs.append("x"),
    "output 'w' is no value": lambda graph: graph.outputs.append("w"),
    "there are 2 outputs for 1 ports": lambda graph: graph.outputs.append("y"),
    "its port 'z'": lambda graph: set_field("z", "type", F32.with_shape((6,)))(graph),
    "it is part of a cycle": lambda graph: graph.rewire(graph.ops[0], inputs=["x", "z"]),
}


def test_a_sound_graph_passes() -> None:
    verify(graph())


@pytest.mark.parametrize("message", FAULTS)
def test_a_fault_is_named(message: str) -> None:
    broken = graph()
    FAULTS[message](broken)
    with pytest.raises(InternalError, match=f"the graph is broken: .*{message}"):
        verify(broken)
