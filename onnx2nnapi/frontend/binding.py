"""The sizes of the model's inputs: declared ones, those that the options bind, and a refusal of what stays unknown."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TypeProto, ValueInfoProto

from onnx2nnapi.errors import InvalidModelError, UnsupportedError, UnsupportedForm
from onnx2nnapi.frontend.tensors import numpy_dtype
from onnx2nnapi.ir.types import Array, TensorType
from onnx2nnapi.options import Options

# What exporters write in the place of a name when a size has none.
_NAMELESS = frozenset({"?", "*", "-1", "None"})

__all__ = ["Binding", "bind_inputs", "check_known"]


@dataclass
class Binding:
    """What the options make of the inputs.

    Attributes:
        types: of each input, sizes known.
        values: of the inputs that the options freeze.
        symbols: sizes of symbolic dimensions.
        open: whether the model leaves any size to its callers.
    """

    types: dict[str, TensorType] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)
    symbols: dict[str, int] = field(default_factory=dict)
    open: bool = False

    def applied(self, entry: ValueInfoProto) -> ValueInfoProto:
        """A stated type with the bound symbols in it."""
        dims = entry.type.tensor_type.shape.dim
        if not any(dim.dim_param in self.symbols for dim in dims):
            return entry
        copy = ValueInfoProto()
        copy.CopyFrom(entry)
        for dim in copy.type.tensor_type.shape.dim:
            if dim.dim_param in self.symbols:
                dim.dim_value = self.symbols[dim.dim_param]
        return copy


def check_known(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Refuse names of options that the model doesn't have."""
    for name in names:
        if name not in known:
            listed = ", ".join(repr(item) for item in known[:8]) + (", …" if len(known) > 8 else "")
            raise InvalidModelError(f"the model has no {what} {name!r}; there are {listed or 'none'}")


def bind_inputs(
    inputs: Sequence[ValueInfoProto],
    options: Options,
    shapes: Mapping[str, Sequence[int]],
    others: Iterable[ValueInfoProto] = (),
) -> Binding:
    """Find the type of every input.

    Args:
        inputs: those that callers feed, and those that the options freeze.
        options: ``dims`` and ``set`` bind sizes.
        shapes: shapes by input, from the options; in the model's own layout.
        others: inputs that a cut removed; what binds their sizes is no mistake.

    Raises:
        InvalidModelError: the options contradict the model or each other.
        UnsupportedError: a size stays unknown; the message tells which, and the flag that binds it.
    """
    binding = Binding(symbols={symbol: int(size) for symbol, size in options.dims.items()})
    declared = {entry.name: _declared(entry) for entry in inputs}
    every = {**{entry.name: _declared(entry) for entry in others}, **declared}
    symbols = {dim for _, dims in every.values() for dim in dims or () if isinstance(dim, str) and dim}
    for symbol in options.dims:
        if symbol not in symbols:
            known = ", ".join(sorted(map(repr, symbols))) or "none"
            raise InvalidModelError(f"no input has a dimension {symbol!r}; there are {known}", hint="see --dim")
    origins = dict.fromkeys(options.dims, "--dim")  # what bound a symbol first, for messages
    for name, (dtype, dims) in declared.items():
        binding.open |= dims is None or not all(isinstance(dim, int) and dim for dim in dims)
        if name in options.set:
            binding.values[name] = _value(name, options.set[name], dtype)
        given = binding.values[name].shape if name in binding.values else shapes.get(name)
        if given is None:
            continue
        shape = tuple(int(dim) for dim in given)
        if name in shapes and shape != tuple(shapes[name]):
            raise InvalidModelError(
                f"its value has the shape {list(shape)}, its shape is set to {list(shapes[name])}",
                where=f"input {name!r}",
            )
        _bind(binding, origins, name, dims, shape)
        binding.types[name] = TensorType(dtype, shape)
    _bind_rest(binding, declared)
    return binding


def _bind_rest(binding: Binding, declared: Mapping[str, tuple[np.dtype[Any], list[int | str] | None]]) -> None:
    unknown: list[str] = []
    for name, (dtype, dims) in declared.items():
        if name in binding.types:
            continue
        if dims is None:
            unknown.append(f"input {name!r} has no shape (give --input-shape {name}:…)")
            continue
        sizes = [binding.symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in dims]
        if all(isinstance(size, int) for size in sizes):
            binding.types[name] = TensorType(dtype, tuple(int(size) for size in sizes))
            continue
        example = ",".join(str(size) if isinstance(size, int) else "1" for size in sizes)
        for at, size in enumerate(sizes):
            if isinstance(size, str):
                called = f" ({size!r})" if size else ", which has no name,"
                flags = (f"--dim {size}=1 or " if size else "") + f"--input-shape {name}:{example}"
                unknown.append(f"dimension {at}{called} of input {name!r} is not bound (give {flags})")
    if unknown:
        more = f"; and {len(unknown) - 4} more" if len(unknown) > 4 else ""
        raise UnsupportedError(
            f"NNAPI needs every size, and the model leaves sizes open: {'; '.join(unknown[:4])}{more}"
        )


def _bind(
    binding: Binding, origins: dict[str, str], name: str, dims: list[int | str] | None, shape: tuple[int, ...]
) -> None:
    where = f"input {name!r}"
    if dims is not None and len(dims) != len(shape):
        raise InvalidModelError(
            f"its shape is set to {list(shape)}, the model declares rank {len(dims)}: {_spelled(dims)}", where=where
        )
    for at, (dim, size) in enumerate(zip(dims or (), shape, strict=False)):
        if isinstance(dim, int):
            if dim != size:
                raise InvalidModelError(
                    f"dimension {at} is set to {size}, the model declares {dim}: {_spelled(dims or [])}", where=where
                )
        elif dim:
            if binding.symbols.setdefault(dim, size) != size:
                raise InvalidModelError(
                    f"dimension {at} ({dim!r}) is set to {size}, and to {binding.symbols[dim]} by"
                    f" {origins.get(dim, 'another input')}",
                    where=where,
                )
            origins.setdefault(dim, where)


def _spelled(dims: Sequence[int | str]) -> str:
    return f"[{', '.join(str(dim) or '?' for dim in dims)}]"


def _declared(entry: ValueInfoProto) -> tuple[np.dtype[Any], list[int | str] | None]:
    """Element type and sizes: a number, a symbol, or "" for a size without either."""
    where = f"input {entry.name!r}"
    type_: TypeProto = entry.type
    kind = type_.WhichOneof("value")
    if kind is None:
        raise InvalidModelError("it has no type", where=where)
    if kind != "tensor_type":
        raise UnsupportedForm(f"its type is {kind.removesuffix('_type')}, NNAPI has tensors only", where=where)
    dtype = numpy_dtype(type_.tensor_type.elem_type, where)
    if dtype.kind == "O":
        raise UnsupportedForm("it holds strings, which NNAPI doesn't have", where=where)
    if not type_.tensor_type.HasField("shape"):
        return dtype, None
    dims: list[int | str] = [
        int(dim.dim_value)
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0
        else ("" if dim.dim_param in _NAMELESS else dim.dim_param)
        for dim in type_.tensor_type.shape.dim
    ]
    return dtype, dims


def _value(name: str, value: Any, dtype: np.dtype[Any]) -> Array:
    """The array that freezes an input: a value of its type, a Python number, or the path of a .npy file."""
    where = f"value of input {name!r}"
    if isinstance(value, (str, os.PathLike)):
        try:
            value = np.load(value, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InvalidModelError(f"{os.fspath(value)!r} cannot be read: {error}", where=where) from None
        if not isinstance(value, np.ndarray):
            raise InvalidModelError("the file holds several arrays, give a .npy file", where=where)
    try:
        array = np.asarray(value)
        result = array.astype(dtype)
    except (ValueError, TypeError, OverflowError):
        raise InvalidModelError(f"it is no {dtype.name} array", where=where) from None
    # an array must hold what the input can hold; a Python number is rounded to it
    exact = not isinstance(value, np.ndarray) or np.array_equal(array, result, equal_nan=array.dtype.kind == "f")
    if array.dtype.kind not in "biufcV" or not exact:
        raise InvalidModelError(f"{array.dtype.name} values don't fit {dtype.name}", where=where)
    return result
