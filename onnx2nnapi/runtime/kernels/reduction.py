"""Kernels of the operations that reduce dimensions."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.shapes import normalized_axis
from onnx2nnapi.runtime.kernels import Band, Call, Step, kernel, recorded, whole
from onnx2nnapi.runtime.kernels.arithmetic import widen
from onnx2nnapi.runtime.kernels.bands import result_of

MAX_PRODUCT = 4096  # numbers that BLAS adds up; of more, numpy's sum by halves is closer


def _dimensions(axes: Array, rank: int) -> tuple[int, ...]:
    """Every dimension that ``axes`` names, once."""
    return tuple(sorted({normalized_axis(axis, rank, "axes") for axis in axes.reshape(-1).tolist()}))


def _shaped(result: Array, keep_dims: bool) -> Array:
    """A full reduction gives [1], never rank 0."""
    return result if keep_dims or result.ndim else result.reshape(1)


@kernel("MEAN")
@recorded("axes")
def mean(call: Call, input: Array, axes: Array, keep_dims: int = 0) -> tuple[Array, list[Band]]:
    """Mean over dimensions: of floats rounded once, of codes cut towards zero whatever the zero point."""
    over, out = _dimensions(axes, input.ndim), result_of(call)
    count = math.prod(input.shape[axis] for axis in over)
    contiguous = input.flags.c_contiguous and out.flags.c_contiguous
    last = over == tuple(range(input.ndim - len(over), input.ndim))
    if input.dtype == np.float32 and contiguous and last and 0 < count <= MAX_PRODUCT:
        return whole(out, _means_of_rows(input.reshape(-1, count), out.reshape(-1)))
    return whole(out, [partial(_mean, input, over, count, out)])


def _means_of_rows(rows: Array, out: Array) -> list[Step]:
    """Steps for short rows: a product with ones, which adds faster than numpy's own sum."""
    ones = np.ones(rows.shape[1], np.float32)
    return [partial(np.matmul, rows, ones, out=out), partial(np.divide, out, np.float32(len(ones)), out=out)]


def _mean(x: Array, over: tuple[int, ...], count: int, out: Array) -> None:
    if x.dtype.kind == "f":
        means = np.sum(widen(x), axis=over, keepdims=True) / np.float32(count)
    else:
        means = np.trunc(np.sum(x, axis=over, keepdims=True, dtype=np.int64) / count)
    np.copyto(out, means.reshape(out.shape), casting="unsafe")


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
