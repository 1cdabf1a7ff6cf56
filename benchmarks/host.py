"""Measures the host interpreter against onnxruntime, onnx.reference and LiteRT on the same models and inputs.

python benchmarks/host.py [--only MODEL]... [--threads N]... [--rounds N] [--json FILE] [--check]

One process per runtime and round, interleaved in one run; the figure is the median over the processes of their median
run, as a ratio to onnxruntime. The difference is the largest one to onnxruntime's outputs, over their largest value.
LiteRT runs the very graph that NNAPI would get, written as a .tflite file (tflite.py), with XNNPACK and with its own
kernels. With --check the exit status is 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray

ROOT = pathlib.Path(__file__).resolve().parents[1]
Arrays = dict[str, NDArray[Any]]
Runner = Callable[[Arrays], Arrays]

MODELS = ["mobilenet_v2", "resnet50", "transformer", "mobilenet_v2_qdq"]
# Level 6 brought BATCH_MATMUL.
CONVERT = "import sys, onnx2nnapi; onnx2nnapi.convert(sys.argv[1], feature_level=6).save(sys.argv[2])"
SECONDS, WARMUP, FEWEST = 1.5, 2, 3  # a process measures as long, and as many runs at least


def onnx2nnapi_runner(folder: pathlib.Path, threads: int) -> Runner:
    """The interpreter of this project."""
    import onnx2nnapi

    return onnx2nnapi.Session(folder / "model.nnapi", backend="host").run


def onnxruntime_runner(folder: pathlib.Path, threads: int) -> Runner:
    """All of onnxruntime's optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds), strict=True))


def reference_runner(folder: pathlib.Path, threads: int) -> Runner:
    """The reference implementation that comes with onnx, in numpy."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(folder / "model.onnx"))
    return lambda feeds: dict(zip(evaluator.output_names, evaluator.run(None, feeds), strict=True))


def litert_runner(folder: pathlib.Path, threads: int, builtin: bool = False) -> Runner:
    """LiteRT, whose model has one input and one output that are called as in the .tflite file."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kinds = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if builtin else OpResolverType.AUTO
    path = str(folder / "model.tflite")
    interpreter = Interpreter(model_path=path, num_threads=threads, experimental_op_resolver_type=kinds)
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()

    def run(feeds: Arrays) -> Arrays:
        (feed,) = feeds.values()
        interpreter.set_tensor(source["index"], feed)
        interpreter.invoke()
        return {result["name"]: interpreter.get_tensor(result["index"])}

    return run


RUNNERS: dict[str, Callable[[pathlib.Path, int], Runner]] = {
    "onnxruntime": onnxruntime_runner,
    "onnx2nnapi": onnx2nnapi_runner,
    "onnx.reference": reference_runner,
    "LiteRT XNNPACK": litert_runner,
    "LiteRT built-in": lambda folder, threads: litert_runner(folder, threads, builtin=True),
}
NEEDS = {"onnxruntime": "onnxruntime", "LiteRT XNNPACK": "ai_edge_litert", "LiteRT built-in": "ai_edge_litert"}


def work(runtime: str, folder: pathlib.Path, threads: int) -> None:
    """In a process of its own: print the median seconds of a run, and leave the outputs beside the model."""
    with np.load(folder / "feeds.npz") as file:
        feeds = dict(file)
    run = RUNNERS[runtime](folder, threads)
    start = time.perf_counter()
    np.savez(folder / f"{runtime}.npz", *run(feeds).values())
    slow = time.perf_counter() - start > SECONDS
    for _ in range(0 if slow else WARMUP):
        run(feeds)
    times: list[float] = []
    while len(times) < (1 if slow else FEWEST) or sum(times) < SECONDS:
        start = time.perf_counter()
        run(feeds)
        times.append(time.perf_counter() - start)
    print(statistics.median(times))


def python(*arguments: str, **environment: str) -> str:
    """The last line that a Python process prints; RuntimeError with its last complaint when it fails."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=settings, timeout=1800)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:160])
    return (done.stdout.strip().splitlines() or [""])[-1]


def prepare(model: str, folder: pathlib.Path) -> dict[str, str]:
    """Write the model in every format, and its feeds; returns the runtimes that cannot run, with the reason."""
    import onnx

    source = folder / "model.onnx"
    python(str(ROOT / "benchmarks" / "synthetic_models.py"), model, str(source))
    (value,) = onnx.load(source, load_external_data=False).graph.input
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    feed = np.random.default_rng(0).standard_normal(shape, np.float32)
    feeds: dict[str, Any] = {value.name: feed}
    np.savez(folder / "feeds.npz", **feeds)
    skipped = {name: "is not installed" for name, module in NEEDS.items() if importlib.util.find_spec(module) is None}
    target = str(folder / "model.nnapi")
    try:
        python("-c", CONVERT, str(source), target)
    except RuntimeError as error:
        return skipped | dict.fromkeys(("onnx2nnapi", "LiteRT XNNPACK", "LiteRT built-in"), str(error))
    if "LiteRT XNNPACK" not in skipped:
        try:
            python(str(ROOT / "benchmarks" / "tflite.py"), target, str(folder / "model.tflite"))
        except RuntimeError as error:
            skipped |= {name: f"no .tflite file: {error}" for name in RUNNERS if name.startswith("LiteRT")}
    return skipped


def difference(folder: pathlib.Path, runtime: str) -> float:
    """The largest difference to onnxruntime's outputs, over the largest of their values."""
    with np.load(folder / "onnxruntime.npz") as wanted, np.load(folder / f"{runtime}.npz") as given:
        pairs = [(wanted[name].astype(float), given[name].astype(float)) for name in wanted.files]
    return max(float(np.abs(want - got).max() / np.abs(want).max()) for want, got in pairs)


def measure(model: str, folder: pathlib.Path, threads: int, rounds: int, skipped: dict[str, str]) -> dict[str, float]:
    """Run each runtime once a round in a process of its own, print the table and return the seconds."""
    names = [name for name in RUNNERS if name not in skipped and (threads == 1 or name != "onnx.reference")]
    times: dict[str, list[float]] = {name: [] for name in names}
    failures = dict(skipped)
    count = str(threads)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if name in failures:
                continue
            worker = [__file__, "--worker", name, str(folder), "--threads", count]
            try:
                times[name].append(float(python(*worker, OPENBLAS_NUM_THREADS=count, OMP_NUM_THREADS=count)))
            except RuntimeError as error:
                failures[name] = str(error)
    medians = {name: statistics.median(values) for name, values in times.items() if name not in failures}
    print(f"\n{model}, {threads} thread{'s' if threads > 1 else ''}, {rounds} rounds")
    unit = medians.get("onnxruntime", float("nan"))
    for name, seconds in medians.items():
        off = difference(folder, name) if "onnxruntime" in medians else float("nan")
        print(f"  {name:16} {seconds * 1e3:9.2f} ms {seconds / unit:7.2f}   difference {off:.1e}")
    for name, reason in failures.items():
        print(f"  {name:16} skipped: {reason}")
    sys.stdout.flush()
    return medians


def validation_over_json() -> float:
    """How long a model of 10,000 operations takes to validate, over the time to read its description as JSON."""
    from benchmarks.synthetic_models import chain
    from onnx2nnapi import convert
    from onnx2nnapi.nnapi import validate

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "chain.onnx"
        chain(path, 10_000)
        model = convert(path).model
    text = json.dumps(model.to_dict())
    ratios = []
    for _ in range(5):
        start = time.perf_counter()
        json.loads(text)
        middle = time.perf_counter()
        validate(model)
        ratios.append((time.perf_counter() - middle) / (middle - start))
    return statistics.median(ratios)


def bounds(results: dict[str, dict[str, float]]) -> Iterator[tuple[str, float, float]]:
    """The bounds at one thread: what, the ratio, the most that is allowed."""
    wanted = [
        ("mobilenet_v2", "onnxruntime", 2.0),
        ("resnet50", "onnxruntime", 1.6),
        ("transformer", "onnxruntime", 1.5),
        *((model, "onnx.reference", 0.2) for model in ("mobilenet_v2", "resnet50", "transformer")),
        ("mobilenet_v2_qdq", "onnxruntime", 6.0),
        ("mobilenet_v2_qdq", "LiteRT built-in", 1.4),
    ]
    for model, peer, most in wanted:
        times = results.get(model, {})
        if peer in times and "onnx2nnapi" in times:
            yield f"{model}: time over that of {peer}", times["onnx2nnapi"] / times[peer], most


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="MODEL", choices=[*MODELS, "validation"])
    parser.add_argument("--threads", action="append", type=int, metavar="N", help="default: 1 and 2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bound is missed")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker[0], pathlib.Path(args.worker[1]), args.threads[0])
        return 0
    results: dict[int, dict[str, dict[str, float]]] = {threads: {} for threads in args.threads or [1, 2]}
    for model in [model for model in MODELS if not args.only or model in args.only]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            skipped = prepare(model, folder)
            for threads, rows in results.items():
                rows[model] = measure(model, folder, threads, args.rounds, skipped)
    judged = list(bounds(results.get(1, {})))
    if not args.only or "validation" in args.only:
        judged.append(("validation of 10,000 operations over reading JSON", validation_over_json(), 3.0))
    print()
    for what, value, most in judged:
        print(f"{'held' if value <= most else 'MISSED'}: {what}: {value:.2f}, at most {most:.2f}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return int(args.check and any(value > most for _, value, most in judged))


if __name__ == "__main__":
    sys.exit(main())
