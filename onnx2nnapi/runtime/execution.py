"""Executions: setting inputs and outputs, the four ways to compute, shapes and durations afterwards."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from onnx2nnapi.errors import DeviceError
from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.codes import DurationCode, ResultCode
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.compilation import Compilation, nanoseconds
from onnx2nnapi.runtime.diagnosis import explain_result
from onnx2nnapi.runtime.event import Event
from onnx2nnapi.runtime.handles import Handle, claimed
from onnx2nnapi.runtime.library import Library
from onnx2nnapi.runtime.memory import Memory
from onnx2nnapi.runtime.model_builder import operand_type

__all__ = ["MODES", "Burst", "Execution", "Mode", "RunOptions"]

Mode: TypeAlias = Literal["sync", "async", "burst", "fenced"]
MODES: dict[Mode, str] = {
    "sync": "ANeuralNetworksExecution_compute",
    "async": "ANeuralNetworksExecution_startCompute",
    "burst": "ANeuralNetworksExecution_burstCompute",
    "fenced": "ANeuralNetworksExecution_startComputeWithDependencies",
}
_NO_DURATION = 2**64 - 1
_MAX_RANK = 64  # far more than any driver takes
_TOO_SMALL = ResultCode.OUTPUT_INSUFFICIENT_SIZE.value  # the shape is told all the same


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run.

    Attributes:
        mode: sync (feature level 3), async, burst (3) or fenced (4).
        timeout: seconds that a run may take (feature level 4, one chosen device).
        loop_timeout: seconds that a WHILE loop may take (feature level 4).
        measure: ask for durations on the hardware and in the driver (feature level 3, one chosen device).
        padding: hand over buffers that are longer than their tensors (feature level 5).
    """

    mode: Mode = "sync"
    timeout: float | None = None
    loop_timeout: float | None = None
    measure: bool = False
    padding: bool = False


class Burst(Handle):
    """An ANeuralNetworksBurst: for runs that follow each other quickly, one at a time."""

    __slots__ = ()

    def __init__(self, library: Library, compilation: Compilation) -> None:
        with claimed(compilation):
            pointer = library.create("ANeuralNetworksBurst_create", compilation.pointer)
            super().__init__(library, "ANeuralNetworksBurst_free", pointer, (compilation,))


class Execution(Handle):
    """An ANeuralNetworksExecution.

    Args:
        library: NNAPI.
        compilation: what to run.
        options: how.
        reusable: whether it may compute more than once (feature level 5).
        burst: for mode "burst".
    """

    __slots__ = ("_ask", "_burst", "_handle", "_options", "_sizes")

    def __init__(
        self,
        library: Library,
        compilation: Compilation,
        options: RunOptions,
        *,
        reusable: bool = False,
        burst: Burst | None = None,
    ) -> None:
        needs: tuple[Handle, ...] = (compilation,) if burst is None else (compilation, burst)
        with claimed(*needs):
            pointer = library.create("ANeuralNetworksExecution_create", compilation.pointer)
            super().__init__(library, "ANeuralNetworksExecution_free", pointer, needs)
        self._options = options
        self._burst = burst
        self._handle = ctypes.c_void_p(pointer)  # as ctypes takes it fastest
        self._sizes = (ctypes.c_uint32 * _MAX_RANK)()
        self._ask: tuple[Callable[..., int], ...] | None = None
        try:
            self._configure(options, reusable)
        except BaseException:
            self.close()
            raise

    def _configure(self, options: RunOptions, reusable: bool) -> None:
        def call(name: str, value: int | bool | None) -> None:
            self.library.call(f"ANeuralNetworksExecution_{name}", self.pointer, value)

        if reusable:
            call("setReusable", True)
        if options.padding:
            call("enableInputAndOutputPadding", True)
        if options.measure:
            call("setMeasureTiming", True)
        if options.timeout is not None:
            call("setTimeout", nanoseconds(options.timeout, "the timeout"))
        if options.loop_timeout is not None:
            call("setLoopTimeout", nanoseconds(options.loop_timeout, "the loop timeout"))

    def close(self) -> None:
        """Free it after the runs that were started, then let go of the buffers."""
        self._handle.value = None  # what ``launcher`` made answers UNEXPECTED_NULL from now on
        super().close()

    def set_input(self, index: int, type_: OperandType, value: Array | Memory | None, length: int = 0) -> None:
        """Input ``index`` is ``value`` (None: omitted), of ``length`` bytes with padding (0: the array's own size)."""
        self._set("Input", index, type_, value, length)

    def set_output(self, index: int, type_: OperandType, value: Array | Memory, length: int = 0) -> None:
        """Output ``index`` goes into ``value``; a uint8 array takes an output of unknown shape."""
        self._set("Output", index, type_, value, length)

    def _set(self, kind: str, index: int, type_: OperandType, value: Array | Memory | None, length: int) -> None:
        name = f"ANeuralNetworksExecution_set{kind}"
        where = f"{kind.lower()} {index}"
        if value is None:
            self.library.call(name, self.pointer, index, None, None, 0, where=where)
            return
        if isinstance(value, Memory):
            if value.closed:
                raise DeviceError("the memory is closed", where=where)
            if value.library is not self.library:
                raise DeviceError(f"the memory belongs to {value.library.name}", where=where)
            self.keep(value)
            size = 0 if value.whole else length or type_.nbytes
            self.library.call(f"{name}FromMemory", self.pointer, index, None, value.pointer, 0, size, where=where)
            return
        self.keep(value)
        # Only sizes that the model left open are told again.
        told = None if type_.is_specified or kind == "Output" else operand_type(type_, value.shape)
        self.library.call(name, self.pointer, index, told, value.ctypes.data, length or value.nbytes, where=where)

    def launcher(self) -> Callable[[], int]:
        """A function that computes once and answers the ResultCode, with as little around the C calls as can be.

        A result that means that the computation did not start is a DeviceError at once.
        """
        library, mode = self.library, self._options.mode
        handle = self._handle
        function = library.untyped(MODES[mode])
        if mode == "sync":
            return lambda: function(handle)
        if mode == "burst":
            burst = ctypes.c_void_p(None if self._burst is None else self._burst.pointer)
            return lambda: function(handle, burst)
        wait, free = library.untyped("ANeuralNetworksEvent_wait"), library.untyped("ANeuralNetworksEvent_free")
        event = ctypes.c_void_p()
        nothing = (None, ctypes.c_uint32(0), ctypes.c_uint64(0)) if mode == "fenced" else ()
        arguments = (handle, *nothing, ctypes.byref(event))

        def launch() -> int:
            result: int = function(*arguments)
            if result:
                raise explain_result(MODES[mode], result)
            try:
                return wait(event)  # type: ignore[no-any-return]
            finally:
                free(event)

        return launch

    def start(self, after: Sequence[Event] = ()) -> Event:
        """Start to compute, fenced, when all of ``after`` are signalled; the event of its end (feature level 4).

        Raises:
            DeviceError: it did not start.
        """
        if self._options.mode != "fenced":
            raise DeviceError(f"runs of mode {self._options.mode} are not started", hint="use mode fenced")
        for event in after:
            if event.library is not self.library:
                raise DeviceError(f"the event belongs to {event.library.name}")
        with claimed(self, *after):
            events = (ctypes.c_void_p * len(after))(*(event.pointer for event in after))
            return Event(self.library, self.library.create(MODES["fenced"], self.pointer, events, len(events), 0), self)

    def compute(self) -> bool:
        """Compute once; whether every output was large enough.

        Raises:
            DeviceError: it failed in another way.
        """
        result = self.launcher()()
        if result not in (ResultCode.NO_ERROR, ResultCode.OUTPUT_INSUFFICIENT_SIZE):
            raise explain_result(self.waits_in, result)
        return result == ResultCode.NO_ERROR

    @property
    def waits_in(self) -> str:
        """The C function whose result is the computation's."""
        return MODES[self._options.mode] if self._options.mode in ("sync", "burst") else "ANeuralNetworksEvent_wait"

    def output_shape(self, index: int) -> tuple[int, ...]:
        """The shape of output ``index`` in the latest computation, also when its buffer was too small."""
        if self._ask is None:
            names = ("getOutputOperandRank", "getOutputOperandDimensions")
            self._ask = tuple(self.library.untyped(f"ANeuralNetworksExecution_{name}") for name in names)
        (ask_rank, ask_sizes), sizes, handle = self._ask, self._sizes, self._handle
        if (result := ask_rank(handle, index, sizes)) and result != _TOO_SMALL:
            raise explain_result("ANeuralNetworksExecution_getOutputOperandRank", result, where=f"output {index}")
        if not (rank := sizes[0]):
            return ()
        if rank > _MAX_RANK:
            raise DeviceError(f"the driver reports a rank of {rank}", where=f"output {index}")
        if (result := ask_sizes(handle, index, sizes)) and result != _TOO_SMALL:
            raise explain_result("ANeuralNetworksExecution_getOutputOperandDimensions", result, where=f"output {index}")
        return tuple(sizes[:rank])

    def duration(self, code: DurationCode) -> int | None:
        """Nanoseconds of the latest computation; None where the driver does not tell.

        Raises:
            DeviceError: durations were not asked for, or nothing was computed.
        """
        if not self._options.measure:
            raise DeviceError("durations are told only where they were asked for", hint="set measure=True")
        value = ctypes.c_uint64()
        self.library.call("ANeuralNetworksExecution_getDuration", self.pointer, int(code), ctypes.byref(value))
        return None if value.value == _NO_DURATION else value.value

    def durations(self) -> dict[DurationCode, int | None]:
        """All that NNAPI measures of the latest computation in this mode."""
        codes = [DurationCode.DURATION_ON_HARDWARE, DurationCode.DURATION_IN_DRIVER]
        if self._options.mode == "fenced":
            codes += [DurationCode.FENCED_DURATION_ON_HARDWARE, DurationCode.FENCED_DURATION_IN_DRIVER]
        return {code: self.duration(code) for code in codes}
