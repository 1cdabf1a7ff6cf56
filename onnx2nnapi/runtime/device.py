"""NnapiExecutor: one model on Android's runtime, with the run contract of the interpreter."""

from __future__ import annotations

import os
import pathlib
import threading
import time
from collections.abc import Sequence
from types import TracebackType

import numpy as np

from onnx2nnapi.errors import DeviceError, FeatureLevelError, InvalidModelError
from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.codes import DurationCode, PreferenceCode, PriorityCode, ResultCode
from onnx2nnapi.nnapi.model import Model
from onnx2nnapi.nnapi.validation import validate
from onnx2nnapi.runtime.arguments import InputCheck, OutputBuffers, aligned_array, check_overlaps
from onnx2nnapi.runtime.bound import BoundRun
from onnx2nnapi.runtime.compilation import (
    CacheReport,
    Compilation,
    CompileOptions,
    compile_model,
    enum_choice,
    nanoseconds,
)
from onnx2nnapi.runtime.device_list import select_devices
from onnx2nnapi.runtime.execution import MODES, Burst, Execution, Mode, RunOptions
from onnx2nnapi.runtime.library import Library, open_library
from onnx2nnapi.runtime.memory import Memory, device_memory
from onnx2nnapi.runtime.model_builder import BuiltModel, build_model, uses_files
from onnx2nnapi.runtime.submodels import extract

__all__ = ["NnapiExecutor"]

_MAX_GROWTH = 8  # how often a run is repeated with larger buffers before the driver is taken to be wrong
_REFUSALS = (ResultCode.OP_FAILED.name, ResultCode.UNMAPPABLE.name, ResultCode.BAD_STATE.name)


class NnapiExecutor:
    """A model, built and compiled for a device.

    Args:
        model: validated here before any call.
        library: path of the library, or one that is loaded; None is Android's own.
        devices: names, indices or types of devices; "cpu"; None or "auto" lets NNAPI choose.
        preference: "low-power", "fast-single-answer" or "sustained-speed".
        priority: "low", "medium" or "high".
        compile_timeout, timeout, loop_timeout: in seconds; the first two need one chosen device.
        cache: an existing directory where drivers keep compiled models.
        mode: "sync", "async", "burst" or "fenced"; below feature level 3 only "async" exists, and is the default.
        measure: ask for hardware and driver durations, which need one chosen device.
        padding: hand over buffers of the lengths that the device prefers.

    Raises:
        InvalidModelError: NNAPI would refuse the model.
        FeatureLevelError: the model needs a higher level than the runtime, or the chosen devices, have.
        DeviceError: a call failed. No handle is left.

    Attributes:
        model: the model.
        library: the library.
        devices: those chosen; None when NNAPI chooses.
        notes: what was not done the straight way, for people.
        build_seconds, compile_seconds: how long these took.
        compilation: the compiled model, to make device memory for.
        cache: what the compilation cache did; None without one.
        durations: nanoseconds by DurationCode of the latest ``run`` (with ``measure``).
    """

    def __init__(
        self,
        model: Model,
        library: Library | str | os.PathLike[str] | None = None,
        devices: str | int | Sequence[str | int] | None = None,
        *,
        preference: PreferenceCode | str | None = None,
        priority: PriorityCode | str | None = None,
        compile_timeout: float | None = None,
        timeout: float | None = None,
        loop_timeout: float | None = None,
        cache: str | os.PathLike[str] | None = None,
        mode: Mode | None = None,
        measure: bool = False,
        padding: bool = False,
    ) -> None:
        required = validate(model)
        self.model = model
        self.library = open_library(library)
        self.devices = select_devices(self.library, devices)
        self._check_level(required)
        self._options = RunOptions(self._mode(mode), timeout, loop_timeout, measure, padding)
        for seconds, what in ((timeout, "the timeout"), (loop_timeout, "the loop timeout")):
            nanoseconds(seconds, what)  # what is out of range is said now
        self._require_one_device(measure=measure, timeout=timeout, compile_timeout=compile_timeout)
        options = CompileOptions(
            enum_choice(PreferenceCode, preference, "preference"),
            enum_choice(PriorityCode, priority, "priority"),
            compile_timeout,
            None if cache is None else pathlib.Path(cache),
        )
        self._lock = threading.Lock()
        self._inputs = InputCheck(model.main, "the model")
        self._outputs = OutputBuffers(model.main.output_types(), self.library.level)
        self._burst: Burst | None = None
        self.durations: dict[DurationCode, int | None] = {}
        started = time.perf_counter()
        built, self.compilation = self._compile(options)
        self.compile_seconds = self.compilation.seconds
        self.build_seconds = time.perf_counter() - started - self.compile_seconds
        self.notes = built.notes
        built.close()  # the compilation keeps it alive
        self.cache: CacheReport | None = self.compilation.cache
        if self._options.mode == "burst":
            try:
                self._burst = Burst(self.library, self.compilation)
            except BaseException:
                self.close()
                raise

    # -- before any call ------------------------------------------------------------------------------------------

    def _check_level(self, required: int) -> None:
        limit, owner = self.library.level, f"runtime {self.library.name}"
        if self.devices is not None and not any(device.is_cpu for device in self.devices):
            best = max(device.feature_level for device in self.devices)
            if best < limit:
                limit, owner = best, f"device {', '.join(device.name for device in self.devices)}"
        if required <= limit:
            return
        needing = [
            f"operation {index} {operation.code.name}"
            + (f" of {', '.join(operation.origin)}" if operation.origin else "")
            for index, operation in enumerate(self.model.main.operations)
            if _level_of(self.model, index) > limit
        ]
        raise FeatureLevelError(
            ", ".join(needing) or "the model",
            required=required,
            target=limit,
            where=owner,
            hint=f"convert with --feature-level {limit}, or run on the host",
        )

    def _mode(self, mode: Mode | None) -> Mode:
        if mode is not None and mode not in MODES:
            raise DeviceError(f"there is no mode {mode!r}", hint=f"choose {', '.join(MODES)}")
        if self.library.is_driver and mode == "async":
            raise DeviceError("a support library driver has no async runs", hint="use mode fenced")
        if self.library.level < 3:
            if mode not in (None, "async"):
                raise DeviceError(
                    f"mode {mode} needs feature level {4 if mode == 'fenced' else 3}, "
                    f"{self.library.name} is of level {self.library.level}",
                    hint="use mode async",
                )
            return "async"
        return mode or "sync"

    def _require_one_device(self, **options: object) -> None:
        """What NNAPI gives for one chosen device only is refused here, where the way out can be named."""
        wanted = [name.replace("_", " ") for name, value in options.items() if value]
        if wanted and (self.devices is None or len(self.devices) != 1):
            raise DeviceError(f"{', '.join(wanted)} needs one device", hint="name it: --device NAME")

    @property
    def mode(self) -> Mode:
        """How it runs."""
        return self._options.mode

    @property
    def measures(self) -> bool:
        """Whether runs tell their durations on the hardware and in the driver."""
        return self._options.measure

    # -- making ---------------------------------------------------------------------------------------------------

    def _compile(self, options: CompileOptions) -> tuple[BuiltModel, Compilation]:
        built = build_model(self.library, self.model)
        try:
            return built, compile_model(self.library, self.model, built, self.devices, options)
        except DeviceError as error:
            built.close()
            refused = error.call == "ANeuralNetworksCompilation_finish" and error.code in _REFUSALS
            if built.notes or not refused or not uses_files(self.model):
                raise
            first = error
        except BaseException:
            built.close()
            raise
        # Some drivers cannot map a plain file, and say so only now.
        built = build_model(self.library, self.model, map_files=False)
        try:
            return built, compile_model(self.library, self.model, built, self.devices, options)
        except DeviceError:
            built.close()
            raise first from None
        except BaseException:
            built.close()
            raise

    def close(self) -> None:
        """Free everything, after runs that are under way. More than once is harmless."""
        if self._burst is not None:
            self._burst.close()
        self.compilation.close()

    def __enter__(self) -> NnapiExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- running --------------------------------------------------------------------------------------------------

    def run(self, inputs: Sequence[Array | None]) -> list[Array]:
        """Compute once. Safe to call from several threads.

        Args:
            inputs: arrays in the order of the model's inputs, of its types and shapes; None omits an input.

        Returns:
            New arrays in the order of the model's outputs.

        Raises:
            FeedError: an input does not fit, before the library sees it.
            DeviceError: a call failed.
        """
        arrays = [
            None if value is None else np.require(value, requirements=("C", "A")) for value in self._inputs(inputs)
        ]
        for _ in range(_MAX_GROWTH):
            buffers = self._outputs.allocate(self.empty_output if self._options.padding else None)
            with self._execution() as execution:
                self._set_arguments(execution, arrays, buffers)
                if self._compute(execution):
                    return self._outputs.results(buffers, execution.output_shape)
                self._outputs.grow(buffers, execution.output_shape)
        raise DeviceError(
            f"outputs are still too small after {_MAX_GROWTH} tries",
            call=MODES[self._options.mode],
            code=ResultCode.OUTPUT_INSUFFICIENT_SIZE.name,
            hint="the driver reports shapes that do not suffice; try --device cpu",
        )

    def _compute(self, execution: Execution) -> bool:
        if self._burst is None:
            done = execution.compute()
        else:
            with self._lock:  # a burst runs one execution at a time
                done = execution.compute()
        if done and self._options.measure:
            self.durations = execution.durations()
        return done

    def _require_open(self) -> None:
        if self.compilation.closed:
            raise DeviceError("the executor is closed", where=self.library.name)

    def _execution(self, *, reusable: bool = False) -> Execution:
        self._require_open()
        return Execution(self.library, self.compilation, self._options, reusable=reusable, burst=self._burst)

    def _set_arguments(
        self, execution: Execution, inputs: Sequence[Array | Memory | None], outputs: Sequence[Array | Memory]
    ) -> None:
        for index, (type_, value) in enumerate(zip(self.model.main.input_types(), inputs, strict=True)):
            execution.set_input(index, type_, value, getattr(value, "padded", 0))
        for index, (type_, target) in enumerate(zip(self.model.main.output_types(), outputs, strict=True)):
            execution.set_output(index, type_, target, getattr(target, "padded", 0))

    def bind(
        self, inputs: Sequence[Array | Memory | None], outputs: Sequence[Array | Memory | None] | None = None
    ) -> BoundRun:
        """Runs that are repeated over the same buffers, without allocating or copying.

        Args:
            inputs: contiguous arrays, or memory objects, of the model's input types; write into them between runs.
            outputs: likewise, and writable; None (or None in a place) allocates.

        Raises:
            FeedError: a buffer does not fit, is not contiguous or aligned, or an output lies where another one does.
            DeviceError: an output has no known shape, or a call failed.
        """
        self._require_open()
        checked = self._inputs(inputs, in_place=True)
        targets = self._outputs.check(outputs, self.empty_output)
        check_overlaps(checked, targets)

        def prepare(reusable: bool) -> Execution:
            execution = self._execution(reusable=reusable)
            try:
                self._set_arguments(execution, checked, targets)
            except BaseException:
                execution.close()
                raise
            return execution

        lock = self._lock if self._burst is not None else None
        return BoundRun(prepare, targets, reusable=self.library.level >= 5, lock=lock)

    # -- buffers --------------------------------------------------------------------------------------------------

    def preferred(self, kind: str, index: int) -> tuple[int, int]:
        """(alignment, padding) in bytes that the device prefers for "input" or "output" ``index``; (1, 1) below 5."""
        self._require_open()
        if self.library.level < 5:
            return 1, 1
        return self.compilation.preference(self.library, kind, index)

    def empty_input(self, index: int) -> Array:
        """An array for input ``index``, aligned (and, with ``padding``, padded) as the device prefers."""
        return self._empty("input", index)

    def empty_output(self, index: int) -> Array:
        """An array for output ``index``, aligned (and, with ``padding``, padded) as the device prefers."""
        return self._empty("output", index)

    def _empty(self, kind: str, index: int) -> Array:
        types = self.model.main.input_types() if kind == "input" else self.model.main.output_types()
        alignment, padding = self.preferred(kind, index)
        return aligned_array(types[index], alignment, padding if self._options.padding else 1, f"{kind} {index}")

    def device_memory(self, *, inputs: Sequence[int] = (), outputs: Sequence[int] = ()) -> Memory:
        """Memory of the driver's own, to bind as these inputs and outputs of this model (feature level 4)."""
        self._require_open()
        compilation = self.compilation
        return device_memory(
            self.library,
            inputs=[(compilation, index) for index in inputs],
            outputs=[(compilation, index) for index in outputs],
        )


def _level_of(model: Model, index: int) -> int:
    """The level that one operation needs by itself."""
    try:
        return validate(extract(model, [index]))
    except InvalidModelError:  # it is valid only in its surroundings: not the one to name
        return 1
