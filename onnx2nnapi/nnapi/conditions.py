"""Value rules that rows share: each answers the feature level that the operands' values need, None or a RuleError."""

from __future__ import annotations

import numpy as np

from onnx2nnapi.nnapi.codes import FuseCode, OperandCode
from onnx2nnapi.nnapi.rules import Bound, RuleError, UnknownValue
from onnx2nnapi.nnapi.schema import Fixed, Rule
from onnx2nnapi.nnapi.shapes import normalized_axis
from onnx2nnapi.nnapi.types import OperandType

__all__ = [
    "axes_within",
    "axis_within",
    "declared_output",
    "fused_activation",
    "input_scale_above",
    "level_beyond_ranks",
    "one_of",
    "output_quantization_is",
    "output_scale_above_product",
    "positive",
]


def declared_output(bound: Bound, index: int = 0) -> OperandType:
    """The type that the model declares for an output; UnknownValue before there is one."""
    type_ = bound.outputs[index] if index < len(bound.outputs) else None
    if type_ is None:
        raise UnknownValue(bound.schema.outputs[0].name)
    return type_


def one_of(name: str, values: dict[int, str]) -> Rule:
    """A scalar that is an enumeration: ``values`` by number, with what they mean."""

    def check(bound: Bound) -> None:
        value = bound.scalar(name)
        if value not in values:
            text = ", ".join(f"{number} ({meaning})" for number, meaning in values.items())
            raise RuleError(f"{name!r} is {value}, it must be one of {text}")

    return check


_FUSE_CODES = {int(code): code.name for code in FuseCode}


def fused_activation(bound: Bound) -> None:
    """The fused activation is one of NNAPI's four, and none on TENSOR_INT32."""
    one_of("fuse_code", _FUSE_CODES)(bound)
    integers = any(arg is not None and arg.type.code == OperandCode.TENSOR_INT32 for arg in bound.arguments.values())
    if integers and bound.scalar("fuse_code") != FuseCode.NONE:
        raise RuleError("TENSOR_INT32 takes no fused activation: 'fuse_code' must be 0 (NONE)")


def positive(name: str) -> Rule:
    """A scalar above zero."""

    def check(bound: Bound) -> None:
        value = bound.scalar(name)
        if not value > 0:
            raise RuleError(f"{name!r} is {value}, it must be positive")

    return check


def axis_within(axis: str = "axis", of: str = "input", *, negative: bool = True) -> Rule:
    """A dimension of ``of``, counted from the front or, where ``negative``, from the back."""

    def check(bound: Bound) -> None:
        value, rank = bound.scalar(axis), len(bound.shape(of))
        if value < 0 and not negative:
            raise RuleError(f"{axis!r} is {value}, {bound.schema.name} takes no negative dimensions")
        normalized_axis(value, rank, axis)

    return check


def axes_within(axes: str = "axes", of: str = "input") -> Rule:
    """A list of dimensions of ``of``."""

    def check(bound: Bound) -> None:
        if bound.has(axes) and len(bound[axes].shape) > 1:
            raise RuleError(f"{axes!r} has rank {bound[axes].rank}, it must be a list")
        values = bound.array(axes)
        if values is not None:
            rank = len(bound.shape(of))
            for axis in values.reshape(-1).tolist():
                normalized_axis(axis, rank, axes)

    return check


def level_beyond_ranks(level: int, ranks: tuple[int, ...], of: str = "input") -> Rule:
    """Ranks other than these need ``level``."""
    return lambda bound: None if len(bound.shape(of)) in ranks else level


def output_scale_above_product(a: str, b: str) -> Rule:
    """Quantized products: the output's scale is above the product of the inputs' scales (in float32)."""

    def check(bound: Bound) -> None:
        if not bound[a].is_quantized:
            return
        scale, product = declared_output(bound).scale, np.float32(bound[a].scale) * np.float32(bound[b].scale)
        if not scale > product:
            raise RuleError(
                f"the output's scale is {scale:.9g}, it must be above {product:.9g}, the product of the scales of "
                f"{a!r} and {b!r}"
            )

    return check


def output_quantization_is(policy: Fixed) -> Rule:
    """The output is declared with the scale and zero point that NNAPI gives it, a temporary too."""

    def check(bound: Bound) -> None:
        declared = declared_output(bound)
        scale, zero_point = policy.values.get(declared.code, (declared.scale, declared.zero_point))
        if (declared.scale, declared.zero_point) != (scale, zero_point):
            raise RuleError(
                f"the output has scale {declared.scale:.9g} and zero point {declared.zero_point}, it must have "
                f"{scale:.9g} and {zero_point}"
            )

    return check


def input_scale_above(least: float, factor: str | None = None) -> Rule:
    """A quantized input's scale, times a scalar where one is named, is coarse enough for fixed-point arithmetic."""

    def check(bound: Bound) -> None:
        if bound["input"].is_quantized:
            scale = bound["input"].scale * (1 if factor is None else bound.scalar(factor))
            if not scale > least:
                what = "the input's scale" + (f" times {factor!r}" if factor else "")
                raise RuleError(f"{what} is {scale:.9g}, it must be above {least:.9g}")

    return check
