"""Reading a model: a path, bytes or a ModelProto; what is no ONNX model, or newer than onnx itself, is refused."""

from __future__ import annotations

import mmap
import os
import pathlib
from dataclasses import dataclass

import onnx
import onnx.version_converter
from google.protobuf.message import DecodeError
from onnx import FunctionProto, ModelProto

from onnx2nnapi.errors import InvalidModelError, UnsupportedError
from onnx2nnapi.frontend.embedded import without_weights
from onnx2nnapi.frontend.encoding import check_encoding
from onnx2nnapi.frontend.operators import OLDEST_OPSET, default_opset
from onnx2nnapi.frontend.tensors import TensorReader
from onnx2nnapi.ir.sources import DataFile

__all__ = ["LoadedModel", "load_model"]

_LARGE_FILE = 1 << 24  # bytes from which a model's weights are not read with it


@dataclass(frozen=True)
class LoadedModel:
    """A model and where its tensors are.

    Attributes:
        proto: the model; nothing here writes to it.
        reader: makes constants of its tensors.
        opset: versions by domain ("" is ONNX's own).
        functions: model-local functions by domain, name and overload.
        label: for messages.
    """

    proto: ModelProto
    reader: TensorReader
    opset: dict[str, int]
    functions: dict[tuple[str, str, str], FunctionProto]
    label: str


def load_model(
    model: str | os.PathLike[str] | bytes | bytearray | memoryview | ModelProto,
    base_dir: str | os.PathLike[str] | None = None,
) -> LoadedModel:
    """Read a model without its external data.

    Args:
        model: path of a .onnx file, its content, or a ModelProto.
        base_dir: folder of external data, where the model is no path.

    Raises:
        InvalidModelError: it cannot be read, is no ONNX model, or of a version that onnx doesn't know.
        UnsupportedError: its opset is older than 7, and onnx cannot upgrade it.
    """
    folder = None if base_dir is None else pathlib.Path(base_dir)
    file: DataFile | None = None
    if isinstance(model, ModelProto):
        proto, label, own = model, "the model", False
    elif isinstance(model, (bytes, bytearray, memoryview)):
        label, own = "the model", True
        proto = _parse(bytes(model), label)
    elif isinstance(model, (str, os.PathLike)):
        path = pathlib.Path(model)
        label, own = f"model {os.fspath(model)!r}", True
        proto, file = _read(path, label)
        folder = path.parent if folder is None else folder
    else:
        raise InvalidModelError(f"a model is a path, bytes or a ModelProto, not {type(model).__name__}")
    check_encoding(proto, label)
    opset = _opset(proto, label)
    if opset.get("", OLDEST_OPSET) < OLDEST_OPSET:
        proto = _upgraded(proto, opset[""], label, whole=file is None)
        opset = _opset(proto, label)
    reader = TensorReader(folder, keep=own, model_file=file)
    return LoadedModel(proto, reader, opset, _functions(proto, label), label)


def _upgraded(proto: ModelProto, version: int, label: str, *, whole: bool) -> ModelProto:
    """A model of an opset that has no newest form here, brought to one that has by onnx's own converter."""
    reason = "" if whole else ": it is too large to be upgraded"
    if whole:
        try:
            onnx.checker.check_model(proto)
            upgraded: ModelProto = onnx.version_converter.convert_version(proto, OLDEST_OPSET)
            return upgraded
        except (onnx.checker.ValidationError, onnx.version_converter.ConvertError, RuntimeError, ValueError) as error:
            reason = f", and onnx cannot upgrade it: {str(error).splitlines()[0][:200]}" if str(error) else ""
    raise UnsupportedError(
        f"its opset is {version}, the oldest that is read is {OLDEST_OPSET}{reason}",
        where=label,
        hint="export it again with a newer opset",
    )


def _read(path: pathlib.Path, label: str) -> tuple[ModelProto, DataFile | None]:
    """A model from its file; of a large file the weights stay there, and its state is told."""
    try:
        if path.stat().st_size >= _LARGE_FILE:
            state = DataFile.open(path)
            with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                light = without_weights(mapped)
            if light is not None:
                return _parse(light, label), state
        return _parse(path.read_bytes(), label), None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidModelError(f"cannot be read: {reason}", where=label) from None


def _parse(data: bytes, label: str) -> ModelProto:
    if not data:
        raise InvalidModelError("it is empty", where=label)
    try:
        proto: ModelProto = ModelProto.FromString(data)
        return proto
    except DecodeError:
        raise InvalidModelError(
            "it is no ONNX model, or a damaged one: its protobuf cannot be decoded", where=label
        ) from None


def _opset(proto: ModelProto, label: str) -> dict[str, int]:
    if not proto.HasField("graph") or not (proto.ir_version or proto.opset_import):
        raise InvalidModelError("it is no ONNX model: it holds no graph", where=label)
    if proto.ir_version > onnx.IR_VERSION or proto.ir_version < 1:
        raise InvalidModelError(
            f"its IR version is {proto.ir_version}, the installed onnx {onnx.__version__} knows 1 to {onnx.IR_VERSION}",
            where=label,
            hint="upgrade the onnx package" if proto.ir_version > 0 else "export the model again",
        )
    opset: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if opset.setdefault(domain, entry.version) != entry.version:
            raise InvalidModelError(f"it imports two versions of the opset {domain or 'ai.onnx'!r}", where=label)
    if not opset and proto.ir_version < 3:
        opset[""] = 1
    version = opset.get("", default_opset() if opset else 0)
    if not 1 <= version <= default_opset():
        raise InvalidModelError(
            f"its opset is {version}, the installed onnx {onnx.__version__} knows 1 to {default_opset()}",
            where=label,
            hint="upgrade the onnx package" if version > 0 else "export the model again",
        )
    return opset


def _functions(proto: ModelProto, label: str) -> dict[tuple[str, str, str], FunctionProto]:
    functions: dict[tuple[str, str, str], FunctionProto] = {}
    for function in proto.functions:
        domain = "" if function.domain == "ai.onnx" else function.domain
        key = (domain, function.name, getattr(function, "overload", ""))
        if key in functions:
            raise InvalidModelError(f"the function {domain}::{function.name} is defined twice", where=label)
        functions[key] = function
    return functions
