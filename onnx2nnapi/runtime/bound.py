"""Repeated runs over fixed buffers: after the first, each costs the C calls and next to nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from onnx2nnapi.errors import DeviceError
from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.codes import ResultCode
from onnx2nnapi.runtime.diagnosis import explain_result
from onnx2nnapi.runtime.event import Event
from onnx2nnapi.runtime.execution import Execution
from onnx2nnapi.runtime.memory import Memory

__all__ = ["BoundRun"]


class BoundRun:
    """A model bound to its inputs and outputs. Threads that share it run, and close it, one after the other.

    Args:
        prepare: makes an execution with everything set, reusable or not.
        outputs: what it writes into.
        reusable: whether executions can be used again (feature level 5); else each run prepares a new one.
        lock: held during a run; None: one of its own.

    Attributes:
        outputs: the arrays or memory objects that hold the results after ``run``.
        execution: the latest execution, for durations and shapes; None before the first run where it is not reused.
    """

    def __init__(
        self,
        prepare: Callable[[bool], Execution],
        outputs: Sequence[Array | Memory],
        *,
        reusable: bool,
        lock: threading.Lock | None,
    ) -> None:
        self.outputs = list(outputs)
        self.execution: Execution | None = None
        self._prepare = prepare
        self._lock = threading.Lock() if lock is None else lock
        self._closed = False
        self._reusable = reusable
        self.run: Callable[[], None] = self._run_once
        if reusable:
            self.execution = prepare(True)
            self.run = _repeated(self.execution, self._lock)
        else:
            prepare(False).close()  # what does not fit is said now

    def _run_once(self) -> None:
        with self._lock:
            execution = self._next()
            if result := execution.launcher()():
                raise _failure(execution, result)

    def start(self, after: Sequence[Event] = ()) -> Event:
        """Start a fenced run when all of ``after`` are signalled, without waiting for its end.

        The buffers are NNAPI's until the event's ``wait``, or until whoever was given its fence has seen that.

        Args:
            after: the ends of other runs, whose outputs may be bound here as inputs, or sync fences.

        Raises:
            DeviceError: the mode is not "fenced", the last run has not ended, or the run did not start.
        """
        with self._lock:
            return self._next().start(after)

    def _next(self) -> Execution:
        if self._closed:
            raise _closed()
        if self.execution is None or not self._reusable:
            if self.execution is not None:
                self.execution.close()
            self.execution = self._prepare(False)
        return self.execution

    def close(self) -> None:
        """Free the execution after the run that is under way; the buffers are the caller's again.

        ``run``, also one that was taken from here before, is an error from now on. More than once is harmless.
        """
        with self._lock:
            self._closed = True
            if self.execution is not None:
                self.execution.close()

    def __enter__(self) -> BoundRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _repeated(execution: Execution, lock: threading.Lock) -> Callable[[], None]:
    """Runs the execution, and keeps it alive, whatever becomes of the BoundRun."""
    launch = execution.launcher()

    def run() -> None:
        with lock:
            if execution.pointer is None:
                raise _closed()
            if result := launch():
                raise _failure(execution, result)

    return run


def _failure(execution: Execution, result: int) -> DeviceError:
    function = execution.waits_in
    if result == ResultCode.OUTPUT_INSUFFICIENT_SIZE:
        return DeviceError(
            "the driver wants a larger buffer than the output's shape says",
            call=function,
            code="OUTPUT_INSUFFICIENT_SIZE",
        )
    return explain_result(function, result)


def _closed() -> DeviceError:
    return DeviceError("the bound run is closed")
