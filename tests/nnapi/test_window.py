from __future__ import annotations

import itertools

import pytest

from onnx2nnapi.nnapi.codes import PaddingCode
from onnx2nnapi.nnapi.window import Window, transposed_padding

SIZES = list(itertools.product(range(1, 9), range(1, 5), range(1, 4), range(1, 3)))


def starts(size, window):
    """Where the window begins at each place, found by moving it until it sticks out of the padded input."""
    found, start = [], -window.head
    while start + (window.filter - 1) * window.dilation < size + window.tail:
        found.append(start)
        start += window.stride
    return found


@pytest.mark.parametrize(("size", "length", "stride", "dilation"), SIZES)
def test_same_padding_reaches_every_stride_and_is_even(size, length, stride, dilation):
    window = Window.implicit(PaddingCode.SAME, size, length, stride, dilation)
    assert window.places == len(range(0, size, stride)) == len(starts(size, window))
    assert 0 <= window.tail - window.head <= 1
    slack = Window(size, length, stride, dilation, window.head, max(window.tail - 1, 0))
    assert window.tail == 0 or slack.places < window.places  # no more than is needed


@pytest.mark.parametrize(("size", "length", "stride", "dilation"), SIZES)
def test_places_and_reach(size, length, stride, dilation):
    for head, tail in ((0, 0), (1, 0), (2, 1)):
        window = Window(size, length, stride, dilation, head, tail)
        found = starts(size, window)
        assert window.places == len(found)
        if found:
            assert window.reach == found[-1] + (length - 1) * dilation + 1 + head <= window.padded


@pytest.mark.parametrize(("size", "length", "stride", "dilation"), [case for case in SIZES if case[3] == 1])
def test_the_transpose_of_same_padding_gives_back_its_size(size, length, stride, dilation):
    if length < stride:
        return  # such a convolution skips elements, and its transpose ends with elements that nothing reaches
    window = Window.implicit(PaddingCode.SAME, size, length, stride)
    head, tail = transposed_padding(PaddingCode.SAME, size, length, stride)
    assert head == window.head
    assert (window.places - 1) * stride + length - head - tail == size


def test_valid_padding_is_none():
    assert Window.implicit(PaddingCode.VALID, 5, 3) == Window(5, 3)
    assert transposed_padding(PaddingCode.VALID, 5, 3, 2) == (0, 0)
