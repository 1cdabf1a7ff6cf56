from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import onnx2nnapi
from onnx2nnapi import ArtifactError, DeviceError, FeedError, InvalidModelError, Onnx2NnapiError, Session
from onnx2nnapi.nnapi import Model
from onnx2nnapi.program import Port, Program, Segment


def tensor(lifetime, shape, code="TENSOR_FLOAT32", **more):
    return {"type": code, "dimensions": list(shape), "lifetime": lifetime, **more}


def one_operation(name, operands, inputs=(0,)):
    """A model of one operation whose last operand is its output."""
    last = len(operands) - 1
    operation = {"op": name, "inputs": list(range(last)), "outputs": [last]}
    main = {"operands": operands, "operations": [operation], "inputs": list(inputs), "outputs": [last]}
    return Model.from_dict({"main": main})


@pytest.fixture
def program():
    """y = -x; n is int64 for ONNX, d is double, b is bfloat16, s has rank 0."""
    negate = one_operation("NEG", [tensor("INPUT", [2, 3]), tensor("OUTPUT", [2, 3])])
    absolute = one_operation("ABS", [tensor("INPUT", [1], "TENSOR_INT32"), tensor("OUTPUT", [1], "TENSOR_INT32")])
    flip = one_operation("NEG", [tensor("INPUT", [2]), tensor("OUTPUT", [2])])
    return Program(
        (
            Segment(negate, ("x",), ("y",)),
            Segment(absolute, ("n",), ("m",)),
            Segment(flip, ("d",), ("e",)),
            Segment(flip, ("e",), ("f",)),
        ),
        (
            Port("x", "float32", (2, 3), tensor="x"),
            Port("n", "int64", (), tensor="n"),
            Port("d", "float64", (2,), tensor="d"),
            Port("unused", "bool", (2,)),
        ),
        (
            Port("e", "bfloat16", (2,), tensor="e"),
            Port("m", "int64", (), tensor="m"),
            Port("y", "float32", (2, 3), tensor="y"),
            Port("f", "float64", (2,), tensor="f"),
            Port("unused", "bool", (2,), source="unused"),
            Port("k", "int64", (2,), constant=np.array([2**40, -1])),
        ),
        4,
    )


@pytest.fixture
def feeds():
    return {
        "d": np.array([1.5, -2.0]),
        "x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "unused": np.array([True, False]),
        "n": np.array(-5, np.int64),
    }


def test_onnx_names_types_and_shapes_in_onnx_order(program, feeds):
    with Session(program, backend="host") as session:
        for _ in range(3):
            results = session.run(feeds)
            assert [(name, array.dtype.name, array.shape) for name, array in results.items()] == [
                ("e", "bfloat16", (2,)),
                ("m", "int64", ()),
                ("y", "float32", (2, 3)),
                ("f", "float64", (2,)),
                ("unused", "bool", (2,)),
                ("k", "int64", (2,)),
            ]
            np.testing.assert_array_equal(results["e"].astype(float), [-1.5, 2])
            assert int(results["m"]) == 5
            np.testing.assert_array_equal(results["y"], -feeds["x"])
            np.testing.assert_array_equal(results["f"], feeds["d"])
            np.testing.assert_array_equal(results["unused"], [True, False])
            np.testing.assert_array_equal(results["k"], [2**40, -1])


def test_the_callers_arrays_are_neither_kept_nor_changed(program, feeds):
    before = {name: array.copy() for name, array in feeds.items()}
    with Session(program, backend="host") as session:
        results = session.run(feeds)
        for array in results.values():
            assert array.flags.writeable
            array[...] = 1
        again = session.run(feeds)
    for name, array in feeds.items():
        np.testing.assert_array_equal(array, before[name])
    np.testing.assert_array_equal(again["k"], [2**40, -1])


def test_lists_numbers_and_other_byte_orders_are_taken(program, feeds):
    with Session(program, backend="host") as session:
        results = session.run({"x": feeds["x"].astype(">f4"), "n": -5, "d": [1.5, -2], "unused": [True, False]})
    np.testing.assert_array_equal(results["y"], -feeds["x"])
    assert int(results["m"]) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, r"no array is given for 'x'"),
        ({"z": np.zeros(1)}, r"the model has no input 'z'; its inputs are 'x', 'n', 'd', 'unused'"),
        ({"x": np.zeros((2, 3))}, r"input 'x': has dtype float64, the model takes float32; use \.astype\('float32'\)"),
        ({"x": np.zeros((3, 2), np.float32)}, r"input 'x': has shape \[3, 2\], the model takes \[2, 3\]"),
        ({"n": np.array([1, 2])}, r"input 'n': has shape \[2\], the model takes \[\]"),
        ({"n": np.array(2**31)}, r"input 'n': holds 2147483648, NNAPI computes with int32; values must lie in"),
        ({"n": np.array(-(2**31) - 1)}, r"input 'n': holds -2147483649"),
        ({"n": 1.5}, r"input 'n': 1\.5 is no array of int64"),
        ({"n": 2**70}, r"is no array of int64"),
        ({"n": "text"}, r"'text' is no array of int64"),
        ({"x": [[1, 2], [3]]}, r"is no array of float32"),
        ({"x": object()}, r"is no array of float32"),
    ],
)
def test_feeds_that_do_not_fit(program, feeds, change, message):
    feeds.update(change)
    with Session(program, backend="host") as session, pytest.raises(FeedError, match=message):
        session.run({name: array for name, array in feeds.items() if array is not None})


def test_dynamic_sizes_are_taken_from_the_feed():
    model = one_operation("NEG", [tensor("INPUT", [0, 2]), tensor("OUTPUT", [0, 2])])
    program = Program(
        (Segment(model, ("x",), ("y",)),),
        (Port("x", "float32", ("N", 2), tensor="x"),),
        (Port("y", "float32", ("N", 2), tensor="y"),),
        3,
    )
    with Session(program, backend="host") as session:
        for rows in (1, 3, 1):
            assert session.run({"x": np.zeros((rows, 2), np.float32)})["y"].shape == (rows, 2)
        with pytest.raises(FeedError, match=r"has shape \[2, 3\], the model takes \[N, 2\]"):
            session.run({"x": np.zeros((2, 3), np.float32)})


@pytest.mark.parametrize("feeds", [None, [1], "x"])
def test_inputs_have_names(program, feeds):
    with Session(program, "host") as session, pytest.raises(FeedError, match="inputs are given by name, not as"):
        session.run(feeds)


def test_a_closed_session(program, feeds):
    session = Session(program, backend="host")
    session.run(feeds)
    session.close()
    session.close()
    with pytest.raises(Onnx2NnapiError, match="the session is closed"):
        session.run(feeds)


def test_threads_share_a_session(program, feeds):
    failures = []

    def work(number):
        own = feeds | {"x": np.full((2, 3), number, np.float32), "n": np.array(number)}
        for _ in range(30):
            results = session.run(own)
            if not (results["y"] == -number).all() or int(results["m"]) != number:
                failures.append(number)

    with Session(program, backend="host") as session:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_session_of_a_file(program, feeds, tmp_path):
    program.save(tmp_path / "m.nnapi")
    with Session(tmp_path / "m.nnapi", backend="host") as session:
        np.testing.assert_array_equal(session.run(feeds)["y"], -feeds["x"])
        assert [port.name for port in session.inputs] == ["x", "n", "d", "unused"]


def test_a_session_of_a_converted_model(checkout):
    model = checkout / "models" / "digits.onnx"
    samples = np.load(checkout / "models" / "digits_samples.npz")
    with Session(onnx2nnapi.convert(model), backend="host") as session:
        (port,) = session.inputs
        image = samples[samples.files[0]][:1].astype(np.float32).reshape(port.shape)
        results = session.run({port.name: image})
    import onnxruntime

    (expected,) = onnxruntime.InferenceSession(model).run(None, {port.name: image})
    np.testing.assert_allclose(next(iter(results.values())), expected, rtol=1e-4, atol=1e-6)


def test_what_is_no_program(program, checkout, tmp_path):
    with pytest.raises(ArtifactError, match="cannot be opened"):
        Session(tmp_path / "missing.nnapi")
    with pytest.raises(ArtifactError, match="a session runs a Program or a file, not int"):
        Session(3)
    with pytest.raises(InvalidModelError, match="there is no back end 'gpu'; choose auto, host or nnapi"):
        Session(program, backend="gpu")
    with pytest.raises(ArtifactError, match=r"digits\.onnx: is an ONNX model, .* `onnx2nnapi convert` writes"):
        Session(checkout / "models" / "digits.onnx")


def test_auto_is_the_host_where_there_is_no_library(program):
    with Session(program, library="/nowhere/libneuralnetworks.so") as session:
        assert session.backend == "host"
    with pytest.raises(DeviceError, match="cannot be loaded"):
        Session(program, backend="nnapi", library="/nowhere/libneuralnetworks.so")


def test_the_same_results_through_nnapi(program, feeds, host):
    with Session(program, library=host.path) as session:
        assert session.backend == "nnapi"
        results = session.run(feeds)
        expected = Session(program, backend="host").run(feeds)
        for name, array in expected.items():
            np.testing.assert_array_equal(results[name], array)


def test_running_a_file_imports_numpy_only(program, tmp_path):
    program.save(tmp_path / "m.nnapi")
    code = (
        "import sys, onnx2nnapi, numpy as np\n"
        f"s = onnx2nnapi.Session({str(tmp_path / 'm.nnapi')!r}, backend='host')\n"
        "s.run({p.name: np.zeros(p.shape, p.dtype) for p in s.inputs})\n"
        "print(sorted({'onnx', 'networkx', 'rich', 'click', 'google'} & {m.split('.')[0] for m in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_times_of_all_segments_on_demand(program, feeds):
    with Session(program, backend="host", profile=True) as session:
        session.run(feeds)
        session.run(feeds)
        assert [(time.operation.code.name, time.runs) for time in session.times] == [
            ("NEG", 2),
            ("ABS", 2),
            ("NEG", 2),
            ("NEG", 2),
        ]
    with Session(program, backend="host") as session:
        session.run(feeds)
        assert session.times == []


def test_the_public_names_lead_here():
    assert onnx2nnapi.Session is Session
    assert onnx2nnapi.load is not None
