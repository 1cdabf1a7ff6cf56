"""Compiles a built model for the devices chosen, with a cache that says whether it was hit."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import pathlib
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np

from onnx2nnapi.errors import DeviceError
from onnx2nnapi.nnapi.codes import PreferenceCode, PriorityCode
from onnx2nnapi.nnapi.model import Lifetime, Model
from onnx2nnapi.runtime.device_list import Device, list_devices
from onnx2nnapi.runtime.handles import Handle
from onnx2nnapi.runtime.library import Library
from onnx2nnapi.runtime.model_builder import BuiltModel

__all__ = ["CacheReport", "Compilation", "CompileOptions", "compile_model", "enum_choice", "nanoseconds"]

_Code = TypeVar("_Code", bound=IntEnum)


def enum_choice(enum: type[_Code], value: _Code | str | None, what: str) -> _Code | None:
    """The member that people's spelling ("fast-single-answer") names.

    Raises:
        DeviceError: there is none; the error lists those there are.
    """
    if value is None or isinstance(value, enum):
        return value
    name = str(value).upper().replace("-", "_")
    if name not in enum.__members__:
        choices = ", ".join(member.lower().replace("_", "-") for member in enum.__members__)
        raise DeviceError(f"there is no {what} {value!r}", hint=f"choose {choices}")
    return enum[name]


def nanoseconds(seconds: float | None, what: str) -> int | None:
    """A duration as NNAPI takes it; None stays None.

    Raises:
        DeviceError: it is not positive, or longer than 64 bits hold.
    """
    if seconds is None:
        return None
    if not 0 < seconds < 2**64 / 1e9:
        raise DeviceError(f"{what} {seconds!r} is no positive number of seconds")
    return max(1, round(seconds * 1e9))


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How to compile.

    Attributes:
        preference: what to optimise for; NNAPI's default is a fast single answer.
        priority: against other executions of this application (feature level 4).
        timeout: seconds that the compilation may take (feature level 4, one chosen device).
        cache: an existing directory of this application's where drivers keep compiled models (feature level 3).
    """

    preference: PreferenceCode | None = None
    priority: PriorityCode | None = None
    timeout: float | None = None
    cache: pathlib.Path | None = None


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What a compilation cache did.

    Attributes:
        hit: the drivers found what an earlier compilation had left.
        stored: the cache now holds this model; drivers may do without.
        seconds: how long this compilation took.
        cold_seconds: how long the one took that filled the cache; None when it is not known.
    """

    hit: bool
    stored: bool
    seconds: float
    cold_seconds: float | None

    @property
    def seconds_saved(self) -> float:
        """Against the compilation that filled the cache; 0.0 without a hit."""
        return self.cold_seconds - self.seconds if self.hit and self.cold_seconds is not None else 0.0


class Compilation(Handle):
    """A finished ANeuralNetworksCompilation.

    Attributes:
        devices: those chosen; None when NNAPI chooses, with its CPU to fall back to.
        cache: what the compilation cache did, None without one.
        seconds: how long it took.
    """

    __slots__ = ("cache", "devices", "seconds")

    def __init__(self, library: Library, pointer: int, built: BuiltModel, devices: tuple[Device, ...] | None) -> None:
        super().__init__(library, "ANeuralNetworksCompilation_free", pointer, (built,))
        self.devices = devices
        self.cache: CacheReport | None = None
        self.seconds = 0.0

    def preference(self, library: Library, kind: str, index: int) -> tuple[int, int]:
        """(alignment, padding) in bytes that the devices prefer for "input" or "output" ``index`` (level 5)."""
        answers = []
        for what in ("Alignment", "Padding"):
            answer = ctypes.c_uint32()
            name = f"ANeuralNetworksCompilation_getPreferredMemory{what}For{kind.capitalize()}"
            library.call(name, self.pointer, index, ctypes.byref(answer), where=f"{kind} {index}")
            answers.append(answer.value)
        return answers[0], answers[1]


def compile_model(
    library: Library,
    model: Model,
    built: BuiltModel,
    devices: tuple[Device, ...] | None,
    options: CompileOptions,
) -> Compilation:
    """Compile ``built`` (the NNAPI form of ``model``).

    Raises:
        DeviceError: a call failed; nothing that was created here is left.
    """
    if devices is None:
        pointer = library.create("ANeuralNetworksCompilation_create", built.pointer)
    else:
        handles = (ctypes.c_void_p * len(devices))(*(device.pointer for device in devices))
        create = "ANeuralNetworksCompilation_createForDevices"
        pointer = library.create(create, built.pointer, handles, len(handles), where=_names(devices))
    compilation = Compilation(library, pointer, built, devices)
    try:
        _configure(library, compilation, options)
        cache = _open_cache(library, model, compilation, options)
        started = time.perf_counter()
        library.call("ANeuralNetworksCompilation_finish", pointer, where=_names(devices))
        compilation.seconds = time.perf_counter() - started
        if cache is not None:
            compilation.cache = cache.report(compilation.seconds)
    except BaseException:
        compilation.close()
        raise
    return compilation


def _names(devices: Sequence[Device] | None) -> str | None:
    return None if devices is None else "device " + ", ".join(device.name for device in devices)


def _configure(library: Library, compilation: Compilation, options: CompileOptions) -> None:
    pointer, where = compilation.pointer, _names(compilation.devices)
    if options.preference is not None:
        library.call("ANeuralNetworksCompilation_setPreference", pointer, int(options.preference), where=where)
    if options.priority is not None:
        library.call("ANeuralNetworksCompilation_setPriority", pointer, int(options.priority), where=where)
    timeout = nanoseconds(options.timeout, "the compile timeout")
    if timeout is not None:
        library.call("ANeuralNetworksCompilation_setTimeout", pointer, timeout, where=where)


class _Cache:
    """One model's part of a cache directory. NNAPI does not tell a hit: a note beside the drivers' files does."""

    def __init__(self, directory: pathlib.Path, token: bytes) -> None:
        self.directory = directory
        self.note = directory / f"{token.hex()}.json"
        self.before = self._files()
        self.cold_seconds: float | None = None
        self.hit = False
        try:
            entry = json.loads(self.note.read_text())
            self.cold_seconds = float(entry["seconds"])
            self.hit = bool(entry["files"]) and all(self._size(name) == size for name, size in entry["files"].items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # no note, or one that is not ours: no hit

    def _files(self) -> dict[str, tuple[int, int]]:
        found = {}
        for path in self.directory.glob("*"):
            with contextlib.suppress(OSError):  # another process that shares the directory may have removed it
                status = path.stat()
                if stat.S_ISREG(status.st_mode) and path != self.note:
                    found[path.name] = (status.st_size, status.st_mtime_ns)
        return found

    def _size(self, name: str) -> int | None:
        return self.before[name][0] if name in self.before else None

    def report(self, seconds: float) -> CacheReport:
        """After the compilation: what it did; a cold one is noted for the next time."""
        if self.hit:
            return CacheReport(True, True, seconds, self.cold_seconds)
        with contextlib.suppress(OSError):  # the disk is full, or the directory gone: the model runs all the same
            written = {name: state[0] for name, state in self._files().items() if self.before.get(name) != state}
            if written:
                self.note.write_text(json.dumps({"seconds": seconds, "files": written}))
                return CacheReport(False, True, seconds, None)
        return CacheReport(False, False, seconds, None)


def _open_cache(library: Library, model: Model, compilation: Compilation, options: CompileOptions) -> _Cache | None:
    if options.cache is None:
        return None
    if not os.access(options.cache, os.R_OK | os.W_OK | os.X_OK):
        raise DeviceError(
            "the cache is no directory that can be written", where=os.fspath(options.cache), hint="make it first"
        )
    token = _token(library, model, compilation.devices, options)
    directory = os.fsencode(options.cache)
    library.call("ANeuralNetworksCompilation_setCaching", compilation.pointer, directory, token)
    return _Cache(options.cache, token)


def _token(library: Library, model: Model, devices: Sequence[Device] | None, options: CompileOptions) -> bytes:
    """32 bytes that change whenever the model, an option or a driver does."""
    digest = hashlib.sha256(json.dumps(model.to_dict(values=False), sort_keys=True).encode())
    for graph in model.graphs:
        for operand in graph.operands:
            if operand.lifetime is Lifetime.CONSTANT:
                digest.update(np.ascontiguousarray(operand.array()).data)
    drivers = list_devices(library) if devices is None else devices
    choices = [[device.name, device.version, device.feature_level] for device in drivers]
    digest.update(json.dumps([choices, devices is None, options.preference, options.priority]).encode())
    return digest.digest()
