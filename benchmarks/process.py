"""Runs whole processes in turn and measures each: wall time, processor time, peak memory."""

from __future__ import annotations

import dataclasses
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

MEBI = 1 << 20


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one process took, or the medians of several."""

    wall: float
    """Seconds from start to end."""
    cpu: float
    """User and system seconds."""
    peak: float
    """MiB of resident memory at the most."""

    @classmethod
    def median(cls, costs: Iterable[Cost]) -> Cost:
        """The median of each figure."""
        figures = zip(*(dataclasses.astuple(cost) for cost in costs), strict=True)
        return cls(*(statistics.median(figure) for figure in figures))


class CommandError(Exception):
    """A measured process ended with another status than 0; the message is the last line that it wrote."""


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None, seconds: float = 1200) -> Cost:
    """Run the command to its end, its output thrown away.

    The measuring process must stay small: a child's peak counts the memory that its parent held when it was started.

    Raises:
        CommandError: It failed, or took longer than `seconds`.
    """
    with tempfile.TemporaryFile("w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **(environment or {})})
        limit = threading.Timer(seconds, process.kill)
        limit.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        limit.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            lines = output.read().strip().splitlines() or [f"exit status {process.returncode}"]
            raise CommandError(lines[-1][:160])
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def interleaved(
    commands: Mapping[str, Sequence[str]], rounds: int, environment: Mapping[str, str] | None = None
) -> tuple[dict[str, Cost], dict[str, str]]:
    """Measure every command once a round, each round starting one command later.

    Returns:
        The medians of the commands that ran, and why each of the others did not.
    """
    names = list(commands)
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    failures: dict[str, str] = {}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if name not in failures:
                try:
                    costs[name].append(measure(commands[name], environment))
                except CommandError as error:
                    failures[name] = str(error)
    return {name: Cost.median(costs[name]) for name in names if name not in failures}, failures
