"""Kernels of the operations that reduce dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.shapes import normalized_axis
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.arithmetic import store, widen


def _dimensions(axes: Array, rank: int) -> tuple[int, ...]:
    """Every dimension that ``axes`` names, once."""
    return tuple(sorted({normalized_axis(axis, rank, "axes") for axis in axes.reshape(-1).tolist()}))


def _shaped(result: Array, keep_dims: bool) -> Array:
    """A full reduction gives [1], never rank 0."""
    return result if keep_dims or result.ndim else result.reshape(1)


@kernel("MEAN")
def mean(call: Call, input: Array, axes: Array, keep_dims: int = 0) -> Array:
    """Mean over dimensions: of floats rounded once, of codes cut towards zero whatever the zero point."""
    over = _dimensions(axes, input.ndim)
    count = np.prod([input.shape[axis] for axis in over], dtype=np.int64)
    keep = bool(keep_dims)
    if input.dtype.kind == "f":
        total = np.sum(widen(input), axis=over, keepdims=keep)
        return store(_shaped(np.asarray(total / np.float32(count)), keep), call.output)
    total = np.sum(input, axis=over, keepdims=keep, dtype=np.int64)
    return _shaped(np.trunc(total / count).astype(input.dtype), keep)


def _register_reduction(name: str, ufunc: np.ufunc, *, accumulates: bool = False) -> None:
    @kernel(name)
    def reduction(call: Call, input: Array, axes: Array, keep_dims: bool = False) -> Array:
        over = _dimensions(axes, input.ndim)
        if accumulates and input.dtype == np.float16:
            return _shaped(_in_half_precision(ufunc, input, over, keep_dims), keep_dims)
        result: Array = ufunc.reduce(input, axis=over, keepdims=keep_dims)
        return _shaped(result, keep_dims)


def _in_half_precision(ufunc: np.ufunc, input: Array, over: tuple[int, ...], keep_dims: bool) -> Array:
    """A sum or product that is rounded to float16 after each element, in their order."""
    rest = [axis for axis in range(input.ndim) if axis not in over]
    shape = [input.shape[axis] for axis in rest]
    lined_up = input.transpose(*over, *rest).reshape(-1, *shape)
    result: Array = ufunc.accumulate(lined_up, axis=0)[-1]
    return np.expand_dims(result, over) if keep_dims else result


for _name, _ufunc in {"REDUCE_SUM": np.add, "REDUCE_PROD": np.multiply}.items():
    _register_reduction(_name, _ufunc, accumulates=True)
for _name, _ufunc in {"REDUCE_ANY": np.logical_or, "REDUCE_ALL": np.logical_and}.items():
    _register_reduction(_name, _ufunc)


def _register_extremum(name: str, of_floats: np.ufunc, of_codes: np.ufunc, *, largest: bool) -> None:
    @kernel(name)
    def extremum(call: Call, input: Array, axes: Array, keep_dims: bool = False) -> Array:
        over = _dimensions(axes, input.ndim)
        if input.dtype.kind != "f":
            return _shaped(of_codes.reduce(input, axis=over, keepdims=keep_dims), keep_dims)
        limit = np.finfo(input.dtype).min if largest else np.finfo(input.dtype).max
        return _shaped(of_floats.reduce(input, axis=over, keepdims=keep_dims, initial=limit), keep_dims)


_register_extremum("REDUCE_MAX", np.fmax, np.maximum, largest=True)
_register_extremum("REDUCE_MIN", np.fmin, np.minimum, largest=False)


@kernel("ARGMAX")
def argmax(call: Call, input: Array, axis: int) -> Array:
    """Index of the first largest element along a dimension."""
    return _first(np.argmax, input, axis, -np.inf)


@kernel("ARGMIN")
def argmin(call: Call, input: Array, axis: int) -> Array:
    """Index of the first smallest element along a dimension."""
    return _first(np.argmin, input, axis, np.inf)


def _first(search: Any, input: Array, axis: int, never: float) -> Array:
    """NaN is never found, unless it is the first element: nothing compares with it then."""
    index = search(input, axis=axis)
    if input.dtype.kind == "f" and np.isnan(input).any():
        index = search(np.where(np.isnan(input), input.dtype.type(never), input), axis=axis)
        index = np.where(np.isnan(np.take(input, 0, axis=axis)), 0, index)
    return np.asarray(index, dtype=np.int32).reshape(np.shape(index) or (1,))
