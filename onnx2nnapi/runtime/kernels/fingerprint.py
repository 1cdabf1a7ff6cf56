"""FarmHash's Fingerprint64 of many byte strings of one length, with whole-array arithmetic modulo 2^64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnx2nnapi.ir.types import Array

__all__ = ["fingerprint64"]

K0, K1, K2 = (np.uint64(value) for value in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))
Fetch = Callable[[int], Array]


def fingerprint64(keys: Array) -> Array:
    """uint64 fingerprints of the rows of a uint8 matrix."""
    count, length = keys.shape

    def fetch(width: int) -> Fetch:
        unsigned = np.dtype(f"<u{width}")
        return lambda at: keys[:, at : at + width].copy().view(unsigned).reshape(count).astype(np.uint64)

    with np.errstate(over="ignore"):
        if length > 64:
            return _long(fetch(8), length, count)
        if length > 32:
            return _up_to_64(fetch(8), length)
        if length > 16:
            return _up_to_32(fetch(8), length)
        return _up_to_16(fetch, length, count)


def _rotate(x: Array, shift: int) -> Array:
    result: Array = (x >> np.uint64(shift)) | (x << np.uint64(64 - shift))
    return result


def _mix(x: Array) -> Array:
    result: Array = x ^ (x >> np.uint64(47))
    return result


def _hash_16(u: Array, v: Array, factor: Array | np.uint64) -> Array:
    a = _mix((u ^ v) * factor)
    result: Array = _mix((v ^ a) * factor) * factor
    return result


def _factor(length: int) -> np.uint64:
    factor: np.uint64 = np.uint64((int(K2) + 2 * length) % (1 << 64))
    return factor


def _up_to_16(fetch: Callable[[int], Fetch], length: int, count: int) -> Array:
    if length >= 8:
        a, b = fetch(8)(0) + K2, fetch(8)(length - 8)
        return _hash_16(_rotate(b, 37) * _factor(length) + a, (_rotate(a, 25) + b) * _factor(length), _factor(length))
    if length >= 4:
        first = np.uint64(length) + (fetch(4)(0) << np.uint64(3))
        return _hash_16(first, fetch(4)(length - 4), _factor(length))
    if length > 0:
        y = fetch(1)(0) + (fetch(1)(length >> 1) << np.uint64(8))
        z = np.uint64(length) + (fetch(1)(length - 1) << np.uint64(2))
        short: Array = _mix(y * K2 ^ z * K0) * K2
        return short
    return np.full(count, K2)


def _up_to_32(word: Fetch, length: int) -> Array:
    factor = _factor(length)
    a, b, c, d = word(0) * K1, word(8), word(length - 8) * factor, word(length - 16) * K2
    return _hash_16(_rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + K2, 18) + c, factor)


def _up_to_64(word: Fetch, length: int) -> Array:
    factor = _factor(length)
    a, b, c, d = word(0) * K2, word(8), word(length - 8) * factor, word(length - 16) * K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _hash_16(y, a + _rotate(b + K2, 18) + c, factor)
    e, f, g, h = word(16) * factor, word(24), (y + word(length - 32)) * factor, (z + word(length - 24)) * factor
    return _hash_16(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, factor)


def _weak(word: Fetch, at: int, a: Array, b: Array) -> tuple[Array, Array]:
    """A hash of 32 bytes with two seeds."""
    w, x, y, z = (word(at + offset) for offset in (0, 8, 16, 24))
    a = a + w
    b = _rotate(b + a + z, 21)
    total = a + x + y
    return total + z, b + _rotate(total, 44) + a


def _long(word: Fetch, length: int, count: int) -> Array:
    x = np.full(count, 81, np.uint64)
    y = x * K1 + np.uint64(113)
    z = _mix(y * K2 + np.uint64(113)) * K2
    v = w = (np.zeros(count, np.uint64), np.zeros(count, np.uint64))
    x = x * K2 + word(0)
    for at in range(0, (length - 1) // 64 * 64, 64):
        x, y, z, v, w = _block(word, at, x, y, z, v, w, K1, np.uint64(1))
    rest = (length - 1) & 63
    factor = K1 + ((z & np.uint64(0xFF)) << np.uint64(1))
    w = (w[0] + np.uint64(rest), w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    x, y, z, v, w = _block(word, length - 64, x, y, z, v, w, factor, np.uint64(9))
    return _hash_16(_hash_16(v[0], w[0], factor) + _mix(y) * K0 + z, _hash_16(v[1], w[1], factor) + x, factor)


def _block(
    word: Fetch,
    at: int,
    x: Array,
    y: Array,
    z: Array,
    v: tuple[Array, Array],
    w: tuple[Array, Array],
    factor: Array | np.uint64,
    weight: np.uint64,
) -> tuple[Array, Array, Array, tuple[Array, Array], tuple[Array, Array]]:
    """One round over 64 bytes."""
    x = _rotate(x + y + v[0] + word(at + 8), 37) * factor
    y = _rotate(y + v[1] + word(at + 48), 42) * factor
    x = x ^ (w[1] * weight)
    y = y + v[0] * weight + word(at + 40)
    z = _rotate(z + w[0], 33) * factor
    v = _weak(word, at, v[1] * factor, x + w[0])
    w = _weak(word, at + 32, z + w[1], y + word(at + 16))
    return z, y, x, v, w
