"""Events: the end of a fenced run, and sync fences by descriptor, for runs to wait for on the device."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from onnx2nnapi.errors import DeviceError
from onnx2nnapi.nnapi.codes import ResultCode
from onnx2nnapi.runtime.handles import Handle, claimed
from onnx2nnapi.runtime.library import Library

if TYPE_CHECKING:
    from onnx2nnapi.runtime.execution import Execution

__all__ = ["Event"]


class Event(Handle):
    """An ANeuralNetworksEvent.

    Args:
        library: NNAPI.
        pointer: what the function that created it wrote.
        execution: whose run it ends; None for a fence.
    """

    __slots__ = ("_running",)

    def __init__(self, library: Library, pointer: int, execution: Execution | None = None) -> None:
        super().__init__(library, "ANeuralNetworksEvent_free", pointer, () if execution is None else (execution,))
        self._running = execution is not None

    @classmethod
    def of_fence(cls, library: Library, descriptor: int) -> Event:
        """The signal of a sync fence (of a camera, the GPU, another run); the descriptor is duplicated (level 4)."""
        return cls(library, library.create("ANeuralNetworksEvent_createFromSyncFenceFd", descriptor))

    def wait(self) -> None:
        """Until it is signalled.

        Raises:
            DeviceError: the run, or one that it waited for, failed.
        """
        with claimed(self):
            self._running = False
            self.library.call("ANeuralNetworksEvent_wait", self.pointer)

    def fence(self) -> int | None:
        """A new descriptor of its sync fence, for the caller to close; None where the driver has none: ``wait``."""
        descriptor = ctypes.c_int(-1)
        try:
            with claimed(self):
                self.library.call("ANeuralNetworksEvent_getSyncFenceFd", self.pointer, ctypes.byref(descriptor))
        except DeviceError as error:
            if error.code != ResultCode.BAD_DATA.name:
                raise
            return None
        return descriptor.value

    def close(self) -> None:
        """Free it, after the end of its run."""
        if self._running and self.pointer is not None:
            self._running = False
            self.library.ANeuralNetworksEvent_wait(self.pointer)  # how it ended interests nobody any more
        super().close()
