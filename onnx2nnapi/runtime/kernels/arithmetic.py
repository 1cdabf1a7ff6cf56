"""The arithmetic that the kernels share: rounding, requantization, fused activations, fixed-point multipliers.

Quantized results are computed in exact real arithmetic, rounded half away from zero, shifted by the zero point and
clamped, which gives the codes of Android's CPU; where that rounds twice in fixed point, the second half of this module
does the same. float16 is computed in float32 and rounded once (``widen``; the result is stored in the output's type).
Semantics: OperationsExecutionUtils.cpp, QuantUtils.h and gemmlowp's fixedpoint.h.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.codes import FuseCode
from onnx2nnapi.nnapi.rules import RuleError
from onnx2nnapi.nnapi.types import OperandType

__all__ = [
    "FLOAT32_MAX",
    "activate",
    "activation",
    "all_codes",
    "code_range",
    "dequantize",
    "float_range",
    "in_half_precision",
    "is_finite",
    "look_up",
    "multiply_by_quantized_multiplier",
    "quantize_multiplier",
    "requantize",
    "round_half_away",
    "rounding_divide_by_power_of_two",
    "saturating_rounding_doubling_high_mul",
    "store",
    "widen",
]

FLOAT32_MAX = float(np.finfo(np.float32).max)

_FLOAT_RANGES = {
    FuseCode.NONE: (-FLOAT32_MAX, FLOAT32_MAX),
    FuseCode.RELU: (0.0, FLOAT32_MAX),
    FuseCode.RELU1: (-1.0, 1.0),
    FuseCode.RELU6: (0.0, 6.0),
}


# -- floats ------------------------------------------------------------------------------------------------------------


def widen(x: Array) -> Array:
    """A float16 array as float32, which is what half precision is computed in; others as they are."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def in_half_precision(function: Callable[..., Array]) -> Callable[..., None]:
    """A float32 function of one array for float16: computed in float32 and rounded once."""
    return lambda x, out: np.copyto(out, function(widen(x)), casting="unsafe")


def store(x: Array, type_: OperandType, out: Array | None = None) -> Array:
    """``x`` in the element type of ``type_``: written to ``out`` where it is given, else cast when it has another."""
    if out is None:
        return x.astype(type_.dtype, copy=False)
    if x is not out:
        np.copyto(out, x, casting="unsafe")
    return out


def float_range(fuse_code: int) -> tuple[float, float]:
    """The interval that an activation clamps floats to; NONE clamps infinities to the largest float32."""
    return _FLOAT_RANGES[FuseCode(fuse_code)]


def activate(x: Array, fuse_code: int, out: Array | None = None) -> Array:
    """The fused activation of a float32 array, written to ``out`` (which may be ``x``); NaN stays NaN.

    What needs no change and has nowhere to go is returned as it is. float16 results are activated in float32 before
    they are rounded, so that NONE leaves their infinities.
    """
    if fuse_code == FuseCode.NONE and (out is None or out is x) and is_finite(x):
        return x
    low, high = float_range(fuse_code)
    result: Array = np.clip(x, np.float32(low), np.float32(high), out=out)
    return result


def activation(x: Array, fuse_code: int) -> Callable[[], object]:
    """The step that activates float32 numbers where they are, as ``activate`` does."""
    low, high = map(np.float32, float_range(fuse_code))
    clamp = functools.partial(x.clip, low, high, out=x)
    if fuse_code != FuseCode.NONE or not x.flags.c_contiguous:
        return clamp
    flat = x.reshape(-1)

    def bound() -> None:
        if not math.isfinite(flat.dot(flat)):
            clamp()

    return bound


def is_finite(x: Array) -> bool:
    """Whether no element is infinite, by a sum of squares: a fraction of the time of writing all of them again.

    Numbers above 1e19 and NaN are taken for infinite, too.
    """
    if x.dtype != np.float32 or not x.flags.c_contiguous:
        return False
    flat = x.reshape(-1)
    return math.isfinite(np.dot(flat, flat))


def round_half_away(x: Array) -> Array:
    """Floats rounded to integers, ties away from zero, as C's round() does.

    What is added is the largest number below one half: adding one half itself would round its predecessor up.
    """
    result: Array = np.copysign(np.nextafter(x.dtype.type(0.5), x.dtype.type(0.0)), x)
    result += x
    return np.trunc(result, out=result)


# -- codes -------------------------------------------------------------------------------------------------------------


def dequantize(codes: Array, type_: OperandType) -> Array:
    """The real numbers that codes stand for, exact in float64 (a scale has 24 bits, a code at most 16)."""
    real: Array = np.subtract(codes, type_.zero_point, dtype=np.float64)
    return np.multiply(real, type_.scale, out=real)


def code_range(type_: OperandType, fuse_code: int = FuseCode.NONE) -> tuple[int, int]:
    """The codes, smallest and largest, that a quantized result may have after its fused activation."""
    limits = np.iinfo(type_.dtype)  # type: ignore[type-var]
    low, high = int(limits.min), int(limits.max)
    if fuse_code == FuseCode.NONE:
        return low, high
    bottom, top = float_range(fuse_code)
    return max(low, _code(bottom, type_)), high if top == FLOAT32_MAX else min(high, _code(top, type_))


def _code(real: float, type_: OperandType) -> int:
    """The code of a small real number, which is divided in float32; far beyond the codes for a tiny scale."""
    steps = float(np.float32(min(abs(real) / type_.scale, 2.0**31)))
    return type_.zero_point + int(math.copysign(math.floor(steps + 0.5), real))


def requantize(scaled: Array, type_: OperandType, fuse_code: int = FuseCode.NONE, out: Array | None = None) -> Array:
    """Codes of ``type_`` for real numbers: half away from zero, plus the zero point, clamped to the activation's range.

    Args:
        scaled: the real numbers divided by ``type_.scale``, in float64; it is overwritten.
        type_: an 8- or 16-bit quantized type.
        fuse_code: the fused activation.
        out: where the codes are written, an array of ``type_.dtype``.
    """
    low, high = code_range(type_, fuse_code)
    zero = type_.zero_point
    np.clip(scaled, low - zero, high - zero, out=scaled)
    if 0 <= zero <= low:  # nothing is negative, before or after the zero point: the cast rounds down
        scaled += zero + 0.5
    else:
        scaled += np.copysign(0.5, scaled)
        np.trunc(scaled, out=scaled)
        scaled += zero
    return store(scaled, type_, out)


def all_codes(type_: OperandType) -> Array:
    """The 256 codes of an 8-bit type, in the order in which ``look_up`` reads a table."""
    return np.arange(256, dtype=np.uint8).view(type_.dtype)


def look_up(table: Array, codes: Array, out: Array) -> None:
    """Write a function of 8-bit codes by its table of 256 results, made from ``all_codes``."""
    np.take(table, codes.view(np.uint8), out=out, mode="clip")


# -- fixed point -------------------------------------------------------------------------------------------------------


def quantize_multiplier(real: float) -> tuple[int, int]:
    """``(mantissa, shift)`` with real ≈ mantissa · 2^(shift − 31) and a mantissa of 31 bits; below 2^-31 it is zero.

    Raises:
        RuleError: it is 2^31 or more, which a shift of 32-bit numbers does not reach.
    """
    if real == 0.0:
        return 0, 0
    if not abs(real) < 2.0**31:
        raise RuleError(f"the scales give the factor {real:.9g}, it must be below 2^31")
    fraction, shift = math.frexp(real)
    mantissa = math.floor(fraction * (1 << 31) + 0.5)
    if mantissa == 1 << 31:
        mantissa, shift = mantissa // 2, shift + 1
    return (0, 0) if shift < -31 else (mantissa, shift)


def saturating_rounding_doubling_high_mul(a: Array, b: Array | int) -> Array:
    """``a · b / 2^31`` of int32 numbers, ties upwards, saturated where both are −2^31."""
    product: Array = np.multiply(a, b, dtype=np.int64)
    product += 1 << 30
    product >>= 31
    np.minimum(product, (1 << 31) - 1, out=product)
    return product.astype(np.int32)


def rounding_divide_by_power_of_two(x: Array, exponent: Array | int) -> Array:
    """``x / 2^exponent`` of integers, ties away from zero."""
    mask = (np.left_shift(np.int64(1), exponent) - 1).astype(x.dtype)
    threshold = (mask >> 1) + (x < 0)
    result: Array = x >> np.asarray(exponent, dtype=x.dtype)
    result += (x & mask) > threshold
    return result


def multiply_by_quantized_multiplier(x: Array, mantissa: Array | int, shift: Array | int) -> Array:
    """int32 numbers times ``mantissa · 2^(shift − 31)``, rounded twice as gemmlowp does; left shifts wrap in 32 bits.

    Args:
        x: int32 numbers.
        mantissa: of ``quantize_multiplier``, perhaps one for each channel.
        shift: likewise.
    """
    left = np.maximum(shift, 0)
    right = np.maximum(np.negative(shift), 0)
    shifted = np.left_shift(x.astype(np.int64), left).astype(np.int32)
    return rounding_divide_by_power_of_two(saturating_rounding_doubling_high_mul(shifted, mantissa), right)
