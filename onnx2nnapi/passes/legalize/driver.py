"""The legalize pass: walks the ONNX graph once and builds the NNAPI graph by the rules, collecting every refusal."""

from __future__ import annotations

from collections.abc import Sequence

from onnx2nnapi.errors import InternalError, UnsupportedError, UnsupportedOp
from onnx2nnapi.ir.graph import Graph, Op, Provenance, Value
from onnx2nnapi.ir.types import TensorType
from onnx2nnapi.options import Options
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.element_types import nnapi_type
from onnx2nnapi.passes.legalize import rule_for

__all__ = ["legalize", "legalize_all"]


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
    return _Walk(graph, options).run()


class _Walk:
    def __init__(self, source: Graph, options: Options) -> None:
        self.source = source
        self.built = Graph("nnapi", source.name)
        self.built.interface = source.interface
        self.built.assumptions = source.assumptions
        self.builder = Builder(self.built, options, source)
        self.problems: list[UnsupportedError] = []

    def run(self) -> tuple[Graph, list[UnsupportedError]]:
        source, built, env = self.source, self.built, self.builder.env
        for name in source.inputs:
            type_ = self._judge(
                None, lambda name=name: nnapi_type(source[name].known, self.builder.options, f"input {name!r}")
            )
            env[name] = built.add_value(Value(name, type_ or source[name].type, None, Provenance(name)))
            built.inputs.append(name)
        for op in source.ops:
            self.builder.op = op
            results = self._judge(op, lambda op=op: self._apply(op))
            self._settle(op, results)
        for name in source.outputs:
            self._judge(None, lambda name=name: self.builder.value(name))
            built.outputs.append(env[name].name if name in env else self._opaque(name).name)
        return built, self.problems

    def _judge(self, op: Op | None, attempt):  # type: ignore[no-untyped-def]
        try:
            return attempt()
        except UnsupportedError as error:
            self.problems.append(error)
            return None

    def _apply(self, op: Op) -> Sequence[Value | None]:
        rule = rule_for(op.kind)
        if rule is None:
            raise UnsupportedOp(
                "no NNAPI operations are known for this operator",
                where=op.origin,
                hint="cut the graph around it with --cut-inputs / --cut-outputs, or export the model without it",
            )
        results = rule(self.builder, op)
        results = [results] if isinstance(results, Value) else list(results)
        for name, value in zip(op.outputs, results, strict=False):
            if name is not None and value is not None:
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
            self.builder.env[name] = value if value is not None else self._opaque(name)

    def _opaque(self, name: str) -> Value:
        """A stand-in for what could not be made, so that the nodes after it are judged too."""
        source = self.source[name].type
        try:
            type_: TensorType | None = None if source is None else nnapi_type(source, self.builder.options, name)
        except UnsupportedError:
            type_ = source
        return self.built.add_value(Value(self.built.fresh(name), type_))
