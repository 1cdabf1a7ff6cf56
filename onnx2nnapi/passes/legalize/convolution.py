"""Conv and ConvTranspose: NHWC operations bracketed by transposes, which layout removes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx2nnapi.errors import UnsupportedForm
from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.ir.types import LazyArray
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes

__all__ = [
    "Window",
    "conv_of",
    "convolved",
    "from_nhwc",
    "over_dimensions",
    "pad_nhwc",
    "padding_attrs",
    "part_of",
    "to_nhwc",
    "window_of",
]


@dataclass(frozen=True)
class Window:
    """A sliding window over height and width.

    Attributes:
        kernel, strides, dilations: (height, width).
        pads: (top, left, bottom, right); negative ones crop.
        sizes: input (height, width).
        outputs: output (height, width).
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    sizes: tuple[int, int]
    outputs: tuple[int, int]

    @property
    def extent(self) -> tuple[int, int]:
        """Cells from the first tap to the last, (height, width)."""
        high, wide = ((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))
        return high, wide


def two(values: Sequence[int] | None, default: int = 1) -> tuple[int, int]:
    """An attribute over one or two spatial dimensions as (height, width); one dimension is the width."""
    items = [default, default] if not values else [default, *values] if len(values) == 1 else list(values)
    return int(items[0]), int(items[1])


def spatial(b: Builder, x_rank: int, what: str) -> int:
    """The number of spatial dimensions, 1 or 2."""
    if x_rank - 2 not in (1, 2):
        b.unsupported(f"{what} over {x_rank - 2} spatial dimensions; NNAPI has it over two")
    return x_rank - 2


def window_of(b: Builder, op: Op, kernel: Sequence[int], in_shape: Sequence[int], out_shape: Sequence[int]) -> Window:
    """The window of a Conv or pool, auto_pad resolved: pads are what they come to at these sizes."""
    sizes, outputs = two(in_shape[2:]), two(out_shape[2:])
    taps, strides, dilations = two(kernel), two(op.attrs.get("strides")), two(op.attrs.get("dilations"))
    auto = op.attrs.get("auto_pad", "NOTSET")
    given = op.attrs.get("pads") or [0] * (2 * (len(in_shape) - 2))
    half = len(given) // 2
    begin, end = two(given[:half], 0), two(given[half:], 0)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = []
        for size, k, s, d in zip(sizes, taps, strides, dilations, strict=True):
            totals.append(max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0))
        smaller, larger = [t // 2 for t in totals], [t - t // 2 for t in totals]
        begin, end = (two(smaller), two(larger)) if auto == "SAME_UPPER" else (two(larger), two(smaller))
    elif auto == "VALID":
        begin, end = (0, 0), (0, 0)
    elif auto != "NOTSET":
        b.unsupported(f"auto_pad is {auto!r}, ONNX knows NOTSET, VALID, SAME_UPPER and SAME_LOWER")
    return Window(taps, strides, dilations, (begin[0], begin[1], end[0], end[1]), sizes, outputs)


def over_dimensions(op: Op, taken: slice, count: int) -> Op:
    """A Conv or pool over some of its ``count`` spatial dimensions."""
    attrs = dict(op.attrs)
    for name in ("strides", "dilations", "kernel_shape"):
        if attrs.get(name):
            attrs[name] = tuple(attrs[name])[taken]
    if attrs.get("pads"):
        pads = tuple(attrs["pads"])
        attrs["pads"] = (*pads[:count][taken], *pads[count:][taken])
    return Op(op.kind, op.inputs, op.outputs, attrs, op.origins)


def to_nhwc(b: Builder, x: Value) -> Value:
    """Channels last, rank 4: 1-dimensional data gets a height of 1."""
    if x.rank == 3:
        moved = b.transpose(x, (0, 2, 1))
        return b.reshape(moved, (moved.shape[0], 1, *moved.shape[1:]))
    return b.transpose(x, (0, 2, 3, 1))


def from_nhwc(b: Builder, x: Value, rank: int) -> Value:
    """Back to channels second, of rank 3 or 4."""
    if rank == 3:
        n, _, w, c = x.shape
        return b.transpose(b.reshape(x, (n, w, c)), (0, 2, 1))
    return b.transpose(x, (0, 3, 1, 2))


def padding_attrs(pads: Sequence[int]) -> dict[str, Any]:
    """(top, left, bottom, right) by NNAPI's operand names."""
    top, left, bottom, right = pads
    return {"padding_left": left, "padding_right": right, "padding_top": top, "padding_bottom": bottom}


def pad_nhwc(b: Builder, x: Value, pads: Sequence[int], value: float = 0.0) -> Value:
    """Pad (or, where negative, crop) height and width with zeros or ``value``."""
    top, left, bottom, right = pads
    if min(pads) < 0:
        begin = (0, max(-top, 0), max(-left, 0), 0)
        size = (x.shape[0], x.shape[1] - begin[1] - max(-bottom, 0), x.shape[2] - begin[2] - max(-right, 0), x.shape[3])
        x = slice_nhwc(b, x, begin, size)
    top, left, bottom, right = (max(pad, 0) for pad in pads)
    if not any((top, left, bottom, right)):
        return x
    paddings = ((0, 0), (top, bottom), (left, right), (0, 0))
    if value == 0.0:
        return b.emit("PAD", x, paddings=paddings)
    return b.emit("PAD_V2", x, paddings=paddings, pad_value=value)


def slice_nhwc(b: Builder, x: Value, begin: Sequence[int], size: Sequence[int]) -> Value:
    """A box of ``x``; nothing where it is all of it."""
    if tuple(size) == x.shape:
        return x
    if b.at_least(3):
        return b.emit("SLICE", x, begin=tuple(begin), size=tuple(size))
    end = tuple(start + length for start, length in zip(begin, size, strict=True))
    return b.emit(
        "STRIDED_SLICE",
        x,
        begin=tuple(begin),
        end=end,
        strides=(1,) * x.rank,
        begin_mask=0,
        end_mask=0,
        shrink_axis_mask=0,
    )


@legalizes("Conv")
def conv(b: Builder, op: Op) -> Value:
    """CONV_2D, DEPTHWISE_CONV_2D (one input channel a group) or GROUPED_CONV_2D; volumes by a sum of them over depth.

    Below level 3 dilation is a kernel with zeros between its taps, and groups one with zeros off its diagonal blocks.
    """
    x, weight = b.inputs(op)[:2]
    return conv_of(b, op, x, weight, _bias(b, op, weight.shape[0], x.known.dtype))


def conv_of(b: Builder, op: Op, x: Value, weight: Value, bias: Value) -> Value:
    """The Conv with the attributes of ``op``; ``x`` is (n, c, …), and weights (O, I/g, …)."""
    if x.rank == 5:
        from onnx2nnapi.passes.legalize import volume  # built on this module

        return volume.convolution(b, op, x, weight, bias)
    spatial(b, x.rank, "Conv")
    window = window_of(b, op, weight.shape[2:], x.shape, b.out_shape(op))
    if weight.rank == 3:
        weight = b.reshape(weight, (*weight.shape[:2], 1, weight.shape[2]))
    return from_nhwc(b, convolved(b, to_nhwc(b, x), weight, bias, window, op.attrs["group"]), x.rank)


def convolved(b: Builder, x: Value, weight: Value, bias: Value, window: Window, group: int) -> Value:
    """A convolution of ``x`` [n, h, w, c] with ``weight`` (O, I/g, h, w)."""
    outputs = weight.shape[0]
    data, window = _explicit(b, x, window)
    attrs: dict[str, Any] = padding_attrs(window.pads) | {
        "stride_width": window.strides[1],
        "stride_height": window.strides[0],
    }
    if group == 1:
        return _plain(b, data, weight, bias, window, attrs)
    if weight.shape[1] == 1 and data.shape[3] == group:
        weight, window = _undilated(b, weight, window)
        attrs |= _dilation(window) | {"depth_multiplier": outputs // group}
        return b.emit("DEPTHWISE_CONV_2D", data, b.transpose(weight, (1, 2, 3, 0)), bias, **attrs)
    if b.at_least(3):
        weight = _spread(b, weight, window.dilations)
        return b.emit("GROUPED_CONV_2D", data, b.transpose(weight, (0, 2, 3, 1)), bias, **attrs, groups=group)
    return _plain(b, data, _block_diagonal(b, weight, group), bias, window, attrs)


def _plain(b: Builder, x: Value, weight: Value, bias: Value, window: Window, attrs: dict[str, Any]) -> Value:
    weight, window = _undilated(b, weight, window)
    return b.emit("CONV_2D", x, b.transpose(weight, (0, 2, 3, 1)), bias, **attrs, **_dilation(window))


def _dilation(window: Window) -> dict[str, Any]:
    return (
        {}
        if window.dilations == (1, 1)
        else {"dilation_width": window.dilations[1], "dilation_height": window.dilations[0]}
    )


def _bias(b: Builder, op: Op, count: int, dtype: np.dtype[Any]) -> Value:
    given = b.optional_input(op, 2)
    return given if given is not None else b.const(np.zeros(count, dtype), name=f"{op.outputs[0]}.bias")


def _explicit(b: Builder, x: Value, window: Window) -> tuple[Value, Window]:
    """Padding that NNAPI takes: not negative, and smaller than the window. Else a PAD of its own goes before."""
    top, left, bottom, right = window.pads
    high, wide = window.extent
    if min(window.pads) >= 0 and max(top, bottom) < high and max(left, right) < wide:
        return x, window
    padded = pad_nhwc(b, x, window.pads)
    sizes = (padded.shape[1], padded.shape[2])
    return padded, Window(window.kernel, window.strides, window.dilations, (0, 0, 0, 0), sizes, window.outputs)


def _undilated(b: Builder, weight: Value, window: Window) -> tuple[Value, Window]:
    """From level 3 as it is; below, a kernel with zeros between the taps and no dilation."""
    if window.dilations == (1, 1) or b.at_least(3):
        return weight, window
    spread = _spread(b, weight, window.dilations)
    return spread, Window(window.extent, window.strides, (1, 1), window.pads, window.sizes, window.outputs)


def _spread(b: Builder, weight: Value, dilations: tuple[int, int]) -> Value:
    """A kernel (O, I, h, w) with zeros between its taps."""
    if dilations == (1, 1):
        return weight
    _need_constant(b, weight, "a dilated kernel in this form")
    o, i, h, w = weight.shape
    shape = (o, i, (h - 1) * dilations[0] + 1, (w - 1) * dilations[1] + 1)

    def spread(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        result = np.zeros(shape, array.dtype)
        result[:, :, :: dilations[0], :: dilations[1]] = array
        return result

    assert weight.const is not None
    return b.const(weight.const.then(f"spread{list(dilations)}", spread, shape=shape), name=f"{weight.name}.spread")


def _block_diagonal(b: Builder, weight: Value, group: int) -> Value:
    """The kernel (O, I/g, h, w) of a grouped convolution as one over all channels (O, I, h, w)."""
    _need_constant(b, weight, "a grouped kernel below level 3")
    o, i, h, w = weight.shape

    def widen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        result = np.zeros((group, o // group, group, i, h, w), array.dtype)
        for g in range(group):
            result[g, :, g] = array.reshape(group, o // group, i, h, w)[g]
        return result.reshape(o, group * i, h, w)

    assert weight.const is not None
    return b.const(
        weight.const.then(f"groups[{group}]", widen, shape=(o, group * i, h, w)), name=f"{weight.name}.dense"
    )


def _need_constant(b: Builder, weight: Value, what: str) -> LazyArray:
    if weight.const is None:
        raise UnsupportedForm(
            f"{what} must be constant, {weight.name!r} is computed", where=b.op.origin, hint="raise --feature-level"
        )
    return weight.const


@legalizes("ConvTranspose")
def conv_transpose(b: Builder, op: Op) -> Value:
    """TRANSPOSE_CONV_2D with explicit padding (level 3), a group at a time; below, CONV_2D and DEPTH_TO_SPACE.

    NNAPI's output has the size that stride, kernel and padding give; ``output_padding`` is a smaller end padding.
    """
    x, weight = b.inputs(op)[:2]
    spatial(b, x.rank, "ConvTranspose")
    group = op.attrs["group"]
    data = to_nhwc(b, x)
    if weight.rank == 3:
        weight = b.reshape(weight, (*weight.shape[:2], 1, weight.shape[2]))
    strides, dilations = two(op.attrs.get("strides")), two(op.attrs.get("dilations"))
    bias = _bias(b, op, weight.shape[1] * group, x.known.dtype)
    weight = _spread(b, weight, dilations)
    window = _transposed_window(op, two(weight.shape[2:]), strides, (data.shape[1], data.shape[2]), b.out_shape(op))
    channels, outputs = weight.shape[0] // group, weight.shape[1]
    results = []
    for g in range(group):
        part = slice_nhwc(b, data, (0, 0, 0, g * channels), (*data.shape[:3], channels)) if group > 1 else data
        kernel_part = part_of(b, weight, g * channels, channels, 0) if group > 1 else weight
        bias_part = part_of(b, bias, g * outputs, outputs, 0) if group > 1 else bias
        results.append(_transposed(b, part, kernel_part, bias_part, window))
    result = results[0] if group == 1 else b.emit("CONCATENATION", *results, axis=3)
    return from_nhwc(b, result, x.rank)


def part_of(b: Builder, value: Value, start: int, count: int, axis: int) -> Value:
    """``count`` entries of a constant along an axis."""
    const = _need_constant(b, value, "a part of a kernel")
    shape = tuple(count if i == axis else size for i, size in enumerate(const.shape))
    index = (slice(None),) * axis + (slice(start, start + count),)
    return b.const(
        const.then(f"part[{start}:{start + count}]", lambda array: array[index], shape=shape), name=f"{value.name}.part"
    )


def _transposed_window(
    op: Op,
    taps: tuple[int, int],
    strides: tuple[int, int],
    sizes: tuple[int, int],
    out_shape: Sequence[int],
) -> Window:
    """pads: what is cut off the full result (the end's may be negative: rows that only the bias reaches)."""
    outputs = two(out_shape[2:])
    full = [(size - 1) * s + t for size, s, t in zip(sizes, strides, taps, strict=True)]
    given = op.attrs.get("pads") or [0] * (2 * (len(out_shape) - 2))
    begin = list(two(given[: len(given) // 2], 0))
    auto, shape = op.attrs.get("auto_pad", "NOTSET"), op.attrs.get("output_shape")
    if shape or auto in ("SAME_UPPER", "SAME_LOWER"):
        # total_padding = stride·(in-1) + output_padding + extent - out, split by auto_pad (ONNX ConvTranspose)
        extra = two(op.attrs.get("output_padding"), 0)
        totals = [max(f + e - o, 0) for f, e, o in zip(full, extra, outputs, strict=True)]
        begin = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals]
    elif auto == "VALID":
        begin = [0, 0]
    end = [f - p - o for f, p, o in zip(full, begin, outputs, strict=True)]
    return Window(taps, strides, (1, 1), (begin[0], begin[1], end[0], end[1]), sizes, outputs)


def _transposed(b: Builder, x: Value, weight: Value, bias: Value, window: Window) -> Value:
    """One group; ``weight`` is (I, O, h, w)."""
    top, left, bottom, right = window.pads
    high, wide = window.kernel
    if b.at_least(3) and min(window.pads) >= 0 and max(top, bottom) < high and max(left, right) < wide:
        attrs = padding_attrs(window.pads) | {"stride_width": window.strides[1], "stride_height": window.strides[0]}
        return b.emit("TRANSPOSE_CONV_2D", x, b.transpose(weight, (1, 2, 3, 0)), bias, **attrs)
    return _by_phases(b, x, weight, bias, window)


def _by_phases(b: Builder, x: Value, weight: Value, bias: Value, window: Window) -> Value:
    """Each of the s·s phases of the output is a plain convolution of the input; DEPTH_TO_SPACE interleaves them.

    Output row y reads input rows i with y + top - i·s in [0, h): for y + top = q·s + r, i = q - t with tap t·s + r.
    """
    (sh, sw), (top, left) = window.strides, window.pads[:2]
    stride = max(sh, sw)
    if sh != sw and min(sh, sw) != 1:
        b.needs_level(3, f"ConvTranspose with strides {[sh, sw]}")
    const = _need_constant(b, weight, "the kernel of a transposed convolution below level 3 or with this padding")
    inputs, outputs, high, wide = weight.shape
    depth = [-(-high // sh), -(-wide // sw)]

    def phases(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        padded = np.zeros((inputs, outputs, depth[0] * sh, depth[1] * sw), array.dtype)
        padded[:, :, :high, :wide] = array
        split = padded.reshape(inputs, outputs, depth[0], sh, depth[1], sw)[:, :, ::-1, :, ::-1]
        moved: np.ndarray[Any, Any] = split.transpose(3, 5, 1, 2, 4, 0)
        return moved.reshape(sh * sw * outputs, depth[0], depth[1], inputs)

    kernel = b.const(
        const.then(f"phases[{sh}, {sw}]", phases, shape=(sh * sw * outputs, *depth, inputs)),
        name=f"{weight.name}.phases",
    )
    assert bias.const is not None or sh * sw == 1
    wide_bias = bias if sh * sw == 1 else b.const(np.tile(b.constant(bias, "the bias"), sh * sw))
    # rows q = 0 … so that q·s + r covers [top, top + out): pad the input until the convolution gives them all
    rows = -(-(top + window.outputs[0]) // sh), -(-(left + window.outputs[1]) // sw)
    pads = (depth[0] - 1, depth[1] - 1, max(rows[0] - window.sizes[0], 0), max(rows[1] - window.sizes[1], 0))
    padded, inner = _explicit(b, x, Window((depth[0], depth[1]), (1, 1), (1, 1), pads, window.sizes, rows))
    result = b.emit("CONV_2D", padded, kernel, wide_bias, **padding_attrs(inner.pads), stride_width=1, stride_height=1)
    if stride > 1 and sh == sw:
        result = b.emit("DEPTH_TO_SPACE", result, block_size=stride)
    elif stride > 1:
        n, h, w, _ = result.shape
        result = b.reshape(result, (n, h, w * sw, outputs)) if sh == 1 else _interleave_rows(b, result, sh, outputs)
    return slice_nhwc(b, result, (0, top, left, 0), (result.shape[0], *window.outputs, outputs))


def _interleave_rows(b: Builder, x: Value, stride: int, channels: int) -> Value:
    """(n, h, w, stride·c) → (n, h·stride, w, c)."""
    n, h, w, _ = x.shape
    rows = b.transpose(b.reshape(x, (n * h, w, stride, channels)), (0, 2, 1, 3))
    return b.reshape(rows, (n, h * stride, w, channels))


@legalizes("Col2Im")
def col2im(b: Builder, op: Op) -> Value:
    """TRANSPOSE_CONV_2D with a constant kernel that puts each entry of a column in its place of the block."""
    x, _, block = b.inputs(op)
    out = b.out_shape(op)
    taps = tuple(int(size) for size in b.constant(block, "block_shape").reshape(-1))
    if len(taps) > 2:
        b.unsupported(f"Col2Im over {len(taps)} spatial dimensions")
    channels, count = out[1], math.prod(taps)
    kernel = np.eye(channels * count, dtype=x.known.dtype).reshape(channels * count, channels, *two(taps))
    strides, dilations = two(op.attrs.get("strides")), two(op.attrs.get("dilations"))
    weight = _spread(b, b.const(kernel), dilations)
    pads = tuple(op.attrs.get("pads") or (0,) * (2 * len(taps)))
    extents = [(tap - 1) * step + 1 for tap, step in zip(taps, two(dilations)[-len(taps) :], strict=True)]
    places = [
        (size + pads[i] + pads[i + len(taps)] - extent) // step + 1
        for i, (size, extent, step) in enumerate(zip(out[2:], extents, strides[-len(taps) :], strict=True))
    ]
    data = to_nhwc(b, b.reshape(x, (*x.shape[:2], *places)))
    window = _transposed_window(op, two(weight.shape[2:]), strides, (data.shape[1], data.shape[2]), out)
    bias = b.const(np.zeros(channels, x.known.dtype))
    return from_nhwc(b, _transposed(b, data, weight, bias, window), len(out))
