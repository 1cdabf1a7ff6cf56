from __future__ import annotations

import json
import os
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from onnx2nnapi.errors import ArtifactError, InternalError, InvalidModelError
from onnx2nnapi.ir.sources import DataFile, FileSource
from onnx2nnapi.ir.types import LazyArray
from onnx2nnapi.nnapi import artifact

CONSTANTS = {
    "weights": np.arange(60, dtype=np.float32).reshape(3, 4, 5),
    "codes": np.arange(200, dtype=np.uint8),
    "mask": np.arange(150) % 3 == 0,
    "half": np.linspace(-1, 1, 90).astype(np.float16),
    "größe/π:0": np.arange(40, dtype=np.int32),
    "empty": np.zeros((0, 3), np.float32),
}
DESCRIPTION = {"segments": [], "name": "größe"}


@pytest.fixture
def path(tmp_path):
    artifact.write(tmp_path / "model.nnapi", DESCRIPTION, CONSTANTS, {"model_sha256": "ab"})
    return tmp_path / "model.nnapi"


def test_what_is_written_is_read(path):
    found = artifact.read(path)
    assert found.description == DESCRIPTION
    assert found.metadata == {"format": "onnx2nnapi", "format_version": "1", "model_sha256": "ab"}
    assert list(found.tensors) == list(CONSTANTS)
    for name, array in CONSTANTS.items():
        read = found.tensors[name].numpy()
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)


def test_the_safetensors_library_reads_it(path):
    read = load_file(path)
    assert json.loads(read.pop("program.json").tobytes()) == DESCRIPTION
    for name, array in CONSTANTS.items():
        np.testing.assert_array_equal(read.pop(name), array)
    assert all(name.startswith(".pad.") and not rest.any() for name, rest in read.items())


def test_every_constant_is_aligned_and_mapped(path):
    found = artifact.read(path)
    for tensor in found.tensors.values():
        assert tensor.source.offset % 64 == 0
        array = tensor.numpy()
        assert not array.flags.writeable
        if array.size:
            assert np.may_share_memory(array, np.frombuffer(tensor.source.file, np.uint8))
            start = np.frombuffer(tensor.source.file, np.uint8, 1).ctypes.data
            assert array.ctypes.data - start == tensor.source.offset
    assert os.fstat(tensor.source.file.fileno()).st_size == path.stat().st_size


def test_the_descriptor_is_closed_with_the_last_array(path):
    tensor = artifact.read(path).tensors["weights"]
    descriptor, array = tensor.source.file.fileno(), tensor.numpy()
    del tensor
    os.fstat(descriptor)
    assert array[2, 3, 4] == 59
    del array
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_the_same_content_gives_the_same_bytes(path, tmp_path):
    artifact.write(tmp_path / "again.nnapi", DESCRIPTION, CONSTANTS, {"model_sha256": "ab"})
    assert (tmp_path / "again.nnapi").read_bytes() == path.read_bytes()


def test_lazy_constants_are_computed_one_at_a_time(tmp_path):
    alive: list[int] = []
    most = 0

    class Tracked(np.ndarray):
        def __del__(self):
            if alive:
                alive.pop()

    def compute(array):
        nonlocal most
        alive.append(1)
        most = max(most, len(alive))
        return np.array(array).view(Tracked)

    constants = {f"c{i}": LazyArray.of(np.arange(50.0)).then("work", compute) for i in range(5)}
    artifact.write(tmp_path / "m.nnapi", {}, constants, {})
    assert most == 1


def test_constants_in_any_order_of_memory(tmp_path):
    cube = np.arange(300 * 7 * 5, dtype=np.int32).reshape(300, 7, 5)
    constants = {
        "turned": cube[:, :, 0].T,
        "turned again": cube.transpose(2, 1, 0),
        "backwards": cube[::-1, 1:3],
        "repeated": np.broadcast_to(cube[0, 0], (40, 5)),
        "none": cube[:0].T,
    }
    artifact.write(tmp_path / "m.nnapi", {}, constants, {})
    found = artifact.read(tmp_path / "m.nnapi").tensors
    for name, array in constants.items():
        np.testing.assert_array_equal(found[name].numpy(), array)


def test_a_step_that_breaks_its_word_is_our_fault(tmp_path):
    wrong = LazyArray.of(np.zeros((4, 50), np.float32)).then("wrong", lambda array: array.T)
    with pytest.raises(InternalError, match=r"constant 'w' came out as float32\[50, 4\]"):
        artifact.write(tmp_path / "m.nnapi", {}, {"w": wrong}, {})
    assert os.listdir(tmp_path) == []


# -- external data -----------------------------------------------------------------------------------------------------


@pytest.fixture
def weights(tmp_path):
    (tmp_path / "weights.bin").write_bytes(np.arange(1000, dtype=np.float32).tobytes())
    return tmp_path / "weights.bin"


def test_ranges_of_files_are_streamed(weights, tmp_path):
    file = DataFile.open(weights)
    plain = LazyArray.of(FileSource(file, 400, np.dtype(np.float32), (20, 30)))
    constants = {"plain": plain, "other shape": plain.reshape((600,)), "turned": plain.transpose((1, 0))}
    artifact.write(tmp_path / "m.nnapi", {}, constants, {})
    expected = np.arange(100, 700, dtype=np.float32).reshape(20, 30)
    found = artifact.read(tmp_path / "m.nnapi").tensors
    np.testing.assert_array_equal(found["plain"].numpy(), expected)
    np.testing.assert_array_equal(found["other shape"].numpy(), expected.reshape(-1))
    np.testing.assert_array_equal(found["turned"].numpy(), expected.T)


def test_streaming_without_copy_file_range(weights, tmp_path, monkeypatch):
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    constant = LazyArray.of(FileSource(DataFile.open(weights), 4, np.dtype(np.float32), (999,)))
    artifact.write(tmp_path / "m.nnapi", {}, {"c": constant}, {})
    np.testing.assert_array_equal(artifact.read(tmp_path / "m.nnapi").tensors["c"].numpy(), np.arange(1, 1000))


def test_a_file_that_has_changed_is_refused(weights, tmp_path):
    constant = LazyArray.of(FileSource(DataFile.open(weights, "weights.bin"), 0, np.dtype(np.float32), (1000,)))
    os.utime(weights, ns=(1, 1))
    for tensor in (constant, constant.transpose((0,)).astype(np.float16)):
        with pytest.raises(InvalidModelError, match=r"external data file 'weights.bin': has changed"):
            artifact.write(tmp_path / "m.nnapi", {}, {"c": tensor}, {})
    assert sorted(os.listdir(tmp_path)) == ["weights.bin"]


def test_a_range_beyond_the_file_is_refused(weights):
    with pytest.raises(InvalidModelError, match="has 4000 bytes, a tensor needs the bytes 0 to 4004"):
        FileSource(DataFile.open(weights), 0, np.dtype(np.float32), (1001,))


# -- where files cannot be written -------------------------------------------------------------------------------------


def test_targets_that_cannot_be_written(tmp_path):
    (tmp_path / "folder").mkdir()
    for target, reason in (
        (tmp_path / "folder", "no regular file"),
        (tmp_path / "missing" / "m.nnapi", "No such file or directory"),
        ("/dev/full", "no regular file"),
        (tmp_path / ("n" * 300), "too long"),
    ):
        with pytest.raises(ArtifactError, match=reason):
            artifact.write(target, DESCRIPTION, CONSTANTS, {})
    assert os.listdir(tmp_path) == ["folder"]


def test_a_full_disk_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def full(file, name, tensor, space):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(artifact, "_stream", full)
    with pytest.raises(ArtifactError, match="cannot be written: No space left on device; free some space"):
        artifact.write(path, DESCRIPTION, CONSTANTS, {})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_source_file_is_not_overwritten(path):
    with pytest.raises(ArtifactError, match="is a file that the model is read from"):
        artifact.write(path, {}, {}, {}, protected=[str(path)])


def test_a_file_may_be_saved_over_itself(path):
    found = artifact.read(path)
    before = path.read_bytes()
    artifact.write(path, DESCRIPTION, found.tensors, {"model_sha256": "ab"})
    assert path.read_bytes() == before


# -- files that are not ours, cut or hostile ---------------------------------------------------------------------------


def _header(entries: object, data: bytes = b"", pad: int = 0) -> bytes:
    text = (entries if isinstance(entries, bytes) else json.dumps(entries).encode()) + b" " * pad
    return len(text).to_bytes(8, "little") + text + data


_OURS = {"__metadata__": {"format": "onnx2nnapi", "format_version": "1"}}
_PROGRAM = {"program.json": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x08", "is no .nnapi file, or is cut"),
        (b"\xff" * 8, "is no .nnapi file, or is cut"),
        (b"\xff" * 64, "is no .nnapi file, or is cut"),
        (_header(b"[1, 2]"), "no JSON object"),
        (_header(b"{" * 100_000), "no valid JSON"),
        (_header(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), "no valid JSON"),
        (_header(b'{"a": ' + b"9" * 5000 + b"}"), "no valid JSON"),
        (_header(b'{"a": NaN}'), "no valid JSON"),
        (_header(b'{"a": 1, "a": 2}'), "a name occurs twice"),
        (_header(b'{"\\ud800": {}}'), "no valid JSON"),
        (_header(b"{\xff}"), "no valid JSON"),
        (_header({}), "that onnx2nnapi did not write"),
        (_header({"__metadata__": {"a": 1}}), "metadata are no strings"),
        (_header({"__metadata__": {"format": "onnx2nnapi", "format_version": "2"}}), "version '2', this release"),
        (_header(_OURS), "no tensor 'program.json'"),
        (_header(_OURS | {"x": 3}), "not described"),
        (_header(_OURS | {"x": {"dtype": "F8", "shape": [], "data_offsets": [0, 1]}}), "unknown type"),
        (_header(_OURS | {"x": {"dtype": [], "shape": [], "data_offsets": [0, 1]}}), "unknown type"),
        (_header(_OURS | {"x": {"dtype": "U8", "shape": [2**70], "data_offsets": [0, 1]}}), "impossible sizes"),
        (_header(_OURS | {"x": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}}), "impossible sizes"),
        (_header(_OURS | {"x": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}), "impossible sizes"),
        (_header(_OURS | {"x": {"dtype": "U8", "shape": [0] * 70, "data_offsets": [0, 0]}}), "70 dimensions"),
        (_header(_OURS | _PROGRAM, b"{"), "lies outside its place"),
        (_header(_OURS | _PROGRAM, b"{}}"), "its tensors end at"),
        (_header(_OURS | _PROGRAM, b"[]"), "program.json is no object"),
        (_header(_OURS | {"program.json": {"dtype": "I8", "shape": [2], "data_offsets": [0, 2]}}, b"{}"), "no tensor"),
        (
            _header(_OURS | _PROGRAM | {"x": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}}, b"{}1234"),
            "is not aligned",
        ),
        (
            _header(_OURS | _PROGRAM | {"x": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}, b"{}"),
            "lies outside its place",
        ),
    ],
)
def test_hostile_files(tmp_path, content, message):
    (tmp_path / "m.nnapi").write_bytes(content)
    with pytest.raises(ArtifactError, match=message):
        artifact.read(tmp_path / "m.nnapi")


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for target, message in (
        (tmp_path / "missing", "cannot be opened: No such file"),
        (tmp_path, "is no regular file"),
        (tmp_path / "pipe", "is no regular file"),
        ("a\0b", "cannot be opened"),
    ):
        with pytest.raises(ArtifactError, match=message):
            artifact.read(target)


def test_a_sparse_file_that_claims_a_large_header_is_refused_at_once(tmp_path):
    with open(tmp_path / "m.nnapi", "wb") as file:
        file.write((2**33).to_bytes(8, "little"))
        file.truncate(2**34)
    start = time.perf_counter()
    with pytest.raises(ArtifactError, match=r"is no \.nnapi file"):
        artifact.read(tmp_path / "m.nnapi")
    assert time.perf_counter() - start < 0.5


@settings(max_examples=300)
@given(data=st.data())
def test_any_mutation_is_read_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("mutated")
    artifact.write(folder / "m.nnapi", DESCRIPTION, CONSTANTS, {"model_sha256": "ab"})
    content = bytearray((folder / "m.nnapi").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "delete"]))
        if kind == "flip":
            content[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            content = content[: at + 1]
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        elif len(content) > 1:
            del content[at]
    (folder / "m.nnapi").write_bytes(content)
    try:
        found = artifact.read(folder / "m.nnapi")
    except ArtifactError:
        return
    for tensor in found.tensors.values():
        assert tensor.numpy().nbytes == tensor.nbytes
