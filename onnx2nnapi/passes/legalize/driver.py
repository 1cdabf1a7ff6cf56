"""The legalize pass: walks the ONNX graph once and builds the NNAPI graph by the rules, collecting every refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from onnx2nnapi.errors import InternalError, UnsupportedError, UnsupportedOp
from onnx2nnapi.ir.graph import Graph, Op, Provenance, Value
from onnx2nnapi.ir.types import TensorType
from onnx2nnapi.options import Options
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.element_types import nnapi_type
from onnx2nnapi.passes.legalize import rule_for
from onnx2nnapi.passes.legalize.refused import REASONS

__all__ = ["legalize", "legalize_all", "legalize_body"]

_UNKNOWN = (
    "no NNAPI operations are known for this operator",
    "cut the graph around it with --cut-inputs / --cut-outputs, or export the model without it",
)

T = TypeVar("T")


def legalize(graph: Graph, options: Options) -> bool:
    """Replace every ONNX operator by NNAPI operations; the graph's dialect is NNAPI's afterwards.

    Raises:
        UnsupportedError: with every refusal of the graph in its ``problems``.
    """
    built, problems = legalize_all(graph, options)
    if problems:
        raise UnsupportedError.collected(problems)
    graph.become(built)
    return True


def legalize_all(graph: Graph, options: Options) -> tuple[Graph, list[UnsupportedError]]:
    """The NNAPI graph of an ONNX graph, and the refusals; nodes after a refused one are judged all the same."""
    built = Graph("nnapi", graph.name)
    built.interface = graph.interface
    built.assumptions = graph.assumptions
    return _Walk(Builder(built, options, graph)).run()


def legalize_body(b: Builder, body: Graph, inputs: Sequence[Value]) -> list[Value]:
    """Add what the body of a node of control flow computes to the graph of ``b``.

    Args:
        b: a builder of the node's graph, or of a sub-model of it.
        body: in the ONNX dialect.
        inputs: the values of the new graph that the body's inputs are.

    Returns:
        The values that the body's outputs are.

    Raises:
        UnsupportedError: with every refusal of the body in its ``problems``.
    """
    walk = _Walk(b.of_body(body))
    walk.builder.env.update(zip(body.inputs, inputs, strict=True))
    walk.nodes()
    results = [walk.output(name) for name in body.outputs]
    if walk.problems:
        raise UnsupportedError.collected(walk.problems)
    return results


class _Walk:
    def __init__(self, builder: Builder) -> None:
        self.source = builder.source
        self.built = builder.graph
        self.builder = builder
        self.problems: list[UnsupportedError] = []

    def run(self) -> tuple[Graph, list[UnsupportedError]]:
        """Build the whole graph, its interface as that of the source."""
        source, built, env = self.source, self.built, self.builder.env
        for name in source.inputs:
            type_ = self._judge(partial(nnapi_type, source[name].known, self.builder.options, f"input {name!r}"))
            env[name] = built.add_value(Value(name, type_ or self._stand_in(name), None, Provenance(name)))
            built.inputs.append(name)
        self.nodes()
        built.outputs = [self.output(name).name for name in source.outputs]
        return built, self.problems

    def nodes(self) -> None:
        """Apply the rules to every node."""
        for op in self.source.ops:
            self.builder.op = op
            results = self._judge(partial(self._apply, op))
            self._settle(op, results)

    def output(self, name: str) -> Value:
        """What stands for an output of the source."""
        return self._judge(partial(self.builder.value, name)) or self._opaque(name)

    def _judge(self, attempt: Callable[[], T]) -> T | None:
        """The attempt's result; None where it is refused, which is noted."""
        try:
            return attempt()
        except UnsupportedError as error:
            self.problems.extend(error.problems or [error])
            return None

    def _apply(self, op: Op) -> Sequence[Value | None]:
        rule = rule_for(op.kind)
        if rule is None:
            reason, hint = REASONS.get(op.kind, _UNKNOWN)
            raise UnsupportedOp(reason, where=op.origin, hint=hint)
        results = rule(self.builder, op)
        results = [results] if isinstance(results, Value) else list(results)
        for name, value in zip(op.outputs, results, strict=False):
            if name is not None and value is not None and value.const is None:  # constants need not be NNAPI's
                self._same_type(op, name, value)
        return results

    def _same_type(self, op: Op, name: str, value: Value) -> None:
        """What a rule made must have the ONNX tensor's type: a cheap check that finds most faults of rules."""
        source = self.source[name].type
        if source is None:
            return
        expected = nnapi_type(source, self.builder.options, f"tensor {name!r}")
        if value.known.shape != expected.shape or value.known.dtype != expected.dtype:
            raise InternalError(f"the rule made {value.known} for {name!r}, which is {expected}", where=op.origin)

    def _settle(self, op: Op, results: Sequence[Value | None] | None) -> None:
        for index, name in enumerate(op.outputs):
            if name is None:
                continue
            value = results[index] if results is not None and index < len(results) else None
            if value is None and results is not None and self.source.uses(name):
                reason = f"its output {name!r} is used, and nothing in NNAPI gives it"
                self.problems.append(
                    UnsupportedError(reason, where=op.origin, hint="export the model without that output")
                )
            if value is not None and value.holds is None:
                value.holds = Provenance(name)
                if value.known.dtype == np.int32 and value.bounds is None:  # for passes after this graph is gone
                    interval = self.builder.interval(value)
                    value.bounds = (interval.low, interval.high)
            self.builder.env[name] = value if value is not None else self._opaque(name)

    def _opaque(self, name: str) -> Value:
        """A stand-in for what could not be made, so that the nodes after it are judged too."""
        return self.built.add_value(Value(self.built.fresh(name), self._stand_in(name)))

    def _stand_in(self, name: str) -> TensorType | None:
        """The type of a stand-in: float32 for element types that NNAPI lacks, which have been refused already."""
        source = self.source[name].type
        if source is None:
            return None
        try:
            return nnapi_type(source, self.builder.options, name)
        except UnsupportedError:
            return TensorType(np.dtype(np.float32), source.shape or (1,))
