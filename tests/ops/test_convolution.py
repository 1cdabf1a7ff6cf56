"""Rules of passes/legalize/convolution.py and pooling.py."""

from __future__ import annotations

import dataclasses

import pytest

from tests.ops.harness import Case, Const, case, check, f32, i64, rows

CONV = [
    case("Conv", x=f32(1, 3, 7, 8), w=Const(f32(4, 3, 3, 3))),
    case("Conv", x=f32(2, 3, 7, 8), w=Const(f32(4, 3, 3, 2)), b=Const(f32(4)), pads=[1, 0, 2, 1], strides=[2, 1]),
    *(
        case("Conv", x=f32(1, 2, 7, 8), w=Const(f32(4, 2, 3, 3)), auto_pad=p, strides=[2, 3])
        for p in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    case("Conv", x=f32(1, 2, 9, 9), w=Const(f32(3, 2, 3, 3)), dilations=[2, 3], pads=[2, 3, 2, 3]),
    case("Conv", x=f32(1, 4, 7, 8), w=Const(f32(4, 1, 3, 3)), group=4, pads=[1, 1, 1, 1]),
    case("Conv", x=f32(1, 4, 7, 8), w=Const(f32(8, 1, 3, 3)), b=Const(f32(8)), group=4, strides=[2, 2]),
    case("Conv", x=f32(1, 4, 9, 9), w=Const(f32(8, 1, 3, 3)), group=4, dilations=[2, 2]),
    case("Conv", x=f32(1, 4, 7, 8), w=Const(f32(6, 2, 3, 3)), group=2, pads=[1, 1, 1, 1]),
    case("Conv", x=f32(1, 4, 9, 9), w=Const(f32(6, 2, 3, 3)), group=2, dilations=[2, 1]),
    case("Conv", x=f32(1, 3, 4, 4), w=Const(f32(2, 3, 1, 1)), pads=[2, 1, 0, 3], since=2),
    case("Conv", x=f32(1, 3, 11), w=Const(f32(4, 3, 3)), b=Const(f32(4)), pads=[1, 2], strides=[2]),
    case("Conv", x=f32(1, 4, 11), w=Const(f32(4, 1, 3)), group=4, dilations=[3]),
    case("Conv", x=f32(1, 3, 5, 5), w=f32(2, 3, 3, 3), b=f32(2)),
]
TRANSPOSED = [
    case("ConvTranspose", x=f32(1, 3, 4, 5), w=Const(f32(3, 2, 3, 3))),
    case(
        "ConvTranspose", x=f32(1, 3, 4, 5), w=Const(f32(3, 2, 3, 3)), b=Const(f32(2)), strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    case(
        "ConvTranspose",
        x=f32(1, 3, 4, 5),
        w=Const(f32(3, 2, 3, 3)),
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        output_padding=[1, 1],
    ),
    case("ConvTranspose", x=f32(1, 3, 4, 5), w=Const(f32(3, 2, 2, 2)), strides=[2, 2], b=Const(f32(2))),
    case("ConvTranspose", x=f32(1, 3, 4, 5), w=Const(f32(3, 2, 2, 2)), strides=[3, 3], b=Const(f32(2))),
    case("ConvTranspose", x=f32(1, 3, 4, 5), w=Const(f32(3, 2, 3, 3)), strides=[2, 2], auto_pad="SAME_UPPER"),
    case(
        "ConvTranspose",
        x=f32(1, 3, 4, 5),
        w=Const(f32(3, 2, 3, 3)),
        strides=[2, 2],
        auto_pad="SAME_LOWER",
        oracle="onnxruntime",
    ),
    case(
        "ConvTranspose",
        x=f32(1, 3, 4, 5),
        w=Const(f32(3, 2, 3, 3)),
        strides=[2, 2],
        output_shape=[9, 10],
        oracle="onnxruntime",
    ),
    case(
        "ConvTranspose",
        x=f32(1, 4, 4, 5),
        w=Const(f32(4, 3, 3, 3)),
        group=2,
        strides=[2, 2],
        since=2,
        oracle="onnxruntime",
    ),
    case("ConvTranspose", x=f32(1, 3, 4, 5), w=Const(f32(3, 2, 3, 3)), dilations=[2, 2]),
    case("ConvTranspose", x=f32(1, 3, 7), w=Const(f32(3, 2, 4)), strides=[2], pads=[1, 1]),
]
POOL = [
    case("MaxPool", x=f32(1, 3, 7, 8), kernel_shape=[3, 3], strides=[2, 2]),
    case("MaxPool", x=f32(1, 3, 7, 8), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    case("MaxPool", x=f32(1, 3, 7, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("MaxPool", x=f32(1, 3, 2, 2), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case(
        "MaxPool", x=f32(1, 3, 7, 8), kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER", oracle="onnxruntime"
    ),
    case("MaxPool", x=f32(1, 3, 9, 9), kernel_shape=[2, 3], dilations=[2, 3], pads=[1, 1, 1, 1], since=3),
    case("MaxPool", x=f32(1, 3, 9), kernel_shape=[3], strides=[2], pads=[1, 1]),
    case("AveragePool", x=f32(1, 3, 7, 8), kernel_shape=[3, 3], strides=[2, 2]),
    *(
        case(
            "AveragePool",
            x=f32(1, 3, 7, 8),
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            count_include_pad=c,
        )
        for c in (0, 1)
    ),
    *(
        case(
            "AveragePool",
            x=f32(1, 3, 7, 8),
            kernel_shape=[3, 3],
            strides=[2, 3],
            pads=[1, 0, 0, 1],
            count_include_pad=c,
            ceil_mode=1,
        )
        for c in (0, 1)
    ),
    case("AveragePool", x=f32(1, 3, 7, 8), kernel_shape=[2, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
    case("AveragePool", x=f32(1, 3, 9), kernel_shape=[4], strides=[3], pads=[1, 2], count_include_pad=1),
    case("AveragePool", x=f32(1, 3, 9, 9), kernel_shape=[2, 2], dilations=[2, 2], pads=[1, 1, 1, 1], since=2),
    case("GlobalAveragePool", x=f32(2, 3, 4, 5)),
    case("GlobalMaxPool", x=f32(2, 3, 4, 5)),
    case("GlobalAveragePool", x=f32(2, 3, 4)),
    case("GlobalAveragePool", x=f32(2, 3, 4, 2, 3), since=2),
]


V = f32(2, 4, 5, 6, 7)
COLUMNS = [
    case("Col2Im", x=f32(2, 12, 8), image=Const(i64(5, 5)), block=Const(i64(2, 2)), pads=[0, 0, 0, 0], strides=[2, 1]),
    case("Col2Im", x=f32(1, 18, 9), image=Const(i64(5, 5)), block=Const(i64(3, 3))),
    case("Col2Im", x=f32(1, 8, 9), image=Const(i64(5, 5)), block=Const(i64(2, 2)), dilations=[2, 2]),
    case(
        "Col2Im", x=f32(1, 8, 16), image=Const(i64(5, 5)), block=Const(i64(2, 2)), pads=[1, 1, 0, 0], dilations=[2, 2]
    ),
]
VOLUMES = [
    case("Conv", x=V, w=Const(f32(3, 4, 3, 3, 2)), b=Const(f32(3)), pads=[1, 1, 0, 1, 1, 1]),
    case("Conv", x=V, w=Const(f32(3, 4, 2, 3, 3)), strides=[2, 1, 2]),
    case("Conv", x=V, w=Const(f32(4, 2, 2, 2, 2)), group=2, dilations=[2, 1, 2]),
    case("Conv", x=V, w=Const(f32(4, 1, 3, 3, 3)), group=4, auto_pad="SAME_UPPER", strides=[2, 2, 2]),
    case("MaxPool", x=V, kernel_shape=[2, 3, 2], strides=[2, 1, 2], pads=[1, 1, 0, 0, 1, 1]),
    case("MaxPool", x=V, kernel_shape=[2, 2, 2], dilations=[2, 1, 2], since=3),
    *(
        case("AveragePool", x=V, kernel_shape=[2, 3, 2], pads=[1, 1, 0, 0, 1, 1], ceil_mode=1, count_include_pad=c)
        for c in (0, 1)
    ),
    case("LpPool", x=f32(2, 3, 7, 8), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    case("LpPool", x=f32(2, 3, 7, 8), kernel_shape=[3, 2], p=1),
    case("LpPool", x=f32(2, 3, 7, 8), kernel_shape=[3, 2], p=3, since=3),
    case("LpPool", x=f32(2, 3, 7, 8), kernel_shape=[2, 2], dilations=[2, 2], since=3),
    case("LpPool", x=V, kernel_shape=[2, 3, 2], since=3),
    case("GlobalLpPool", x=f32(2, 3, 4, 5), p=1, opset=21, oracle="onnxruntime"),
    case("GlobalLpPool", x=V, since=3, opset=21, oracle="onnxruntime"),
]


@pytest.mark.parametrize(("row", "level"), rows(CONV + TRANSPOSED + POOL + VOLUMES + COLUMNS))
def test_rule(row: Case, level: int) -> None:
    check(dataclasses.replace(row, since=max(row.since, 2)), level)  # the NCHW interface needs TRANSPOSE, of level 2
