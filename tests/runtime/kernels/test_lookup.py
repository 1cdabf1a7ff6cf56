from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.runtime.kernels.fingerprint import fingerprint64
from onnx2nnapi.runtime.kernels.philox import philox4x32, uniform
from tests.runtime.kernels.single import quantized, run

TABLE = np.arange(24, dtype=np.float32).reshape(4, 3, 2)


def test_embedding_lookup():
    np.testing.assert_array_equal(run("EMBEDDING_LOOKUP", np.array([3, 0, 3], np.int32), TABLE), TABLE[[3, 0, 3]])


@pytest.mark.parametrize("index", [-1, 4])
def test_embedding_lookup_refuses_what_is_outside(index):
    with pytest.raises(InvalidModelError, match="'lookups' must be 0 to 3"):
        run("EMBEDDING_LOOKUP", np.array([index], np.int32), TABLE)


def test_hashtable_lookup_gives_zeros_where_there_is_no_key():
    lookups, keys = np.array([11, 5, -3, 99, 4], np.int32), np.array([-3, 4, 11, 20], np.int32)
    output, hits = run("HASHTABLE_LOOKUP", lookups, keys, TABLE)
    np.testing.assert_array_equal(hits, [1, 0, 1, 0, 1])
    np.testing.assert_array_equal(output, TABLE[[2, 0, 0, 0, 1]] * hits[:, np.newaxis, np.newaxis])


def test_hashtable_misses_are_code_0_whatever_the_zero_point():
    output, hits = run(
        "HASHTABLE_LOOKUP", np.array([7], np.int32), np.array([1, 2], np.int32), quantized([[5], [6]], 0.5, 9)
    )
    assert (output.tolist(), hits.tolist()) == ([[0]], [0])


# -- hashing: FarmHash's fingerprints of the bytes 0, 1, 2 …, by its reference implementation --------------------------


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, 0x9AE16A3B2F90404F),
        (3, 0x94A13D22E9EBA49A),
        (7, 0xA2E0BFF20DB0A6A1),
        (12, 0x9FD5DF33AEFC3D7D),
        (20, 0x8DD7E7F1BF16A0E9),
        (50, 0xAB2B921FF69CC9F4),
        (64, 0xF58504BB53DECC4B),
        (65, 0xC6A3282C3E793DBE),
        (200, 0x74C7FCC26D66FB3),
    ],
)
def test_fingerprints_are_farmhashs(length, expected):
    keys = np.stack([np.arange(length, dtype=np.uint8), np.zeros(length, np.uint8)])
    first, second = fingerprint64(keys)
    assert int(first) == expected
    assert length < 2 or first != second


def sign(seed, items, weights):
    """The sign bit of a weighted sum of fingerprints, item by item."""
    total = 0.0
    for item, weight in zip(items, weights, strict=True):
        key = np.frombuffer(np.float32(seed).tobytes() + item.tobytes(), np.uint8)
        total += float(fingerprint64(key[np.newaxis]).view(np.int64)[0]) * float(weight)
    return int(total > 0)


@pytest.mark.parametrize(("kind", "weighted"), [(1, False), (2, True), (3, False)])
def test_lsh_projection(kind, weighted):
    rng = np.random.default_rng(3)
    hashes = rng.normal(size=(4, 3)).astype(np.float32)
    items = rng.integers(-9, 9, (5, 2)).astype(np.int32)
    weight = rng.normal(size=5).astype(np.float32) if weighted else None
    bits = np.array([[sign(s, items, np.ones(5) if weight is None else weight) for s in row] for row in hashes])
    numbers = bits @ [4, 2, 1] + (np.arange(4) * 8 if kind == 3 else 0)
    expected = bits.reshape(-1) if kind == 2 else numbers
    np.testing.assert_array_equal(run("LSH_PROJECTION", hashes, items, weight, type=kind), expected)


@pytest.mark.parametrize(("kind", "weighted"), [(2, False), (4, False), (0, True)])
def test_lsh_projection_refuses_another_type_and_a_missing_weight(kind, weighted):
    weight = np.ones(5, np.float32) if weighted else None
    with pytest.raises(InvalidModelError, match=r"'type'|'weight'"):
        run("LSH_PROJECTION", np.ones((4, 3), np.float32), np.ones((5, 2), np.int32), weight, type=kind)


# -- drawing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the known answers of the Random123 library
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers(counter, key, expected):
    assert tuple(philox4x32(np.array([counter], np.uint64), key)[0]) == expected


def test_uniform_numbers_are_uniform():
    numbers = uniform(20001, 7, -3)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=10, range=(0, 1))
    assert np.abs(counts - 2000.1).max() < 5 * np.sqrt(2000)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_random_multinomial_draws_by_the_softmax(dtype):
    logits = np.array([[0.0, 1.0, 2.0, -np.inf], [3.0, 0.0, 0.0, 3.0]], dtype)
    samples = run("RANDOM_MULTINOMIAL", logits, sample_count=20000, seeds=[37, 42])
    weights = np.exp(logits.astype(np.float64))
    counts = np.stack([np.bincount(row, minlength=4) for row in samples])
    np.testing.assert_allclose(counts / 20000, weights / weights.sum(axis=1, keepdims=True), atol=0.015)


def test_random_multinomial_repeats_with_its_seeds_and_only_with_them():
    logits = np.zeros((1, 1000), np.float32)
    draws = [run("RANDOM_MULTINOMIAL", logits, sample_count=50, seeds=seeds) for seeds in ([1, 2], [1, 2], [2, 1])]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    unseeded = [run("RANDOM_MULTINOMIAL", logits, sample_count=50, seeds=[0, 0]) for _ in range(2)]
    assert not np.array_equal(*unseeded)
