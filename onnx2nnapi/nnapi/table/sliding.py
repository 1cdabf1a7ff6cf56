"""What the rows of convolutions and pools share: operands, rules and the output's geometry."""

from __future__ import annotations

from collections.abc import Sequence

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import FuseCode, OperandCode, PaddingCode
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import Form, Rule, Slot, optional, scalar
from onnx2nnapi.nnapi.window import Window

__all__ = [
    "DILATIONS",
    "EXPLICIT_PADDING",
    "FUSE_CODE",
    "IMPLICIT_PADDING",
    "NCHW",
    "STRIDES",
    "check_fuse_code",
    "check_padding_scheme",
    "forms",
    "image_shape",
    "image_sizes",
    "places",
    "positive",
    "windows",
]

EXPLICIT_PADDING = tuple(scalar(f"padding_{side}") for side in ("left", "right", "top", "bottom"))
IMPLICIT_PADDING = (scalar("padding_scheme"),)
STRIDES = (scalar("stride_width"), scalar("stride_height"))
FUSE_CODE = scalar("fuse_code", default=int(FuseCode.NONE))
NCHW = optional("nchw", OperandCode.BOOL, False, since=3)
DILATIONS = tuple(
    optional(name, OperandCode.INT32, 1, since=3, group="dilations") for name in ("dilation_width", "dilation_height")
)


def forms(head: Sequence[Slot], tail: Sequence[Slot]) -> tuple[Form, ...]:
    """The two operand lists: ``head``, one kind of padding, ``tail``."""
    return (
        Form("explicit padding", (*head, *EXPLICIT_PADDING, *tail)),
        Form("implicit padding", (*head, *IMPLICIT_PADDING, *tail)),
    )


# -- rules -------------------------------------------------------------------------------------------------------------


def positive(*names: str) -> Rule:
    """A rule that the scalars ``names`` are above zero."""

    def check(bound: Bound) -> None:
        for name in names:
            value = bound.scalar(name)
            if value <= 0:
                raise RuleError(f"operand {name!r} is {value}, it must be positive")

    return check


def check_fuse_code(bound: Bound) -> None:
    """The activation is one that NNAPI has."""
    code = bound.scalar("fuse_code")
    if code not in tuple(FuseCode):
        names = ", ".join(f"{known.value} ({known.name})" for known in FuseCode)
        raise RuleError(f"operand 'fuse_code' is {code}, it must be one of {names}")


def check_padding_scheme(bound: Bound) -> None:
    """Implicit padding is SAME or VALID."""
    if bound.has("padding_scheme"):
        code = bound.scalar("padding_scheme")
        if code not in tuple(PaddingCode):
            raise RuleError(f"operand 'padding_scheme' is {code}, it must be 1 (SAME) or 2 (VALID)")


# -- geometry ----------------------------------------------------------------------------------------------------------


def image_sizes(bound: Bound) -> tuple[int, int, int, int]:
    """Batch, height, width and channels of the operand ``input``; only the batch may be zero."""
    batch, *sizes = bound.shape("input")
    channels, height, width = sizes if bound.scalar("nchw") else (sizes[2], sizes[0], sizes[1])
    for name, size in (("height", height), ("width", width), ("channels", channels)):
        if size == 0:
            raise RuleError(f"operand 'input' has {name} 0, only its batch may be zero")
    return batch, height, width, channels


def image_shape(bound: Bound, batch: int, height: int, width: int, channels: int) -> tuple[Shape]:
    """The output's shape in the layout of the operation."""
    if bound.scalar("nchw"):
        return ((batch, channels, height, width),)
    return ((batch, height, width, channels),)


def windows(
    bound: Bound, sizes: tuple[int, int], filters: tuple[int, int], *, dilated: bool = False
) -> tuple[Window, Window]:
    """The windows over height and width, both given in this order.

    Raises:
        RuleError: explicit padding is negative, or as long as the dilated filter.
    """
    result = []
    for axis, size, length, head, tail in (
        ("height", sizes[0], filters[0], "padding_top", "padding_bottom"),
        ("width", sizes[1], filters[1], "padding_left", "padding_right"),
    ):
        stride = bound.scalar(f"stride_{axis}")
        dilation = bound.scalar(f"dilation_{axis}") if dilated else 1
        if bound.has("padding_scheme"):
            result.append(Window.implicit(bound.scalar("padding_scheme"), size, length, stride, dilation))
            continue
        window = Window(size, length, stride, dilation, bound.scalar(head), bound.scalar(tail))
        for name, padding in ((head, window.head), (tail, window.tail)):
            if not 0 <= padding < window.extent:
                raise RuleError(
                    f"operand {name!r} is {padding}, it must be 0 to {window.extent - 1}, "
                    f"less than the filter's {axis} of {window.extent}"
                )
        result.append(window)
    return result[0], result[1]


def places(axis: str, window: Window) -> int:
    """The output's size on an axis.

    Raises:
        RuleError: the filter is longer than the padded input by a stride or more. Shorter excesses give no element.
    """
    if window.padded - window.extent <= -2 * window.stride:
        raise RuleError(f"the filter's {axis} of {window.extent} is longer than the padded input's {window.padded}")
    return window.places
