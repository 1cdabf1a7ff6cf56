"""Initializers and tensor attributes as lazy constants; external data as ranges of files inside the model's folder."""

from __future__ import annotations

import functools
import math
import os
import pathlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnx2nnapi.errors import InvalidModelError, UnsupportedForm
from onnx2nnapi.frontend.embedded import EMBEDDED
from onnx2nnapi.ir.sources import DataFile, FileSource
from onnx2nnapi.ir.types import Array, LazyArray, Shape

__all__ = ["TensorReader", "elem_type", "numpy_dtype"]

# Types of which several elements share a byte, in raw and in external data: bits by element.
_PACKED = {
    name: bits
    for name, bits in {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}.items()
    if hasattr(TensorProto, name)
}
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


@functools.lru_cache(maxsize=64)
def _dtypes(code: int) -> np.dtype[Any] | None:
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code))
    except KeyError:
        return None


def numpy_dtype(code: int, where: str) -> np.dtype[Any]:
    """The numpy (or ml_dtypes) type of ``TensorProto.DataType`` ``code``; strings are objects.

    Raises:
        InvalidModelError: ONNX has no such type. UnsupportedForm: numpy has none.
    """
    found = _dtypes(code)
    if found is not None:
        return found
    if code == TensorProto.UNDEFINED or code not in TensorProto.DataType.values():
        raise InvalidModelError(f"it has no element type that ONNX knows ({code})", where=where)
    raise UnsupportedForm(f"elements of type {TensorProto.DataType.Name(code)}", where=where)


@functools.lru_cache(maxsize=64)
def elem_type(dtype: np.dtype[Any]) -> int:
    """``TensorProto.DataType`` of a numpy type."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(dtype))


@dataclass(frozen=True, slots=True, eq=False)
class _ProtoSource:
    """A constant inside a TensorProto, decoded when it is read."""

    tensor: TensorProto
    dtype: np.dtype[Any]
    shape: Shape

    def read(self) -> Array:
        if self.tensor.HasField("raw_data") and TensorProto.DataType.Name(self.tensor.data_type) not in _PACKED:
            little = self.dtype.newbyteorder("<") if self.dtype.kind in "fiuc" else self.dtype
            return np.frombuffer(self.tensor.raw_data, little).reshape(self.shape)
        return np.asarray(numpy_helper.to_array(self.tensor)).astype(self.dtype, copy=False).reshape(self.shape)


@dataclass
class TensorReader:
    """Turns TensorProtos into lazy constants.

    Attributes:
        folder: of the model; external data is looked for there and nowhere else. None: there is no folder.
        keep: whether the protos stay as they are (read from a file); else constants copy what they need.
        model_file: the model's own file, where weights were left in it.
    """

    folder: pathlib.Path | None
    keep: bool = True
    model_file: DataFile | None = None
    _files: dict[str, DataFile] = field(default_factory=dict)

    def constant(self, tensor: TensorProto, where: str) -> LazyArray:
        """A tensor as a lazy constant.

        Raises:
            InvalidModelError: its data is missing, short, outside the model's folder, or of no known type.
        """
        dtype, shape = numpy_dtype(tensor.data_type, where), _shape(tensor.dims, where)
        if tensor.HasField("segment"):
            raise InvalidModelError("it is stored in segments, which no ONNX tool writes", where=where)
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external(tensor, dtype, shape, where)
        _check_stored(tensor, dtype, shape, where)
        source = _ProtoSource(tensor, dtype, shape)
        return LazyArray.of(source if self.keep else source.read())

    def sparse(self, tensor: onnx.SparseTensorProto, where: str) -> LazyArray:
        """A sparse tensor as the dense constant that it stands for."""
        shape = _shape(tensor.dims, where)
        values = self.constant(tensor.values, where).numpy()
        indices = self.constant(tensor.indices, where).numpy()
        size = math.prod(shape)
        if values.ndim != 1 or indices.dtype != np.int64:
            raise InvalidModelError("its values must be a list and its indices int64", where=where)
        if indices.shape == (len(values), len(shape)) and indices.ndim == 2:
            limits = np.asarray(shape, np.int64)
            inside = bool(((indices >= 0) & (indices < limits)).all())
            flat = np.ravel_multi_index(tuple(indices.T), shape) if inside and size else np.zeros(0, np.int64)
        elif indices.shape == values.shape:
            inside, flat = bool(((indices >= 0) & (indices < size)).all()), indices
        else:
            raise InvalidModelError(
                f"{len(values)} values need as many indices, there are {list(indices.shape)}", where=where
            )
        if not inside:
            raise InvalidModelError(f"an index lies outside its shape {list(shape)}", where=where)
        dense = np.zeros(size, values.dtype)
        dense[flat] = values
        return LazyArray.of(dense.reshape(shape))

    # -- external data -----------------------------------------------------------------------------------------------

    def _external(self, tensor: TensorProto, dtype: np.dtype[Any], shape: Shape, where: str) -> LazyArray:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if not location:
            raise InvalidModelError("its external data names no file", where=where)
        file = self._file(location, where)
        bits = _PACKED.get(TensorProto.DataType.Name(tensor.data_type))
        needed = math.prod(shape) * dtype.itemsize if bits is None else -(-math.prod(shape) * bits // 8)
        offset = _number(entries, "offset", 0, where)
        length = _number(entries, "length", file.size - offset if "length" not in entries else 0, where)
        if length != needed and ("length" in entries or length < needed):
            raise InvalidModelError(
                f"{dtype.name}{list(shape)} takes {needed} bytes, its external data in {location!r} has {length}",
                where=where,
            )
        if dtype.kind == "O":
            raise InvalidModelError("strings cannot be external data", where=where)
        if offset + needed > file.size:
            raise InvalidModelError(
                f"it needs the bytes {offset} to {offset + needed} of {location!r}, which has {file.size}", where=where
            )
        if bits is None:
            return LazyArray.of(FileSource(file, offset, dtype, shape))
        packed = LazyArray.of(FileSource(file, offset, np.dtype(np.uint8), (needed,)))
        return packed.then(
            f"unpack[{dtype.name}]", lambda data: _unpack(data, tensor.data_type, shape), dtype=dtype, shape=shape
        )

    def _file(self, location: str, where: str) -> DataFile:
        if location == EMBEDDED and self.model_file is not None:
            return self.model_file
        if location in self._files:
            return self._files[location]
        if self.folder is None:
            raise InvalidModelError(
                f"its data is in the file {location!r}, and the model has no folder", where=where, hint="give base_dir"
            )
        spelled = pathlib.PurePosixPath(location.replace("\\", "/"))
        windows = pathlib.PureWindowsPath(location)
        folder = self.folder.resolve()
        target = (folder / spelled).resolve() if "\0" not in location else folder
        if spelled.is_absolute() or windows.drive or ".." in spelled.parts or folder not in target.parents:
            raise InvalidModelError(
                f"its external data file {location!r} is outside the model's folder",
                where=where,
                hint="keep data files beside the model, by a relative path without '..' or links that leave the folder",
            )
        if not os.path.lexists(target):
            raise InvalidModelError(f"its external data file {location!r} is missing", where=where)
        file = self._files[location] = DataFile.open(target, location)
        return file


def _shape(dims: Any, where: str) -> Shape:
    shape = tuple(int(dim) for dim in dims)
    if any(dim < 0 for dim in shape):
        raise InvalidModelError(f"its shape {list(shape)} has a negative size", where=where)
    return shape


def _number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key)
    if text is None or text == "":
        return default
    if not text.isascii() or not text.isdigit():
        raise InvalidModelError(f"the {key} of its external data is {text!r}, no number", where=where)
    return int(text)


def _check_stored(tensor: TensorProto, dtype: np.dtype[Any], shape: Shape, where: str) -> None:
    """Refuse a tensor whose data is not as long as its shape says."""
    count, name = math.prod(shape), TensorProto.DataType.Name(tensor.data_type)
    bits = _PACKED.get(name, dtype.itemsize * 8)
    if tensor.HasField("raw_data"):
        wanted, found, unit = -(-count * bits // 8), len(tensor.raw_data), "bytes"
        if dtype.kind == "O":
            raise InvalidModelError("strings cannot be raw data", where=where)
    else:
        own = onnx.helper.tensor_dtype_to_field(tensor.data_type)
        wanted = -(-count * bits // 8) if name in _PACKED else count * (2 if dtype.kind == "c" else 1)
        found, unit = len(getattr(tensor, own)), own
        used = [field for field in _FIELDS if field != own and len(getattr(tensor, field))]
        if used and count:
            raise InvalidModelError(f"{name} elements are stored in {used[0]}, not in {own}", where=where)
    if wanted != found:
        raise InvalidModelError(
            f"{name}{list(shape)} takes {wanted} {unit}, its data has {found}", where=where, hint="the file is damaged"
        )


def _unpack(data: Array, code: int, shape: Shape) -> Array:
    tensor = TensorProto(data_type=code, dims=shape, raw_data=data.tobytes())
    return np.asarray(numpy_helper.to_array(tensor))
