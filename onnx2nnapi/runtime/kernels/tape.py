"""What a kernel did, written down so that it can be done again: steps on the same arrays, in bands of the result."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnx2nnapi.ir.types import Array

if TYPE_CHECKING:
    from onnx2nnapi.runtime.kernels import Call, Kernel

__all__ = ["Band", "Step", "Tape", "recorded", "whole"]

Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Band:
    """The steps that complete the next part of a result; elements are counted in C order.

    Other operations may run between two bands of one, so that scratch memory does not last from band to band.

    Attributes:
        steps: the steps.
        until: how many elements of the result are there after them.
        needs: of operands that are read little by little, how many elements must be there before; others must be whole.
        lockstep: whether of these it reads only the elements that it writes of the result.
    """

    steps: Sequence[Step]
    until: int
    needs: Mapping[str, int] = field(default_factory=dict)
    lockstep: bool = False


def whole(result: Array, steps: Sequence[Step]) -> tuple[Array, list[Band]]:
    """A result that is computed in one go."""
    return result, [Band(steps, result.size)]


@dataclass(frozen=True, slots=True)
class Tape:
    """The bands that gave ``result``, which is ``target``, from operands, which are the very objects of that run."""

    target: Array
    operands: Mapping[str, object]
    result: Array
    bands: Sequence[Band]
    steps: Sequence[Step]


def recorded(*values: str) -> Callable[[Callable[..., tuple[Array, list[Band]]]], Kernel]:
    """Make a kernel of a function that gives its result and the bands that compute it, bound to their arrays.

    A plan calls a kernel with the same arrays in every run; then only the steps are run again. ``values`` names the
    operands whose elements the function looks at, not only their memory: they must be constant for that.
    """

    def make(function: Callable[..., tuple[Array, list[Band]]]) -> Kernel:
        @functools.wraps(function)
        def run(call: Call, **operands: Any) -> Array:
            tape, target = call.tape, call.target
            if (
                tape is not None
                and tape.target is target
                and all(map(operator.is_, tape.operands.values(), operands.values()))
            ):
                for step in tape.steps:
                    step()
                return tape.result
            result, bands = function(call, **operands)
            steps = [step for band in bands for step in band.steps]
            if target is not None and all(name in call.constants for name in values):
                call.tape = Tape(target, operands, result, bands, steps)
            for step in steps:
                step()
            return result

        return run

    return make
