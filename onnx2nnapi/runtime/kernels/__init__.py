"""The interpreter's kernels: one numpy function an NNAPI operation, named as it, with parameters named as its operands.

A kernel is called as ``kernel(call, *variadic, **operands)``: tensors are arrays of NNAPI's element type (quantized
ones raw codes), omitted tensors None, arrays (axes, perm …) numpy arrays, scalars Python numbers, sub-models functions
from arrays to a tuple of arrays. Operands that the form lacks keep the parameter's default. It returns one array, or a
tuple.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels.tape import Band, Step, Tape, recorded, whole

__all__ = [
    "KERNELS",
    "Band",
    "Border",
    "Call",
    "Kernel",
    "Step",
    "Tape",
    "kernel",
    "may_overwrite",
    "recorded",
    "whole",
]

T = TypeVar("T")
Kernel = Callable[..., "Array | tuple[Array | None, ...]"]


@dataclass(frozen=True, slots=True)
class Border:
    """Room that a kernel wants around an operand, so that windows may reach over the edge without a copy.

    Attributes:
        before, after: elements ahead of and behind the operand, for each dimension.
        fill: what they hold.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    fill: float = 0.0

    def union(self, other: Border) -> Border:
        """A border with room for both."""
        before = tuple(map(max, self.before, other.before))
        return Border(before, tuple(map(max, self.after, other.after)), self.fill)

    def inside(self, outer: Border, array: Array) -> Array:
        """This border's part of an array that has the ``outer`` one, which is no smaller."""
        ends = zip(outer.before, self.before, outer.after, self.after, array.shape, strict=True)
        return array[tuple(slice(wide - own, size - (last - end)) for wide, own, last, end, size in ends)]


@dataclass(slots=True)
class Call:
    """What a kernel knows of its operation beyond the arrays; one for each planned operation, kept from run to run.

    Attributes:
        types: of the operands by name (a variadic operand's by ``name[i]``), with the sizes of this plan.
        outputs: output types; sizes as the schema infers them (declared ones, 0 for unknown, where only the run tells).
        out: buffers to write into, where the plan has one of the right size (perhaps a strided view); a kernel that
            writes elsewhere returns that array instead.
        relaxed: float32 may be computed as float16 (the interpreter computes float32).
        constants: names of operands whose arrays are the same in every run.
        prepared: what ``once`` remembers, for all plans of these sizes.
        memo: what ``buffer`` remembers, for this plan.
        workspace: what ``scratch`` hands out, to all operations of this plan in turn.
        wishes: the borders that were asked for, by operand.
        surroundings: the operands that lie in such a border, with it.
        tape: what a ``recorded`` kernel did in the last run.
    """

    types: Mapping[str, OperandType]
    outputs: tuple[OperandType, ...]
    out: tuple[Array | None, ...] = ()
    relaxed: bool = False
    constants: frozenset[str] = frozenset()
    prepared: dict[str, Any] = field(default_factory=dict)
    memo: dict[str, Array] = field(default_factory=dict)
    workspace: dict[str, Array] = field(default_factory=dict)
    wishes: dict[str, Border] = field(default_factory=dict)
    surroundings: dict[str, Array] = field(default_factory=dict)
    tape: Tape | None = None

    def __getitem__(self, name: str) -> OperandType:
        return self.types[name]

    @property
    def output(self) -> OperandType:
        """The type of the only output."""
        return self.outputs[0]

    @property
    def target(self) -> Array | None:
        """The buffer of the only output, if there is one."""
        return self.out[0] if self.out else None

    def once(self, key: str, make: Callable[[], T], *depends: str) -> T:
        """``make()``, computed once when the operands that it depends on are all constant, else in every run."""
        if not all(name in self.constants for name in depends):
            return make()
        if key not in self.prepared:
            self.prepared[key] = make()
        value: T = self.prepared[key]
        return value

    def buffer(self, key: str, make: Callable[[], Array]) -> Array:
        """An array of this operation's own; its contents are those of the last run."""
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]

    def scratch(self, key: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Memory for the length of this call, with arbitrary contents; it must not be in the result."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        block = self.workspace.get(key)
        if block is None or block.nbytes < size:
            block = self.workspace[key] = np.empty(size, np.uint8)
        return block[:size].view(dtype).reshape(shape)

    def surrounded(self, name: str, border: Border) -> Array | None:
        """The operand with that border around it, where the plan keeps it so; else the wish is noted for the plan."""
        self.wishes[name] = border
        return self.surroundings.get(name)


_kernels: dict[OperationCode, Kernel] = {}
_in_place: dict[OperationCode, tuple[str, ...]] = {}


def kernel(*names: str, in_place: tuple[str, ...] = ()) -> Callable[[Kernel], Kernel]:
    """Register a function as the kernel of the named operations.

    ``in_place`` names operands of the output's type and shape whose own memory may be the buffer of a float result.
    """

    def add(function: Kernel) -> Kernel:
        for name in names:
            code = OperationCode[name]
            if code in _kernels:
                raise KeyError(f"{name} has two kernels")
            _kernels[code] = function
            _in_place[code] = in_place
        return function

    return add


class _Kernels(Mapping[OperationCode, Kernel]):
    """Kernels by operation; the families are imported when first asked for."""

    _loaded = False

    def _all(self) -> dict[OperationCode, Kernel]:
        if not self._loaded:
            from onnx2nnapi.nnapi.schema import FAMILIES

            for family in FAMILIES:
                importlib.import_module(f"{__name__}.{family}")
            self._loaded = True
        return _kernels

    def __getitem__(self, code: OperationCode) -> Kernel:
        return self._all()[code]

    def __iter__(self) -> Iterator[OperationCode]:
        return iter(sorted(self._all()))

    def __len__(self) -> int:
        return len(self._all())


def may_overwrite(code: OperationCode) -> tuple[str, ...]:
    """The operands of an operation that its kernel lets the plan overwrite with the result."""
    return _in_place.get(code, ())


KERNELS: Mapping[OperationCode, Kernel] = _Kernels()
