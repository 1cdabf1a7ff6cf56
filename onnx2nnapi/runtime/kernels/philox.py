"""The counter-based random numbers that Android draws with: Philox 4×32, ten rounds, as TensorFlow seeds it.

Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.types import Array

__all__ = ["philox4x32", "uniform"]

MASK = np.uint64(0xFFFFFFFF)
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10


def philox4x32(counters: Array, key: tuple[int, int]) -> Array:
    """Four 32-bit random numbers for each counter: a matrix of four columns of 32-bit numbers, both in uint64."""
    c0, c1, c2, c3 = (counters[:, column].astype(np.uint64) for column in range(4))
    for step in range(ROUNDS):
        k0, k1 = (np.uint64((part + step * weyl) % (1 << 32)) for part, weyl in zip(key, WEYL, strict=True))
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        shift = np.uint64(32)
        c0, c1, c2, c3 = (second >> shift) ^ c1 ^ k0, second & MASK, (first >> shift) ^ c3 ^ k1, first & MASK
    return np.stack((c0, c1, c2, c3), axis=1)


def uniform(count: int, seed: int, stream: int) -> Array:
    """``count`` numbers in [0, 1), of 52 random bits each.

    Args:
        count: how many.
        seed: the 64-bit key (negative ones in two's complement).
        stream: the upper half of the counter.
    """
    blocks = (count + 1) // 2
    counters = np.zeros((blocks, 4), np.uint64)
    counters[:, 0] = np.arange(blocks, dtype=np.uint64) & MASK
    counters[:, 2], counters[:, 3] = stream & 0xFFFFFFFF, stream >> 32 & 0xFFFFFFFF
    bits = philox4x32(counters, (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)).reshape(-1, 2)[:count]
    mantissa = (bits[:, 0] & np.uint64(0xFFFFF)) << np.uint64(32) | bits[:, 1]
    numbers: Array = (mantissa | np.uint64(1023 << 52)).view(np.float64) - 1.0
    return numbers
