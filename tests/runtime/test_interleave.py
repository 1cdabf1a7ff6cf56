from __future__ import annotations

import numpy as np
import pytest

from onnx2nnapi.runtime import Interpreter
from onnx2nnapi.runtime.interleave import interleaved
from onnx2nnapi.runtime.kernels import Band, Tape, bands, convolution, products
from tests.runtime.test_interpreter import Net

HEIGHT, WIDTH, CHANNELS = 12, 5, 4
KINDS = {
    "float32": {"code": "TENSOR_FLOAT32"},
    "uint8": {"code": "TENSOR_QUANT8_ASYMM", "scale": 0.25, "zero_point": 120},
}


@pytest.fixture
def small_bands(monkeypatch):
    """Bands of one or two rows, as large tensors have them."""
    monkeypatch.setattr(bands, "ELEMENTS", WIDTH * CHANNELS)
    monkeypatch.setattr(products, "BLOCK_ELEMENTS", 2 * WIDTH * CHANNELS)
    monkeypatch.setattr(products, "MIN_ROWS", 1)
    monkeypatch.setattr(convolution, "MIN_ROWS", 1)


def random_net(rng, kind, count):
    """Convolutions and elementwise operations that each read any of the last values; one row constant."""
    net, type_ = Net(), KINDS[kind]
    shape, image = [1, HEIGHT, WIDTH, CHANNELS], [1, HEIGHT, WIDTH, CHANNELS]
    values = [net.op("RELU", [net.input(shape, **type_)], shape, **type_)]

    def convolution(x, name, height, width, *pads):
        quantized = kind != "float32"
        sizes = [1 if name == "DEPTHWISE_CONV_2D" else CHANNELS, height, width, CHANNELS]
        weights = rng.integers(0, 255, sizes) if quantized else rng.standard_normal(sizes)
        more = {**type_, "scale": 0.01} if quantized else type_
        bias = {"code": "TENSOR_INT32", "scale": 0.25 * 0.01} if quantized else type_
        operands = [x, net.const(weights, sizes, **more)]
        operands.append(net.const(rng.integers(-9, 9, CHANNELS), [CHANNELS], **bias))
        scalars = [*pads, 1, 1, *([1] if name == "DEPTHWISE_CONV_2D" else []), 0]
        return net.op(name, [*operands, *map(net.const, scalars)], image, **type_)

    for _ in range(count):
        x, y = rng.choice(values[-3:], 2).tolist()
        match rng.integers(7):
            case 0:
                values.append(convolution(x, "CONV_2D", 1, 1, 0, 0, 0, 0))
            case 1:
                values.append(convolution(x, "CONV_2D", 3, 1, 0, 0, 2, 0))  # it looks back only
            case 2:
                values.append(convolution(x, "DEPTHWISE_CONV_2D", 3, 3, 1, 1, 1, 1))
            case 3:
                values.append(convolution(x, "CONV_2D", 3, 3, 1, 1, 1, 1))
            case 4:
                values.append(net.op("LOGISTIC" if kind == "float32" else "RELU", [x], shape, **type_))
            case _:
                values.append(net.op("ADD", [x, y, net.const(0)], shape, **type_))
    net.op("ADD", [values[-1], values[-2], net.const(0)], shape, output=True, **type_)
    return net.model()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_bands_does_not_change_results(small_bands, kind, seed):
    rng = np.random.default_rng(seed)
    model = random_net(rng, kind, 12)
    in_turns, one_by_one = Interpreter(model), Interpreter(model, profile=True)
    for _ in range(5):
        x = rng.standard_normal((1, HEIGHT, WIDTH, CHANNELS)).astype(np.float32)
        if kind != "float32":
            x = (x * 40 + 120).clip(0, 255).astype(np.uint8)
        np.testing.assert_array_equal(in_turns.run([x]), one_by_one.run([x]))


def tape(log, name, result, operands, needs, *, lockstep=True):
    """An operation on 4 elements that notes its bands of one element each."""
    own = [
        Band(
            [lambda until=until: log.append(f"{name}{until}")],
            until,
            {key: need(until) for key, need in needs.items()},
            lockstep=lockstep,
        )
        for until in (1, 2, 3, 4)
    ]
    return Tape(result, operands, result, own, [step for band in own for step in band.steps])


def order(log, *tapes):
    for step in interleaved(tapes):
        step()
    return " ".join(log)


def test_a_band_follows_what_it_needs_at_once():
    a, b, c, d = np.zeros((4, 4))
    log = []
    first = tape(log, "a", b, {"x": a}, {"x": lambda until: until})
    window = tape(log, "w", c, {"x": b}, {"x": lambda until: min(until + 1, 4)}, lockstep=False)
    last = tape(log, "z", d, {"x": c, "y": b}, {"x": lambda until: until, "y": lambda until: until})
    assert order(log, first, window, last) == "a1 a2 w1 z1 a3 w2 z2 a4 w3 z3 w4 z4"


def test_nothing_is_overwritten_that_is_still_read():
    a, b, c = np.zeros((3, 4))
    lockstep = {"x": lambda until: until}
    log = []
    reader = tape(log, "r", b, {"x": a}, lockstep)
    writer = tape(log, "w", a, {"x": c}, lockstep)
    assert order(log, reader, writer) == "r1 w1 r2 w2 r3 w3 r4 w4"
    log.clear()
    looks_back = tape(log, "r", b, {"x": a}, lockstep, lockstep=False)
    assert order(log, looks_back, writer) == "r1 r2 r3 r4 w1 w2 w3 w4"
    log.clear()
    shifted = tape(log, "w", np.zeros(9)[1:5], {"x": c}, lockstep)
    overlapping = tape(log, "r", b, {"x": shifted.result.base[:4]}, lockstep)
    assert order(log, overlapping, shifted) == "r1 r2 r3 r4 w1 w2 w3 w4"


def test_an_operand_without_a_count_must_be_whole():
    a, b, c = np.zeros((3, 4))
    log = []
    first = tape(log, "a", b, {"x": a}, {"x": lambda until: until})
    second = tape(log, "b", c, {"x": b}, {})
    assert order(log, first, second) == "a1 a2 a3 a4 b1 b2 b3 b4"
