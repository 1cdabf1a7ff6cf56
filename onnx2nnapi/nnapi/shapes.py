"""Shape functions that rows share: output sizes from the sizes of the inputs and the values of attributes.

Each factory answers a function for ``Schema.shapes``. Sizes that do not fit are a RuleError; a value that is known only
when the model runs is an UnknownValue.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import ShapeRule

__all__ = [
    "agree",
    "broadcast",
    "broadcast_shapes",
    "normalized_axis",
    "reduced",
    "same_shape",
    "shape_of",
    "without_axis",
]


def agree(declared: Shape, shape: Shape) -> bool:
    """Whether two shapes can be the same: sizes of 0, and () for the rank, are unspecified."""
    return (
        declared == shape
        or not declared
        or not shape
        or (len(declared) == len(shape) and all(a == b or not a or not b for a, b in zip(declared, shape, strict=True)))
    )


def shape_of(name: str) -> ShapeRule:
    """One output with the sizes of an operand."""
    return lambda bound: (bound.shape(name),)


def broadcast(*names: str) -> ShapeRule:
    """One output with the sizes that the operands broadcast to, aligned at their last dimensions."""
    return lambda bound: (broadcast_shapes({name: bound.shape(name) for name in names}),)


def broadcast_shapes(shapes: dict[str, Shape]) -> Shape:
    """The sizes that the named shapes broadcast to.

    Raises:
        RuleError: two sizes of a dimension differ and none of them is 1.
    """
    rank = max(map(len, shapes.values()))
    result = []
    for back in range(rank, 0, -1):
        sizes = {shape[-back] for shape in shapes.values() if len(shape) >= back} - {1}
        if len(sizes) > 1:
            text = " and ".join(f"{name!r} {list(shape)}" for name, shape in shapes.items())
            raise RuleError(f"the sizes of {text} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def same_shape(*names: str) -> ShapeRule:
    """One output with the sizes that all the operands have.

    Their equality is a RuleError otherwise.
    """

    def infer(bound: Bound) -> Sequence[Shape]:
        first, *others = names
        for name in others:
            if bound.shape(name) != bound.shape(first):
                raise RuleError(
                    f"operand {name!r} has shape {list(bound.shape(name))}, it must be that of {first!r}, "
                    f"{list(bound.shape(first))}"
                )
        return (bound.shape(first),)

    return infer


def normalized_axis(axis: int, rank: int, name: str = "axis") -> int:
    """``axis`` counted from the front.

    Raises:
        RuleError: it is no dimension of a tensor of that rank.
    """
    if not -rank <= axis < rank:
        raise RuleError(f"{name!r} is {axis}, a tensor of rank {rank} has the dimensions {-rank} to {rank - 1}")
    return axis + rank if axis < 0 else axis


def reduced(axes: str = "axes", keep: str = "keep_dims", of: str = "input") -> ShapeRule:
    """One output without the dimensions ``axes``, or with size 1 there; a full reduction gives [1], never rank 0."""

    def infer(bound: Bound) -> Sequence[Shape]:
        shape = bound.shape(of)
        values = bound.array(axes)
        given = [] if values is None else values.reshape(-1).tolist()
        gone = {normalized_axis(axis, len(shape), axes) for axis in given}
        keeps = bool(bound.scalar(keep))
        kept = [1 if axis in gone else size for axis, size in enumerate(shape) if keeps or axis not in gone]
        return (tuple(kept) or (1,),)

    return infer


def without_axis(axis: str = "axis", of: str = "input") -> ShapeRule:
    """One output without the dimension ``axis``; nothing left is [1]."""

    def infer(bound: Bound) -> Sequence[Shape]:
        shape = bound.shape(of)
        gone = normalized_axis(bound.scalar(axis), len(shape), axis)
        return ((*shape[:gone], *shape[gone + 1 :]) or (1,),)

    return infer
