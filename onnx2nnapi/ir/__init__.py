"""The intermediate representation: a graph of operations and values in one of two dialects, ONNX's or NNAPI's."""

from __future__ import annotations

import importlib

_HOMES = {
    **dict.fromkeys(("Graph", "Interface", "Op", "Port", "Provenance", "Value"), "graph"),
    **dict.fromkeys(("LazyArray", "Quantization", "TensorType"), "types"),
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
