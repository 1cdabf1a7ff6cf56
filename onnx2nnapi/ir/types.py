"""What a value of the graph is: its type, its quantization, and the lazy array that a constant is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

__all__ = ["Array", "ArraySource", "LazyArray", "Quantization", "Scalar", "Shape", "Source", "TensorType"]

Array = np.ndarray[Any, np.dtype[Any]]
Scalar = bool | int | float
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Quantization:
    """How integers stand for real numbers: ``real = scale * (code - zero_point)``.

    Attributes:
        scale: the step; unused (0.0) when ``scales`` are given.
        zero_point: the code of 0.0.
        symmetric: NNAPI's *_SYMM types, whose zero point is always 0.
        channel_dim, scales: one scale for each index along a dimension (TENSOR_QUANT8_SYMM_PER_CHANNEL).
    """

    scale: float
    zero_point: int = 0
    symmetric: bool = False
    channel_dim: int | None = None
    scales: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a value.

    Attributes:
        dtype: numpy (or ml_dtypes) type of an element; int64 and float64 occur in the ONNX dialect only.
        shape: static sizes; () is a scalar.
        quant: quantization, in the NNAPI dialect only. int8 and uint8 there always have one.
    """

    dtype: np.dtype[Any]
    shape: Shape
    quant: Quantization | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: Sequence[int]) -> TensorType:
        return TensorType(self.dtype, tuple([int(dim) for dim in shape]), self.quant)

    def __str__(self) -> str:
        text = f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"
        if self.quant is None:
            return text
        if self.quant.channel_dim is not None:
            return f"{text} per-channel({self.quant.channel_dim})"
        return f"{text} scale={self.quant.scale:.9g} zero_point={self.quant.zero_point}"


class Source(Protocol):
    """Where a constant's bytes are: read() gives the whole array, possibly mapped from a file."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> Shape: ...

    def read(self) -> Array: ...


@dataclass(frozen=True, slots=True, eq=False)
class ArraySource:
    """A constant that is in memory already."""

    array: Array

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def shape(self) -> Shape:
        return tuple(self.array.shape)

    def read(self) -> Array:
        return self.array


Step = tuple[str, Callable[[Array], Array]]


@dataclass(frozen=True, slots=True, eq=False)
class LazyArray:
    """A constant: its source and the steps on the way to its value, computed only when ``numpy()`` is called.

    Composing steps costs nothing, whatever the size: weights are permuted, folded and written once, when saved.

    Attributes:
        source: where the bytes are.
        dtype, shape: of the result, known without reading.
        steps: recorded (label, function) pairs, applied in order; labels make texts and signatures deterministic.
    """

    source: Source
    dtype: np.dtype[Any]
    shape: Shape
    steps: tuple[Step, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, value: Array | Source | Sequence[Any] | Scalar) -> LazyArray:
        """A constant over an array in memory (never copied) or over a source."""
        source: Source = value if hasattr(value, "read") else ArraySource(np.asarray(value))  # type: ignore[assignment]
        return cls(source, source.dtype, tuple(source.shape))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def is_verbatim(self) -> bool:
        """Whether the bytes are those of the source, in their order."""
        return all(label.startswith("reshape[") for label, _ in self.steps)

    def numpy(self) -> Array:
        """The value; large ones should be asked for once, by whoever writes them."""
        array = self.source.read()
        for _, step in self.steps:
            array = step(array)
        return array

    def then(
        self, label: str, step: Callable[[Array], Array], *, dtype: Any = None, shape: Sequence[int] | None = None
    ) -> LazyArray:
        """One more step; ``dtype`` and ``shape`` are those of its result where it changes them."""
        return LazyArray(
            self.source,
            self.dtype if dtype is None else np.dtype(dtype),
            self.shape if shape is None else tuple(int(dim) for dim in shape),
            (*self.steps, (label, step)),
        )

    def reshape(self, shape: Sequence[int]) -> LazyArray:
        target = tuple(int(dim) for dim in shape)
        if target == self.shape:
            return self
        return self.then(f"reshape{list(target)}", lambda array: array.reshape(target), shape=target)

    def transpose(self, perm: Sequence[int]) -> LazyArray:
        order = tuple(perm)
        if order == tuple(range(len(order))):
            return self
        return self.then(
            f"transpose{list(order)}", lambda array: array.transpose(order), shape=[self.shape[axis] for axis in order]
        )

    def astype(self, dtype: Any) -> LazyArray:
        target = np.dtype(dtype)
        if target == self.dtype:
            return self
        return self.then(f"cast[{target.name}]", lambda array: array.astype(target), dtype=target)

    def scaled(self, factor: Array) -> LazyArray:
        """Times a small array that broadcasts to this shape."""
        return self.then(f"scale{list(factor.shape)}", lambda array: (array * factor).astype(array.dtype, copy=False))

    def shifted(self, term: Array) -> LazyArray:
        """Plus a small array that broadcasts to this shape."""
        return self.then(f"add{list(term.shape)}", lambda array: (array + term).astype(array.dtype, copy=False))
