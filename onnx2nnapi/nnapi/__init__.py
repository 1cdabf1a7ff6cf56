"""NNAPI as data: its codes, its schema table, models, and their validation."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx2nnapi.nnapi.model import Model as Model
    from onnx2nnapi.nnapi.schema import SCHEMAS as SCHEMAS
    from onnx2nnapi.nnapi.validation import validate as validate

_HOMES = {
    **dict.fromkeys(("FuseCode", "OperandCode", "OperationCode", "PaddingCode", "ResultCode"), "codes"),
    "Model": "model",
    "SCHEMAS": "schema",
    "validate": "validation",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
