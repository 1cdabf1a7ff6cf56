"""What a caller can ask of a conversion: one frozen record, checked once, stored in the artifact."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx2nnapi.errors import InvalidModelError

__all__ = ["LAYOUTS", "Options"]

LAYOUTS = ("nchw", "nhwc")
MIN_LEVEL, MAX_LEVEL = 1, 8


@dataclass(frozen=True)
class Options:
    """Conversion options.

    Attributes:
        feature_level: the NNAPI feature level (1–8) that the result may need at most; 4 is Android 11.
        input_shapes: shapes by input name; they bind symbolic dimensions. None binds nothing.
        dims: sizes of symbolic dimensions by symbol.
        set: values (arrays, scalars or paths of .npy files) that freeze inputs into constants.
        keep_dynamic: symbols that stay unspecified in the NNAPI model; ("*",) keeps all.
        relaxed_float16: let the device compute float32 in half precision.
        allow_float64: compute double tensors in float32.
        input_layouts, output_layouts: "nhwc" hands a tensor over with its channels last; by ONNX name.
        cut_inputs, cut_outputs: tensors at which the graph is cut; they become its inputs or outputs.
    """

    feature_level: int = 4
    input_shapes: Mapping[str, Sequence[int]] | None = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)
    keep_dynamic: Sequence[str] = ()
    relaxed_float16: bool = False
    allow_float64: bool = False
    input_layouts: Mapping[str, str] = field(default_factory=dict)
    output_layouts: Mapping[str, str] = field(default_factory=dict)
    cut_inputs: Sequence[str] = ()
    cut_outputs: Sequence[str] = ()

    def __post_init__(self) -> None:
        level: object = self.feature_level
        if isinstance(level, bool) or not isinstance(level, int) or not MIN_LEVEL <= level <= MAX_LEVEL:
            raise InvalidModelError(f"feature_level is {level!r}, NNAPI has the levels {MIN_LEVEL} to {MAX_LEVEL}")
        object.__setattr__(self, "input_shapes", self.input_shapes or {})
        for name in ("input_shapes", "dims", "set", "input_layouts", "output_layouts"):
            if not isinstance(getattr(self, name), Mapping):
                raise InvalidModelError(f"{name} is {getattr(self, name)!r}, it must map names")
        for name in ("keep_dynamic", "cut_inputs", "cut_outputs"):
            value = getattr(self, name)
            if not isinstance(value, Iterable):
                raise InvalidModelError(f"{name} is {value!r}, it must list names")
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        for name, shape in self.shapes.items():
            listed = isinstance(shape, Iterable) and not isinstance(shape, (str, bytes))
            if not listed or not all(_is_size(dim) for dim in shape):
                raise InvalidModelError(f"the shape {shape!r} is no list of sizes", where=f"input {name!r}")
        for symbol, size in self.dims.items():
            if not _is_size(size):
                raise InvalidModelError(f"{size!r} is no size", where=f"dimension {symbol!r}")
        for layouts in (self.input_layouts, self.output_layouts):
            for name, layout in layouts.items():
                if layout not in LAYOUTS:
                    raise InvalidModelError(
                        f"layout {layout!r} is unknown, use one of {', '.join(LAYOUTS)}", where=repr(name)
                    )

    @property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """``input_shapes``, never None."""
        return self.input_shapes or {}

    @classmethod
    def of(cls, options: Options | None, overrides: Mapping[str, Any]) -> Options:
        """``options`` (default: all defaults) with ``overrides`` on top; an unknown name is an InvalidModelError."""
        known = {entry.name for entry in dataclasses.fields(cls)}
        for name in overrides:
            if name not in known:
                raise InvalidModelError(f"no option is called {name!r}; there are {', '.join(sorted(known))}")
        return dataclasses.replace(options or cls(), **overrides)


def _is_size(dim: object) -> bool:
    return not isinstance(dim, bool) and hasattr(dim, "__index__") and dim.__index__() >= 0
