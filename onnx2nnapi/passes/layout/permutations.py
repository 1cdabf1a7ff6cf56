"""The algebra of permutations: how they compose, what they really move, and how they pass through a reshape.

``permute(x, perm)`` has ``shape[i] == x.shape[perm[i]]``, as numpy's and NNAPI's transpose.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from onnx2nnapi.ir.types import LazyArray, Shape

__all__ = [
    "Atoms",
    "Perm",
    "arrange_shape",
    "channels_first",
    "channels_last",
    "compose",
    "identity",
    "invert",
    "is_identity",
    "moves_only_ones",
    "orders",
    "reduced",
    "refine",
    "reindex",
]

Perm = tuple[int, ...]


@functools.cache
def identity(rank: int) -> Perm:
    return tuple(range(rank))


def is_identity(perm: Sequence[int]) -> bool:
    return tuple(perm) == identity(len(perm))


def compose(first: Sequence[int], second: Sequence[int]) -> Perm:
    """The permutation that permuting by ``first`` and then by ``second`` is."""
    return tuple([first[axis] for axis in second])


def invert(perm: Sequence[int]) -> Perm:
    inverse = [0] * len(perm)
    for at, axis in enumerate(perm):
        inverse[axis] = at
    return tuple(inverse)


def arrange_shape(shape: Sequence[int], perm: Sequence[int]) -> Shape:
    """The shape of the permuted tensor."""
    return tuple([shape[axis] for axis in perm])


@functools.cache
def channels_last(rank: int) -> Perm:
    """From dimensions as in ONNX (batch, channels, space …) to those of NNAPI's default (batch, space …, channels)."""
    return (0, *range(2, rank), 1)


@functools.cache
def channels_first(rank: int) -> Perm:
    """The way back from ``channels_last``; at rank 3 it is the same permutation."""
    return (0, rank - 1, *range(1, rank - 1))


def moves_only_ones(shape: Sequence[int], perm: Sequence[int]) -> bool:
    """Whether the elements keep their order: only dimensions of size 1 move."""
    kept = [axis for axis in perm if shape[axis] != 1]
    return kept == sorted(kept) or 0 in shape


def reduced(shape: Sequence[int], perm: Sequence[int]) -> tuple[Shape, Perm]:
    """The least permutation that moves the elements alike: sizes of 1 dropped, neighbours that stay together merged."""
    runs: list[list[int]] = []
    for axis in perm:
        if shape[axis] == 1:
            continue
        if runs and all(shape[between] == 1 for between in range(runs[-1][-1] + 1, axis)) and runs[-1][-1] < axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    natural = sorted(runs)
    return tuple(math.prod(shape[axis] for axis in run) for run in natural), tuple(natural.index(run) for run in runs)


def orders(order: Sequence[int], rank: int) -> Iterator[Perm]:
    """The useful permutations of ``rank`` dimensions that have those of ``order`` in that order.

    The dimensions that ``order`` lacks may stand anywhere. First come the identity and the changes between ONNX's
    layout and channels last, where they fit, then the one in which each follows the dimension before it.
    """
    known = [identity(rank)]
    if rank in (3, 4):
        known += [channels_last(rank), channels_first(rank)]
    listed = set(order)
    default = list(order)
    for axis in range(rank):
        if axis not in listed:
            default.insert(default.index(axis - 1) + 1 if axis else 0, axis)
    for perm in dict.fromkeys((*known, tuple(default))):
        if [axis for axis in perm if axis in listed] == list(order):
            yield perm


@dataclass(frozen=True, slots=True)
class Atoms:
    """What two shapes of the same elements have in common: factors of which both sides' dimensions consist.

    Attributes:
        sizes: of the factors, none of them 1, outermost first.
        before, after: for each dimension of either shape the factors (by index) that it consists of.
    """

    sizes: Shape
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]


def refine(before: Sequence[int], after: Sequence[int]) -> Atoms | None:
    """The common factors of two shapes, None where their borders interleave (4 × 6 against 6 × 4) or a size is 0."""
    if math.prod(before) != math.prod(after) or math.prod(before) == 0:
        return None
    borders = sorted(set(_borders(before)) | set(_borders(after)))
    sizes = []
    for low, high in zip([1, *borders], borders, strict=False):
        if high % low:
            return None
        sizes.append(high // low)
    place = {border: at for at, border in enumerate([1, *borders])}

    def parts(shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        ends = [1, *_borders(shape, ones=True)]
        return tuple(tuple(range(place[low], place[high])) for low, high in itertools.pairwise(ends))

    return Atoms(tuple(sizes), parts(before), parts(after))


def _borders(shape: Sequence[int], *, ones: bool = False) -> Iterable[int]:
    """The products of the sizes up to each dimension."""
    product = 1
    for size in shape:
        product *= size
        if size != 1 or ones:
            yield product


def reindex(const: LazyArray, axis: int, sizes: Sequence[int], perm: Sequence[int]) -> LazyArray:
    """The constant with dimension ``axis``, which consists of the factors ``sizes``, in the order of ``perm``."""
    shape = const.shape
    rank, axis = len(sizes), axis % len(shape)
    inner = (*range(axis), *(axis + at for at in perm), *range(axis + rank, len(shape) + rank - 1))
    return const.reshape((*shape[:axis], *sizes, *shape[axis + 1 :])).transpose(inner).reshape(shape)
