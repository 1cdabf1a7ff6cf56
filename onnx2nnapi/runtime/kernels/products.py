"""Matrix products as convolutions need them: prepared weights, exact sums of codes, then bias and activation.

Codes are multiplied as float32 numbers: a sum of integers that stays below 2^24 is exact there, so sgemm gives what
integer arithmetic would. Where the weights do not prove that bound, the depth is cut into parts that do, and the parts
are added in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels import Call, Step
from onnx2nnapi.runtime.kernels.arithmetic import activation, code_range, float_range, quantize_multiplier

__all__ = [
    "Finish",
    "Weights",
    "blocks",
    "centred",
    "centred_rows",
    "finish_of",
    "multiply",
    "prepare",
]

MIN_ROWS = 256  # BLAS packs the weights in every call, which fewer rows do not repay
BLOCK_ELEMENTS = 1 << 17  # a block of results that is still in cache when bias and activation come
ADDEND_ELEMENTS = 1 << 10  # numbers added in one inner loop, which costs as much to enter as some tens of additions
_EXACT = 1 << 24

Finish = Callable[[Call, Array, Array], list[Step]]


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights for a matrix product.

    Attributes:
        matrix: float32 [depth, units], codes less their zero point.
        cuts: bounds along the depth between which sums of products of codes are exact in float32.
    """

    matrix: Array
    cuts: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether one product does."""
        return len(self.cuts) == 2

    @property
    def sum_dtype(self) -> type[np.generic]:
        """What holds the sums exactly."""
        return np.float32 if self.is_whole else np.float64


def prepare(call: Call, name: str, weights: Array, bias: Array, arrange: Callable[[Array], Array]) -> Weights:
    """Weights as float32 [depth, units], once where they are constant.

    Args:
        call: the operation.
        name: the weights' operand name.
        weights: their values or codes.
        bias: added to the product; int32 where the weights are codes.
        arrange: gives the matrix of the float32 array.
    """

    def make() -> Weights:
        matrix = arrange(centred(weights, call[name]))
        return Weights(matrix, _exact_cuts(matrix, bias) if call[name].is_quantized else (0, len(matrix)))

    return call.once("weights", make, name, *(["bias"] if call[name].is_quantized else []))


def _exact_cuts(matrix: Array, bias: Array) -> tuple[int, ...]:
    """The fewest equal parts of the depth whose sums of products with 9-bit numbers are exact in float32."""
    depth = matrix.shape[0]
    sizes = np.abs(matrix)
    if 255.0 * sizes.sum(axis=0, dtype=np.float64).max(initial=0.0) + np.abs(bias.astype(np.float64)).max() < _EXACT:
        return (0, depth)
    # a part of 257 rows is exact whatever the weights: 255 · 255 · 257 < 2^24
    parts = 2
    while True:
        cuts = tuple(depth * index // parts for index in range(parts + 1))
        if np.add.reduceat(sizes, cuts[:-1], axis=0, dtype=np.float64).max() * 255.0 < _EXACT:
            return cuts
        parts += 1


def centred_rows(call: Call, x: Array) -> tuple[Array, list[Step]]:
    """Part of the operand ``input`` in float32 (codes less their zero point), and the step that computes it, if any."""
    if x.dtype == np.float32:
        return x, []
    rows = call.scratch("centred", x.shape, np.float32)
    return rows, [partial(centred, x, call["input"], rows)]


def centred(x: Array, type_: OperandType, out: Array | None = None) -> Array:
    """Values as float32; codes less their zero point. float32 values without ``out`` are not copied."""
    if x.dtype == np.float32:
        if out is None:
            return x
        np.copyto(out, x)
        return out
    if x.dtype == np.float16 or type_.zero_point == 0:
        if out is None:
            return x.astype(np.float32)
        np.copyto(out, x)
        return out
    result: Array = np.subtract(x, np.float32(type_.zero_point), out=out, dtype=np.float32)
    return result


# -- bias and activation -----------------------------------------------------------------------------------------------


def finish_of(call: Call, name: str, weights: Weights, bias: Array, fuse_code: int) -> Finish:
    """What makes results of sums: ``finish(call, sums, out)`` gives steps that add the bias, activate, requantize.

    The sums are overwritten, and may be ``out`` itself.

    Args:
        call: the operation; its operands ``input`` and ``name`` have the scales.
        name: the weights' operand name.
        weights: what the sums come from.
        bias: of the last dimension.
        fuse_code: the activation.
    """
    addend = call.once("addend", lambda: _repeated(bias.astype(weights.sum_dtype, copy=False)), "bias", name)
    if call.output.is_quantized:
        return _requantizing(call.output, *_fixed_point(call, name), addend, fuse_code)

    def finish(call: Call, sums: Array, out: Array) -> list[Step]:
        steps = [_addition(sums, addend)]
        if out is sums:
            return [*steps, activation(sums, fuse_code)]
        low, high = map(np.float32, float_range(fuse_code))
        if out.dtype == sums.dtype:
            return [*steps, partial(sums.clip, low, high, out=out)]
        return [*steps, partial(sums.clip, low, high, out=sums), partial(np.copyto, out, sums, casting="same_kind")]

    return finish


def _requantizing(type_: OperandType, factor: Array, nudge: Array, addend: Array, fuse_code: int) -> Finish:
    """Fixed-point requantization in three steps of float64.

    Android multiplies by a mantissa of 31 bits, rounds to 2^-s with ties upwards, and rounds that to a code with ties
    away from zero. Both together are one floor, of the real number plus 1/2 plus (or, below zero, minus) 2^-(s+1).
    """
    low, high = code_range(type_, fuse_code)
    flip = 128 if type_.dtype == np.int8 else 0  # the cast truncates, so it happens above zero
    offset = type_.zero_point + flip + 0.5
    has_negatives = low < type_.zero_point

    def finish(call: Call, sums: Array, out: Array) -> list[Step]:
        real = call.scratch("real", sums.shape, np.float64)
        codes = out.view(np.uint8)
        steps: list[Step] = [_addition(sums, addend), partial(np.multiply, sums, factor, out=real)]
        if has_negatives:
            signed = call.scratch("signed", sums.shape, np.float64)
            steps += [partial(np.copysign, nudge, sums, out=signed), partial(np.add, real, signed, out=real)]
        steps += [
            partial(np.add, real, offset if has_negatives else offset + nudge, out=real),
            partial(real.clip, low + flip, high + flip + 0.5, out=real),
            partial(np.copyto, codes, real, casting="unsafe"),
        ]
        return [*steps, partial(np.bitwise_xor, codes, np.uint8(flip), out=codes)] if flip else steps

    return finish


def _repeated(bias: Array) -> Array:
    """A short bias several times over, so that it can be added to several rows at a time."""
    count = 1 << (max(ADDEND_ELEMENTS // bias.size, 1).bit_length() - 1)  # many numbers of rows have such a divisor
    return np.tile(bias, (count, 1))


def _addition(sums: Array, addend: Array) -> Step:
    """The step that adds the rows of ``addend``, which are all the same, to those of ``sums``."""
    count, units = addend.shape
    rows = math.gcd(sums.size // units, count) if sums.flags.c_contiguous else 1
    if rows > 1:
        sums = sums.reshape(-1, rows * units)
    return partial(np.add, sums, addend[:rows].reshape(-1), out=sums)


def _fixed_point(call: Call, name: str) -> tuple[Array, Array]:
    """Output codes for one step of the sums, and half a step of the first rounding: numbers, or one a channel."""
    channels = call[name].channel_quant
    scales = np.float32(call[name].scale) if channels is None else np.array(channels.scales, np.float32)
    product = np.atleast_1d(np.float32(call["input"].scale) * scales).astype(np.float64)
    pairs = [quantize_multiplier(real) for real in (product / float(np.float32(call.output.scale))).tolist()]
    factor = np.array([math.ldexp(mantissa, shift - 31) for mantissa, shift in pairs])
    nudge = np.array([math.ldexp(0.5, shift) if shift < 0 else 0.0 for _, shift in pairs])
    return factor, nudge


# -- products ----------------------------------------------------------------------------------------------------------


def multiply(rows: Array, weights: Weights, sums: Array) -> list[Step]:
    """Steps that put ``rows`` [n, depth] times the weights into ``sums`` [n, units] of ``weights.sum_dtype``."""
    if weights.is_whole:
        return [partial(np.matmul, rows, weights.matrix, out=sums)]
    parts = [
        partial(_accumulate, rows[:, start:stop], weights.matrix[start:stop], sums)
        for start, stop in zip(weights.cuts, weights.cuts[1:], strict=False)
    ]
    return [partial(sums.fill, 0.0), *parts]


def _accumulate(rows: Array, matrix: Array, sums: Array) -> None:
    sums += np.matmul(rows, matrix)


def blocks(count: int, unit: int, width: int) -> Iterator[tuple[int, int]]:
    """Equal ranges of ``count`` items of ``unit`` rows of ``width`` results, each small enough to stay in cache."""
    rows = max(MIN_ROWS, BLOCK_ELEMENTS // max(width, 1))
    parts = max(1, min(count, count * unit // rows))
    for index in range(parts):
        yield count * index // parts, count * (index + 1) // parts
