"""Run the cases of ``onnx.backend.test`` through the public API, and keep the list of those that are refused.

``python -m tests.backend.suite`` writes ``refused.json``: for each feature level the refused cases with their reasons.
A case whose small integer inputs say shapes, axes or the like is converted with these frozen (``set``) where it is
refused without: NNAPI has no shapes that are computed.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import re
import sys
import warnings
from typing import Any

import numpy as np
import onnx

import onnx2nnapi

REFUSED = pathlib.Path(__file__).parent / "refused.json"
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
LEVELS = (8, 4)
HALF = 2e-3  # two units of float16: NNAPI rounds after each operation, in another order than onnx.reference
Arrays = dict[str, np.ndarray[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a case: "equal", "refused" (with the reason), or "wrong" (with what is off)."""

    kind: str
    reason: str = ""


@functools.cache
def cases(kind: str) -> dict[str, Any]:
    """The cases of a suite by name; onnx's generators warn when they are imported."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {case.name: case for case in load_model_tests(kind=kind)}


def load(case: Any) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """A case's model and its data sets; cases of other kinds than "node" are files."""
    if case.model is not None:
        return case.model, [([*map(_plain, given)], [*map(_plain, wanted)]) for given, wanted in case.data_sets]
    folder = pathlib.Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        values = []
        for what in ("input", "output"):
            files = sorted(data.glob(f"{what}_*.pb"), key=lambda path: int(re.findall(r"\d+", path.stem)[-1]))
            values.append([_tensor(path) for path in files])
        sets.append((values[0], values[1]))
    return model, sets


def _plain(value: Any) -> Any:
    """Tensors as arrays; sequences and optionals as they are."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _tensor(path: pathlib.Path) -> Any:
    proto = onnx.TensorProto()
    proto.ParseFromString(path.read_bytes())
    return onnx.numpy_helper.to_array(proto)


def run(case: Any, level: int) -> Outcome:
    """Convert a case at a feature level, run it on the host, and compare every output."""
    model, data_sets = load(case)
    names = [value.name for value in model.graph.input]
    for given, wanted in data_sets:
        if not all(isinstance(value, np.ndarray) for value in (*given, *wanted)):
            return Outcome("refused", "sequences, optionals and maps are no tensors")
        feeds: Arrays = dict(zip(names, given, strict=False))
        try:
            got = _outputs(model, feeds, level)
        except onnx2nnapi.InternalError:
            raise
        except onnx2nnapi.Onnx2NnapiError as error:
            return Outcome("refused", _reason(error))
        for position, (name, want) in enumerate(zip(got, wanted, strict=True)):
            problem = _difference(got[name], want, case)
            if problem:
                return Outcome("wrong", f"output {position} {name!r}: {problem}")
    return Outcome("equal")


def _outputs(model: onnx.ModelProto, feeds: Arrays, level: int) -> Arrays:
    shapes = {name: array.shape for name, array in feeds.items()}
    try:
        program = onnx2nnapi.convert(model, feature_level=level, input_shapes=shapes)
    except (onnx2nnapi.UnsupportedError, onnx2nnapi.InvalidModelError):
        frozen = {name: array for name, array in feeds.items() if _says_how(array)}
        if not frozen:
            raise
        shapes = {name: shape for name, shape in shapes.items() if name not in frozen}
        program = onnx2nnapi.convert(model, feature_level=level, input_shapes=shapes, set=frozen)
        feeds = {name: array for name, array in feeds.items() if name not in frozen}
    with onnx2nnapi.Session(program, backend="host") as session:
        return session.run(feeds)


def _says_how(array: np.ndarray[Any, Any]) -> bool:
    """Whether an input may say shapes, axes, pads, a trip count, scales … rather than data."""
    return array.ndim <= 1 and array.size <= 16 and array.dtype.kind in "iubf" and array.dtype.itemsize >= 1


def _difference(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], case: Any) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "OUS":
        return "" if np.array_equal(got, want) else "other strings"
    a, b = got.astype(np.float64), want.astype(np.float64)
    rtol, atol = (case.rtol, case.atol) if want.dtype.itemsize > 2 else (HALF, HALF)
    close = np.allclose(a, b, rtol=max(rtol, case.rtol), atol=max(atol, case.atol), equal_nan=True)
    return "" if close else f"off by {np.nanmax(np.abs(a - b)):g}"


def _reason(error: onnx2nnapi.Onnx2NnapiError) -> str:
    """The message without what is the node's own: one line that many cases share."""
    problems = getattr(error, "problems", ()) or (error,)
    text = problems[0].message if isinstance(problems[0], onnx2nnapi.Onnx2NnapiError) else str(problems[0])
    return " ".join(text.split())[:160]


def main() -> None:
    """Write the list of refused cases, and print what is wrong."""
    refused: dict[str, dict[str, dict[str, str]]] = {}
    for level in LEVELS:
        for kind in KINDS:
            counts: dict[str, int] = {}
            rows = refused.setdefault(str(level), {}).setdefault(kind, {})
            for name, case in cases(kind).items():
                try:
                    with warnings.catch_warnings(), np.errstate(all="ignore"):
                        warnings.simplefilter("ignore")
                        outcome = run(case, level)
                except Exception as error:  # an escaped exception is one of the things looked for
                    outcome = Outcome("escaped", f"{type(error).__name__}: {error}"[:300])
                counts[outcome.kind] = counts.get(outcome.kind, 0) + 1
                if outcome.kind == "refused":
                    rows[name] = outcome.reason
                elif outcome.kind != "equal":
                    print(f"{outcome.kind}: level {level}: {name}: {outcome.reason}", flush=True)
            print(f"level {level}, {kind}: {counts}", flush=True)
    if "--write" in sys.argv:
        REFUSED.write_text(json.dumps(refused, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
