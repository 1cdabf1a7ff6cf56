"""Measures a model on a device: what opening costs, each way to run, durations on the hardware, memory."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from onnx2nnapi.errors import android_version
from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.codes import DurationCode
from onnx2nnapi.nnapi.model import Model
from onnx2nnapi.runtime.bound import BoundRun
from onnx2nnapi.runtime.compilation import CacheReport
from onnx2nnapi.runtime.device import NnapiExecutor
from onnx2nnapi.runtime.device_list import Device, select_devices
from onnx2nnapi.runtime.execution import Mode
from onnx2nnapi.runtime.library import Library, open_library
from onnx2nnapi.runtime.timing import Measurement, MemoryUse, Statistics, measure, memory_use, to_csv

__all__ = ["BenchmarkReport", "ModeReport", "benchmark", "benchmark_executor", "why_no_durations"]


@dataclass(frozen=True, slots=True)
class ModeReport:
    """One way to run.

    Attributes:
        mode: sync, async, burst or fenced; "host" for the interpreter.
        build_seconds, compile_seconds: to open it; the interpreter compiles nothing, which is None.
        cache: what the compilation cache did; None without one.
        runs: what the runs took.
        durations: by DurationCode's name, of the counted runs; empty where NNAPI measures none (several devices, or
            feature level below 3), and without those that the driver does not tell.
        notes: what was not done the straight way.
    """

    mode: str
    build_seconds: float
    compile_seconds: float | None
    cache: CacheReport | None
    runs: Measurement
    durations: dict[str, Statistics]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """What ``benchmark`` found.

    Attributes:
        load_seconds: what opening the file took, where the caller says so.
        modes: each way to run, in the order asked for.
        memory: of this process before, after opening, and at the end; empty where the system does not tell.
        no_durations: why there are none on the hardware and in the driver; None when there are.
    """

    load_seconds: float
    modes: tuple[ModeReport, ...]
    memory: dict[str, MemoryUse] = field(default_factory=dict)
    no_durations: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON; durations in seconds, memory in bytes."""
        entry = asdict(self)
        for mode, report in zip(entry["modes"], self.modes, strict=True):
            mode["runs"] = report.runs.to_dict()
            if report.cache is not None:
                mode["cache"]["seconds_saved"] = report.cache.seconds_saved
        return entry

    def series(self) -> dict[str, Statistics]:
        """Everything that has statistics, by name."""
        found = {}
        for report in self.modes:
            if report.runs.warmup is not None:
                found[f"{report.mode} warm-up"] = report.runs.warmup
            found[report.mode] = report.runs.steady
            found |= {f"{report.mode} {name}": row for name, row in report.durations.items()}
        return found

    def to_csv(self) -> str:
        """``series`` as lines of CSV."""
        return to_csv(self.series())

    def tables(self) -> list[tuple[str, list[list[str]]]]:
        """Titles and rows of text, the first row being the heads; times in milliseconds."""
        opening = [["mode", "load", "build", "compile", "cache", "first run"]]
        opening += [
            [
                report.mode,
                _ms(self.load_seconds),
                _ms(report.build_seconds),
                "-" if report.compile_seconds is None else _ms(report.compile_seconds),
                _cache(report.cache),
                _ms(report.runs.first),
            ]
            for report in self.modes
        ]
        rows = [["series", "count", "min", "mean", "std", "p50", "p90", "p99", "max"]]
        for name, row in self.series().items():
            times = (row.min, row.mean, row.std, row.p50, row.p90, row.p99, row.max)
            rows.append([name, str(row.count), *map(_ms, times)])
        memory = [["", "resident MB", "peak MB"]]
        memory += [[name, f"{use.resident / 1e6:.1f}", f"{use.peak / 1e6:.1f}"] for name, use in self.memory.items()]
        return [("opening, ms", opening), ("runs, ms", rows), ("memory", memory)]

    def remarks(self) -> list[str]:
        """What people should know beside the numbers."""
        lines = [note for report in self.modes for note in report.notes]
        lines += [
            f"{report.mode}: runs got {report.runs.throttling:.2f} times slower: it throttles, or is busy"
            for report in self.modes
            if report.runs.throttled
        ]
        return [*dict.fromkeys(lines), *([self.no_durations] if self.no_durations else [])]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _cache(report: CacheReport | None) -> str:
    if report is None:
        return "-"
    if report.hit:
        return f"hit, saved {_ms(report.seconds_saved)}"
    return "miss, stored" if report.stored else "miss, not stored"


def benchmark(
    model: Model,
    inputs: Sequence[Array | None],
    *,
    library: Library | str | os.PathLike[str] | None = None,
    devices: str | int | Sequence[str | int] | None = None,
    modes: Sequence[Mode | None] = (None,),
    runs: int = 50,
    warmup: int = 1,
    min_seconds: float = 0.0,
    max_seconds: float = math.inf,
    load_seconds: float = 0.0,
    **options: Any,
) -> BenchmarkReport:
    """Open ``model`` once for each mode and time runs over the same buffers, where outputs' shapes are known.

    Args:
        model: what to run.
        inputs: its inputs.
        library: as for NnapiExecutor.
        devices: as for NnapiExecutor.
        modes: ways to run; None is the runtime's default.
        runs: as for ``measure``.
        warmup: as for ``measure``.
        min_seconds: as for ``measure``.
        max_seconds: as for ``measure``.
        load_seconds: what opening the file took, for the report.
        **options: as for NnapiExecutor.

    Raises:
        FeedError, DeviceError, FeatureLevelError, InvalidModelError: as from NnapiExecutor and ``measure``.
    """
    nnapi = open_library(library)
    one = _is_one(select_devices(nnapi, devices))
    memory = {"before": memory_use()}
    reports = []
    for mode in modes:
        with NnapiExecutor(model, nnapi, devices, mode=mode, measure=one, **options) as executor:
            memory.setdefault("opened", memory_use())
            reports.append(
                benchmark_executor(
                    executor, inputs, runs=runs, warmup=warmup, min_seconds=min_seconds, max_seconds=max_seconds
                )
            )
    memory["after"] = memory_use()
    known = {name: use for name, use in memory.items() if use is not None}
    return BenchmarkReport(load_seconds, tuple(reports), known, why_no_durations(nnapi, measured=one))


def benchmark_executor(executor: NnapiExecutor, inputs: Sequence[Array | None], **how: Any) -> ModeReport:
    """Time runs of one that is open; where it measures durations, these too.

    Args:
        executor: what runs.
        inputs: the model's.
        **how: ``runs``, ``warmup``, ``min_seconds`` and ``max_seconds`` of ``measure``.

    Raises:
        FeedError, DeviceError: as from ``NnapiExecutor.bind`` and ``measure``.
    """
    durations: dict[DurationCode, list[float]] = {}
    with _Runs(executor, inputs) as run:
        collect = functools.partial(_collect, run, durations) if executor.measures else None
        measured = measure(run, after=collect, **how)
    return _report(executor, measured, durations)


def why_no_durations(library: Library, *, measured: bool) -> str | None:
    """What durations on the hardware and in the driver want, where they are not measured."""
    if measured:
        return None
    if library.level < 3:
        return f"durations on the hardware and in the driver need feature level 3 ({android_version(3)})"
    return "durations on the hardware and in the driver need one device: --device NAME"


def _is_one(devices: Sequence[Device] | None) -> bool:
    return devices is not None and len(devices) == 1


class _Runs:
    """Runs over the same buffers; where only a run tells the outputs' shapes, each allocates its own."""

    def __init__(self, executor: NnapiExecutor, inputs: Sequence[Array | None]) -> None:
        self._executor = executor
        self._inputs = inputs
        self._bound: BoundRun | None = None
        if all(type_.is_specified for type_ in executor.model.main.output_types()):
            self._bound = executor.bind([None if value is None else np.ascontiguousarray(value) for value in inputs])

    def __call__(self) -> None:
        if self._bound is not None:
            self._bound.run()
        else:
            self._executor.run(self._inputs)

    def durations(self) -> dict[DurationCode, int | None]:
        """Of the latest run."""
        if self._bound is None or self._bound.execution is None:
            return self._executor.durations
        return self._bound.execution.durations()

    def __enter__(self) -> _Runs:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bound is not None:
            self._bound.close()


def _collect(run: _Runs, durations: dict[DurationCode, list[float]]) -> None:
    for code, nanoseconds in run.durations().items():
        if nanoseconds is not None:
            durations.setdefault(code, []).append(nanoseconds / 1e9)


def _report(executor: NnapiExecutor, measured: Measurement, durations: dict[DurationCode, list[float]]) -> ModeReport:
    return ModeReport(
        executor.mode,
        executor.build_seconds,
        executor.compile_seconds,
        executor.cache,
        measured,
        {code.name.lower().replace("_", " "): Statistics.of(values) for code, values in durations.items()},
        executor.notes,
    )
