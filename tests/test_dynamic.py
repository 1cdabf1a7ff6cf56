"""Symbols that stay open: converted once, run at several sizes, held to onnxruntime at each."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnx2nnapi

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
_rng = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return _rng.standard_normal(shape).astype(np.float32)


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def weights(name: str, *shape: int) -> str:
    """A constant for onnx.parser."""
    values = ", ".join(f"{value:.4f}" for value in floats(*shape).reshape(-1))
    return f"float[{','.join(map(str, shape))}] {name} = {{{values}}}"


BATCH = {
    "dense": f"""g (float[N,6] x) => (float[N,4] y) <{weights("w", 6, 4)}, {weights("b", 4)}> {{
        h = Gemm (x, w, b) y = Softmax (h)
    }}""",
    "convolution": f"""g (float[N,3,8,8] x) => (float[N,5] y)
    <{weights("w", 4, 3, 3, 3)}, {weights("f", 4, 5)}, int64[2] s = {{0, -1}}> {{
        h = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w) r = Relu (h) p = GlobalAveragePool (r)
        q = Reshape (p, s) y = MatMul (q, f)
    }}""",
    "shape arithmetic": """g (float[N,2,6] x) => (float[N,12] y)
    <int64 zero = {0}, int64[1] axis = {0}, int64[1] m = {-1}> {
        s = Shape (x) n = Gather (s, zero) u = Unsqueeze (n, axis) t = Concat <axis = 0> (u, m) y = Reshape (x, t)
    }""",
    "slices": """g (float[N,6] x) => (float[N,2] y, float[N,6] z)
    <int64[1] s = {2}, int64[1] e = {4}, int64[1] a = {1}> {
        y = Slice (x, s, e, a) z = Mul (x, x)
    }""",
    "an output that is the input": "g (float[N,6] x) => (float[N,6] y, float[N,6] z) { y = Identity (x) z = Neg (x) }",
    "flatten": "g (float[N,2,3,2] x) => (float[N,12] y) { f = Flatten (x) y = Relu (f) }",
}


@pytest.mark.parametrize("level", [3, 4, 7])
@pytest.mark.parametrize("name", BATCH)
def test_any_batch(name: str, level: int, tmp_path: pathlib.Path) -> None:
    model = model_of(BATCH[name])
    program = onnx2nnapi.convert(model, feature_level=level, keep_dynamic=["N"])
    assert program.inputs[0].shape[0] == "N"
    assert all(port.shape[0] == "N" for port in program.outputs)
    assert {type_.shape[0] for type_ in program.model.main.input_types()} == {0}
    program.save(tmp_path / "model.nnapi")
    oracle = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with onnx2nnapi.Session(tmp_path / "model.nnapi", backend="host") as session:
        for size in (1, 2, 7, 1):
            feeds = {"x": floats(size, *(int(dim) for dim in program.inputs[0].shape[1:]))}
            for value, want in zip(session.run(feeds).values(), oracle.run(None, feeds), strict=True):
                assert value.shape == want.shape
                np.testing.assert_allclose(value, want, rtol=1e-4, atol=1e-5)


def test_open_height_and_width() -> None:
    model = model_of(f"""g (float[N,3,H,W] x) => (float[N,4,h,w] y) <{weights("w", 4, 3, 3, 3)}> {{
        h = Conv <pads = [1,1,1,1]> (x, w) r = Relu (h) y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
    }}""")
    program = onnx2nnapi.convert(model, keep_dynamic="*")
    assert program.inputs[0].shape == ("N", 3, "H", "W")
    assert program.outputs[0].shape == ("N", 4, None, None)
    oracle = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with onnx2nnapi.Session(program, backend="host") as session:
        for shape in ((1, 3, 8, 6), (2, 3, 5, 9)):
            feeds = {"x": floats(*shape)}
            np.testing.assert_allclose(session.run(feeds)["y"], oracle.run(None, feeds)[0], rtol=1e-4, atol=1e-5)


def test_a_size_without_a_name_can_stay_open() -> None:
    model = model_of("g (float[N,3] x) => (float[N,3] y) { y = Relu (x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    program = onnx2nnapi.convert(model, keep_dynamic="*")
    assert program.inputs[0].shape == (None, 3)
    assert onnx2nnapi.Session(program, backend="host").run({"x": floats(5, 3)})["y"].shape == (5, 3)


def test_one_symbol_open_and_another_bound() -> None:
    model = model_of("g (float[N,T] x) => (float[N,T] y) { y = Relu (x) }")
    program = onnx2nnapi.convert(model, keep_dynamic=["N"], dims={"T": 5})
    assert program.inputs[0].shape == ("N", 5)
    with pytest.raises(onnx2nnapi.FeedError, match="N, 5"):
        onnx2nnapi.Session(program, backend="host").run({"x": floats(2, 6)})


def test_inputs_that_share_a_symbol_share_its_size() -> None:
    model = model_of("g (float[N,3] x, float[N,3] z) => (float[N,3] y) { y = Mul (x, z) }")
    session = onnx2nnapi.Session(onnx2nnapi.convert(model, keep_dynamic=["N"]), backend="host")
    assert session.run({"x": floats(4, 3), "z": floats(4, 3)})["y"].shape == (4, 3)
    with pytest.raises(onnx2nnapi.FeedError, match="'N' is 4"):
        session.run({"x": floats(4, 3), "z": floats(1, 3)})


REFUSED = {
    "a constant that grows with the batch": """g (float[N,3] x) => (float[N,3] y) <int64[1] m = {3}> {
        s = Shape (x) o = ConstantOfShape (s) c = Cos (o) p = Neg (x) y = Add (p, c)
    }""",
    "an operation for each": """g (float[N,3,4] x, float[N,4,5] z) => (float[N,3,5] y) { y = MatMul (x, z) }""",
    "padding that the size decides": f"""g (float[1,2,N,8] x) => (float[1,2,n,4] y) <{weights("w", 2, 2, 3, 3)}> {{
        y = Conv <auto_pad = "SAME_UPPER", strides = [2,2]> (x, w)
    }}""",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_must_know_the_size_is_named_with_the_flag(name: str) -> None:
    with pytest.raises(onnx2nnapi.UnsupportedError, match=r"'y'.*'N'.*--dim N=1"):
        onnx2nnapi.convert(model_of(REFUSED[name]), keep_dynamic=["N"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_dynamic": ["M"]}, "'M'.*the open ones are N, T"),
        ({"keep_dynamic": ["N"], "dims": {"N": 2, "T": 3}}, "'N'.*it is bound"),
        ({"keep_dynamic": ["N"]}, "'T' is open.*--dim T=1"),
    ],
)
def test_what_cannot_be_asked_for(options: dict[str, Any], message: str) -> None:
    model = model_of("g (float[N,T] x) => (float[N,T] y) { y = Relu (x) }")
    with pytest.raises(onnx2nnapi.Onnx2NnapiError, match=message):
        onnx2nnapi.convert(model, **options)
