"""A converted model: segments that a back end runs, and the ONNX interface in front of them; saved and loaded.

Segments exchange named tensors. The interface binds each ONNX input and output to one of these, to a constant, or to
another input, so that an ONNX model may do at its border what NNAPI forbids.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnx2nnapi.errors import ArtifactError, InvalidModelError
from onnx2nnapi.ir.types import Array, LazyArray, Shape
from onnx2nnapi.nnapi import artifact
from onnx2nnapi.nnapi.codes import MAX_IMMEDIATE_BYTES
from onnx2nnapi.nnapi.description import Entry, as_integer, as_list
from onnx2nnapi.nnapi.model import Model, Operand, value_to_list
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.nnapi.validation import validate

__all__ = ["PORT_DTYPES", "Port", "Program", "Segment", "carries", "check", "load"]

MAX_PORT_RANK = 4  # tensors of a higher rank change hands with neighbouring dimensions merged

# The element types of ONNX tensors that a program can take or give.
PORT_DTYPES = (
    *("float32", "float16", "float64", "bfloat16"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A part of a program that runs as one NNAPI model.

    Attributes:
        model: what runs.
        inputs, outputs: the program's tensors that its inputs and outputs are, in the order of the model's.
    """

    model: Model
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Port:
    """An input or output as the ONNX model has it, and what it is bound to.

    An input is bound to a tensor or to nothing (unused), an output to a tensor, an input or a constant.

    Attributes:
        name, dtype, shape: the ONNX tensor's; a size is a string or None where it is dynamic.
        tensor: the program's tensor.
        source: the ONNX input that an output repeats.
        constant: the value of an output that does not depend on the inputs.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    tensor: str | None = None
    source: str | None = None
    constant: Array | LazyArray | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join('?' if dim is None else str(dim) for dim in self.shape)}]"


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A converted model.

    Attributes:
        segments: what runs, in order; none where every output is bound to an input or a constant.
        inputs, outputs: the ONNX interface in the ONNX model's order.
        required_level: the NNAPI feature level that the segments need.
        metadata: strings about the conversion (``model_sha256``, ``options``); they are saved.
        sources: files that it was made from, which ``save`` does not overwrite.
    """

    segments: tuple[Segment, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    required_level: int = 1
    metadata: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()

    @property
    def model(self) -> Model:
        """The NNAPI model of a program of one segment."""
        if len(self.segments) != 1:
            raise InvalidModelError(
                f"the program has {len(self.segments)} segments, .model is that of the only one", hint="use .segments"
            )
        return self.segments[0].model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .nnapi file; constants are computed one at a time.

        Raises:
            ArtifactError: it cannot be written there.
            InvalidModelError: an external data file has changed since the conversion.
        """
        tensors = _Tensors()
        description = {
            "segments": [_segment_to_dict(segment, tensors) for segment in self.segments],
            "inputs": [_port_to_dict(port, tensors) for port in self.inputs],
            "outputs": [_port_to_dict(port, tensors) for port in self.outputs],
        }
        files = [artifact.data_file(value) for value in tensors.values.values()]
        artifact.write(
            path,
            description,
            tensors.values,
            {**self.metadata, "required_level": str(self.required_level)},
            protected=dict.fromkeys((*self.sources, *(file.path for file in files if file is not None))),
        )


def load(path: str | os.PathLike[str]) -> Program:
    """Open a .nnapi file: its constants are mapped, its description is validated.

    Raises:
        ArtifactError: it is missing, cut, malformed, or holds what NNAPI would refuse.
    """
    found = artifact.read(path)
    try:
        program = _program_from_dict(found)
        level = max((validate(segment.model) for segment in program.segments), default=1)
    except ArtifactError:
        raise
    except InvalidModelError as error:
        raise ArtifactError(str(error), where=os.fspath(path)) from None
    except RecursionError:
        raise ArtifactError("its description is nested too deeply", where=os.fspath(path)) from None
    if level != program.required_level:
        raise ArtifactError(
            f"its metadata name feature level {program.required_level}, the model needs {level}", where=os.fspath(path)
        )
    return program


def check(program: Program) -> None:
    """Hold a program to its own rules: every tensor is defined once, before it is read, and fits its port.

    Raises:
        InvalidModelError: naming the port or segment.
    """
    defined: dict[str, OperandType | None] = {}

    def define(name: str, type_: OperandType | None, where: str) -> None:
        if name in defined:
            raise InvalidModelError(f"defines tensor {name!r:.60} a second time", where=where)
        defined[name] = type_

    if len({port.name for port in program.inputs}) != len(program.inputs):
        raise InvalidModelError("two inputs have the same name", where="inputs")
    given = {port.tensor: port for port in program.inputs if port.tensor is not None}
    for port in program.inputs:
        if port.source is not None or port.constant is not None:
            raise InvalidModelError("is bound as only outputs are", where=f"input {port.name!r:.60}")
        if port.tensor is not None:
            define(port.tensor, None, f"input {port.name!r:.60}")
    for index, segment in enumerate(program.segments):
        where, main = f"segments[{index}]", segment.model.main
        if len(segment.inputs) != len(main.inputs) or len(segment.outputs) != len(main.outputs):
            raise InvalidModelError("names more or fewer tensors than its model has", where=where)
        for name, type_ in zip(segment.inputs, main.input_types(), strict=True):
            if name not in defined:
                raise InvalidModelError(f"reads tensor {name!r:.60}, which nothing defines", where=where)
            if name in given and not carries(given[name], type_):
                raise InvalidModelError(f"input {given[name]} does not fit operand {type_}", where=where)
        for name, type_ in zip(segment.outputs, main.output_types(), strict=True):
            define(name, type_, where)
    inputs = {port.name: port for port in program.inputs}
    for port in program.outputs:
        where = f"output {port.name!r:.60}"
        if port.tensor is not None:
            found = defined.get(port.tensor)
            if found is None or not carries(port, found):
                raise InvalidModelError(f"{port} does not fit tensor {port.tensor!r:.60}", where=where)
        elif port.source is not None and port.source not in inputs:
            raise InvalidModelError(f"repeats {port.source!r:.60}, which is no input", where=where)
        elif port.source is not None and not _repeats(port, inputs[port.source]):
            raise InvalidModelError(f"repeats {inputs[port.source]}, but is {port}", where=where)
        elif port.source is None and port.constant is None:
            raise InvalidModelError("is bound to nothing", where=where)


def _repeats(port: Port, source: Port) -> bool:
    """Whether an output can repeat an input: as many elements, or the same sizes where these are dynamic."""
    sizes = [[dim for dim in end.shape if isinstance(dim, int)] for end in (port, source)]
    if any(len(known) < len(end.shape) for known, end in zip(sizes, (port, source), strict=True)):
        return port.shape == source.shape
    return math.prod(sizes[0]) == math.prod(sizes[1])


def carries(port: Port, type_: OperandType) -> bool:
    """Whether an operand can hold a port's tensor: the same kind of numbers, the same sizes.

    Rank 0 is [1], and a rank beyond NNAPI's 4 any shape of as many elements.
    """
    kinds = {"bfloat16": "f"}
    kind = kinds.get(port.dtype) or np.dtype(port.dtype).kind
    if kind.replace("u", "i") != type_.dtype.kind.replace("u", "i"):
        return False
    if not type_.code.is_tensor:
        return port.shape in ((), (1,))
    shape = port.shape or (1,)
    if len(shape) > MAX_PORT_RANK and all(isinstance(dim, int) for dim in shape):
        return not type_.shape or math.prod(dim for dim in shape if isinstance(dim, int)) == type_.size
    return not type_.shape or (
        len(shape) == len(type_.shape)
        and all(
            size == 0 or not isinstance(dim, int) or dim == size for dim, size in zip(shape, type_.shape, strict=True)
        )
    )


# -- writing -----------------------------------------------------------------------------------------------------------


class _Tensors:
    """The constants that the file holds as tensors: those that NNAPI would not copy, each once."""

    def __init__(self) -> None:
        self.values: dict[str, Array | LazyArray] = {}
        self._names: dict[int, str] = {}

    def add(self, value: Array | LazyArray | None, stem: str) -> str | None:
        """The name of the tensor that holds ``value``; None where the description does."""
        if value is None or value.nbytes <= MAX_IMMEDIATE_BYTES:
            return None
        if id(value) not in self._names:
            if stem.startswith(artifact.PADDING) or stem in (artifact.DESCRIPTION, "__metadata__"):
                stem = f"constant {stem}"
            name, count = stem, 1
            while name in self.values:
                name, count = f"{stem}.{count}", count + 1
            self._names[id(value)] = name
            self.values[name] = value
        return self._names[id(value)]

    def of_operand(self, operand: Operand) -> str | None:
        return self.add(operand.value, operand.name or "constant")


def _segment_to_dict(segment: Segment, tensors: _Tensors) -> dict[str, Any]:
    return {
        "kind": "nnapi",
        "inputs": list(segment.inputs),
        "outputs": list(segment.outputs),
        "model": segment.model.to_dict(tensors=tensors.of_operand),
    }


def _port_to_dict(port: Port, tensors: _Tensors) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": port.name, "dtype": port.dtype, "shape": list(port.shape)}
    if port.tensor is not None:
        return entry | {"binding": "tensor", "tensor": port.tensor}
    if port.source is not None:
        return entry | {"binding": "input", "input": port.source}
    if port.constant is None:
        return entry | {"binding": "unused"}
    stored = tensors.add(port.constant, port.name)
    if stored is not None:
        return entry | {"binding": "constant", "tensor": stored}
    array = port.constant.numpy() if isinstance(port.constant, LazyArray) else port.constant
    return entry | {"binding": "constant", "value": value_to_list(array)}


# -- reading -----------------------------------------------------------------------------------------------------------


def _program_from_dict(found: artifact.Artifact) -> Program:
    entry = Entry(found.description, "program")
    segments = []
    for index, item in enumerate(as_list(entry["segments"], "segments")):
        part = Entry(item, f"segments[{index}]")
        if part.text("kind") != "nnapi":
            raise InvalidModelError(f"its kind {part.text('kind')!r:.40} is unknown", where=part.where)
        model = Model.from_dict(part["model"], tensors=found.tensors)
        segments.append(Segment(model, _names(part, "inputs"), _names(part, "outputs")))
    inputs = tuple(_port_from_dict(Entry(item, f"inputs[{i}]"), found) for i, item in _items(entry, "inputs"))
    outputs = tuple(_port_from_dict(Entry(item, f"outputs[{i}]"), found) for i, item in _items(entry, "outputs"))
    level = found.metadata.get("required_level", "")
    if not level.isascii() or not level.isdigit() or len(level) > 2:
        raise InvalidModelError(f"its required level {level!r:.20} is no number", where="metadata")
    program = Program(tuple(segments), inputs, outputs, int(level), found.metadata)
    check(program)
    return program


def _items(entry: Entry, key: str) -> enumerate[Any]:
    return enumerate(as_list(entry[key], key))


def _names(entry: Entry, key: str) -> tuple[str, ...]:
    return tuple(
        Entry({"name": name}, f"{entry.where}.{key}").text("name") for name in as_list(entry[key], entry.where)
    )


def _port_from_dict(entry: Entry, found: artifact.Artifact) -> Port:
    name, dtype = entry.text("name"), entry.text("dtype")
    if dtype not in PORT_DTYPES:
        raise InvalidModelError(f"element type {dtype!r:.20} is unknown", where=entry.where)
    shape = tuple(
        dim if dim is None or isinstance(dim, str) else as_integer(dim, 0, 2**63 - 1, f"{entry.where}.shape")
        for dim in as_list(entry["shape"], f"{entry.where}.shape")
    )
    kind = entry.text("binding")
    if kind == "unused":
        return Port(name, dtype, shape)
    if kind == "tensor":
        return Port(name, dtype, shape, tensor=entry.text("tensor"))
    if kind == "input":
        return Port(name, dtype, shape, source=entry.text("input"))
    if kind != "constant":
        raise InvalidModelError(f"binding {kind!r:.40} is unknown", where=entry.where)
    return Port(name, dtype, shape, constant=_constant(entry, np.dtype(_plain_dtype(dtype)), shape, found))


def _plain_dtype(dtype: str) -> str:
    """Numpy's own type that carries a port's constant: bfloat16, which numpy lacks, travels as float32."""
    return "float32" if dtype == "bfloat16" else dtype


def _constant(
    entry: Entry, dtype: np.dtype[Any], shape: tuple[int | str | None, ...], found: artifact.Artifact
) -> Array | LazyArray:
    sizes: Shape = tuple(dim for dim in shape if isinstance(dim, int))
    if len(sizes) != len(shape):
        raise InvalidModelError("a constant has no dynamic sizes", where=entry.where)
    if "tensor" in entry.data:
        tensor = found.tensors.get(entry.text("tensor"))
        if tensor is None or tensor.dtype != dtype or tensor.shape != sizes:
            raise InvalidModelError("its tensor is missing, or of another type or shape", where=entry.where)
        return tensor
    items = as_list(entry["value"], f"{entry.where}.value")
    try:
        array = np.asarray(items, dtype=None if dtype.kind in "iu" and items else np.float64)
        exact = array.astype(dtype)
        same = dtype.kind not in "iub" or bool(np.array_equal(exact, array))
        if same and array.ndim == 1 and array.dtype.kind in "iuf":
            return exact.reshape(sizes)
    except (ValueError, TypeError, OverflowError):
        same = False
    raise InvalidModelError(f"its value is no {dtype} of shape {list(sizes)}", where=entry.where)
