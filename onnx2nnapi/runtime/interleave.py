"""The order of bands: operations in a row take turns, so that what one writes is read while it is still in the cache.

Kernels compute their results in bands (``kernels.tape``). A band may run as soon as the bands before it have, and all
that it reads is there, and nobody needs any more what it overwrites; of those that may, the one of the latest operation
runs. So a chain of operations passes over its tensors once, a few rows at a time, with the arithmetic unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.runtime.kernels import Band, Step, Tape

__all__ = ["interleaved"]


def interleaved(tapes: Sequence[Tape]) -> list[Step]:
    """The steps of operations in a row, by an order of their bands that gives the same results.

    Args:
        tapes: of the operations in order; each is complete when its last band has run.
    """
    waits = [_waits(tapes[:number], tape) for number, tape in enumerate(tapes)]
    turns = [0] * len(tapes)  # bands that have run
    done = [0] * len(tapes)  # elements that these have completed
    steps: list[Step] = []
    left = sum(len(tape.bands) for tape in tapes)
    while left:
        for number in reversed(range(len(tapes))):
            turn, tape = turns[number], tapes[number]
            if turn == len(tape.bands) or any(done[w.earlier] < w.counts[turn] for w in waits[number]):
                continue
            steps += tape.bands[turn].steps
            turns[number], done[number] = turn + 1, tape.bands[turn].until
            left -= 1
            break
    return steps


@dataclass(frozen=True, slots=True)
class _Wait:
    """How many elements an earlier operation must have completed before each band of a later one."""

    earlier: int
    counts: Sequence[int]


def _waits(before: Sequence[Tape], tape: Tape) -> list[_Wait]:
    """What the bands of an operation wait for."""
    waits = []
    for number, earlier in enumerate(before):
        for name, array in _memory(tape):
            for other, its in _memory(earlier):
                if (name and other) or not np.may_share_memory(array, its):
                    continue  # both only read, or they have nothing to do with each other
                counts = [_count(band, name) for band in tape.bands]
                if not (_coincide(array, its) and all(counts) and _goes_along(earlier, other)):
                    counts = [earlier.result.size] * len(tape.bands)
                waits.append(_Wait(number, [count or 0 for count in counts]))
    return waits


def _memory(tape: Tape) -> list[tuple[str, Array]]:
    """The arrays of an operation: its operands by name, and what it writes as ''."""
    read = [(name, value) for name, value in tape.operands.items() if isinstance(value, np.ndarray)]
    return [*read, ("", tape.result)]


def _count(band: Band, name: str) -> int | None:
    """How many elements of an array an operation has read or written after a band; None if that may be any."""
    return band.needs.get(name) if name else band.until


def _goes_along(tape: Tape, name: str) -> bool:
    """Whether a band reads or writes no element of an array that lies before those that it completes."""
    return all(not name or (band.lockstep and name in band.needs) for band in tape.bands)


def _coincide(a: Array, b: Array) -> bool:
    """Whether two arrays hold the same elements in the same order."""
    if a.size != b.size or a.itemsize != b.itemsize or a.ctypes.data != b.ctypes.data:
        return False
    return (a.flags.c_contiguous and b.flags.c_contiguous) or (a.shape == b.shape and a.strides == b.strides)
