"""Builds an ANeuralNetworksModel from an nnapi.Model: constants stay where they are, in the artifact's mapped file."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator

import numpy as np

from onnx2nnapi.errors import DeviceError, InvalidModelError
from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.codes import MAX_IMMEDIATE_BYTES, ResultCode
from onnx2nnapi.nnapi.model import Lifetime, Model, Operand, Subgraph
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime import bindings
from onnx2nnapi.runtime.bindings import SymmPerChannelQuantParams, uint32_array
from onnx2nnapi.runtime.handles import Handle
from onnx2nnapi.runtime.library import Library
from onnx2nnapi.runtime.memory import FileRange, Memory, anonymous_file, file_behind

__all__ = ["BuiltModel", "build_model", "operand_type", "uses_files"]

_WINDOW = 1 << 31  # runtimes keep offsets into a memory in 32 bits, so that a larger file is mapped in windows
_ALIGNMENT = 64


class BuiltModel(Handle):
    """A finished ANeuralNetworksModel.

    Attributes:
        notes: what was not done the straight way, for people.
    """

    __slots__ = ("notes",)

    def __init__(
        self, library: Library, pointer: int, needs: tuple[Handle, ...], keep: list[Array], notes: tuple[str, ...]
    ) -> None:
        super().__init__(library, "ANeuralNetworksModel_free", pointer, needs, keep)
        self.notes = notes


def operand_type(type_: OperandType, shape: tuple[int, ...] | None = None) -> bindings.OperandType:
    """NNAPI's struct for an operand's type, with other sizes where ``shape`` says so."""
    sizes = type_.shape if shape is None else shape
    dimensions = ctypes.cast(uint32_array(sizes), ctypes.POINTER(ctypes.c_uint32)) if sizes else None
    return bindings.OperandType(int(type_.code), len(sizes), dimensions, type_.scale, type_.zero_point)


def uses_files(model: Model) -> bool:
    """Whether some constant lies in a mapped file, so that a driver may be asked to map it."""
    return any(file_behind(array) is not None for array in _large_constants(model))


def _large_constants(model: Model) -> Iterator[Array]:
    for graph in model.graphs:
        for operand in graph.operands:
            if operand.lifetime is Lifetime.CONSTANT:
                array = operand.array()
                if array.nbytes > MAX_IMMEDIATE_BYTES:
                    yield array


def build_model(library: Library, model: Model, *, map_files: bool = True) -> BuiltModel:
    """Build and finish ``model`` and its sub-models.

    Constants of at most 128 bytes are copied by NNAPI. Larger ones that lie in a mapped file are referred to by its
    descriptor; without ``map_files``, or where the runtime answers UNMAPPABLE, they are copied into shared memory,
    and the result's notes say so. Other constants stay in the arrays, which the result keeps alive.

    Raises:
        DeviceError: a call failed; nothing that was created is left.
    """
    if map_files:
        try:
            return _Builder(library, model, _MappedFiles(library)).build()
        except DeviceError as error:
            if error.call != "ANeuralNetworksMemory_createFromFd" or error.code != ResultCode.UNMAPPABLE.name:
                raise
    reason = "could not be mapped by NNAPI" if map_files else "were refused by the driver"
    with _CopiedFiles(library, model) as constants:
        notes = (
            ()
            if constants.memory is None
            else (f"the constants ({constants.size / 1e6:.1f} MB) {reason}: copied into shared memory",)
        )
        return _Builder(library, model, constants, notes).build()


class _MappedFiles:
    """Memory objects over the mapped files themselves, made where they are first asked for."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.windows: dict[tuple[int, int], Memory] = {}

    def place(self, array: Array) -> tuple[Memory, int] | None:
        """The memory that holds ``array``, and the offset in it; None when it is in no file."""
        found = file_behind(array)
        if found is None or found.offset % array.itemsize:
            return None
        start = found.offset // _WINDOW * _WINDOW
        if (found.descriptor, start) not in self.windows:
            size = min(os.fstat(found.descriptor).st_size - start, 2 * _WINDOW - mmap.PAGESIZE)
            self.windows[found.descriptor, start] = Memory.of_file(self.library, found.descriptor, size, start)
        return self.windows[found.descriptor, start], found.offset - start

    def memories(self) -> tuple[Memory, ...]:
        return tuple(self.windows.values())

    def close(self) -> None:
        for memory in self.windows.values():
            memory.close()


class _CopiedFiles:
    """One shared memory with a copy of every constant that lies in a mapped file."""

    def __init__(self, library: Library, model: Model) -> None:
        arrays = {found: array for array in _large_constants(model) if (found := file_behind(array)) is not None}
        self.offsets: dict[FileRange, int] = {}
        self.size = 0
        for found, array in arrays.items():
            self.offsets[found] = self.size
            self.size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        self.memory: Memory | None = None
        if not arrays:
            return
        descriptor = anonymous_file("onnx2nnapi constants", self.size)
        try:
            with mmap.mmap(descriptor, self.size) as mapping:
                for found, array in arrays.items():
                    mapping[self.offsets[found] : self.offsets[found] + array.nbytes] = array.data.cast("B")
            self.memory = Memory.of_file(library, descriptor, self.size)
        finally:
            os.close(descriptor)

    def place(self, array: Array) -> tuple[Memory, int] | None:
        found = file_behind(array)
        return None if found is None or self.memory is None else (self.memory, self.offsets[found])

    def memories(self) -> tuple[Memory, ...]:
        return () if self.memory is None else (self.memory,)

    def close(self) -> None:
        if self.memory is not None:
            self.memory.close()

    def __enter__(self) -> _CopiedFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Builder:
    """Builds one model with one way to place its constants; everything is released when a call fails half-way."""

    def __init__(
        self, library: Library, model: Model, constants: _MappedFiles | _CopiedFiles, notes: tuple[str, ...] = ()
    ) -> None:
        self.library = library
        self.model = model
        self.constants = constants
        self.notes = notes
        self.submodels: dict[int, BuiltModel] = {}
        self.open: list[int] = []  # sub-models being built, to refuse one that contains itself

    def build(self) -> BuiltModel:
        try:
            return self._graph(self.model.main, "")
        finally:  # what the result needs, it holds
            for built in self.submodels.values():
                built.close()
            self.constants.close()

    def _submodel(self, index: int) -> BuiltModel:
        if index in self.open:
            raise InvalidModelError("it contains itself", where=f"sub-model {index}")
        if index not in self.submodels:
            self.open.append(index)
            self.submodels[index] = self._graph(self.model.subgraphs[index], f"sub-model {index}, ")
            self.open.pop()
        return self.submodels[index]

    def _graph(self, graph: Subgraph, place: str) -> BuiltModel:
        call = self.library.call
        indices = [operand.subgraph for operand in graph.operands if operand.subgraph is not None]
        submodels = {index: self._submodel(index) for index in indices}
        pointer = self.library.create("ANeuralNetworksModel_create")
        raw = Handle(self.library, "ANeuralNetworksModel_free", pointer)
        kept: list[Array] = []
        try:
            for index, operand in enumerate(graph.operands):
                self._operand(pointer, index, operand, submodels, kept, f"{place}operand {index}")
            for index, operation in enumerate(graph.operations):
                nodes = f" of {', '.join(operation.origin)}" if operation.origin else ""
                inputs, outputs = uint32_array(operation.inputs), uint32_array(operation.outputs)
                call(
                    "ANeuralNetworksModel_addOperation",
                    *(pointer, int(operation.code), len(inputs), inputs, len(outputs), outputs),
                    where=f"{place}operation {index} {operation.code.name}{nodes}",
                )
            inputs, outputs = uint32_array(graph.inputs), uint32_array(graph.outputs)
            call(
                "ANeuralNetworksModel_identifyInputsAndOutputs",
                *(pointer, len(inputs), inputs, len(outputs), outputs),
            )
            if self.model.relaxed:
                call("ANeuralNetworksModel_relaxComputationFloat32toFloat16", pointer, True)
            call("ANeuralNetworksModel_finish", pointer)
        except BaseException:
            raw.close()
            raise
        raw.disown()
        needs = (*self.constants.memories(), *submodels.values())
        return BuiltModel(self.library, pointer, needs, kept, self.notes)

    def _operand(
        self,
        model: int,
        index: int,
        operand: Operand,
        submodels: dict[int, BuiltModel],
        kept: list[Array],
        where: str,
    ) -> None:
        call = self.library.call
        where += f" {operand.name!r}" if operand.name else ""
        call("ANeuralNetworksModel_addOperand", model, operand_type(operand.type), where=where)
        quant = operand.type.channel_quant
        if quant is not None:
            scales = (ctypes.c_float * len(quant.scales))(*quant.scales)
            call(
                "ANeuralNetworksModel_setOperandSymmPerChannelQuantParams",
                *(model, index, SymmPerChannelQuantParams(quant.channel_dim, len(scales), scales)),
                where=where,
            )
        if operand.subgraph is not None:
            value = submodels[operand.subgraph].pointer
            call("ANeuralNetworksModel_setOperandValueFromModel", model, index, value, where=where)
        elif operand.lifetime is Lifetime.NO_VALUE:
            call("ANeuralNetworksModel_setOperandValue", model, index, None, 0, where=where)
        elif operand.lifetime is Lifetime.CONSTANT:
            self._constant(model, index, np.ascontiguousarray(operand.array()), kept, where)

    def _constant(self, model: int, index: int, array: Array, kept: list[Array], where: str) -> None:
        large = array.nbytes > MAX_IMMEDIATE_BYTES
        placed = self.constants.place(array) if large else None
        if placed is not None:
            memory, offset = placed
            self.library.call(
                "ANeuralNetworksModel_setOperandValueFromMemory",
                *(model, index, memory.pointer, offset, array.nbytes),
                where=where,
            )
            return
        if large:
            kept.append(array)
        # A constant of no bytes is what NNAPI calls an omitted operand.
        buffer = array.ctypes.data if array.nbytes else None
        self.library.call("ANeuralNetworksModel_setOperandValue", model, index, buffer, array.nbytes, where=where)
