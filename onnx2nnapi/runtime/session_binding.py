"""Session.bind: repeated runs of a program over fixed buffers, by ONNX names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnx2nnapi.errors import FeedError, InvalidModelError
from onnx2nnapi.ir.types import Array, LazyArray
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.program import Port, Program

if TYPE_CHECKING:
    from onnx2nnapi.runtime.bound import BoundRun
    from onnx2nnapi.runtime.device import NnapiExecutor

__all__ = ["BoundSession", "bind_program"]


class _Runner(Protocol):
    def run(self, inputs: Sequence[Array | None]) -> list[Array]: ...


class BoundSession:
    """A program bound to its buffers. One run at a time.

    Attributes:
        outputs: the arrays that hold the results after ``run``, by ONNX name.
        run: compute once, from what the inputs' buffers hold now.
    """

    def __init__(self, run: Callable[[], None], outputs: dict[str, Array], close: Callable[[], None]) -> None:
        self.run = run
        self.outputs = outputs
        self._close = close

    def close(self) -> None:
        """Free what the device holds for it. More than once is harmless."""
        self._close()

    def __enter__(self) -> BoundSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def bind_program(
    program: Program,
    executors: Sequence[_Runner],
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array] | None = None,
) -> BoundSession:
    """Bind a program of one segment.

    On NNAPI nothing is copied; the interpreter copies its results into the buffers.

    Args:
        program: what runs.
        executors: what runs its segments.
        inputs: a contiguous array for each input, of its dtype and shape, to be written into between runs.
        outputs: likewise for outputs, writable; those left out are allocated.

    Raises:
        FeedError: a buffer is missing, unknown, does not fit, or would have to be converted.
        InvalidModelError: the program has several segments.
        DeviceError: an output's shape is known only after a run, or a call failed.
    """
    if len(program.segments) != 1:
        raise InvalidModelError(
            f"only programs of one segment can be bound, this one has {len(program.segments)}", hint="use run()"
        )
    segment, executor = program.segments[0], executors[0]
    given = dict(outputs or {})
    _check_names(inputs, program.inputs, "input", complete=True)
    _check_names(given, program.outputs, "output", complete=False)
    graph = segment.model.main
    types = dict(zip(segment.inputs, graph.input_types(), strict=True))
    types |= zip(segment.outputs, graph.output_types(), strict=True)
    feeds = {
        port.tensor: _view(port, inputs[port.name], types.get(port.tensor), "input")
        for port in program.inputs
        if port.tensor is not None
    }
    targets: dict[str, Array] = {}
    for port in program.outputs:
        if port.tensor is not None and port.name in given:
            targets.setdefault(port.tensor, _view(port, given[port.name], types.get(port.tensor), "output"))
    arrays = [feeds[name] for name in segment.inputs]
    run, bound, close = _bound(executor, arrays, [targets.get(name) for name in segment.outputs])
    written = dict(zip(segment.outputs, bound, strict=True))
    results: dict[str, Array] = {}
    copies: list[tuple[Array, Array]] = []  # what several outputs, or an output and an input, share
    for port in program.outputs:
        source = _source(port, inputs, written)
        results[port.name] = given.get(port.name, source)
        if port.name in given and not np.shares_memory(given[port.name], source):
            copies.append((given[port.name], source))
    if not copies:
        return BoundSession(run, results, close)

    def run_and_copy() -> None:
        run()
        for target, source in copies:
            np.copyto(target, source)

    return BoundSession(run_and_copy, results, close)


def _bound(
    executor: _Runner, inputs: list[Array], outputs: list[Array | None]
) -> tuple[Callable[[], None], list[Array], Callable[[], None]]:
    """How to run, the arrays that are written, and how to end."""
    if hasattr(executor, "bind"):
        device: NnapiExecutor = executor  # type: ignore[assignment]
        bound: BoundRun = device.bind(inputs, outputs)
        return bound.run, [array for array in bound.outputs if isinstance(array, np.ndarray)], bound.close
    first = executor.run(inputs)
    targets = [array if array is not None else result for array, result in zip(outputs, first, strict=True)]

    def run() -> None:
        for target, result in zip(targets, executor.run(inputs), strict=True):
            np.copyto(target, result)

    return run, targets, lambda: None


def _source(port: Port, inputs: Mapping[str, Array], written: Mapping[str, Array]) -> Array:
    """The array that holds an output."""
    if port.source is not None:
        return inputs[port.source]
    if port.constant is not None:
        value = port.constant.numpy() if isinstance(port.constant, LazyArray) else port.constant
        return np.asarray(value)
    array = written[port.tensor or ""]
    sizes = [dim for dim in port.shape if isinstance(dim, int)]
    return array.reshape(sizes) if len(sizes) == len(port.shape) else array


def _check_names(arrays: Mapping[str, Any], ports: Sequence[Port], kind: str, *, complete: bool) -> None:
    known = [port.name for port in ports]
    for name in arrays:
        if name not in known:
            raise FeedError(f"the model has no {kind} {name!r}", hint=f"its {kind}s are {', '.join(map(repr, known))}")
    missing = [name for name in known if name not in arrays]
    if missing and complete:
        raise FeedError(f"no array is given for {', '.join(map(repr, missing))}")


def _view(port: Port, array: Array, type_: OperandType | None, kind: str) -> Array:
    """The caller's buffer as NNAPI's operand has it, without a copy."""
    where = f"{kind} {port.name!r}"
    if not isinstance(array, np.ndarray):
        raise FeedError(f"must be an array, not {type(array).__name__}", where=where)
    if array.dtype.name != port.dtype or not array.dtype.isnative:
        raise FeedError(f"has dtype {array.dtype}, the model has {port.dtype}", where=where)
    fits = len(array.shape) == len(port.shape) and all(
        not isinstance(want, int) or want == size for want, size in zip(port.shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("?" if dim is None else str(dim) for dim in port.shape)
        raise FeedError(f"has shape {list(array.shape)}, the model has [{wanted}]", where=where)
    if not array.flags.c_contiguous:
        raise FeedError("must be contiguous, as it is bound without a copy", where=where, hint="np.ascontiguousarray")
    if kind == "output" and not array.flags.writeable:
        raise FeedError("must be writable", where=where)
    if type_ is None:
        return array
    if array.dtype != type_.dtype:
        raise FeedError(
            f"is {port.dtype} in ONNX and {type_.dtype.name} in NNAPI, and binding converts nothing",
            where=where,
            hint="use run()",
        )
    if type_.is_specified and type_.code.is_tensor:
        return array.reshape(type_.shape)
    return array.reshape((1,)) if array.ndim == 0 else array
