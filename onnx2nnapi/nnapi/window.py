"""How a window slides over one dimension: padding, dilation, stride, and the places where it fits."""

from __future__ import annotations

from dataclasses import dataclass

from onnx2nnapi.nnapi.codes import PaddingCode

__all__ = ["Window", "transposed_padding"]


@dataclass(frozen=True, slots=True)
class Window:
    """A window on one spatial dimension.

    Attributes:
        size: elements of the input.
        filter: elements of the filter.
        stride: from one place to the next.
        dilation: from one element of the filter to the next.
        head, tail: elements of padding before and after the input.
    """

    size: int
    filter: int
    stride: int = 1
    dilation: int = 1
    head: int = 0
    tail: int = 0

    @classmethod
    def implicit(cls, scheme: int, size: int, filter: int, stride: int = 1, dilation: int = 1) -> Window:
        """The window with NNAPI's implicit padding: SAME gives ⌈size / stride⌉ places and pads more at the tail."""
        if scheme == PaddingCode.VALID:
            return cls(size, filter, stride, dilation)
        extent = (filter - 1) * dilation + 1
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        return cls(size, filter, stride, dilation, total // 2, total - total // 2)

    @property
    def extent(self) -> int:
        """Elements from the first to the last of the dilated filter."""
        return (self.filter - 1) * self.dilation + 1

    @property
    def padded(self) -> int:
        """Elements of the padded input."""
        return self.size + self.head + self.tail

    @property
    def places(self) -> int:
        """Elements of the output: 0 where the filter is longer than the padded input."""
        return max(self.padded - self.extent + self.stride, 0) // self.stride

    @property
    def reach(self) -> int:
        """Elements of the padded input that the window touches; those beyond, if any, change nothing."""
        return (self.places - 1) * self.stride + self.extent if self.places else 0


def transposed_padding(scheme: int, output: int, filter: int, stride: int) -> tuple[int, int]:
    """Head and tail padding of a transposed convolution with implicit padding; the tail may be negative.

    Args:
        scheme: PaddingCode.
        output: size of the output, which is what is padded here.
        filter: size of the filter.
        stride: from the place of one input element in the output to that of the next.
    """
    if scheme == PaddingCode.VALID:
        return 0, 0
    total = (-(-output // stride) - 1) * stride + filter - output
    head = max(total, 0) // 2
    return head, total - head
