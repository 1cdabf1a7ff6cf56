"""Handles of NNAPI's objects: each is freed once, and only after everything that was made from it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from onnx2nnapi.errors import DeviceError

if TYPE_CHECKING:
    from typing_extensions import Self

    from onnx2nnapi.runtime.library import Library

__all__ = ["Handle", "claimed"]

_lock = threading.RLock()  # reentrant: a collected handle may be finalised in the middle of another's close()


class Handle:
    """An object of NNAPI's that this process owns.

    NNAPI leaves it to the caller that a model outlives its compilations, a compilation its executions, and so on. Here
    ``close`` gives up the owner's claim; the object is freed when the last of those that need it is freed.

    Args:
        library: where it comes from.
        free: the C function that frees it.
        pointer: what the function that created it wrote.
        needs: handles that must outlive it.
        keep: Python objects whose memory it points into.

    Attributes:
        library: where it comes from.
        pointer: to hand to C; None once freed.
    """

    __slots__ = ("__weakref__", "_closed", "_free", "_keep", "_needs", "_users", "library", "pointer")

    def __init__(
        self, library: Library, free: str, pointer: int, needs: tuple[Handle, ...] = (), keep: Iterable[object] = ()
    ) -> None:
        self.library = library
        self.pointer: int | None = pointer
        self._free = getattr(library, free)
        self._needs = needs
        self._keep = list(keep)
        self._users = 0
        self._closed = False
        for needed in needs:
            needed.use()

    @property
    def closed(self) -> bool:
        """Whether its owner has given it up; what needs it may keep it alive."""
        return self._closed

    def close(self) -> None:
        """Free it as soon as nothing needs it any more. More than once is harmless."""
        with _lock:
            self._closed = True
            self._release()

    def use(self) -> None:
        """Claim that something needs it, until ``unuse``.

        Raises:
            DeviceError: it is freed already.
        """
        with _lock:
            if self.pointer is None:
                raise DeviceError("it is closed", where=type(self).__name__)
            self._users += 1

    def keep(self, value: object) -> None:
        """Keep ``value``, which C points into, until the object is freed; a handle is needed as long."""
        if isinstance(value, Handle):
            value.use()
            self._needs += (value,)
        else:
            self._keep.append(value)

    def unuse(self) -> None:
        """Give up the claim of one ``use``."""
        with _lock:
            self._users -= 1
            self._release()

    def disown(self) -> None:
        """Forget the object without freeing it: another handle owns it now."""
        with _lock:
            self.pointer = None
            needs, self._needs = self._needs, ()
            for needed in needs:
                needed.unuse()

    def _release(self) -> None:
        if not self._closed or self._users or self.pointer is None:
            return
        pointer, self.pointer = self.pointer, None
        self._free(pointer)
        self._keep = []
        needs, self._needs = self._needs, ()
        for needed in reversed(needs):
            needed.unuse()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):  # it was made completely
            self.close()


@contextlib.contextmanager
def claimed(*handles: Handle) -> Iterator[None]:
    """Hold ``handles`` while C makes something from them, as another thread may close them meanwhile.

    Raises:
        DeviceError: one is freed already.
    """
    with contextlib.ExitStack() as stack:
        for handle in handles:
            handle.use()
            stack.callback(handle.unuse)
        yield
