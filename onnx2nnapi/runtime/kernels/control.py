"""Kernels of the operations that run sub-models, which they get as functions of arrays."""

from __future__ import annotations

from collections.abc import Callable

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.rules import RuleError
from onnx2nnapi.runtime.kernels import Call, kernel

Submodel = Callable[..., tuple[Array, ...]]

LOOP_LIMIT = 10_000  # Android stops a loop by the clock, which would make results depend on the machine


@kernel("IF")
def if_(call: Call, *inputs: Array, condition: Array, then_model: Submodel, else_model: Submodel) -> tuple[Array, ...]:
    """The results of one of two sub-models, both called with ``inputs``."""
    return (then_model if condition.reshape(-1)[0] else else_model)(*inputs)


@kernel("WHILE")
def while_(call: Call, *inputs: Array, condition_model: Submodel, body_model: Submodel) -> tuple[Array, ...]:
    """The first inputs, replaced by the body's results until the condition, of all inputs, is false.

    Raises:
        RuleError: the condition still holds after LOOP_LIMIT rounds.
    """
    values = inputs
    for _ in range(LOOP_LIMIT):
        if not condition_model(*values)[0].reshape(-1)[0]:
            return values[: len(call.outputs)]
        results = body_model(*values)
        values = (*results, *values[len(results) :])
    raise RuleError(f"the loop has not ended after {LOOP_LIMIT} rounds")
