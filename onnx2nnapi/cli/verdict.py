"""Is the device right? `run --compare host` and `run --bisect`, model by model of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.model import Model
from onnx2nnapi.program import Program
from onnx2nnapi.runtime.bisect import bisect, compare, write_vector
from onnx2nnapi.runtime.device import NnapiExecutor
from onnx2nnapi.runtime.interpreter import Interpreter
from onnx2nnapi.runtime.session import Session

__all__ = ["bisected", "compared"]


def compared(session: Session, feeds: Mapping[str, Array]) -> list[dict[str, Any]]:
    """The largest difference of each output from the interpreter's; every model gets the interpreter's inputs."""
    return [
        {**asdict(difference), "text": str(difference)}
        for number, (model, inputs, wanted) in enumerate(_on_the_host(session.program, feeds))
        for difference in compare(model, session.executors[number].run(inputs), wanted)
    ]


def bisected(
    program: Program, feeds: Mapping[str, Array], open_on_device: Callable[[Model], NnapiExecutor], vector: str
) -> dict[str, Any] | None:
    """The first operation that the device gets wrong or fails at, written to ``vector``; None without one."""

    def on_device(part: Model, arrays: Sequence[Array | None]) -> list[Array]:
        with open_on_device(part) as executor:
            return executor.run(arrays)

    for number, (model, inputs, _) in enumerate(_on_the_host(program, feeds)):
        culprit = bisect(model, inputs, on_device, _interpret)
        if culprit is not None:
            write_vector(vector, culprit)
            return {
                "model": number,
                "index": culprit.index,
                "operation": culprit.operation,
                "origin": list(culprit.origin),
                "failure": culprit.failure,
                "differences": [asdict(difference) for difference in culprit.differences],
                "alone": None if culprit.alone is None else [asdict(difference) for difference in culprit.alone],
                "vector": vector,
                "text": str(culprit),
            }
    return None


def _interpret(model: Model, inputs: Sequence[Array | None]) -> list[Array]:
    return Interpreter(model).run(inputs)


def _on_the_host(program: Program, feeds: Mapping[str, Array]) -> Iterator[tuple[Model, list[Array], list[Array]]]:
    """Each model with its inputs and outputs on the interpreter."""
    host = Session(program, "host")
    tensors = host.operands(feeds)
    for segment, interpreter in zip(program.segments, host.executors, strict=True):
        inputs = [tensors[name] for name in segment.inputs]
        outputs = interpreter.run(inputs)
        tensors.update(zip(segment.outputs, outputs, strict=True))
        yield segment.model, inputs, outputs
