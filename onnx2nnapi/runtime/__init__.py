"""Running programs: the numpy interpreter, Android's runtime by ctypes, and the session over either."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx2nnapi.runtime.device import NnapiExecutor as NnapiExecutor
    from onnx2nnapi.runtime.interpreter import Interpreter as Interpreter
    from onnx2nnapi.runtime.session import Session as Session

_HOMES = {"Interpreter": "interpreter", "NnapiExecutor": "device", "Session": "session"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
