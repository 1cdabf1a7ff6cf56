"""The type of an NNAPI operand, and its translation from and to the graph's types."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from onnx2nnapi.ir.types import Quantization, Shape, TensorType
from onnx2nnapi.nnapi.codes import OperandCode

__all__ = ["MAX_RANK", "Q8_SIGNED", "QUANT8", "ChannelQuant", "OperandType"]

MAX_RANK = 32  # what numpy can hold everywhere; NNAPI's operations take far less
QUANT8 = OperandCode.TENSOR_QUANT8_ASYMM
Q8_SIGNED = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED


@dataclass(frozen=True, slots=True)
class ChannelQuant:
    """Scales of a TENSOR_QUANT8_SYMM_PER_CHANNEL operand, one for each index along ``channel_dim``."""

    channel_dim: int
    scales: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class OperandType:
    """What NNAPI calls an operand's type.

    Attributes:
        code: element type, scalar or tensor.
        shape: sizes; in a model a 0 is "unspecified" and () on a tensor "unspecified rank"; in the interpreter, where
            every size is known, a 0 is a size. () on a scalar.
        scale, zero_point: of the quantized types; 0.0 and 0 elsewhere.
        channel_quant: of TENSOR_QUANT8_SYMM_PER_CHANNEL.
    """

    code: OperandCode
    shape: Shape = ()
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.code.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_specified(self) -> bool:
        """Whether a model's operand has all its sizes (scalars always have)."""
        return not self.code.is_tensor or (bool(self.shape) and 0 not in self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def is_quantized(self) -> bool:
        return self.code.is_quantized

    def with_shape(self, shape: Shape) -> OperandType:
        return replace(self, shape=tuple(int(dim) for dim in shape))

    @classmethod
    def of(cls, type_: TensorType) -> OperandType:
        """The operand type of a value of the NNAPI dialect; KeyError for an element type that NNAPI lacks."""
        return _operand_type(type_)

    def tensor_type(self) -> TensorType:
        """The value type of the NNAPI dialect that this is the operand type of."""
        quant = None
        if self.channel_quant is not None:
            quant = Quantization(0.0, 0, True, self.channel_quant.channel_dim, self.channel_quant.scales)
        elif self.is_quantized or self.scale:
            quant = Quantization(
                self.scale, self.zero_point, "SYMM" in self.code.name and "ASYMM" not in self.code.name
            )
        return TensorType(np.dtype(self.dtype), self.shape, quant)

    def __str__(self) -> str:
        text = self.code.name + (f"[{', '.join(map(str, self.shape))}]" if self.code.is_tensor else "")
        if self.channel_quant is not None:
            return f"{text} per channel {self.channel_quant.channel_dim}"
        return f"{text} scale {self.scale:.9g} zero point {self.zero_point}" if self.is_quantized else text


_PLAIN = {"float32", "float16", "int32", "bool"}
_CODES = {
    ("float32", ""): OperandCode.TENSOR_FLOAT32,
    ("float16", ""): OperandCode.TENSOR_FLOAT16,
    ("int32", ""): OperandCode.TENSOR_INT32,
    ("bool", ""): OperandCode.TENSOR_BOOL8,
    ("uint8", "asymmetric"): OperandCode.TENSOR_QUANT8_ASYMM,
    ("int8", "asymmetric"): OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    ("int8", "symmetric"): OperandCode.TENSOR_QUANT8_SYMM,
    ("int8", "per channel"): OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    ("int16", "symmetric"): OperandCode.TENSOR_QUANT16_SYMM,
    ("uint16", "asymmetric"): OperandCode.TENSOR_QUANT16_ASYMM,
}


@functools.lru_cache(maxsize=1 << 14)  # a graph's operations ask again and again for the same few types
def _operand_type(type_: TensorType) -> OperandType:
    quant, name = type_.quant, type_.dtype.name
    code = _CODES[name, _flavour(quant) if name not in _PLAIN else ""]
    if quant is None:
        return OperandType(code, type_.shape)
    channels = None if quant.channel_dim is None else ChannelQuant(quant.channel_dim, quant.scales)
    return OperandType(code, type_.shape, quant.scale, quant.zero_point, channels)


def _flavour(quant: Quantization | None) -> str:
    if quant is None:
        return ""
    return "per channel" if quant.channel_dim is not None else "symmetric" if quant.symmetric else "asymmetric"
