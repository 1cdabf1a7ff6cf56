"""Rows of one-node models: converted at every feature level, run on the host, held to onnx.reference.

``case("Softmax", x=f32(2, 3, 4), axis=1)`` is a node whose inputs are the keyword arrays (in order, by name) and whose
attributes are the other keywords. ``since`` is the lowest level at which it must convert; below, a refusal is due.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnx2nnapi

CHECKED_LEVELS = (1, 2, 3, 4, 6, 7)  # 5 and 8 bring no operation
_rng = np.random.default_rng(7)


def f32(*shape: int, low: float = -3.0, high: float = 3.0) -> np.ndarray[Any, Any]:
    """Random floats."""
    return _rng.uniform(low, high, shape).astype(np.float32)


def i64(*values: int) -> np.ndarray[Any, Any]:
    """A vector of int64."""
    return np.array(values, np.int64)


def ints(*shape: int, low: int = -50, high: int = 50, dtype: Any = np.int32) -> np.ndarray[Any, Any]:
    """Random integers."""
    return _rng.integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> np.ndarray[Any, Any]:
    """Random booleans."""
    return _rng.integers(0, 2, shape).astype(np.bool_)


@dataclasses.dataclass(frozen=True)
class Const:
    """Marks an array as an initializer of the model."""

    array: np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A row; see the module's docstring."""

    op_type: str
    arrays: dict[str, Any]
    attrs: dict[str, Any]
    since: int = 1
    outputs: int = 1
    opset: int | None = None
    domain: str = ""
    atol: float = 1e-5
    rtol: float = 1e-4
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    refused: str = ""
    oracle: str = "reference"

    def __str__(self) -> str:
        shapes = ",".join(f"{n}{list(np.shape(_array(a)))}" for n, a in self.arrays.items() if a is not None)
        attrs = ",".join(f"{key}={value}" for key, value in self.attrs.items())
        return f"{self.op_type}({shapes}{';' if attrs else ''}{attrs})".replace(" ", "")


def _array(item: Any) -> np.ndarray[Any, Any]:
    return item.array if isinstance(item, Const) else item


_FIELDS = {field.name for field in dataclasses.fields(Case)} - {"op_type", "arrays", "attrs"}


def case(op_type: str, **keywords: Any) -> Case:
    """A row: arrays (and Const, None) are inputs in order, the rest attributes or fields of Case."""
    arrays = {k: v for k, v in keywords.items() if isinstance(v, (np.ndarray, Const)) or v is None}
    fields = {k: v for k, v in keywords.items() if k in _FIELDS}
    attrs = {k: v for k, v in keywords.items() if k not in arrays and k not in fields}
    return Case(op_type, arrays, attrs, **fields)


def model_of(row: Case) -> onnx.ModelProto:
    """The one-node model; output types are left to inference."""
    names = [name if value is not None else "" for name, value in row.arrays.items()]
    outputs = [f"y{i}" for i in range(row.outputs)]
    node = helper.make_node(row.op_type, names, outputs, name="node", domain=row.domain, **row.attrs)
    inputs, initializers = [], []
    for name, value in row.arrays.items():
        if isinstance(value, Const):
            initializers.append(numpy_helper.from_array(value.array, name))
        elif value is not None:
            inputs.append(
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            )
    graph = helper.make_graph(
        [node], "graph", inputs, [helper.make_empty_tensor_value_info(name) for name in outputs], initializers
    )
    imports = [helper.make_opsetid("", row.opset or onnx.defs.onnx_opset_version())]
    imports += [helper.make_opsetid(row.domain, 1)] if row.domain else []
    return helper.make_model(graph, opset_imports=imports, ir_version=min(10, onnx.IR_VERSION))


def expected(row: Case, model: onnx.ModelProto) -> list[np.ndarray[Any, Any]]:
    """What the oracle computes: onnx.reference, or onnxruntime where that knows the operator's forms better."""
    feeds = {name: value for name, value in row.arrays.items() if isinstance(value, np.ndarray)}
    if row.oracle == "onnxruntime":
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return [np.asarray(value) for value in session.run(None, feeds)]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # the evaluator's own, on overflow and division
        return [np.asarray(value) for value in ReferenceEvaluator(model).run(None, feeds)]


def check(row: Case, level: int) -> None:
    """Convert and run at ``level``: equal from ``row.since`` on, a clear refusal below."""
    model = model_of(row)
    feeds = {name: value for name, value in row.arrays.items() if isinstance(value, np.ndarray)}
    if row.refused or level < row.since:
        with pytest.raises(onnx2nnapi.UnsupportedError, match=row.refused or None) as refusal:
            onnx2nnapi.convert(model, feature_level=level, **row.options)
        assert re.search("node|input|tensor", str(refusal.value)), "a refusal names its place"
        return
    program = onnx2nnapi.convert(model, feature_level=level, **row.options)
    assert program.required_level <= level
    with onnx2nnapi.Session(program, backend="host") as session:
        got = session.run(feeds)
    for index, want in enumerate(expected(row, model)):
        value = got[f"y{index}"]
        assert value.shape == want.shape
        assert value.dtype == want.dtype
        np.testing.assert_allclose(value, want, rtol=row.rtol, atol=row.atol)


def rows(cases: Sequence[Case]) -> list[Any]:
    """The parameters (row, level) of a test."""
    return [pytest.param(row, level, id=f"{row}@{level}") for row in cases for level in CHECKED_LEVELS]
