"""Broken nodes: each is refused with its name and what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError, UnsupportedOp
from tests.frontend.building import BOOL, imported, model, node, value

F32 = np.float32


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


# operator, shapes of inputs (arrays are constants), attributes, message
BROKEN: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Conv", [[1, 3, 4, 4], zeros(2, 5, 3, 3)], {}, "its input has 3 channels, its filter .* takes 5"),
    ("Conv", [[1, 3, 4, 4], zeros(2, 3, 3)], {}, "its filter has rank 3, its input 4|weight tensor"),
    ("Conv", [[1, 4, 4, 4], zeros(3, 2, 3, 3)], {"group": 2}, "its 3 filters don't make 2 groups"),
    ("Conv", [[1, 4, 4, 4], zeros(3, 4, 3, 3)], {"group": 0}, "its group is 0"),
    ("Conv", [[1, 4, 4, 4], zeros(3, 4, 3, 3), zeros(4)], {}, r"its bias 'i2' is \[4\], its filters are 3"),
    ("Conv", [[1, 4, 4, 4], zeros(3, 4, 3, 3)], {"kernel_shape": [3, 2]}, r"its kernel_shape is \[3, 2\]"),
    ("Conv", [[1, 4, 4, 4], zeros(3, 4, 3, 3)], {"strides": [0, 1]}, "strides"),
    ("Conv", [[1, 4, 4, 4], zeros(3, 4, 3, 3)], {"dilations": [1, 2]}, r"window \[3, 5\] is larger than .* \[4, 4\]"),
    ("MaxPool", [[1, 4, 4, 4]], {"kernel_shape": [7, 1], "pads": [1, 0, 1, 0]}, r"\[7, 1\] is larger than .* \[6, 4\]"),
    (
        "AveragePool",
        [[1, 2, 2, 3]],
        {"kernel_shape": [4, 3], "strides": [2, 2], "ceil_mode": 1},
        r"\[4, 3\] is larger than .* \[2, 3\]",
    ),
    ("Transpose", [[2, 3]], {"perm": [0]}, r"its perm \[0\] does not order 2 dimensions"),
    ("Conv", [[1, 4, 4, 4], zeros(3, 4, 3, 3)], {"strides": [1.0, 1.0]}, "'strides' is FLOATS, .* INTS"),
    ("Conv", [[1, 4, 4, 4], zeros(3, 4, 3, 3)], {"stride": [1, 1]}, "it has an attribute 'stride', which the operator"),
    ("Conv", [[1, 4, 4, 4]], {}, "it has 1 inputs, the operator takes 2 to 3"),
    ("ConvTranspose", [[1, 4, 4, 4], zeros(3, 4, 3, 3)], {}, "its input has 4 channels"),
    ("MaxPool", [[1, 1, 4, 4]], {"kernel_shape": [2, 2], "pads": [2, 0, 0, 0]}, "as large as its kernel"),
    ("MaxPool", [[1, 1, 4, 4]], {"kernel_shape": [2, 2], "pads": [1, 1]}, r"its pads \[1, 1\] must have 4 elements"),
    ("GatherND", [[2, 2], np.int64([[0, 1]])], {"batch_dims": -99}, "its batch_dims is -99"),
    ("AveragePool", [[1, 1, 4, 4]], {}, "its attribute 'kernel_shape' is missing"),
    ("BatchNormalization", [[1, 3, 4], *[zeros(3)] * 2, zeros(2), zeros(3)], {}, r"'i3' is \[2\]"),
    ("InstanceNormalization", [[1, 3, 4], zeros(2), zeros(3)], {}, r"is \[2\], its channels are 3"),
    ("Gemm", [[2, 3], zeros(4, 5)], {}, r"it multiplies \[2, 3\] by \[4, 5\]: 3 against 4"),
    ("Gemm", [[2, 3], zeros(3, 5), zeros(4)], {}, r"its C \[4\] doesn't broadcast to \[2, 5\]"),
    ("MatMul", [[2, 3], zeros(4, 5)], {}, "Incompatible dimensions"),
    ("Add", [[2, 3], zeros(2)], {}, r"Incompatible dimensions \(its inputs are float32\[2, 3\], float32\[2\]\)"),
    ("Add", [[2, 3], np.int32([1])], {}, r"they are tensor\(float\) and tensor\(int32\)"),
    ("Not", [[2]], {}, "its input 'X' \\('i0'\\) is tensor\\(float\\)"),
    ("PRelu", [[1, 3, 4], zeros(2, 1)], {}, r"its slope \[2, 1\] doesn't broadcast to \[1, 3, 4\]"),
    ("Concat", [[2, 3], [3, 4]], {"axis": 0}, "Concat"),
    ("Reshape", [[2, 3], np.int64([4, 2])], {}, r"\[2, 3\] has 6 elements, its target is \[4, 2\]"),
    ("Reshape", [[2, 3], np.int64([-1, -1])], {}, r"its target is \[-1, -1\]|-1"),
    ("Reshape", [[2, 3], np.int64([6, 1, 0])], {}, r"keeps a dimension that \[2, 3\] doesn't have|."),
    ("Transpose", [[2, 3]], {"perm": [0, 0]}, r"its perm \[0, 0\] does not order 2"),
    ("Slice", [[4], np.int64([0]), np.int64([2]), np.int64([0]), np.int64([0])], {}, "cannot be 0"),
    ("Split", [[7], np.int64([2, 4])], {}, "sum of 'split'"),
    ("Gather", [[5], np.int64([9])], {}, "its index 9 is outside a dimension of 5"),
    ("GatherElements", [[5], np.int64([-6])], {}, "its index -6 is outside a dimension of 5"),
    ("GatherND", [[5, 2], np.int64([[0, 2]])], {}, "its index 2 is outside a dimension of 2"),
    ("TopK", [[5], np.int64([6])], {}, "it wants 6 of 5 elements|smaller than"),
    ("DepthToSpace", [[1, 6, 2, 2]], {"blocksize": 2}, "6 channels don't make blocks of 2×2"),
    ("SpaceToDepth", [[1, 6, 3, 2]], {"blocksize": 2}, r"\[3, 2\] doesn't make blocks of 2"),
    ("Resize", [[1, 1, 2, 2], F32([]), F32([1, 1, -1, 1])], {}, "a scale is not positive|scale"),
    ("Softmax", [[2, 3]], {"axis": 5}, "axis"),
    ("Clip", [[2], zeros(2)], {}, r"its min is \[2\], it must be a scalar"),
    ("LSTM", [[5, 1, 3], zeros(1, 8, 4), zeros(1, 8, 2)], {"hidden_size": 2}, "don't fit 1 direction"),
    ("Expand", [[2, 3], np.int64([4, 2])], {}, "Incompatible|invalid"),
    ("Squeeze", [[2, 3], np.int64([0])], {}, "Squeeze"),
    ("Cast", [[2]], {"to": 99}, "."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "message"), BROKEN, ids=[f"{row[0]}-{at}" for at, row in enumerate(BROKEN)]
)
def test_a_broken_node_is_refused_by_name(kind: str, inputs: list[Any], attrs: dict[str, Any], message: str) -> None:
    names = [f"i{at}" for at in range(len(inputs))]
    fed = [value(name, item) for name, item in zip(names, inputs, strict=True) if isinstance(item, list)]
    data = {name: item for name, item in zip(names, inputs, strict=True) if not isinstance(item, list)}
    outputs = ["y", "z"] if kind in ("Split", "TopK") else ["y"]
    proto = model([node(kind, names, outputs, "broken", **attrs)], fed, outputs, data)
    with pytest.raises(InvalidModelError, match=message) as caught:
        imported(proto)
    assert type(caught.value) is InvalidModelError
    assert str(caught.value).startswith(f"{kind} 'broken' (-> 'y'")


def test_constants_are_checked_like_anything_else() -> None:
    proto = model([node("Gather", ["t", "at"], ["y"], "lookup")], [], ["y"], {"t": zeros(3), "at": np.int64([7])})
    with pytest.raises(InvalidModelError, match=r"Gather 'lookup' .*its index 7 is outside a dimension of 3"):
        imported(proto)
    proto = model([node("Div", ["a", "b"], ["y"], "ratio")], [], ["y"], {"a": np.int64([7]), "b": np.int64([0])})
    with pytest.raises(InvalidModelError, match=r"Div 'ratio' .*divided by zero"):
        imported(proto)


def relu(source: str, target: str, name: str = "r") -> Any:
    return node("Relu", [source], [target], name)


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs", "data", "message"),
    [
        ([node("Add", ["x", "b"], ["a"], "one"), relu("a", "b", "two")], ["x"], ["b"], {}, "it is part of a cycle"),
        ([relu("nowhere", "y")], ["x"], ["y"], {}, r"Relu 'r' \(-> 'y'\): it reads 'nowhere', which nothing defines"),
        ([relu("x", "y", "one"), relu("x", "y", "two")], ["x"], ["y"], {}, "'two' .*writes 'y', .* 'one'"),
        ([relu("x", "x")], ["x"], ["x"], {}, r"'r' .*it writes 'x', which is an input too"),
        ([relu("x", "w")], ["x"], ["w"], {"w": zeros(2)}, r"'r' .*it writes 'w', which is an initializer too"),
        ([relu("x", "y")], ["x"], ["z"], {}, "output 'z': nothing defines it"),
        ([relu("x", "y")], ["x"], ["y", "y"], {}, "output 'y': two outputs have this name"),
        ([relu("x", "y")], ["x", "x"], ["y"], {}, "input 'x': two inputs have this name"),
        ([relu("x", "y")], [""], ["y"], {}, "an input of the graph 'small' has no name"),
        ([node("Gelu", ["x"], ["y"], "late")], ["x"], ["y"], {}, "'late' .*exists from opset 20 on, .* 17"),
    ],
)  # fmt: skip
def test_broken_graphs_are_refused_by_name(
    nodes: list[Any], inputs: list[str], outputs: list[str], data: dict[str, Any], message: str
) -> None:
    proto = model(nodes, [value(name, [2]) for name in inputs], outputs, data)
    with pytest.raises(InvalidModelError, match=message):
        imported(proto)


def test_two_initializers_of_one_name() -> None:
    proto = model([node("Add", ["x", "w"], ["y"])], [value("x", [2])], ["y"], {"w": zeros(2)})
    proto.graph.initializer.add().CopyFrom(proto.graph.initializer[0])
    with pytest.raises(InvalidModelError, match="initializer 'w': two initializers have this name"):
        imported(proto)


def test_unknown_operators_pass_for_legalize_to_name_them() -> None:
    for domain in ("", "com.example"):
        nodes = [node("Frobnicate", ["x"], ["y"], "odd", domain=domain)]
        graph = imported(model(nodes, [value("x", [2])], [value("y", [2])], domains=[domain] if domain else []))
        assert graph.ops[0].kind == ("com.example::Frobnicate" if domain else "Frobnicate")
    for domain, name in (("", "Frobnicate"), ("com.example", "com.example::Frobnicate")):
        nodes = [node("Frobnicate", ["x"], ["y"], "odd", domain=domain), relu("y", "z")]
        with pytest.raises(UnsupportedOp, match=rf"^{name} 'odd' \(-> 'y'\): the operator is unknown, .* 'z'; cut"):
            imported(model(nodes, [value("x", [2])], ["z"], domains=[domain] if domain else []))


def test_an_if_with_a_broken_branch() -> None:
    from onnx import helper

    then = helper.make_graph([node("Relu", ["absent"], ["r"])], "then", [], [value("r", None)])
    other = helper.make_graph([node("Relu", ["x"], ["r"])], "else", [], [value("r", None)])
    nodes = [node("If", ["flag"], ["y"], "choice", then_branch=then, else_branch=other)]
    proto = model(nodes, [value("flag", [], BOOL), value("x", [2])], ["y"])
    with pytest.raises(InvalidModelError, match=r"If 'choice' .*it reads 'absent', which nothing defines"):
        imported(proto)
