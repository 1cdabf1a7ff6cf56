"""What `run` feeds and gets: arrays from files or from a seed, summaries of results, and files of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnx2nnapi.cli.display import shape_text
from onnx2nnapi.errors import ArtifactError, FeedError
from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.artifact import replacing
from onnx2nnapi.program import Port

__all__ = ["make_folder", "read_inputs", "save_outputs", "seeded", "summaries", "summary_text"]

_CLASSES = range(6, 100_001)  # so many numbers in one row look like scores of classes
_TOP = 5


# -- inputs ------------------------------------------------------------------------------------------------------------


def read_inputs(files: Sequence[tuple[str | None, str]], ports: Sequence[Port]) -> dict[str, Array]:
    """The arrays in .npy and .npz files, by input.

    A .npz file given for one input holds one array, or one of the input's name; given for none, its arrays have the
    inputs' names.

    Raises:
        FeedError: a file cannot be read, or an input is unknown or given twice.
    """
    names = [port.name for port in ports]
    feeds: dict[str, Array] = {}
    for name, path in files:
        arrays = _read(path)
        if name is not None:
            arrays = {name: _one_of(arrays, name, path)}
        elif None in arrays:
            if len(names) != 1:
                raise FeedError("holds one array without a name", where=path, hint=f"write --input NAME={path}")
            arrays = {names[0]: arrays[None]}
        for key, array in arrays.items():
            if key not in names:
                known = ", ".join(map(repr, names)) or "none"
                raise FeedError(f"the model has no input {key!r}", where=path, hint=f"its inputs are {known}")
            if key in feeds:
                raise FeedError("is given twice", where=f"input {key!r}")
            feeds[str(key)] = array
    return feeds


def _one_of(arrays: Mapping[str | None, Array], name: str, path: str) -> Array:
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    if name in arrays:
        return arrays[name]
    raise FeedError(
        f"holds several arrays, none of them called {name!r}", where=path, hint=f"it has {', '.join(map(str, arrays))}"
    )


def _read(path: str) -> dict[str | None, Array]:
    """The arrays of a file by name; None is the name of the only one of a .npy file."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {None: loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FeedError(f"cannot be read: {reason}", where=path, hint="give a .npy or .npz file") from None


def seeded(port: Port, generator: np.random.Generator) -> Array:
    """An array for an input: floats in 0 … 1, bytes of any value, larger integers 0 or 1, as every index may be.

    An open size is 1.
    """
    shape = tuple(dim if isinstance(dim, int) else 1 for dim in port.shape)
    if port.dtype == "bool":
        return generator.integers(0, 2, shape).astype(np.bool_)
    if port.dtype in ("int8", "uint8"):
        limits = np.iinfo(port.dtype)
        return generator.integers(limits.min, int(limits.max) + 1, shape).astype(port.dtype)
    if port.dtype.startswith(("int", "uint")):
        return generator.integers(0, 2, shape).astype(port.dtype)
    numbers = generator.random(shape, np.float32)
    if port.dtype == "bfloat16":
        import ml_dtypes

        return numbers.astype(ml_dtypes.bfloat16)
    return numbers.astype(port.dtype)


# -- outputs -----------------------------------------------------------------------------------------------------------


def summaries(outputs: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Name, type, shape and range of each output; the highest five where it looks like scores of classes."""
    return [{"name": name, **_summary(array)} for name, array in outputs.items()]


def _summary(array: Array) -> dict[str, Any]:
    facts: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if not array.size:
        return facts
    numbers = array.astype(np.float64) if array.dtype.kind not in "iub" else array
    finite = numbers[np.isfinite(numbers)]
    facts["not_finite"] = int(numbers.size - finite.size)
    if finite.size:
        facts |= {"min": finite.min().item(), "max": finite.max().item(), "mean": float(finite.mean())}
    if array.dtype.kind not in "iub" and array.ndim and array.size == array.shape[-1] and array.size in _CLASSES:
        order = np.argsort(-numbers.reshape(-1), kind="stable")[:_TOP]
        facts["top"] = [{"index": int(at), "value": float(numbers.reshape(-1)[at])} for at in order]
    return facts


def summary_text(facts: Mapping[str, Any]) -> list[str]:
    """The lines that show a summary."""
    line = f"{facts['name']}: {facts['dtype']}{shape_text(facts['shape'])}"
    if "min" in facts:
        line += f", {_number(facts['min'])} … {_number(facts['max'])}, mean {_number(facts['mean'])}"
    if facts.get("not_finite"):
        line += f", {facts['not_finite']} not finite"
    lines = [line]
    if "top" in facts:
        scores = ", ".join(f"{entry['index']} ({_number(entry['value'])})" for entry in facts["top"])
        lines.append(f"  highest: {scores}")
    return lines


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def make_folder(path: str) -> None:
    """Make a folder that is not there.

    Raises:
        ArtifactError: it cannot be made.
    """
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"cannot be made: {error.strerror}", where=path) from None


def save_outputs(folder: str, outputs: Mapping[str, Array]) -> dict[str, str]:
    """Write each output to ``folder`` as NAME.npy, "/" and "%" in a name being %2F and %25; the files by output.

    bfloat16, which .npy files lack, is written as float32.

    Raises:
        ArtifactError: they cannot be written.
    """
    make_folder(folder)
    files = {}
    for name, array in outputs.items():
        files[name] = os.path.join(folder, name.replace("%", "%25").replace("/", "%2F").replace("\0", "%00") + ".npy")
        with replacing(files[name], files[name]) as file:
            np.save(file, array.astype(np.float32) if array.dtype.name == "bfloat16" else array)
    return files
