"""A loaded NNAPI: finding the library, its feature level, and calls whose failures are DeviceErrors."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

from onnx2nnapi.errors import DeviceError, Origin, android_version
from onnx2nnapi.nnapi.codes import ResultCode
from onnx2nnapi.runtime import support_library
from onnx2nnapi.runtime.bindings import FUNCTIONS
from onnx2nnapi.runtime.diagnosis import explain_result

__all__ = ["DEFAULT_LIBRARY", "Library", "feature_level", "is_available", "open_library"]

DEFAULT_LIBRARY = "libneuralnetworks.so"
_KNOWN = support_library.DRIVER_FUNCTIONS | FUNCTIONS
# A function that every runtime of the level has, newest first: how runtimes before level 5 are told apart.
_MARKS = {
    4: "ANeuralNetworksMemoryDesc_create",
    3: "ANeuralNetworks_getDeviceCount",
    2: "ANeuralNetworksModel_relaxComputationFloat32toFloat16",
}


def feature_level(code: int) -> int:
    """The feature level (1–8) that a FeatureLevelCode stands for; codes of later levels count as 8."""
    return max(1, min(code - 26 if code < 1000000 else code - 1000000, 8))


class Library:
    """NNAPI's functions, out of one shared library: Android's runtime, another one, or a support library driver.

    Functions are attributes by their C names, resolved where they are first used. One that the library lacks can be
    read too, and is a DeviceError only when it is called.

    Args:
        path: the library; None is Android's own.

    Raises:
        DeviceError: it cannot be loaded.

    Attributes:
        name: what was loaded.
        is_driver: whether it is a support library driver, which has no CPU of its own to fall back to.
        level: the NNAPI feature level of this runtime, 1–8.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.name = os.fspath(path) if path is not None else DEFAULT_LIBRARY
        try:
            self._library = ctypes.CDLL(self.name)
        except OSError as error:
            raise DeviceError(
                f"cannot be loaded: {error}",
                where=self.name,
                hint="NNAPI is part of Android, from 8.1 on; elsewhere choose the host backend, or name a library",
            ) from None
        self._addresses: dict[str, int] | None = None
        if hasattr(self._library, support_library.GET_DRIVER):
            get_driver = getattr(self._library, support_library.GET_DRIVER)
            get_driver.restype = ctypes.c_void_p
            driver = get_driver()
            if not driver:
                raise DeviceError("hands out no driver", where=self.name, call=support_library.GET_DRIVER)
            self._addresses = support_library.driver_addresses(driver)
        elif not hasattr(self._library, "ANeuralNetworksModel_create"):
            raise DeviceError(
                "is no NNAPI library: it has neither ANeuralNetworksModel_create nor " + support_library.GET_DRIVER,
                where=self.name,
            )
        self.is_driver = self._addresses is not None
        self.level = self._find_level()

    def _find_level(self) -> int:
        if self.has("ANeuralNetworks_getRuntimeFeatureLevel"):
            return feature_level(self.ANeuralNetworks_getRuntimeFeatureLevel())
        return next((level for level, mark in _MARKS.items() if self.has(mark)), 1)

    def _address(self, name: str) -> int | None:
        if self._addresses is not None:
            return self._addresses.get(name)
        try:
            return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value
        except AttributeError:
            return None

    def has(self, name: str) -> bool:
        """Whether the library has the function of this C name."""
        return self._address(name) is not None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _KNOWN:
            raise AttributeError(f"NNAPI has no function {name!r}")
        address = self._address(name)
        function = _KNOWN[name].bind(address) if address is not None else self._missing(name)
        setattr(self, name, function)  # resolved once
        return function

    def untyped(self, name: str) -> Callable[..., Any]:
        """The function for arguments that are of the right ctypes types already, for calls that are repeated."""
        address = self._address(name)
        return _KNOWN[name].bind_untyped(address) if address is not None else self._missing(name)

    def _missing(self, name: str) -> Callable[..., Any]:
        known = _KNOWN[name]

        def refuse(*_: object) -> None:
            if self.is_driver:
                message = f"support library driver {self.name} does not have it"
            elif known.vendor:
                message = f"{self.name} does not export it: it is for vendors' extensions, outside of the NDK"
            else:
                message = (
                    f"needs feature level {known.level} ({android_version(known.level)}), "
                    f"{self.name} is of level {self.level} ({android_version(self.level)})"
                )
            raise DeviceError(message, call=name)

        return refuse

    def call(self, name: str, *arguments: Any, where: Origin | str | None = None) -> None:
        """Call a function that answers a ResultCode.

        Raises:
            DeviceError: it answered another one than NO_ERROR; the error names ``where`` and says what to try.
        """
        result = getattr(self, name)(*arguments)
        if result != ResultCode.NO_ERROR:
            raise explain_result(name, result, where=where)

    def create(self, name: str, *arguments: Any, where: Origin | str | None = None) -> int:
        """Call a function whose last argument is where the created object's handle goes; the handle."""
        handle = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(handle), where=where)
        if not handle.value:
            raise DeviceError("it answered NO_ERROR, but created nothing", call=name, where=where)
        return handle.value


@functools.cache
def _open(path: str | None) -> Library:
    return Library(path)


def open_library(library: Library | str | os.PathLike[str] | None = None) -> Library:
    """The library at a path (None: Android's own), loaded once a process; a Library is returned as it is."""
    if isinstance(library, Library):
        return library
    return _open(None if library is None else os.fspath(library))


def is_available(library: str | os.PathLike[str] | None = None) -> bool:
    """Whether this machine has the library: what backend="auto" asks."""
    try:
        open_library(library)
    except DeviceError:
        return False
    return True
