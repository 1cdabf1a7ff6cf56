"""What a bound run costs over the C calls themselves, and what opening a large artifact costs.

python benchmarks/dispatch.py [--library PATH] [--json FILE] [--check]

A driver that computes nothing is needed, so that the calls alone are measured: by default the host library of the
tests, built with the C compiler found. Everything is a ratio within one process: to a plain Python call, to the same
C calls made by ctypes without anything around them, and of a large artifact to a small one. With --check the exit
status is 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from onnx2nnapi.nnapi import Model
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.model import Lifetime, Operand, Operation, Subgraph
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.program import Port, Program, Segment
from onnx2nnapi.runtime.bound import BoundRun
from onnx2nnapi.runtime.device import NnapiExecutor
from onnx2nnapi.runtime.execution import MODES, Execution, Mode
from onnx2nnapi.runtime.library import open_library

BOUND_IN_PLAIN_CALLS = 60
BOUND_OF_MEMORY = 1.05
LARGE, SMALL = 1 << 30, 1 << 20


def model(count: int, constant: bool) -> Model:
    """x + y of ``count`` floats, where y is a constant or an input."""
    type_ = OperandType(OperandCode.TENSOR_FLOAT32, (count,))
    second = (
        Operand(type_, Lifetime.CONSTANT, np.zeros(count, np.float32)) if constant else Operand(type_, Lifetime.INPUT)
    )
    none = Operand(OperandType(OperandCode.INT32), Lifetime.CONSTANT, np.zeros(1, np.int32))
    operands = (Operand(type_, Lifetime.INPUT), second, none, Operand(type_, Lifetime.OUTPUT))
    inputs = (0,) if constant else (0, 1)
    return Model(Subgraph(operands, (Operation(OperationCode.ADD, (0, 1, 2), (3,)),), inputs, (3,)))


def seconds_of(functions: Sequence[Callable[[], object]], count: int = 2_000, rounds: int = 40) -> list[float]:
    """Seconds of one call of each: the best of many short rounds, interleaved, as the machine is not ours alone."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for place, function in enumerate(functions):
            started = time.perf_counter()
            for _ in range(count):
                function()
            best[place] = min(best[place], time.perf_counter() - started)
    return [seconds / count for seconds in best]


def plain_call() -> None:
    """The plain Python call that everything is measured in."""


def dispatch(path: str) -> dict[str, dict[str, float]]:
    """For each way to run: its C calls, microseconds of the run and of these calls alone, and both in plain calls.

    An asynchronous run is three C calls (start, wait, free the event), and so is a synchronous one that asks for its
    output's shape.
    """
    compute_nothing(path)
    x = np.zeros(16, np.float32)
    found: dict[str, Row] = {}
    modes: tuple[Mode, ...] = ("sync", "burst", "async", "fenced")
    for mode in modes:
        with NnapiExecutor(model(16, False), path, mode=mode) as executor, executor.bind([x, x]) as bound:
            execution = bound.execution
            assert execution is not None
            found[mode] = Row.of(bound.run, bare_calls(path, execution, mode))
            if mode == "sync":
                found["sync + shape"] = Row.of(run_and_ask(bound), bare_shape(path, execution))
    return {name: dataclasses.asdict(row) for name, row in found.items()}


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to run."""

    run_us: float
    c_calls_us: float
    run_in_plain_calls: float
    c_calls_in_plain_calls: float

    @classmethod
    def of(cls, run: Callable[[], object], bare: Callable[[], object]) -> Row:
        """Measured against each other and a plain call."""
        mine, theirs, plain = seconds_of([run, bare, plain_call])
        return cls(mine * 1e6, theirs * 1e6, mine / plain, theirs / plain)


def bare_calls(path: str, execution: Execution, mode: Mode) -> Callable[[], object]:
    """The C calls of a run by ctypes, unchecked."""
    library, handle = open_library(path), ctypes.c_void_p(execution.pointer)
    if mode == "burst":
        return execution.launcher()  # the burst is the executor's own; this is the call alone
    start = library.untyped(MODES[mode])
    if mode == "sync":
        return lambda: start(handle)
    event = ctypes.c_void_p()
    wait, free = library.untyped("ANeuralNetworksEvent_wait"), library.untyped("ANeuralNetworksEvent_free")
    nothing = (None, ctypes.c_uint32(0), ctypes.c_uint64(0)) if mode == "fenced" else ()
    arguments = (handle, *nothing, ctypes.byref(event))
    return lambda: (start(*arguments), wait(event), free(event))


def run_and_ask(bound: BoundRun) -> Callable[[], object]:
    """A run, then its output's shape."""
    assert bound.execution is not None
    run, shape = bound.run, bound.execution.output_shape
    return lambda: (run(), shape(0))


def bare_shape(path: str, execution: Execution) -> Callable[[], object]:
    """The three C calls of a synchronous run that asks for its output's shape, unchecked."""
    library, handle = open_library(path), ctypes.c_void_p(execution.pointer)
    compute = library.untyped("ANeuralNetworksExecution_compute")
    ask_rank = library.untyped("ANeuralNetworksExecution_getOutputOperandRank")
    ask_sizes = library.untyped("ANeuralNetworksExecution_getOutputOperandDimensions")
    sizes = (ctypes.c_uint32 * 8)()
    return lambda: (compute(handle), ask_rank(handle, 0, sizes), ask_sizes(handle, 0, sizes))


def compute_nothing(path: str) -> None:
    """Tell the host library to compute nothing, to start no threads, to open no fences, and not to write a log."""
    library = ctypes.CDLL(path)
    library.host_set_callbacks(None, library.host_compute_nothing)
    library.host_set_logging(0)
    library.host_set_threads(0)
    library.host_set_fences(0)  # each is a pipe, which takes longer than the calls


OPEN = """
import ctypes, sys
sys.path.insert(0, sys.argv[3])
from benchmarks.dispatch import compute_nothing
from onnx2nnapi.program import load
from onnx2nnapi.runtime.bound import BoundRun
from onnx2nnapi.runtime.device import NnapiExecutor
from onnx2nnapi.runtime.timing import memory_use
compute_nothing(sys.argv[2])
with NnapiExecutor(load(sys.argv[1]).segments[0].model, sys.argv[2]) as executor:
    assert executor.notes == (), executor.notes
    print(memory_use().peak)
"""


def opening(path: str) -> dict[str, float]:
    """The peak memory of processes that open and build a large and a small artifact."""
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in (LARGE, SMALL):
            file = pathlib.Path(folder) / f"{size}.nnapi"
            program = one_segment(model(size // 4, True), size // 4)
            program.save(file)
            del program
            command = [sys.executable, "-c", OPEN, str(file), path, str(pathlib.Path(__file__).resolve().parents[1])]
            peaks[size] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"large_mb": peaks[LARGE] / 1e6, "small_mb": peaks[SMALL] / 1e6, "ratio": peaks[LARGE] / peaks[SMALL]}


def one_segment(description: Model, count: int) -> Program:
    """A program that is one model."""
    return Program(
        (Segment(description, ("x",), ("y",)),),
        (Port("x", "float32", (count,), tensor="x"),),
        (Port("y", "float32", (count,), tensor="y"),),
    )


def main() -> int:
    """Measure, print, and check the bounds where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    path = options.library
    if path is None:
        from tests.nnapi_host.host import build

        path = str(build(8))
    open_library(path)
    rows, memory = dispatch(path), opening(path)
    print(f"{'':14}{'bound run':>10}{'C calls':>12}   in plain Python calls")
    for name, row in rows.items():
        print(
            f"{name:14}{row['run_us']:7.2f} us{row['c_calls_us']:9.2f} us"
            f"{row['run_in_plain_calls']:9.1f}{row['c_calls_in_plain_calls']:9.1f}"
        )
    print(
        f"opening 1 GB takes {memory['large_mb']:.0f} MB, 1 MB takes {memory['small_mb']:.0f} MB: {memory['ratio']:.3f}"
    )
    if options.json is not None:
        options.json.write_text(json.dumps({"dispatch": rows, "opening": memory}, indent=1))
    calls = max(row["run_in_plain_calls"] for row in rows.values())
    kept = calls <= BOUND_IN_PLAIN_CALLS and memory["ratio"] <= BOUND_OF_MEMORY
    if options.check and not kept:
        print(
            f"a bound is missed: {BOUND_IN_PLAIN_CALLS} plain calls, {BOUND_OF_MEMORY} of the memory", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
