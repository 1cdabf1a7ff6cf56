"""Repeated runs over fixed buffers: after the first, each costs the C calls and next to nothing else."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from onnx2nnapi.errors import DeviceError
from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.codes import ResultCode
from onnx2nnapi.runtime.diagnosis import explain_result
from onnx2nnapi.runtime.execution import Execution
from onnx2nnapi.runtime.memory import Memory

__all__ = ["BoundRun"]


class BoundRun:
    """A model bound to its inputs and outputs. One run at a time.

    Args:
        prepare: makes an execution with everything set, reusable or not.
        outputs: what it writes into.
        reusable: whether executions can be used again (feature level 5); else each run prepares a new one.
        lock: held during a run; what the runs share that others use too.

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
        self._lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext() if lock is None else lock
        self._closed = False
        self.run: Callable[[], None] = self._run_once
        if reusable:
            self.execution = prepare(True)
            self.run = self._repeated(self.execution, lock)
        else:
            prepare(False).close()  # what does not fit is said now

    def _repeated(self, execution: Execution, lock: threading.Lock | None) -> Callable[[], None]:
        launch, function = execution.launcher(), execution.waits_in

        def run() -> None:
            if result := launch():
                raise _failure(function, result)

        def run_locked() -> None:
            with self._lock:
                run()

        return run if lock is None else run_locked

    def _run_once(self) -> None:
        if self.execution is not None:
            self.execution.close()
        self.execution = self._prepare(False)
        with self._lock:
            result = self.execution.launcher()()
        if result:
            raise _failure(self.execution.waits_in, result)

    def close(self) -> None:
        """Free the execution; the buffers are the caller's again. More than once is harmless."""
        self.run = _refuse
        if self.execution is not None:
            self.execution.close()

    def __enter__(self) -> BoundRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _failure(function: str, result: int) -> DeviceError:
    if result == ResultCode.OUTPUT_INSUFFICIENT_SIZE:
        return DeviceError(
            "the driver wants a larger buffer than the output's shape says",
            call=function,
            code="OUTPUT_INSUFFICIENT_SIZE",
        )
    return explain_result(function, result)


def _refuse() -> None:
    raise DeviceError("the bound run is closed")
