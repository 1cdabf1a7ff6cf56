"""Session: a program behind its ONNX interface, on whichever back end there is."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from onnx2nnapi.errors import ArtifactError, FeedError, InvalidModelError, Onnx2NnapiError
from onnx2nnapi.ir.types import Array, LazyArray
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.program import Port, Program, load
from onnx2nnapi.runtime.session_binding import BoundSession, bind_program

if TYPE_CHECKING:
    from onnx2nnapi.runtime.interpreter import OperationTime

__all__ = ["Session"]

Backend = Literal["auto", "host", "nnapi"]


class Executor(Protocol):
    """What runs a segment: the interpreter or NnapiExecutor."""

    def run(self, inputs: Sequence[Array | None]) -> list[Array]: ...


class Session:
    """Runs a program by its ONNX names, dtypes and shapes. ``run`` may be called from several threads.

    Args:
        program: a Program, or the path of a .nnapi file.
        backend: "nnapi" is Android's runtime (or ``library``), "host" numpy, "auto" NNAPI where the library loads.
        library: path of a libneuralnetworks.so other than the system's.
        devices: names of the devices to use; None leaves the choice to NNAPI.
        profile: host only: record the time of each operation, see ``Interpreter``.
        device_options: keyword arguments of NnapiExecutor.

    Raises:
        ArtifactError: the file is missing, malformed, or an ONNX model, which is to be converted first.
        DeviceError: NNAPI was asked for and cannot be had.

    Attributes:
        program: what runs.
        backend: "host" or "nnapi".
        executors: what runs each segment.
    """

    def __init__(
        self,
        program: Program | str | os.PathLike[str],
        backend: Backend = "auto",
        *,
        library: str | os.PathLike[str] | None = None,
        devices: str | int | Sequence[str | int] | None = None,
        profile: bool = False,
        device_options: Mapping[str, Any] | None = None,
    ) -> None:
        if backend not in ("auto", "host", "nnapi"):
            raise InvalidModelError(f"there is no back end {backend!r}", hint="choose auto, host or nnapi")
        self.program = _program(program)
        self.backend = _choose(backend, library)
        self.executors: tuple[Executor, ...] = tuple(
            self._executor(position, library, devices, profile, device_options or {})
            for position in range(len(self.program.segments))
        )
        self._types = _tensor_types(self.program)
        self._closing = threading.Lock()
        self._closed = False

    def _executor(
        self,
        position: int,
        library: str | os.PathLike[str] | None,
        devices: str | int | Sequence[str | int] | None,
        profile: bool,
        options: Mapping[str, Any],
    ) -> Executor:
        model = self.program.segments[position].model
        if self.backend == "host":
            from onnx2nnapi.runtime.interpreter import Interpreter

            return Interpreter(model, profile=profile)
        from onnx2nnapi.runtime.device import NnapiExecutor

        return NnapiExecutor(model, library, devices, **options)

    # -- the interface -----------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The ONNX model's inputs, in its order."""
        return self.program.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The ONNX model's outputs, in its order."""
        return self.program.outputs

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Compute the outputs.

        Args:
            feeds: an array for each input by its ONNX name, of its dtype and shape. Lists and numbers are converted.

        Returns:
            New arrays by ONNX name, in the order of the ONNX outputs.

        Raises:
            FeedError: an input is missing, unknown, or of the wrong dtype, shape or range.
            InvalidModelError, DeviceError: the run itself failed.
        """
        if self._closed:
            raise Onnx2NnapiError("the session is closed", hint="make a new one")
        given = self._check(feeds)
        tensors: dict[str, Array | None] = {**self._operands(given)}
        for segment, executor in zip(self.program.segments, self.executors, strict=True):
            results = executor.run([tensors[name] for name in segment.inputs])
            tensors.update(zip(segment.outputs, results, strict=True))
        return {port.name: self._output(port, tensors, given) for port in self.outputs}

    def operands(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """What the models' operands take for ``feeds``, by the program's tensors; for whoever runs models themselves.

        Raises:
            FeedError: as from ``run``.
        """
        return self._operands(self._check(feeds))

    def _operands(self, given: Mapping[str, Array]) -> dict[str, Array]:
        return {
            port.tensor: _to_operand(port, given[port.name], self._types.get(port.tensor))
            for port in self.inputs
            if port.tensor is not None
        }

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array] | None = None) -> BoundSession:
        """Runs that are repeated over the same buffers, on NNAPI without a copy; see ``bind_program``."""
        if self._closed:
            raise Onnx2NnapiError("the session is closed", hint="make a new one")
        return bind_program(self.program, self.executors, inputs, outputs)

    @property
    def times(self) -> list[OperationTime]:
        """What each operation has taken on the host, in the order of execution; empty without ``profile``."""
        return [time for executor in self.executors for time in getattr(executor, "times", ())]

    def _check(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        if not isinstance(feeds, Mapping):
            raise FeedError(f"inputs are given by name, not as {type(feeds).__name__}")
        known = [port.name for port in self.inputs]
        for name in feeds:
            if name not in known:
                raise FeedError(
                    f"the model has no input {name!r}", hint=f"its inputs are {', '.join(map(repr, known)) or 'none'}"
                )
        missing = [name for name in known if name not in feeds]
        if missing:
            raise FeedError(f"no array is given for {', '.join(map(repr, missing))}")
        given = {port.name: _checked(port, feeds[port.name]) for port in self.inputs}
        sizes: dict[str, int] = {}
        for port in self.inputs:
            for dim, size in zip(port.shape, given[port.name].shape, strict=True):
                if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                    raise FeedError(
                        f"has the shape {list(given[port.name].shape)}, but {dim!r} is {sizes[dim]} in another input",
                        where=f"input {port.name!r}",
                    )
        return given

    def _output(self, port: Port, tensors: Mapping[str, Array | None], given: Mapping[str, Array]) -> Array:
        dtype = _dtype(port.dtype)
        if port.source is not None:
            return _shaped(np.array(given[port.source], dtype=dtype), port)
        if port.constant is not None:
            constant = port.constant.numpy() if isinstance(port.constant, LazyArray) else port.constant
            return np.array(constant, dtype=dtype)
        array = tensors[port.tensor or ""]
        if array is None:
            raise InvalidModelError("nothing computes it", where=f"output {port.name!r}")
        return _shaped(array.astype(dtype, copy=False), port)

    # -- its end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Free what the device holds; ``run`` is an error from now on. More than once is harmless."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        for executor in self.executors:
            close: Callable[[], None] | None = getattr(executor, "close", None)
            if close is not None:
                close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _program(given: Program | str | os.PathLike[str]) -> Program:
    if isinstance(given, Program):
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise ArtifactError(f"a session runs a Program or a file, not {type(given).__name__}")
    if os.fspath(given).endswith(".onnx"):
        raise ArtifactError(
            "is an ONNX model, a session runs a converted one",
            where=os.fspath(given),
            hint="give Session what onnx2nnapi.convert makes of it, or the file that `onnx2nnapi convert` writes",
        )
    return load(given)


def _choose(backend: Backend, library: str | os.PathLike[str] | None) -> Literal["host", "nnapi"]:
    if backend != "auto":
        return backend
    from onnx2nnapi.runtime.library import is_available

    return "nnapi" if is_available(library) else "host"


def _tensor_types(program: Program) -> dict[str, OperandType]:
    """The operand type of every tensor that a segment reads or writes."""
    types: dict[str, OperandType] = {}
    for segment in program.segments:
        types.update(zip(segment.inputs, segment.model.main.input_types(), strict=True))
        types.update(zip(segment.outputs, segment.model.main.output_types(), strict=True))
    return types


# -- arrays between ONNX and NNAPI -------------------------------------------------------------------------------------


def _dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        name = ml_dtypes.bfloat16
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def _checked(port: Port, value: object) -> Array:
    """``value`` as an array of the port's dtype and shape."""
    where = f"input {port.name!r}"
    dtype = _dtype(port.dtype)
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.newbyteorder("=") != dtype:
            raise FeedError(
                f"has dtype {array.dtype}, the model takes {dtype}", where=where, hint=f"use .astype({dtype.name!r})"
            )
        array = array.astype(dtype, copy=False)
    else:
        array = _converted(value, dtype, where)
    if len(array.shape) != len(port.shape) or any(
        isinstance(dim, int) and dim != size for dim, size in zip(port.shape, array.shape, strict=True)
    ):
        wanted = ", ".join("?" if dim is None else str(dim) for dim in port.shape)
        raise FeedError(f"has shape {list(array.shape)}, the model takes [{wanted}]", where=where)
    return array


def _converted(value: object, dtype: np.dtype[Any], where: str) -> Array:
    """A list or number as an array, where that loses nothing but float precision."""
    try:
        plain = np.asarray(value)
        array = plain.astype(dtype)
        loses = dtype.kind in "iub" and not np.array_equal(array, plain)
        if plain.dtype.kind in "biuf" and not loses:
            return array
    except (TypeError, ValueError, OverflowError):
        pass
    raise FeedError(f"{value!r:.60} is no array of {dtype}", where=where)


def _shaped(array: Array, port: Port) -> Array:
    """The array in the port's shape, where that is static: rank 0 and ranks above 4 change hands in another one."""
    sizes = tuple(dim for dim in port.shape if isinstance(dim, int))
    if len(sizes) < len(port.shape):
        return array
    if math.prod(sizes) != array.size:
        raise InvalidModelError(f"{list(array.shape)} was computed, not {list(sizes)}", where=f"output {port.name!r}")
    return array.reshape(sizes)


def _to_operand(port: Port, array: Array, type_: OperandType | None) -> Array:
    """The array that NNAPI's operand takes: int64 as int32, double as float, rank 0 as [1], ranks above 4 merged."""
    if type_ is None:
        return array
    target = np.dtype(type_.dtype)
    if array.dtype != target:
        if target.kind in "iu" and array.size:
            low, high = int(array.min()), int(array.max())
            limits = np.iinfo(target.name)
            if low < limits.min or high > limits.max:
                raise FeedError(
                    f"holds {low if low < limits.min else high}, NNAPI computes with {target}",
                    where=f"input {port.name!r}",
                    hint=f"values must lie in {limits.min} to {limits.max}",
                )
        array = array.astype(target)
    if type_.code.is_tensor and array.ndim != type_.rank and type_.rank:
        return array.reshape(type_.shape)
    return array.reshape((1,)) if type_.code.is_tensor and array.ndim == 0 else array
