"""onnx2nnapi: lowers ONNX models to Android's Neural Networks API and runs them on the device or on any host."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "convert": "api",
    "load": "program",
    "check": "report",
    "Options": "options",
    "Session": "runtime.session",
    **dict.fromkeys(
        (
            "ArtifactError",
            "DeviceError",
            "FeatureLevelError",
            "FeedError",
            "InternalError",
            "InvalidModelError",
            "Onnx2NnapiError",
            "UnsupportedError",
            "UnsupportedForm",
            "UnsupportedOp",
        ),
        "errors",
    ),
}

if TYPE_CHECKING:
    from onnx2nnapi.api import convert as convert
    from onnx2nnapi.errors import ArtifactError as ArtifactError
    from onnx2nnapi.errors import DeviceError as DeviceError
    from onnx2nnapi.errors import FeatureLevelError as FeatureLevelError
    from onnx2nnapi.errors import FeedError as FeedError
    from onnx2nnapi.errors import InternalError as InternalError
    from onnx2nnapi.errors import InvalidModelError as InvalidModelError
    from onnx2nnapi.errors import Onnx2NnapiError as Onnx2NnapiError
    from onnx2nnapi.errors import UnsupportedError as UnsupportedError
    from onnx2nnapi.errors import UnsupportedForm as UnsupportedForm
    from onnx2nnapi.errors import UnsupportedOp as UnsupportedOp
    from onnx2nnapi.options import Options as Options
    from onnx2nnapi.program import load as load
    from onnx2nnapi.report import check as check
    from onnx2nnapi.runtime.session import Session as Session

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    """Import the public names where they are first used, so that running a program imports no converter (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in {"nnapi", "runtime"}:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "nnapi", "runtime"})
