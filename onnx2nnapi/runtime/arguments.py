"""The arrays that go in and out: checked before the library sees them, allocated as the device prefers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

import numpy as np

from onnx2nnapi.errors import DeviceError, FeedError
from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.model import Subgraph
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.memory import Memory

__all__ = ["InputCheck", "OutputBuffers", "PaddedArray", "aligned_array", "check_overlaps"]

_FIRST_GUESS = 4096  # bytes for an output of which nothing is known; the runtime tells when it needs more


class PaddedArray(np.ndarray):
    """An array whose buffer goes on behind its last element.

    Attributes:
        padded: bytes that may be used from its start; 0 on views, which may have neighbours.
    """

    padded: int

    def __array_finalize__(self, source: object) -> None:
        self.padded = 0


def aligned_array(type_: OperandType, alignment: int, padding: int, where: str) -> Array:
    """An uninitialised array of an operand's shape at a multiple of ``alignment``, with room up to one of ``padding``.

    Raises:
        DeviceError: the operand's shape is not known.
    """
    if not type_.is_specified:
        raise DeviceError("its shape is known only after a run", where=where, hint="use run() instead of bind()")
    nbytes = max(1, type_.size) * type_.dtype.itemsize
    length = -(-nbytes // padding) * padding
    buffer = np.empty(length + alignment, np.uint8)
    start = -buffer.ctypes.data % alignment
    array = buffer[start : start + nbytes].view(type_.dtype).reshape(type_.shape)
    if length == nbytes:
        return array
    padded = array.view(PaddedArray)
    padded.padded = length
    return padded


def _fits(shape: tuple[int, ...], type_: OperandType) -> bool:
    if not type_.code.is_tensor:
        return math.prod(shape) == 1
    if not type_.shape:
        return True  # unspecified rank
    return len(shape) == len(type_.shape) and all(
        want in (0, size) for size, want in zip(shape, type_.shape, strict=True)
    )


class InputCheck:
    """Whether values fit a graph's inputs.

    Args:
        graph: whose inputs.
        owner: how the error calls it.
    """

    def __init__(self, graph: Subgraph, owner: str) -> None:
        self._types = graph.input_types()
        self._names = [graph.operands[index].name for index in graph.inputs]
        self._owner = owner

    def __call__(
        self, values: Sequence[Array | Memory | None], *, in_place: bool = False
    ) -> list[Array | Memory | None] | list[Array | None]:
        """The values, checked; ``in_place``: they must be contiguous, as NNAPI will point into them.

        Raises:
            FeedError: the count, a dtype, a shape or the layout in memory does not fit.
        """
        if len(values) != len(self._types):
            raise FeedError(f"{self._owner} has {len(self._types)} inputs, not {len(values)}")
        for index, (value, type_) in enumerate(zip(values, self._types, strict=True)):
            if value is not None:
                _check(value, type_, self._where(index), in_place=in_place)
        return list(values)

    def _where(self, index: int) -> str:
        name = self._names[index]
        return f"input {index}" + (f" {name!r}" if name else "")


def _check(value: Array | Memory, type_: OperandType, where: str, *, in_place: bool, writable: bool = False) -> None:
    if isinstance(value, Memory):
        if not type_.is_specified:
            raise FeedError("memory objects are for inputs and outputs of known shape", where=where)
        if value.size is not None and value.size < type_.nbytes and not value.whole:
            raise FeedError(f"the memory has {value.size} bytes, {type_} needs {type_.nbytes}", where=where)
        return
    if not isinstance(value, np.ndarray):
        raise FeedError(f"must be an array, not {type(value).__name__}", where=where)
    if value.dtype != type_.dtype or not value.dtype.isnative:
        raise FeedError(f"must be {type_.dtype.name}, not {value.dtype}", where=where, hint="cast it with astype")
    if not _fits(value.shape, type_):
        wanted = [size or "any" for size in type_.shape]
        raise FeedError(f"must have shape {wanted}, not {list(value.shape)}".replace("'", ""), where=where)
    if not value.size:
        raise FeedError("NNAPI takes no empty arrays", where=where, hint="run on the host")
    if in_place and not value.flags.aligned:
        raise FeedError("must be aligned, as it is bound without a copy", where=where, hint="bind a copy of it")
    if in_place and not value.flags.c_contiguous:
        raise FeedError("must be contiguous, as it is bound without a copy", where=where, hint="np.ascontiguousarray")
    if writable and not value.flags.writeable:
        raise FeedError("must be writable", where=where)


def check_overlaps(inputs: Sequence[Array | Memory | None], outputs: Sequence[Array | Memory]) -> None:
    """NNAPI leaves undefined what is computed when an output lies where an input or another output does.

    Raises:
        FeedError: one does.
    """
    placed = [(f"input {index}", value) for index, value in enumerate(inputs)]
    for index, value in enumerate(outputs):
        where = f"output {index}"
        for other, theirs in placed:
            if theirs is value or (
                isinstance(value, np.ndarray) and isinstance(theirs, np.ndarray) and np.may_share_memory(value, theirs)
            ):
                raise FeedError(f"shares memory with {other}", where=where, hint="give it a buffer of its own")
        placed.append((where, value))


class OutputBuffers:
    """Buffers for a model's outputs; those of unknown shape start small, and grow to what the runtime asks for.

    Args:
        types: of the outputs.
        level: of the runtime; outputs of unknown shape exist from 3 on.
    """

    def __init__(self, types: Sequence[OperandType], level: int) -> None:
        self._types = tuple(types)
        self._lock = threading.Lock()
        self._bytes: dict[int, int] = {}  # of those of unknown shape: what sufficed or was asked for so far
        for index, type_ in enumerate(types):
            if type_.is_specified:
                continue
            if level < 3:
                raise DeviceError(
                    "outputs of unknown shape need feature level 3 (Android 10)",
                    where=f"output {index}",
                    hint="convert with all dimensions bound",
                )
            known = math.prod(size for size in type_.shape if size) * type_.dtype.itemsize
            self._bytes[index] = max(known, _FIRST_GUESS)

    def allocate(self, specified: Callable[[int], Array] | None = None) -> list[Array]:
        """Fresh buffers: arrays of the outputs' shapes (made by ``specified``), bytes where these are unknown."""
        return [
            np.empty(self._bytes[index], np.uint8)
            if index in self._bytes
            else specified(index)
            if specified is not None
            else np.empty(type_.shape, type_.dtype)
            for index, type_ in enumerate(self._types)
        ]

    def grow(self, buffers: Sequence[Array], shape_of: Callable[[int], tuple[int, ...]]) -> None:
        """After a run whose buffers did not suffice: as much as the reported shapes need, or twice as much.

        Raises:
            DeviceError: no buffer can be made larger.
        """
        if not self._bytes:
            raise DeviceError("the driver wants larger buffers than the outputs' shapes say", hint="try --device cpu")
        grown = False
        with self._lock:
            for index in self._bytes:
                needed = math.prod(shape_of(index)) * self._types[index].dtype.itemsize
                if needed > buffers[index].nbytes:
                    self._bytes[index], grown = max(needed, self._bytes[index]), True
            if not grown:  # shapes that are not told in full
                for index in self._bytes:
                    self._bytes[index] = max(self._bytes[index], 2 * buffers[index].nbytes)

    def results(self, buffers: Sequence[Array], shape_of: Callable[[int], tuple[int, ...]]) -> list[Array]:
        """The outputs after a run that succeeded."""
        return [
            self._shaped(index, buffer, shape_of(index)) if index in self._bytes else np.asarray(buffer)
            for index, buffer in enumerate(buffers)
        ]

    def _shaped(self, index: int, buffer: Array, shape: tuple[int, ...]) -> Array:
        type_ = self._types[index]
        nbytes = math.prod(shape) * type_.dtype.itemsize
        if nbytes > buffer.nbytes:
            raise DeviceError(
                f"the driver reports shape {list(shape)}, which is larger than its buffer of {buffer.nbytes} bytes",
                where=f"output {index}",
                hint="try --device cpu",
            )
        return buffer[:nbytes].view(type_.dtype).reshape(shape)

    def check(
        self, targets: Sequence[Array | Memory | None] | None, empty: Callable[[int], Array]
    ) -> list[Array | Memory]:
        """Buffers to bind: the caller's, checked, or new ones.

        Raises:
            FeedError: the count or a buffer does not fit.
            DeviceError: an output's shape is known only after a run.
        """
        given = [None] * len(self._types) if targets is None else list(targets)
        if len(given) != len(self._types):
            raise FeedError(f"the model has {len(self._types)} outputs, not {len(given)}")
        bound: list[Array | Memory] = []
        for index, (target, type_) in enumerate(zip(given, self._types, strict=True)):
            if target is None or index in self._bytes:
                bound.append(empty(index))
            else:
                _check(target, type_, f"output {index}", in_place=True, writable=True)
                bound.append(target)
        return bound
