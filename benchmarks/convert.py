"""Measures `onnx2nnapi convert` against onnx's own load and save, onnxslim and onnxruntime's offline optimisation.

python benchmarks/convert.py [--only MODEL]... [--rounds N] [--json FILE] [--check]

Whole processes, interleaved in one run; medians, as ratios to the floor, which is `onnx.save(onnx.load(m), o)` and so
neither infers shapes nor optimises. The models are seeded (synthetic_models.py) and made in a temporary folder, which
needs 5 GB for the largest. With --check the exit status is 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import math
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.process import Cost, interleaved

HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENT = {"PYTHONPATH": str(HERE.parent)}

FLOOR = "import sys, onnx; onnx.save(onnx.load(sys.argv[1]), sys.argv[2])"
OFFLINE = (
    "import sys, onnxruntime as ort; o = ort.SessionOptions(); o.optimized_model_filepath = sys.argv[2];"
    "o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL; o.log_severity_level = 4;"
    "ort.InferenceSession(sys.argv[1], o, providers=['CPUExecutionProvider'])"
)


@dataclasses.dataclass(frozen=True)
class Workload:
    """A synthetic model, how often each command converts it, and the peers left out with the reason."""

    model: str
    rounds: int
    without: dict[str, str] = dataclasses.field(default_factory=dict)


SLOW = {"onnxslim": "takes minutes on so many nodes"}
OUTSIDE = {"onnxruntime": "leaves the weights in the original file, so that nothing is copied"}
WORKLOADS = [
    Workload("mobilenet_v2", 7),
    Workload("mobilenet_v2_qdq", 7),
    Workload("transformer", 5),
    Workload("resnet50", 5),
    *(Workload(f"{shape}_40", 3) for shape in ("chain", "branch")),  # what a start costs
    *(Workload(f"{shape}_{size}", 3, SLOW) for shape in ("chain", "branch") for size in (10_000, 50_000)),
    Workload("external", 2, OUTSIDE),
]


def commands(model: pathlib.Path, out: pathlib.Path) -> dict[str, list[str]]:
    """What converts `model`, by the name in the table; peers that are not installed are left out."""
    python, pair = sys.executable, [str(model), str(out / "model.onnx")]
    found = {
        "floor": [python, "-c", FLOOR, *pair],
        "onnx2nnapi": [python, "-m", "onnx2nnapi", "convert", str(model), "-o", str(out / "model.nnapi"), "-q"],
    }
    if importlib.util.find_spec("onnxslim"):
        found["onnxslim"] = [python, "-m", "onnxslim", *pair]
    if importlib.util.find_spec("onnxruntime"):
        found["onnxruntime"] = [python, "-c", OFFLINE, *pair]
    return found


def run(workload: Workload, rounds: int) -> dict[str, Cost]:
    """Make the model, convert it by every command in turn, print the table and return the medians."""
    with tempfile.TemporaryDirectory() as folder:
        model, out = pathlib.Path(folder) / f"{workload.model}.onnx", pathlib.Path(folder) / "out"
        out.mkdir()
        subprocess.run([sys.executable, str(HERE / "synthetic_models.py"), workload.model, str(model)], check=True)
        candidates = commands(model, out)
        chosen = {name: command for name, command in candidates.items() if name not in workload.without}
        size = sum(file.stat().st_size for file in model.parent.iterdir() if file.is_file())
        print(f"\n{workload.model}: {size / 1e6:.1f} MB, {rounds} rounds", flush=True)
        costs, failures = interleaved(chosen, rounds, ENVIRONMENT)
    floor = costs["floor"]
    print(f"  {'':12} {'wall':>17} {'user+sys':>17} {'peak memory':>19}")
    for name, cost in costs.items():
        pairs = ((cost.wall, floor.wall, "s"), (cost.cpu, floor.cpu, "s"), (cost.peak, floor.peak, "MiB"))
        print(f"  {name:12}" + "".join(f" {value:8.2f} {unit} {value / least:6.2f}" for value, least, unit in pairs))
    absent = {name: "is not installed" for name in ("onnxslim", "onnxruntime") if name not in candidates}
    for name, reason in (absent | workload.without | failures).items():
        print(f"  {name:12} skipped: {reason}", flush=True)
    return costs


def bounds(results: dict[str, dict[str, Cost]]) -> Iterator[tuple[str, float, float]]:
    """Each bound that the measured models can judge: what it is, the value, the most that is allowed."""
    ours = {model: costs["onnx2nnapi"] for model, costs in results.items() if "onnx2nnapi" in costs}
    if "external" in ours:
        yield "1.5 GB: wall time over the floor's", ours["external"].wall / results["external"]["floor"].wall, 0.6
        yield "1.5 GB: peak memory in MiB", ours["external"].peak, 300e6 / (1 << 20)
    for shape in ("chain", "branch"):
        start, small, large = (ours.get(f"{shape}_{size}") for size in (40, 10_000, 50_000))
        if start and small and large and small.cpu > start.cpu:
            growth = (large.cpu - start.cpu) / (small.cpu - start.cpu)
            yield f"{shape}: exponent from 10,000 to 50,000 nodes", math.log(growth, 5), 1.2


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="MODEL", help="a part of a model's name")
    parser.add_argument("--rounds", type=int, help="instead of each model's own number")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bound is missed")
    args = parser.parse_args()
    chosen = [w for w in WORKLOADS if not args.only or any(word in w.model for word in args.only)]
    results = {workload.model: run(workload, args.rounds or workload.rounds) for workload in chosen}
    missed = any("onnx2nnapi" not in costs for costs in results.values())
    print()
    for what, value, most in bounds(results):
        print(f"{'held' if value <= most else 'MISSED'}: {what}: {value:.2f}, at most {most:.2f}")
        missed |= value > most
    if args.json:
        rows = {model: {n: dataclasses.asdict(c) for n, c in costs.items()} for model, costs in results.items()}
        args.json.write_text(json.dumps(rows, indent=1))
    return int(args.check and missed)


if __name__ == "__main__":
    sys.exit(main())
