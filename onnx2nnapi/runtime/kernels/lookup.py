"""Kernels of the lookups: embeddings, hash tables, hashing projections, and random drawing."""

from __future__ import annotations

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.rules import RuleError
from onnx2nnapi.nnapi.table.lookup import DENSE, SPARSE
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.fingerprint import fingerprint64
from onnx2nnapi.runtime.kernels.philox import uniform

__all__: list[str] = []


@kernel("EMBEDDING_LOOKUP")
def embedding_lookup(call: Call, lookups: Array, values: Array) -> Array:
    if lookups.size and not (lookups.min() >= 0 and lookups.max() < len(values)):
        raise RuleError(
            f"operand 'lookups' must be 0 to {len(values) - 1}, it goes from {lookups.min()} to {lookups.max()}"
        )
    return np.take(values, lookups, axis=0)


@kernel("HASHTABLE_LOOKUP")
def hashtable_lookup(call: Call, lookups: Array, keys: Array, values: Array) -> tuple[Array, Array]:
    output = np.zeros((len(lookups), *values.shape[1:]), values.dtype)
    if not len(keys):
        return output, np.zeros(len(lookups), np.uint8)
    rows = np.minimum(np.searchsorted(keys, lookups), len(keys) - 1)
    hits = keys[rows] == lookups
    output[hits] = values[rows[hits]]
    return output, hits.astype(np.uint8)


@kernel("LSH_PROJECTION")
def lsh_projection(call: Call, hash: Array, input: Array, weight: Array | None, type: int) -> Array:
    hashes, bits = hash.shape
    items = np.ascontiguousarray(input).reshape(len(input), -1).view(np.uint8)
    seeds = np.ascontiguousarray(hash, np.float32).reshape(-1, 1).view(np.uint8)
    pairs = (len(seeds), len(items))
    keys = np.concatenate(
        (
            np.broadcast_to(seeds[:, np.newaxis], (*pairs, seeds.shape[-1])),
            np.broadcast_to(items, (*pairs, items.shape[-1])),
        ),
        axis=-1,
    )
    signatures = fingerprint64(keys.reshape(-1, keys.shape[-1])).view(np.int64).reshape(pairs).astype(np.float64)
    if weight is not None:
        signatures *= weight.astype(np.float64)
    signs = (np.cumsum(signatures, axis=1)[:, -1] > 0).astype(np.int64)  # summed in order, as Android sums
    if type == DENSE:
        return signs.astype(np.int32)
    places = np.int64(1) << np.arange(bits - 1, -1, -1, dtype=np.int64)
    numbers: Array = signs.reshape(hashes, bits) @ places
    if type == SPARSE:  # each hash has a range of its own
        numbers += np.arange(hashes, dtype=np.int64) << bits
    return numbers.astype(np.int32)


@kernel("RANDOM_MULTINOMIAL")
def random_multinomial(call: Call, input: Array, sample_count: int, seeds: Array) -> Array:
    """Inverts the cumulative distribution at uniform random numbers, which the seeds determine unless both are 0."""
    seed, stream = (int(value) for value in seeds)
    if seed == 0 and stream == 0:
        seed, stream = (int(value) for value in np.random.default_rng().integers(0, 1 << 63, 2))
    logits = input.astype(np.float64)
    finite = np.isfinite(logits)
    highest = np.max(logits, axis=1, keepdims=True, where=finite, initial=-np.inf)
    cumulative = np.cumsum(np.where(finite, np.exp(logits - highest), 0.0), axis=1)
    targets = uniform(len(input) * sample_count, seed, stream).reshape(len(input), sample_count) * cumulative[:, -1:]
    rows = [np.searchsorted(row, target, side="right") for row, target in zip(cumulative, targets, strict=True)]
    drawn: Array = np.asarray(rows, np.int32).reshape(targets.shape)
    return drawn
