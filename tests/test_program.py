from __future__ import annotations

import copy
import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnx2nnapi
from onnx2nnapi.errors import ArtifactError, InvalidModelError, Onnx2NnapiError
from onnx2nnapi.nnapi import Model, artifact, validate
from onnx2nnapi.program import Port, Program, Segment, check, load

WEIGHTS = (np.arange(40, dtype=np.float32) - 20).reshape(5, 8)


def tensor(lifetime, shape, code="TENSOR_FLOAT32", **more):
    return {"type": code, "dimensions": list(shape), "lifetime": lifetime, **more}


def constant(values, shape, code="TENSOR_FLOAT32", **more):
    return tensor("CONSTANT", shape, code, value=list(values), **more)


def scalar(value, code="INT32"):
    return {"type": code, "lifetime": "CONSTANT", "value": [value]}


def dense_model() -> Model:
    """Probabilities: a dense layer and a RELU6 in it."""
    return Model.from_dict(
        {
            "main": {
                "operands": [
                    tensor("INPUT", [2, 8], name="x"),
                    constant(WEIGHTS.reshape(-1).tolist(), WEIGHTS.shape, name="dense.weight"),
                    constant([0.5, 1, 2, 3, 4], [5], name="dense.bias"),
                    scalar(3),
                    tensor("OUTPUT", [2, 5], name="y"),
                ],
                "operations": [
                    {"op": "FULLY_CONNECTED", "inputs": [0, 1, 2, 3], "outputs": [4], "origin": ["dense", "relu6"]}
                ],
                "inputs": [0],
                "outputs": [4],
            }
        }
    )


def program() -> Program:
    model = dense_model()
    table = np.arange(100, dtype=np.int64)
    return Program(
        (Segment(model, ("x",), ("y",)),),
        (Port("x", "float32", (2, 8), tensor="x"), Port("spare", "int64", (3,))),
        (
            Port("y", "float32", (2, 5), tensor="y"),
            Port("y again", "float32", (2, 5), tensor="y"),
            Port("echo", "int64", (3,), source="spare"),
            Port("table", "int64", (100,), constant=table),
            Port("limits", "float64", (3,), constant=np.array([-np.inf, np.nan, 1e300])),
            Port("flag", "bool", (), constant=np.array(True)),
            Port("nothing", "float32", (0, 4), constant=np.zeros((0, 4), np.float32)),
            Port("huge", "uint64", (1,), constant=np.array([2**64 - 1], np.uint64)),
        ),
        validate(model),
        {"model_sha256": "00", "options": "{}"},
    )


@pytest.fixture
def path(tmp_path):
    program().save(tmp_path / "m.nnapi")
    return tmp_path / "m.nnapi"


def test_a_program_round_trips(path):
    saved, found = program(), load(path)
    assert found.required_level == saved.required_level
    assert found.model.to_dict() == saved.model.to_dict()
    assert found.model.main.operations[0].origin == ("dense", "relu6")
    assert found.model.main.operands[1].name == "dense.weight"
    for ours, theirs in zip((*saved.inputs, *saved.outputs), (*found.inputs, *found.outputs), strict=True):
        assert (ours.name, ours.dtype, ours.shape, ours.tensor, ours.source) == (
            theirs.name,
            theirs.dtype,
            theirs.shape,
            theirs.tensor,
            theirs.source,
        )
        assert (ours.constant is None) == (theirs.constant is None)
        if ours.constant is not None:
            array = theirs.constant if isinstance(theirs.constant, np.ndarray) else theirs.constant.numpy()
            assert array.dtype == ours.constant.dtype
            np.testing.assert_array_equal(array, ours.constant)


def test_constants_of_more_than_128_bytes_are_tensors(path):
    found = artifact.read(path)
    assert set(found.tensors) == {"dense.weight", "table"}
    operands = found.description["segments"][0]["model"]["main"]["operands"]
    assert operands[1]["tensor"] == "dense.weight"
    assert operands[2]["value"] == [0.5, 1.0, 2.0, 3.0, 4.0]


def test_saving_a_loaded_program_gives_the_same_bytes(path, tmp_path):
    load(path).save(tmp_path / "again.nnapi")
    assert (tmp_path / "again.nnapi").read_bytes() == path.read_bytes()


def test_a_program_can_be_saved_over_the_file_that_it_is_mapped_from(path):
    before = path.read_bytes()
    load(path).save(path)
    assert path.read_bytes() == before


def test_names_that_the_format_reserves(tmp_path):
    description = dense_model().to_dict()
    for name in ("program.json", ".pad.0", "__metadata__"):
        description["main"]["operands"][1]["name"] = name
        model = Model.from_dict(description)
        saved = Program((Segment(model, ("x",), ("y",)),), program().inputs[:1], program().outputs[:1], 1)
        saved.save(tmp_path / "m.nnapi")
        assert load(tmp_path / "m.nnapi").model.to_dict() == description


def test_a_program_of_no_segments(tmp_path):
    empty = Program((), (Port("a", "float32", (2,)),), (Port("b", "float32", (2,), source="a"),))
    empty.save(tmp_path / "m.nnapi")
    found = load(tmp_path / "m.nnapi")
    assert found.segments == ()
    with pytest.raises(InvalidModelError, match="0 segments"):
        _ = found.model


def test_opening_does_not_read_the_constants(tmp_path):
    size = 1 << 28
    with open(tmp_path / "weights.bin", "wb") as file:
        file.truncate(size)
    from onnx2nnapi.ir.sources import DataFile, FileSource
    from onnx2nnapi.ir.types import LazyArray

    constant = LazyArray.of(FileSource(DataFile.open(tmp_path / "weights.bin"), 0, np.dtype(np.uint8), (size,)))
    Program((), (), (Port("big", "uint8", (size,), constant=constant),)).save(tmp_path / "m.nnapi")
    start = time.perf_counter()
    found = load(tmp_path / "m.nnapi")
    assert time.perf_counter() - start < 0.1
    assert found.outputs[0].constant.nbytes == size


# -- what load refuses -------------------------------------------------------------------------------------------------


def write_changed(path, change):
    """Write the program with a changed description; ``change`` gets it and the metadata."""
    found = artifact.read(path)
    description = copy.deepcopy(dict(found.description))
    metadata = {key: value for key, value in found.metadata.items() if not key.startswith("format")}
    change(description, metadata)
    artifact.write(path, description, found.tensors, metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, m: d.pop("segments"), "lacks 'segments'"),
        (lambda d, m: d["segments"].append(3), "must be an object"),
        (lambda d, m: d["segments"][0].update(kind="cloud"), "kind 'cloud' is unknown"),
        (lambda d, m: d["segments"][0].update(inputs=["z"]), "reads tensor 'z', which nothing defines"),
        (lambda d, m: d["segments"][0].update(inputs=[]), "more or fewer tensors"),
        (lambda d, m: d["segments"][0].update(outputs=["x"]), "defines tensor 'x' a second time"),
        (lambda d, m: d["inputs"][0].update(dtype="string"), "element type 'string' is unknown"),
        (lambda d, m: d["inputs"][0].update(dtype="int64"), "does not fit operand"),
        (lambda d, m: d["inputs"][0].update(shape=[2, 9]), "does not fit operand"),
        (lambda d, m: d["inputs"][0].update(shape=[2.5]), "must be an integer"),
        (lambda d, m: d["inputs"][1].update(name="x"), "two inputs have the same name"),
        (lambda d, m: d["inputs"][1].update(binding="input", input="x"), "is bound as only outputs are"),
        (lambda d, m: d["outputs"][0].update(tensor="q"), "does not fit tensor 'q'"),
        (lambda d, m: d["outputs"][0].update(binding="magic"), "binding 'magic' is unknown"),
        (lambda d, m: d["outputs"][0].update(binding="unused"), "is bound to nothing"),
        (lambda d, m: d["outputs"][2].update(input="none"), "repeats 'none', which is no input"),
        (lambda d, m: d["inputs"][1].update(shape=[4]), r"repeats spare: int64\[4\], but is echo: int64\[3\]"),
        (lambda d, m: d["inputs"][1].update(shape=["n"]), r"repeats spare: int64\[n\], but is echo"),
        (lambda d, m: d["outputs"][3].update(tensor="gone"), "tensor is missing"),
        (lambda d, m: d["outputs"][3].update(dtype="float32"), "of another type or shape"),
        (lambda d, m: d["outputs"][4].update(value=["x", 1, 2]), "is no float64"),
        (lambda d, m: d["outputs"][5].update(value=[2]), "is no bool"),
        (lambda d, m: d["outputs"][5].update(shape=["n"]), "no dynamic sizes"),
        (lambda d, m: d["outputs"][7].update(value=[2**64]), "is no uint64"),
        (lambda d, m: m.update(required_level="seven"), "required level 'seven' is no number"),
        (lambda d, m: m.update(required_level="4"), "name feature level 4, the model needs 1"),
        (
            lambda d, m: d["segments"][0]["model"]["main"]["operands"][1].update(dimensions=[8, 5]),
            "FULLY_CONNECTED",
        ),
        (lambda d, m: d["segments"][0]["model"]["main"]["operands"][1].update(tensor="table"), "int64"),
    ],
)
def test_descriptions_that_are_refused(path, change, message):
    write_changed(path, change)
    with pytest.raises(ArtifactError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def _places(value, at=()):
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*at, key))


@settings(max_examples=300)
@given(data=st.data())
def test_any_change_of_the_description_is_run_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("changed")
    program().save(folder / "m.nnapi")
    junk = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=5),
        st.lists(st.integers(-1, 9), max_size=3),
        st.just({}),
        st.sampled_from(["x", "y", "INPUT", "OUTPUT", "CONSTANT", "TENSOR_INT32", "RELU", "nan"]),
    )

    def change(description, metadata):
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.sampled_from([place for place in _places(description) if place]))
            holder = description
            for key in at[:-1]:
                holder = holder[key]
            if data.draw(st.booleans()):
                holder[at[-1]] = data.draw(junk)
            else:
                del holder[at[-1]]

    write_changed(folder / "m.nnapi", change)
    start = time.perf_counter()
    try:
        found = load(folder / "m.nnapi")
        with onnx2nnapi.Session(found, backend="host") as session:
            shapes = {port: [size if isinstance(size, int) else 1 for size in port.shape] for port in session.inputs}
            session.run({port.name: np.zeros(shape, port.dtype) for port, shape in shapes.items()})
    except onnx2nnapi.InternalError:
        raise
    except Onnx2NnapiError:
        pass
    assert time.perf_counter() - start < 1.0


def test_a_port_prints_as_people_write_it():
    assert str(Port("x", "float32", (1, "N", None))) == "x: float32[1, N, ?]"


def test_check_names_a_segment(path):
    model = dense_model()
    with pytest.raises(InvalidModelError, match=r"segments\[0\]: reads tensor 'x'"):
        check(Program((Segment(model, ("x",), ("y",)),), (), ()))


def test_the_description_is_plain_json(path):
    json.dumps(artifact.read(path).description, allow_nan=False)
