"""The .nnapi file: a safetensors file whose tensor ``program.json`` describes the program that uses the others.

Reader and writer are our own, because the file is mapped and streamed: opening one takes neither time nor memory that
grows with the weights, and writing one holds a single constant in memory. docs/format.md describes the format.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import mmap
import os
import stat
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from onnx2nnapi.errors import ArtifactError, InternalError
from onnx2nnapi.ir.sources import DataFile, FileSource
from onnx2nnapi.ir.types import Array, LazyArray, Shape

__all__ = [
    "ALIGNMENT",
    "DESCRIPTION",
    "FORMAT_VERSION",
    "Artifact",
    "MappedFile",
    "MappedSource",
    "read",
    "replacing",
    "write",
]

FORMAT_VERSION = 1
FORMAT = "onnx2nnapi"
ALIGNMENT = 64  # of every tensor, from the start of the file: a cache line, and any vector load
DESCRIPTION = "program.json"
PADDING = ".pad."
MAX_HEADER_BYTES = 1 << 24
MAX_DESCRIPTION_BYTES = 1 << 28
_LENGTH_BYTES = 8
_CHUNK = 1 << 24
_PANEL = 8  # rows of a transposed matrix that are copied together
_FAR = 1 << 18  # bytes, of the order of a second cache

_NAMES = {
    "float32": "F32",
    "float16": "F16",
    "float64": "F64",
    "int64": "I64",
    "int32": "I32",
    "uint64": "U64",
    "uint32": "U32",
    "int16": "I16",
    "uint16": "U16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
_DTYPES = {name: np.dtype(dtype) for dtype, name in _NAMES.items()}


# -- reading -----------------------------------------------------------------------------------------------------------


class MappedFile(mmap.mmap):
    """A file that is open and mapped for reading, for as long as an array over it is referred to."""

    path: str
    _descriptor: int

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> MappedFile:
        """Open and map a file.

        Raises:
            ArtifactError: it is missing, empty or no regular file.
        """
        name = os.fspath(path)
        try:
            descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
        except (OSError, ValueError) as error:
            raise ArtifactError(f"cannot be opened: {_reason(error)}", where=name) from None
        status = os.fstat(descriptor)
        problem = "is no regular file" if not stat.S_ISREG(status.st_mode) else "is empty" if not status.st_size else ""
        try:
            file = None if problem else cls(descriptor, 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            problem, file = f"cannot be mapped: {_reason(error)}", None
        if file is None:
            os.close(descriptor)
            raise ArtifactError(problem, where=name)
        file.path, file._descriptor = name, descriptor
        weakref.finalize(file, os.close, descriptor)
        return file

    def fileno(self) -> int:
        """The descriptor of the open file, which ANeuralNetworksMemory_createFromFd takes."""
        return self._descriptor


@dataclass(frozen=True, slots=True, eq=False)
class MappedSource:
    """A constant that is a tensor of a mapped .nnapi file, ``offset`` bytes from the file's start."""

    file: MappedFile
    offset: int
    dtype: np.dtype[Any]
    shape: Shape

    def read(self) -> Array:
        return np.frombuffer(self.file, self.dtype, math.prod(self.shape), self.offset).reshape(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """What a .nnapi file holds: its metadata, the description of the program, and its constants by name."""

    metadata: Mapping[str, str]
    description: Mapping[str, Any]
    tensors: Mapping[str, LazyArray]


def read(path: str | os.PathLike[str]) -> Artifact:
    """Map a .nnapi file; its form is checked here, what its description says by whoever asked.

    Raises:
        ArtifactError: no such file, cut, of another format or version, or malformed.
    """
    file = MappedFile.open(path)
    header, start = _read_header(file)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ArtifactError("its metadata are no strings", where=file.path)
    if metadata.get("format") != FORMAT:
        raise ArtifactError(
            "is a safetensors file that onnx2nnapi did not write", where=file.path, hint="convert an .onnx file first"
        )
    if metadata.get("format_version") != str(FORMAT_VERSION):
        raise ArtifactError(
            f"has format version {metadata.get('format_version')!r:.20}, this release reads {FORMAT_VERSION}",
            where=file.path,
            hint="convert the model again, or use the release that wrote the file",
        )
    tensors: dict[str, LazyArray] = {}
    end = 0
    for name, dtype, shape, begin, stop in sorted(_entries(header, file), key=lambda entry: entry[3:]):
        if begin != end or stop != begin + math.prod(shape) * dtype.itemsize or start + stop > len(file):
            raise ArtifactError(f"tensor {name!r:.60} lies outside its place", where=file.path, hint="is the file cut?")
        end = stop
        if name.startswith(PADDING):
            continue
        if (start + begin) % dtype.itemsize:
            raise ArtifactError(f"tensor {name!r:.60} is not aligned", where=file.path)
        tensors[name] = LazyArray.of(MappedSource(file, start + begin, dtype, shape))
    if start + end != len(file):
        raise ArtifactError(f"has {len(file)} bytes, its tensors end at {start + end}", where=file.path)
    return Artifact(metadata, _read_description(file, tensors), tensors)


def _read_header(file: MappedFile) -> tuple[dict[str, Any], int]:
    """The header and the file offset at which the tensors start."""
    length = int.from_bytes(file[:_LENGTH_BYTES], "little")
    if len(file) < _LENGTH_BYTES + 2 or not 2 <= length <= len(file) - _LENGTH_BYTES or length > MAX_HEADER_BYTES:
        raise ArtifactError("is no .nnapi file, or is cut", where=file.path)
    raw = file[_LENGTH_BYTES : _LENGTH_BYTES + length]
    header = _parse(raw, file, "header")
    if raw[:1] != b"{" or not isinstance(header, dict):
        raise ArtifactError("is no .nnapi file: its header is no JSON object", where=file.path)
    return header, _LENGTH_BYTES + length


def _entries(header: Mapping[str, Any], file: MappedFile) -> Iterator[tuple[str, np.dtype[Any], Shape, int, int]]:
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ArtifactError(f"tensor {name!r:.60} is not described as safetensors does", where=file.path)
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise ArtifactError(f"tensor {name!r:.60} has the unknown type {dtype!r:.20}", where=file.path)
        if not _are_sizes(shape, len(file)) or not _are_sizes(offsets, len(file)) or len(offsets) != 2:
            raise ArtifactError(f"tensor {name!r:.60} has impossible sizes", where=file.path)
        if len(shape) > 64:
            raise ArtifactError(f"tensor {name!r:.60} has {len(shape)} dimensions", where=file.path)
        yield name, _DTYPES[dtype], tuple(shape), offsets[0], offsets[1]


def _are_sizes(items: object, limit: int) -> bool:
    return isinstance(items, list) and all(type(item) is int and 0 <= item <= limit for item in items)


def _read_description(file: MappedFile, tensors: dict[str, LazyArray]) -> dict[str, Any]:
    tensor = tensors.pop(DESCRIPTION, None)
    if tensor is None or tensor.dtype != np.uint8 or tensor.nbytes > MAX_DESCRIPTION_BYTES:
        raise ArtifactError(f"has no tensor {DESCRIPTION!r} that describes the program", where=file.path)
    description = _parse(tensor.numpy().tobytes(), file, DESCRIPTION)
    if not isinstance(description, dict):
        raise ArtifactError(f"{DESCRIPTION} is no object", where=file.path)
    return description


def _parse(raw: bytes, file: MappedFile, what: str) -> Any:
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique if what == "header" else None, parse_constant=_no_constant)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # half a surrogate pair could not be printed
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"its {what} is no valid JSON ({error!s:.100})", where=file.path) from None
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# -- writing -----------------------------------------------------------------------------------------------------------


def write(
    path: str | os.PathLike[str],
    description: Mapping[str, Any],
    tensors: Mapping[str, Array | LazyArray],
    metadata: Mapping[str, str],
    *,
    protected: Iterable[str] = (),
) -> None:
    """Write a .nnapi file, beside its place first; the same arguments give the same bytes.

    Args:
        path: where to.
        description: the JSON object that becomes ``program.json``.
        tensors: the constants by name, in the order of the file. Lazy ones are computed one at a time.
        metadata: strings, beside the format's own.
        protected: files that must not be overwritten: those that the program was made from.

    Raises:
        ArtifactError: the file cannot be written, or is protected.
        InvalidModelError: a constant's source file has changed.
    """
    target = os.path.realpath(path)
    for source in protected:
        with contextlib.suppress(OSError):
            if os.path.samefile(source, target):
                raise ArtifactError(
                    "is a file that the model is read from", where=os.fspath(path), hint="choose another name"
                )
    raw = json.dumps(description, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    if len(raw) > MAX_DESCRIPTION_BYTES:
        raise ArtifactError(f"the description has {len(raw)} bytes, more than a file holds", where=os.fspath(path))
    header = _header(raw, tensors, metadata)
    with replacing(target, os.fspath(path)) as file:
        file.write(header)
        file.write(raw)
        position, space = len(header) + len(raw), _Space()
        for name, tensor in tensors.items():
            gap = -position % ALIGNMENT
            file.write(bytes(gap))
            _stream(file, name, tensor, space)
            position += gap + tensor.nbytes


def _header(raw: bytes, tensors: Mapping[str, Array | LazyArray], metadata: Mapping[str, str]) -> bytes:
    """Length and header, padded so that the tensors start at a multiple of the alignment."""
    entries: dict[str, Any] = {
        "__metadata__": {"format": FORMAT, "format_version": str(FORMAT_VERSION), **metadata},
        DESCRIPTION: {"dtype": "U8", "shape": [len(raw)], "data_offsets": [0, len(raw)]},
    }
    position, gaps = len(raw), 0
    for name, tensor in tensors.items():
        if name == DESCRIPTION or name == "__metadata__" or name.startswith(PADDING):
            raise InternalError(f"{name!r} cannot name a constant of a .nnapi file")
        if gap := -position % ALIGNMENT:
            entries[f"{PADDING}{gaps}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [position, position + gap]}
            gaps, position = gaps + 1, position + gap
        entries[name] = {
            "dtype": _NAMES[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [position, position + tensor.nbytes],
        }
        position += tensor.nbytes
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % ALIGNMENT)
    if len(text) > MAX_HEADER_BYTES:
        raise ArtifactError(f"{len(tensors)} constants are more than the header of a .nnapi file holds")
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def _stream(file: BinaryIO, name: str, tensor: Array | LazyArray, space: _Space) -> None:
    if isinstance(tensor, LazyArray) and tensor.is_verbatim and isinstance(tensor.source, FileSource):
        tensor.source.copy_to(file)
        return
    array = tensor.numpy() if isinstance(tensor, LazyArray) else tensor
    if array.dtype != tensor.dtype or array.shape != tuple(tensor.shape):
        raise InternalError(
            f"constant {name!r} came out as {array.dtype}{list(array.shape)}, not {tensor.dtype}{list(tensor.shape)}"
        )
    flat = space.contiguous(array).reshape(-1).view(np.uint8)
    for start in range(0, flat.size, _CHUNK):
        file.write(flat[start : start + _CHUNK].data)


class _Space:
    """Memory in which one constant after another is put in order; pages that are there already cost nothing."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def contiguous(self, array: Array) -> Array:
        """``array`` in C order, until the next call."""
        if array.flags.c_contiguous:
            return array
        if self._bytes.size < array.nbytes:
            self._bytes = np.empty(array.nbytes, np.uint8)
        ordered: Array = self._bytes[: array.nbytes].view(array.dtype).reshape(array.shape)
        width = array.shape[-1]
        # By panels of the source's rows where they lie far apart: else each element misses the cache.
        panel = _PANEL if width * abs(array.strides[-1]) > _FAR else max(width, 1)
        for start in range(0, width, panel):
            np.copyto(ordered[..., start : start + panel], array[..., start : start + panel])
        return ordered


@contextlib.contextmanager
def replacing(target: str, shown: str) -> Iterator[BinaryIO]:
    """A new file beside ``target`` that takes its place when the block ends, and vanishes when it fails.

    Raises:
        ArtifactError: it cannot be written, or is a folder or a device; the message calls it ``shown``.
    """
    if os.path.exists(target) and not os.path.isfile(target):
        raise ArtifactError("is there and no regular file", where=shown, hint="name a file to write")
    beside = os.path.join(os.path.dirname(target), f".{os.path.basename(target)[:100]}.{os.getpid()}.tmp")
    created = False
    try:
        with open(beside, "xb") as file:
            created = True
            yield file
        os.replace(beside, target)
        created = False
    except OSError as error:
        hint = "free some space or choose another place" if error.errno == errno.ENOSPC else None
        raise ArtifactError(f"cannot be written: {_reason(error)}", where=shown, hint=hint) from None
    finally:
        if created:
            with contextlib.suppress(OSError):
                os.unlink(beside)


def data_file(tensor: Array | LazyArray) -> DataFile | None:
    """The external file that a constant is read from."""
    source = tensor.source if isinstance(tensor, LazyArray) else None
    return source.file if isinstance(source, FileSource) else None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
