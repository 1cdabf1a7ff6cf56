"""Memory objects: files and shared memory by descriptor, a device's own memory, and Android's hardware buffers."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onnx2nnapi.errors import DeviceError
from onnx2nnapi.ir.types import Array
from onnx2nnapi.runtime.bindings import uint32_array
from onnx2nnapi.runtime.handles import Handle, claimed
from onnx2nnapi.runtime.library import Library

if TYPE_CHECKING:
    from onnx2nnapi.runtime.compilation import Compilation

__all__ = ["FileRange", "Memory", "SharedMemory", "anonymous_file", "copy_memory", "device_memory", "file_behind"]

PAGE = mmap.PAGESIZE


class FileRange(NamedTuple):
    """Where an array lies in a file that is mapped: an open descriptor, and bytes from the file's start."""

    descriptor: int
    offset: int


def file_behind(array: Array) -> FileRange | None:
    """The mapped file that ``array`` is a contiguous part of, if it is of one that tells its descriptor.

    The buffer at the root of the views must have ``fileno()`` and start at the file's start.
    """
    if not array.flags.c_contiguous or not array.nbytes:
        return None
    root: Any = array.base
    while isinstance(root, np.ndarray):
        root = root.base
    if isinstance(root, memoryview):
        root = root.obj
    if root is None or not hasattr(root, "fileno"):
        return None
    start = np.frombuffer(root, np.uint8, count=1).ctypes.data
    return FileRange(root.fileno(), array.ctypes.data - start)


def anonymous_file(name: str, size: int) -> int:
    """The descriptor of a new file of ``size`` bytes that is in memory only (memfd; ashmem on Android before 11).

    Raises:
        DeviceError: the system has neither.
    """
    if not hasattr(os, "memfd_create"):
        return _ashmem(name, size)
    try:
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    except OSError:  # a kernel before 3.17
        return _ashmem(name, size)
    os.ftruncate(descriptor, size)
    return descriptor


def _ashmem(name: str, size: int) -> int:
    try:
        create = ctypes.CDLL("libandroid.so").ASharedMemory_create
        create.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
        descriptor: int = create(name.encode(), size)
    except (OSError, AttributeError) as error:
        raise DeviceError(f"the system has no shared memory: {error}", where=name) from None
    if descriptor < 0:
        raise DeviceError(f"no shared memory of {size} bytes to be had", where=name, hint="free memory")
    return descriptor


class Memory(Handle):
    """An ANeuralNetworksMemory.

    Attributes:
        size: in bytes; None where only the driver knows.
        whole: whether it is used as a whole only, with offset and length 0 (device memory, non-BLOB hardware buffers).
    """

    __slots__ = ("size", "whole")

    def __init__(
        self,
        library: Library,
        pointer: int,
        *,
        size: int | None,
        whole: bool = False,
        needs: tuple[Handle, ...] = (),
    ) -> None:
        super().__init__(library, "ANeuralNetworksMemory_free", pointer, needs)
        self.size = size
        self.whole = whole

    @classmethod
    def of_file(
        cls, library: Library, descriptor: int, size: int, offset: int = 0, *, writable: bool = False
    ) -> Memory:
        """``size`` bytes of an open file from ``offset``, a multiple of the page size. The descriptor is duplicated."""
        protect = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        name = "ANeuralNetworksMemory_createFromFd"
        return cls(library, library.create(name, size, protect, descriptor, offset), size=size)

    @classmethod
    def of_hardware_buffer(cls, library: Library, buffer: int, *, size: int | None = None) -> Memory:
        """An AHardwareBuffer by its address, which must outlive this; ``size`` is that of a BLOB, None of an image."""
        name = "ANeuralNetworksMemory_createFromAHardwareBuffer"
        return cls(library, library.create(name, buffer), size=size, whole=size is None)


class SharedMemory(Memory):
    """Memory that the host and the device both see.

    Args:
        library: NNAPI.
        size: in bytes.

    Attributes:
        bytes: all of it, as uint8.
    """

    __slots__ = ("bytes",)

    def __init__(self, library: Library, size: int) -> None:
        descriptor = anonymous_file("onnx2nnapi", size)
        try:
            mapping = mmap.mmap(descriptor, size)
            protect = mmap.PROT_READ | mmap.PROT_WRITE
            pointer = library.create("ANeuralNetworksMemory_createFromFd", size, protect, descriptor, 0)
        finally:
            os.close(descriptor)
        super().__init__(library, pointer, size=size)
        self.bytes: Array = np.frombuffer(mapping, np.uint8)

    def array(self, dtype: Any, shape: Sequence[int], offset: int = 0) -> Array:
        """A view of ``shape`` from ``offset`` bytes on."""
        view: Array = np.ndarray(tuple(shape), dtype, self.bytes.data, offset)
        return view


def device_memory(
    library: Library,
    *,
    inputs: Sequence[tuple[Compilation, int]] = (),
    outputs: Sequence[tuple[Compilation, int]] = (),
    dimensions: Sequence[int] = (),
) -> Memory:
    """Memory that the driver lays out itself, for the roles named: (compilation, index of its input or output).

    A value that goes from one model's output to another's input then stays on the device. It holds nothing until it
    was an output, or the target of ``copy_memory``.

    Raises:
        DeviceError: the roles differ in type or shape, or the driver cannot.
    """
    # The driver's buffer belongs to the compilations' devices.
    needs = tuple(dict.fromkeys(compilation for compilation, _ in (*inputs, *outputs)))
    desc = Handle(library, "ANeuralNetworksMemoryDesc_free", library.create("ANeuralNetworksMemoryDesc_create"))
    with desc, claimed(*needs):
        for kind, roles in (("Input", inputs), ("Output", outputs)):
            for compilation, index in roles:
                library.call(f"ANeuralNetworksMemoryDesc_add{kind}Role", desc.pointer, compilation.pointer, index, 1.0)
        if dimensions:
            library.call(
                "ANeuralNetworksMemoryDesc_setDimensions", desc.pointer, len(dimensions), uint32_array([*dimensions])
            )
        library.call("ANeuralNetworksMemoryDesc_finish", desc.pointer)
        pointer = library.create("ANeuralNetworksMemory_createFromDesc", desc.pointer)
        return Memory(library, pointer, size=None, whole=True, needs=needs)


def copy_memory(library: Library, source: Memory, target: Memory) -> None:
    """Copy all of ``source``; sizes must agree. The driver translates its own layouts.

    Raises:
        DeviceError: one is closed, or the sizes differ.
    """
    with claimed(source, target):
        library.call("ANeuralNetworksMemory_copy", source.pointer, target.pointer)
