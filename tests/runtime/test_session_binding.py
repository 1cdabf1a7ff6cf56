from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi import Session
from onnx2nnapi.errors import FeedError, InvalidModelError
from onnx2nnapi.program import Port, Program, Segment
from tests.nnapi_host import models

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def program(**changes) -> Program:
    """sum = x + y; same repeats the sum, echo repeats x, five is constant."""
    ports = [Port(name, "float32", (2, 3), tensor=name) for name in ("x", "y")]
    outputs = (
        Port("sum", "float32", (2, 3), tensor="sum"),
        Port("same", "float32", (2, 3), tensor="sum"),
        Port("echo", "float32", (2, 3), source="x"),
        Port("five", "float32", (1,), constant=np.array([5], np.float32)),
    )
    segments = (Segment(models.add(), ("x", "y"), ("sum",)),)
    return Program(**{"segments": segments, "inputs": tuple(ports), "outputs": outputs} | changes)


@pytest.fixture(params=["host", "nnapi"])
def session(request):
    if request.param == "host":
        with Session(program(), "host") as opened:
            yield opened
        return
    host = request.getfixturevalue("host")
    with Session(program(), "nnapi", library=str(host.path)) as opened:
        yield opened


def test_runs_read_and_write_the_bound_buffers(session):
    x, y, out = X.copy(), X.copy(), np.zeros((2, 3), np.float32)
    with session.bind({"x": x, "y": y}, {"sum": out}) as bound:
        for value in range(3):
            x[:] = value
            bound.run()
            assert np.array_equal(out, value + X)
            for name, wanted in {"sum": value + X, "same": value + X, "echo": x, "five": [5]}.items():
                assert np.array_equal(bound.outputs[name], wanted)
        assert list(bound.outputs) == ["sum", "same", "echo", "five"]
        assert bound.outputs["sum"] is out


def test_every_output_may_have_its_own_buffer(session):
    x = X.copy()
    given = {name: np.zeros((2, 3), np.float32) for name in ("sum", "same", "echo")}
    with session.bind({"x": x, "y": X}, given | {"five": np.zeros(1, np.float32)}) as bound:
        x[:] = 1
        bound.run()
        assert np.array_equal(given["same"], 1 + X)
        assert np.array_equal(given["echo"], x)
        assert bound.outputs["five"].tolist() == [5]


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        ({"x": X}, {}, "no array is given for 'y'"),
        ({"x": X, "y": X, "z": X}, {}, "the model has no input 'z'; its inputs are 'x', 'y'"),
        ({"x": X, "y": X}, {"z": X}, "the model has no output 'z'"),
        ({"x": X, "y": X.tolist()}, {}, "input 'y': must be an array, not list"),
        ({"x": X, "y": X.astype(np.float64)}, {}, "input 'y': has dtype float64, the model has float32"),
        ({"x": X, "y": X[:1]}, {}, r"input 'y': has shape \[1, 3\], the model has \[2, 3\]"),
        ({"x": X, "y": np.asfortranarray(X)}, {}, "input 'y': must be contiguous"),
        ({"x": X, "y": X}, {"sum": np.broadcast_to(X, (2, 3))}, "output 'sum': must be writable"),
    ],
)
def test_what_does_not_fit(session, inputs, outputs, text):
    with pytest.raises(FeedError, match=text):
        session.bind(inputs, outputs)


def test_what_would_have_to_be_converted():
    wide = (Port("x", "int64", (2, 3), tensor="x"), Port("y", "float32", (2, 3), tensor="y"))
    with (
        Session(program(inputs=wide), "host") as session,
        pytest.raises(
            FeedError,
            match=r"input 'x': is int64 in ONNX and float32 in NNAPI, and binding converts nothing; use run\(\)",
        ),
    ):
        session.bind({"x": X.astype(np.int64), "y": X})


def test_programs_without_one_segment():
    empty = program(segments=(), inputs=(Port("x", "float32", (2, 3)),), outputs=())
    with Session(empty, "host") as session, pytest.raises(InvalidModelError, match="only programs of one segment"):
        session.bind({"x": X})
