"""Is the driver right? Compares it with the interpreter, and finds the first operation that goes wrong."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnx2nnapi.errors import DeviceError
from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.artifact import replacing
from onnx2nnapi.nnapi.model import Model, Subgraph, value_to_list
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.submodels import extract, topological_order

__all__ = ["Culprit", "Difference", "Runner", "bisect", "compare", "write_vector"]

Runner = Callable[[Model, Sequence[Array | None]], list[Array]]
"""Runs a model once: on a device, or on the host."""

# By element type: what a right driver may differ by. Android's own tests allow as much.
_TOLERANCES: dict[str, tuple[float, float]] = {"float32": (1e-5, 5e-5), "float16": (5e-3, 5e-3)}
_RELAXED = (5e-3, 5e-3)
_QUANTIZED = (1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one output of the device is from the interpreter's.

    Attributes:
        name: the tensor, or the output's place.
        largest: the largest absolute difference; inf where one is finite and the other is not.
        tolerance: (absolute, relative to the tensor's largest value) that a right driver stays within: what operations
            before it rounded otherwise is of that order, whatever the element's own size.
        within: whether every element does.
        shapes_agree: whether the shapes are the same; else nothing was compared.
    """

    name: str
    largest: float
    tolerance: tuple[float, float]
    within: bool
    shapes_agree: bool = True

    def __str__(self) -> str:
        if not self.shapes_agree:
            return f"{self.name}: another shape"
        return f"{self.name}: largest difference {self.largest:.6g}" + ("" if self.within else ", beyond tolerance")


def compare(model: Model, got: Sequence[Array], wanted: Sequence[Array]) -> list[Difference]:
    """A device's outputs against the interpreter's, output by output."""
    graph = model.main
    return [
        _difference(
            graph.operands[index].name or f"output {place}", graph.operands[index].type, model.relaxed, mine, theirs
        )
        for place, (index, mine, theirs) in enumerate(zip(graph.outputs, got, wanted, strict=True))
    ]


def _difference(name: str, type_: OperandType, relaxed: bool, got: Array, wanted: Array) -> Difference:
    tolerance = _tolerance(type_, relaxed)
    if got.shape != wanted.shape:
        return Difference(name, float("inf"), tolerance, False, False)
    if not wanted.size:
        return Difference(name, 0.0, tolerance, True)
    mine, theirs = got.astype(np.float64), wanted.astype(np.float64)
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.abs(mine - theirs))
    distance = np.where(np.isnan(distance), np.inf, distance)
    scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
    return Difference(
        name, float(distance.max()), tolerance, bool(distance.max() <= tolerance[0] + tolerance[1] * scale)
    )


def _tolerance(type_: OperandType, relaxed: bool) -> tuple[float, float]:
    if type_.dtype.name in _TOLERANCES:
        return _RELAXED if relaxed else _TOLERANCES[type_.dtype.name]
    return _QUANTIZED if type_.is_quantized else (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Culprit:
    """The first operation that a device gets wrong, or fails at.

    Attributes:
        index: its place in the model.
        operation: its kind.
        origin: the ONNX nodes that it stems from.
        differences: of its outputs, when a prefix of the model ended with it; none where the device failed on that.
        failure: what it answered then; None where it computed.
        alone: of its outputs, when it ran as a model of its own on the interpreter's inputs; None where the device
            fails on that, or is right: then only its surroundings make it wrong.
        model: the operation as a model of its own.
        inputs, outputs: that model's inputs, and the interpreter's outputs for them.
    """

    index: int
    operation: str
    origin: tuple[str, ...]
    differences: tuple[Difference, ...]
    failure: str | None
    alone: tuple[Difference, ...] | None
    model: Model
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array, ...]

    def __str__(self) -> str:
        nodes = f" of {', '.join(self.origin)}" if self.origin else ""
        parts = "; ".join(str(difference) for difference in self.differences if not difference.within)
        return f"operation {self.index} {self.operation}{nodes}: {self.failure or parts}"


def bisect(model: Model, inputs: Sequence[Array | None], device: Runner, host: Runner) -> Culprit | None:
    """Find the first operation, in an order to run in, that the device fails at or whose output differs.

    Prefixes of the model run with the outputs of their last operation as the model's outputs. That the final outputs
    differ is no condition; a difference that later operations wash out is found too.

    Args:
        model: the whole.
        inputs: its inputs.
        device: runs a model on the device under test.
        host: runs a model on the interpreter.

    Returns:
        The operation, None when all agree.

    Raises:
        DeviceError: it is not the device that failed: no call answered so.
    """
    order = topological_order(model.main)
    values = _host_values(model, order, inputs, host)
    suspects = _suspects(model, order, inputs, device, values)
    for position in suspects:
        failure: str | None = None
        differences: list[Difference] = []
        try:
            differences = _check_prefix(model, order[: position + 1], inputs, device, values)
        except DeviceError as error:
            if error.call is None:
                raise
            failure = error.message
        if failure is not None or not all(difference.within for difference in differences):
            return _culprit(model, order[position], values, differences, failure, device)
    return None


def _host_values(
    model: Model, order: Sequence[int], inputs: Sequence[Array | None], host: Runner
) -> dict[int, Array | None]:
    """The interpreter's value of every operand that is an input or that an operation writes."""
    values = dict(zip(model.main.inputs, inputs, strict=True))
    part = extract(model, order)
    written = [operand for index in order for operand in model.main.operations[index].outputs]
    values.update(zip(written, host(part, _feeds(model, order, values)), strict=True))
    return values


def _feeds(model: Model, operations: Sequence[int], values: dict[int, Array | None]) -> list[Array | None]:
    """The values of a part's inputs, in its order (``extract``: order of first use)."""
    reads = dict.fromkeys(index for op in operations for index in model.main.operations[op].inputs)
    written = {index for op in operations for index in model.main.operations[op].outputs}
    return [values[index] for index in reads if index in values and index not in written]


def _suspects(
    model: Model,
    order: Sequence[int],
    inputs: Sequence[Array | None],
    device: Runner,
    values: dict[int, Array | None],
) -> list[int]:
    """Positions to try, the likeliest first: where one run with every operand as an output first differs."""
    positions = list(range(len(order)))
    try:
        differences = _check_prefix(model, order, inputs, device, values, every=True)
    except DeviceError:
        return positions  # such a model is too much for the device: each prefix by itself
    place = 0
    for position, index in enumerate(order):
        count = len(model.main.operations[index].outputs)
        if not all(difference.within for difference in differences[place : place + count]):
            return [position, *positions[:position], *positions[position + 1 :]]
        place += count
    return positions


def _check_prefix(
    model: Model,
    operations: Sequence[int],
    inputs: Sequence[Array | None],
    device: Runner,
    values: dict[int, Array | None],
    *,
    every: bool = False,
) -> list[Difference]:
    last = model.main.operations[operations[-1]].outputs
    part = extract(model, operations, None if every else last)
    part = _specified(part, model, operations, values)
    wanted = [operand for op in operations for operand in model.main.operations[op].outputs] if every else list(last)
    got = device(part, _feeds(model, operations, values))
    return compare(part, got, [_known(values, operand) for operand in wanted])


def _known(values: dict[int, Array | None], operand: int) -> Array:
    value = values[operand]
    if value is None:
        raise DeviceError("the interpreter computed nothing for it", where=f"operand {operand}")
    return value


def _specified(part: Model, model: Model, operations: Sequence[int], values: dict[int, Array | None]) -> Model:
    """Sizes that the model leaves open, as the interpreter found them, so that any device takes the part."""
    used = dict.fromkeys(
        index for op in operations for index in (*model.main.operations[op].inputs, *model.main.operations[op].outputs)
    )
    operands = []
    for old, operand in zip(used, part.main.operands, strict=True):
        value = values.get(old)
        if value is not None and not operand.type.is_specified and value.size:
            operand = replace(operand, type=operand.type.with_shape(value.shape))
        operands.append(operand)
    main = Subgraph(tuple(operands), part.main.operations, part.main.inputs, part.main.outputs)
    return replace(part, main=main)


def _culprit(
    model: Model,
    index: int,
    values: dict[int, Array | None],
    differences: list[Difference],
    failure: str | None,
    device: Runner,
) -> Culprit:
    operation = model.main.operations[index]
    single = _specified(extract(model, [index]), model, [index], values)
    inputs = tuple(_feeds(model, [index], values))
    outputs = tuple(_known(values, operand) for operand in operation.outputs)
    try:
        alone: tuple[Difference, ...] | None = tuple(compare(single, device(single, inputs), outputs))
    except DeviceError:
        alone = None
    return Culprit(
        index, operation.code.name, operation.origin, tuple(differences), failure, alone, single, inputs, outputs
    )


def write_vector(path: str | os.PathLike[str], culprit: Culprit, name: str = "bisected") -> None:
    """Write the operation with its inputs and the interpreter's outputs as a test vector (a list of one case).

    A name that ends in .gz is compressed.

    Raises:
        ArtifactError: it cannot be written.
    """
    graph = culprit.model.main
    tolerances = [_tolerance(type_, culprit.model.relaxed) for type_ in graph.output_types()]
    case: dict[str, Any] = culprit.model.to_dict() | {
        "name": name,
        "spec": "bisect",
        "expect_failure": False,
        "input_values": [None if value is None else value_to_list(value) for value in culprit.inputs],
        "output_values": [value_to_list(value) for value in culprit.outputs],
        "expected_output_dims": [list(value.shape) for value in culprit.outputs],
        "output_tolerances": [{"atol": absolute, "rtol": relative} for absolute, relative in tolerances],
    }
    data = json.dumps([case], allow_nan=False).encode()
    shown = os.fspath(path)
    with replacing(shown, shown) as file:
        file.write(gzip.compress(data, mtime=0) if shown.endswith(".gz") else data)
