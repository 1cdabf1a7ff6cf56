"""How long runs take: statistics, warm-up and measured loops, memory, and what says that a phone throttled."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onnx2nnapi.errors import FeedError

__all__ = ["Measurement", "MemoryUse", "Statistics", "measure", "memory_use", "to_csv"]

_THROTTLED = 1.2  # the last tenth of the runs takes this many times as long as the first
_FEWEST_TO_JUDGE = 20


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of durations in seconds. std is the population's; percentiles are interpolated as numpy does."""

    count: int
    min: float
    max: float
    mean: float
    std: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Statistics:
        """Of at least one duration."""
        ordered = sorted(seconds)
        mean = math.fsum(ordered) / len(ordered)
        variance = math.fsum((value - mean) ** 2 for value in ordered) / len(ordered)

        def percentile(share: float) -> float:
            place = share * (len(ordered) - 1)
            low = math.floor(place)
            high = min(low + 1, len(ordered) - 1)
            return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

        return cls(
            len(ordered),
            ordered[0],
            ordered[-1],
            mean,
            math.sqrt(variance),
            percentile(0.5),
            percentile(0.9),
            percentile(0.99),
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a series of runs took.

    Attributes:
        first: seconds of the very first run.
        warmup: of the runs after it that are not counted; None without any.
        steady: of the counted runs.
        throttling: the mean of the last tenth of the counted runs over that of the first; None for fewer than 20.
    """

    first: float
    warmup: Statistics | None
    steady: Statistics
    throttling: float | None

    @property
    def throttled(self) -> bool:
        """Whether runs became clearly slower, as they do when a phone gets hot."""
        return self.throttling is not None and self.throttling >= _THROTTLED

    def to_dict(self) -> dict[str, Any]:
        """For JSON; durations in seconds."""
        return asdict(self) | {"throttled": self.throttled}


def measure(
    run: Callable[[], object],
    *,
    runs: int = 50,
    warmup: int = 1,
    min_seconds: float = 0.0,
    max_seconds: float = math.inf,
    after: Callable[[], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Time ``run``: one first, ``warmup`` more that are not counted, then the counted ones.

    Args:
        run: what to time.
        runs: how many are counted at least.
        warmup: how many are not, after the first.
        min_seconds: go on beyond ``runs`` until the counted ones took as long.
        max_seconds: stop when the counted ones took as long, also before ``runs``; one is always counted.
        after: called after each counted run, outside of what is timed.
        clock: seconds.

    Raises:
        FeedError: ``runs`` is not positive, ``warmup`` is negative, or the times contradict each other.
    """
    if runs < 1 or warmup < 0 or not 0 <= min_seconds <= max_seconds:
        raise FeedError(
            f"runs={runs}, warmup={warmup}, min_seconds={min_seconds}, max_seconds={max_seconds} cannot be measured",
            hint="at least one run, and min_seconds at most max_seconds",
        )

    def timed() -> float:
        started = clock()
        run()
        return clock() - started

    first = timed()
    warm = [timed() for _ in range(warmup)]
    steady: list[float] = []
    total = 0.0
    while not steady or ((len(steady) < runs or total < min_seconds) and total < max_seconds):
        steady.append(timed())
        total += steady[-1]
        if after is not None:
            after()
    return Measurement(first, Statistics.of(warm) if warm else None, Statistics.of(steady), _throttling(steady))


def _throttling(seconds: Sequence[float]) -> float | None:
    tenth = len(seconds) // 10
    if len(seconds) < _FEWEST_TO_JUDGE:
        return None
    first, last = math.fsum(seconds[:tenth]), math.fsum(seconds[-tenth:])
    return last / first if first > 0 else None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Of this process, in bytes: what is resident now, and the most that ever was."""

    resident: int
    peak: int


def memory_use() -> MemoryUse | None:
    """Read from /proc; None where there is none."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        resident, peak = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    except (OSError, KeyError, ValueError, IndexError):
        return None
    return MemoryUse(resident, peak)


def to_csv(rows: Mapping[str, Statistics]) -> str:
    """One line for each named series, durations in seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["series", *Statistics.__slots__])
    for name, row in rows.items():
        writer.writerow([name, *asdict(row).values()])
    return text.getvalue()
