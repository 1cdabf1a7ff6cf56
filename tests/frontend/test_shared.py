"""Reported cases and whole models, as far as the frontend goes."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest

from onnx2nnapi.errors import InternalError, Onnx2NnapiError
from onnx2nnapi.frontend.importer import import_model
from onnx2nnapi.options import Options
from tests.frontend.building import kinds, run

# Of these onnx.reference, which runs the imported graphs here, computes something else than onnxruntime.
REFERENCE_IS_WRONG = {"convt_output_shape", "lrn_size3", "maxpool_same_lower"}
# Refused by the frontend, although legal in ONNX: sequences and strings.
REFUSED = {"uns_sequence_ops"}
# Told when the model is run, or by legalize.
LATER = {"mal_feed_missing", "mal_feed_wrong_dtype", "mal_unknown_op", "uns_custom_domain"}


def cases(folder: pathlib.Path) -> list[tuple[pathlib.Path, dict[str, Any]]]:
    return [(path.parent, json.loads(path.read_text())) for path in sorted((folder / "cases").glob("*/case.json"))]


def feeds_of(folder: pathlib.Path) -> dict[str, Any]:
    archive = folder / "inputs.npz"
    return dict(np.load(archive).items()) if archive.exists() else {}


def test_every_reported_case_is_imported_or_refused(shared: pathlib.Path) -> None:
    wrong: list[str] = []
    for folder, case in cases(shared):
        name, feeds = case["id"], feeds_of(folder)
        shapes = {key: array.shape for key, array in feeds.items()}
        try:
            graph = import_model(folder / "model.onnx", Options(input_shapes=case.get("bind", shapes)))
        except InternalError as error:
            wrong.append(f"{name}: {error}")
            continue
        except Onnx2NnapiError as error:
            if case["expect"] == "equal" and name not in REFUSED:
                wrong.append(f"{name}: refused: {error}")
            continue
        if case["expect"] != "equal":
            if name not in LATER:
                wrong.append(f"{name}: imported, where a clear error was due")
            continue
        if name not in REFERENCE_IS_WRONG | REFUSED:
            wrong += [f"{name}: {what}" for what in differences(graph, feeds, folder, case)]
    assert wrong == []


def differences(graph: Any, feeds: dict[str, Any], folder: pathlib.Path, case: dict[str, Any]) -> list[str]:
    expected = np.load(folder / "expected.npz")
    found = []
    with np.errstate(all="ignore"):
        outputs = run(graph, feeds)
    for port, got in zip(graph.interface.outputs, outputs, strict=True):
        want = expected[port.name]
        if (port.type.dtype, port.type.shape) != (want.dtype, want.shape) or got.shape != want.shape:
            found.append(f"{port.name} is {port.type}, not {want.dtype}{list(want.shape)}")
        elif want.size and not np.allclose(
            got.astype(np.float64),
            want.astype(np.float64),
            case.get("rtol", 1e-4),
            case.get("atol", 1e-5),
            equal_nan=True,
        ):
            found.append(f"{port.name} differs")
    return found


def test_every_whole_model_is_imported_with_all_shapes(shared: pathlib.Path) -> None:
    """Shape arithmetic is gone, whatever exporter wrote it."""
    cache = pathlib.Path.home() / ".cache" / "onnx2nnapi-models"
    for entry in json.loads((shared / "models" / "index.json").read_text()):
        path = shared / "models" / "files" / entry["file"] if "file" in entry else cache / f"{entry['name']}.onnx"
        if not path.is_file():
            continue
        options = Options(input_shapes={name: spec["shape"] for name, spec in entry["inputs"].items()})
        if "nms" in entry["name"]:
            with pytest.raises(Onnx2NnapiError, match="NonMaxSuppression"):
                import_model(path, options)
            continue
        graph = import_model(path, options)
        assert [name for name, value in graph.values.items() if value.type is None] == [], entry["name"]
        assert not {"Shape", "Size", "ConstantOfShape", "Constant", "Range"} & set(kinds(graph)), entry["name"]
        computed = [
            op.kind
            for op in graph.ops
            if op.kind != "DequantizeLinear" and all(name is None or graph.is_constant(name) for name in op.inputs)
        ]
        assert computed == [], entry["name"]
