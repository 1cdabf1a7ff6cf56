"""What a session's runs take, on either back end, as the same report."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx2nnapi.ir.types import Array
from onnx2nnapi.runtime.benchmark import BenchmarkReport, ModeReport, benchmark, benchmark_executor, why_no_durations
from onnx2nnapi.runtime.device import NnapiExecutor
from onnx2nnapi.runtime.device_list import select_devices
from onnx2nnapi.runtime.library import is_available, open_library
from onnx2nnapi.runtime.session import Session
from onnx2nnapi.runtime.timing import MemoryUse, measure, memory_use

__all__ = ["has_one_device", "profile_rows", "time_session"]


def has_one_device(library: str | os.PathLike[str] | None, devices: Sequence[str] | None) -> bool:
    """Whether one device is chosen, which then measures its own durations."""
    if not devices or not is_available(library):
        return False
    chosen = select_devices(open_library(library), devices)
    return chosen is not None and len(chosen) == 1


def time_session(
    session: Session,
    feeds: Mapping[str, Array],
    *,
    load_seconds: float,
    open_seconds: float,
    before: MemoryUse | None,
    modes: Sequence[Any] = (),
    options: Mapping[str, Any] | None = None,
    **how: Any,
) -> BenchmarkReport:
    """Time a session that is open, and then, on NNAPI, each other way to run that ``modes`` names.

    Args:
        session: what runs.
        feeds: its inputs.
        load_seconds: what having the program took.
        open_seconds: what opening the session took.
        before: memory before that.
        modes: sync, async, burst, fenced.
        options: of the executors that these open.
        **how: ``runs``, ``warmup``, ``min_seconds`` and ``max_seconds`` of ``measure``.
    """
    memory = {"before": before, "opened": memory_use()}
    device = session.executors[0] if len(session.executors) == 1 else None
    reports: list[ModeReport] = []
    no_durations: str | None = None
    if isinstance(device, NnapiExecutor):
        segment = session.program.segments[0]
        operands = session.operands(feeds)
        inputs = [operands[name] for name in segment.inputs]
        no_durations = why_no_durations(device.library, measured=device.measures)
        if not modes or device.mode in modes:
            reports.append(benchmark_executor(device, inputs, **how))
        others = [mode for mode in modes if mode != device.mode]
        chosen = None if device.devices is None else [entry.index for entry in device.devices]
        if others:
            reports += benchmark(
                device.model, inputs, library=device.library, devices=chosen, modes=others, **how, **options or {}
            ).modes
    else:
        runs = measure(_forgetting_the_first(session, feeds), **how)
        reports.append(ModeReport(session.backend, open_seconds, None, None, runs, {}, ()))
    memory["after"] = memory_use()
    known = {name: use for name, use in memory.items() if use is not None}
    return BenchmarkReport(load_seconds, tuple(reports), known, no_durations)


def _forgetting_the_first(session: Session, feeds: Mapping[str, Array]) -> Callable[[], None]:
    """A run; what the first takes, which also plans, is left out of the operations' times."""
    numbers = itertools.count()

    def run() -> None:
        session.run(feeds)
        if not next(numbers):
            for entry in session.times:
                entry.seconds, entry.runs = 0.0, 0

    return run


def profile_rows(session: Session) -> list[dict[str, Any]]:
    """Each operation's mean time, its share and the share of all up to it, in the order of execution.

    An operation that later runs need not repeat, as its result is a view, takes none.
    """
    times = session.times
    runs = max((entry.runs for entry in times), default=0) or 1
    means = [entry.seconds / runs for entry in times]
    total = sum(means) or 1.0
    rows, so_far = [], 0.0
    for entry, mean in zip(times, means, strict=True):
        so_far += mean
        rows.append(
            {
                "operation": entry.operation.code.name,
                "origin": list(entry.operation.origin),
                "seconds": mean,
                "share": mean / total,
                "cumulative": so_far / total,
            }
        )
    return rows
