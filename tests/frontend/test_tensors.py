from __future__ import annotations

import os
import pathlib
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.frontend.importer import import_model
from onnx2nnapi.frontend.tensors import TensorReader
from onnx2nnapi.ir.sources import FileSource
from tests.frontend.building import imported, model, node, value

TYPES = [
    np.float32, np.float64, np.float16, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
    np.uint64, np.bool_, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    ml_dtypes.int4, ml_dtypes.uint4,
]  # fmt: skip


def sample(dtype: Any) -> np.ndarray[Any, Any]:
    return np.asarray([[1, 0, 3], [2, 1, 0], [3, 3, 1]]).astype(dtype)


def read(tensor: TensorProto, folder: pathlib.Path | None = None) -> np.ndarray[Any, Any]:
    lazy = TensorReader(folder).constant(tensor, "initializer 'w'")
    array = lazy.numpy()
    assert (array.dtype, array.shape) == (lazy.dtype, lazy.shape)
    return array


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_every_type_raw_and_in_its_own_field(dtype: Any) -> None:
    array = sample(dtype)
    np.testing.assert_array_equal(read(numpy_helper.from_array(array, "w")), array)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    fielded = helper.make_tensor(
        "w", code, array.shape, array.astype(np.complex64 if dtype is np.complex64 else np.float64).reshape(-1)
    )
    assert not fielded.HasField("raw_data")
    np.testing.assert_array_equal(read(fielded), array)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_every_type_as_external_data(tmp_path: pathlib.Path, dtype: Any) -> None:
    array = sample(dtype)
    raw = numpy_helper.from_array(array, "w").raw_data
    (tmp_path / "w.bin").write_bytes(b"12345" + raw + b"after")
    tensor = TensorProto(name="w", data_type=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims=array.shape)
    place(tensor, location="w.bin", offset=5, length=len(raw))
    np.testing.assert_array_equal(read(tensor, tmp_path), array)


def place(tensor: TensorProto, **entries: object) -> TensorProto:
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, entry in entries.items():
        tensor.external_data.add(key=key, value=str(entry))
    return tensor


def floats(*dims: int, **entries: object) -> TensorProto:
    return place(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims), **entries)


def external_model(path: pathlib.Path, tensor: TensorProto) -> pathlib.Path:
    proto = model([node("Add", ["x", "w"], ["y"])], [value("x", [2, 2])], ["y"])
    proto.graph.initializer.append(tensor)
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_is_mapped_not_read(tmp_path: pathlib.Path) -> None:
    np.arange(4, dtype=np.float32).tofile(tmp_path / "weights.bin")
    graph = import_model(external_model(tmp_path / "m.onnx", floats(2, 2, location="weights.bin")))
    const = graph["w"].const
    assert const is not None
    assert isinstance(const.source, FileSource)
    assert const.numpy().tolist() == [[0, 1], [2, 3]]
    (tmp_path / "weights.bin").write_bytes(b"other")
    with pytest.raises(InvalidModelError, match=r"external data file 'weights.bin': has changed since"):
        const.numpy()


def test_external_data_is_found_beside_a_proto_with_base_dir(tmp_path: pathlib.Path) -> None:
    np.arange(4, dtype=np.float32).tofile(tmp_path / "weights.bin")
    path = external_model(tmp_path / "m.onnx", floats(2, 2, location="weights.bin"))
    assert import_model(path.read_bytes(), base_dir=tmp_path).is_constant("w")
    with pytest.raises(InvalidModelError, match=r"'weights.bin', and the model has no folder; give base_dir"):
        import_model(path.read_bytes())


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "/etc/hostname", "sub/../../secret.bin", "C:\\secret.bin", "link.bin", "linked/secret.bin", "."],
)
def test_external_data_never_leaves_the_folder(tmp_path: pathlib.Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "linked").symlink_to(tmp_path)
    with pytest.raises(
        InvalidModelError, match=r"initializer 'w': its external data file .* is outside the model's folder"
    ):
        import_model(external_model(folder / "m.onnx", floats(2, 2, location=location)))


def test_external_data_may_be_in_a_folder_below(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sub").mkdir()
    np.arange(4, dtype=np.float32).tofile(tmp_path / "sub" / "w.bin")
    os.symlink("sub/w.bin", tmp_path / "inside.bin")
    for location in ("sub/w.bin", "./sub/w.bin", "inside.bin"):
        assert import_model(external_model(tmp_path / "m.onnx", floats(2, 2, location=location))).is_constant("w")


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (floats(2, 2, location="absent.bin"), "its external data file 'absent.bin' is missing"),
        (floats(2, 2), "its external data names no file"),
        (
            floats(2, 2, location="w.bin", length=12),
            r"float32\[2, 2\] takes 16 bytes, its external data in 'w.bin' has 12",
        ),
        (floats(2, 2, location="w.bin", offset=8), r"takes 16 bytes, its external data in 'w.bin' has 12"),
        (floats(2, 2, location="w.bin", offset=8, length=16), r"it needs the bytes 8 to 24 of 'w.bin', which has 20"),
        (floats(2, 2, location="w.bin", offset="-1"), "the offset of its external data is '-1', no number"),
        (floats(2, 2, location="w.bin", length="many"), "the length of its external data is 'many', no number"),
        (floats(2, -2, location="w.bin"), r"its shape \[2, -2\] has a negative size"),
        (floats(2, 2, location="nul\0.bin"), "is outside the model's folder"),
    ],
)
def test_broken_external_data_is_refused_by_name(tmp_path: pathlib.Path, tensor: TensorProto, message: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(20))
    with pytest.raises(InvalidModelError, match=f"initializer 'w': .*{message}"):
        import_model(external_model(tmp_path / "m.onnx", tensor))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (TensorProto(name="w", data_type=1, dims=[2], raw_data=b"1234"), r"FLOAT\[2\] takes 8 bytes, its data has 4"),
        (TensorProto(name="w", data_type=1, dims=[2], float_data=[1, 2, 3]), r"takes 2 float_data, its data has 3"),
        (TensorProto(name="w", data_type=1, dims=[2], int32_data=[1, 2]), "FLOAT elements are stored in int32_data"),
        (TensorProto(name="w", data_type=0, dims=[2]), "it has no element type that ONNX knows"),
        (TensorProto(name="w", data_type=77, dims=[2]), "it has no element type that ONNX knows"),
        (TensorProto(name="w", data_type=8, dims=[1], raw_data=b"a"), "strings cannot be raw data|takes"),
    ],
)
def test_broken_tensors_are_refused(tensor: TensorProto, message: str) -> None:
    with pytest.raises(InvalidModelError, match=f"initializer 'w': .*{message}"):
        read(tensor)


@pytest.mark.parametrize("form", ["flat", "rows"])
def test_sparse_initializers(form: str) -> None:
    indices = np.int64([1, 5]) if form == "flat" else np.int64([[0, 1], [1, 2]])
    values = numpy_helper.from_array(np.float32([10, 20]), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "w_indices"), [2, 3])
    proto = model([node("Add", ["x", "w"], ["y"])], [value("x", [2, 3])], ["y"], sparse_initializer=[sparse])
    const = imported(proto)["w"].const
    assert const is not None
    assert const.numpy().tolist() == [[0, 10, 0], [0, 0, 20]]


@pytest.mark.parametrize("indices", [[6], [-1], [0, 1], [[0, 9]], [[0, 0, 0]]])
def test_broken_sparse_initializers(indices: list[Any]) -> None:
    values = numpy_helper.from_array(np.float32([10]), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.int64(indices), "w_indices"), [2, 3])
    proto = model([node("Add", ["x", "w"], ["y"])], [value("x", [2, 3])], ["y"], sparse_initializer=[sparse])
    with pytest.raises(InvalidModelError, match="initializer 'w': "):
        imported(proto)


def test_weights_of_a_large_model_stay_in_its_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx2nnapi.frontend.load._LARGE_FILE", 1)
    rng = np.random.default_rng(0)
    weights = {f"w{at}": rng.standard_normal((50, 50)).astype(np.float32) for at in range(3)} | {
        "small": np.float32([1])
    }
    nodes = [node("MatMul", ["x", "w0"], ["a"]), node("MatMul", ["a", "w1"], ["b"]), node("MatMul", ["b", "w2"], ["c"])]
    proto = model([*nodes, node("Add", ["c", "small"], ["y"])], [value("x", [2, 50])], ["y"], weights)
    path = tmp_path / "large.onnx"
    onnx.save(proto, path)
    graph = import_model(path)
    for name, array in weights.items():
        const = graph[name].const
        assert const is not None
        assert isinstance(const.source, FileSource) == (name != "small")
        np.testing.assert_array_equal(const.numpy(), array)
    plain = import_model(path.read_bytes())
    assert [str(op) for op in plain.ops] != []
    assert [op.kind for op in plain.ops] == [op.kind for op in graph.ops]


def test_a_large_file_that_is_no_model_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx2nnapi.frontend.load._LARGE_FILE", 1)
    path = tmp_path / "large.onnx"
    for data in (b"\x3a", b"\x3a\xff\xff\xff\xff\x0f", bytes(range(256)), b"\xff" * 40, b"\x3a\x02\x2a\x7f"):
        path.write_bytes(data)
        with pytest.raises(InvalidModelError, match=r"large.onnx'"):
            import_model(path)
