"""The cyclic garbage collector, held off while graphs grow: it would walk all of them again and again, for nothing."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collector_off"]


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Leave cyclic garbage alone for the length of a ``with`` block (or of a function, as a decorator)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
