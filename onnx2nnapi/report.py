"""check(): what every node of a model becomes in NNAPI, or why it is refused and the way out, all at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onnx2nnapi.errors import FeatureLevelError, Origin, UnsupportedError
from onnx2nnapi.ir.garbage import collector_off
from onnx2nnapi.ir.graph import Graph, Interface, Op, Port
from onnx2nnapi.nnapi.cost import bytes_moved, multiply_adds
from onnx2nnapi.nnapi.infer import bind_op
from onnx2nnapi.nnapi.rules import RuleError, level_of
from onnx2nnapi.options import Options

if TYPE_CHECKING:
    import onnx

__all__ = ["NodeReport", "Refusal", "Report", "check"]

_PLACES = 12  # names of nodes that a refusal lists


_REMARKS = {
    "folded": "constant, or nothing to do",
    "unneeded": "no output needs it",
    "refused": "REFUSED",
    "unread": "not judged",
}


def _label(origin: Origin) -> str:
    """A node's name, or the tensor that it writes."""
    return origin.name or next(iter(origin.outputs), "")


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One ONNX node.

    Attributes:
        origin: the node.
        status: "converted" (it has operations of its own), "merged" (another node's do its work), "folded" (its result
            is constant, or its input), "unneeded" (no output depends on it), "refused", or "unread" (the model is
            refused before nodes are judged).
        operations: NNAPI operations that do its work, in order.
        level: the feature level that these need; 0 without any.
        approximation: how far off an inexact form is at most; None where it is exact.
        bytes_moved: what its own operations read and write.
        macs: multiplications that are summed up, in its own operations.
        part_of: the node whose operations do its work, where it is merged.
        reasons: why it is refused.
    """

    origin: Origin
    status: str
    operations: tuple[str, ...] = ()
    level: int = 0
    approximation: str | None = None
    bytes_moved: int = 0
    macs: int = 0
    part_of: str | None = None
    reasons: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The node's name, or the tensor that it writes."""
        return _label(self.origin)

    @property
    def becomes(self) -> str:
        """The operations as one text, repeated ones counted."""
        counts = Counter(self.operations)
        return " + ".join(f"{count} {name}" if count > 1 else name for name, count in counts.items())

    @property
    def remark(self) -> str:
        """What people should know beside the operations."""
        if self.status == "converted":
            return f"approximate, {self.approximation}" if self.approximation else "exact"
        if self.status == "merged":
            return f"part of {self.part_of}"
        return _REMARKS[self.status]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.origin.name,
            "operator": self.origin.op_type,
            "outputs": list(self.origin.outputs),
            "status": self.status,
            "operations": list(self.operations),
            "level": self.level or None,
            "exact": self.status != "converted" or self.approximation is None,
            "approximation": self.approximation,
            "bytes_moved": self.bytes_moved,
            "macs": self.macs,
            "part_of": self.part_of,
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is refused for the same reason.

    Attributes:
        title: the operator and how many of its nodes, or what else it is.
        reason: why.
        places: the nodes.
        way_out: what to do.
        required_level: the feature level that would have it; None where none has, or it is not known.
    """

    title: str
    reason: str
    places: tuple[str, ...]
    way_out: str | None
    required_level: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What ``check`` found.

    Attributes:
        nodes: every node, in the model's order.
        refusals: grouped by their reason; none when the model converts.
        feature_level: the target.
        required_level: what the whole model needs; None where it is refused.
        assumptions: what is taken for granted of the inputs' values.
    """

    nodes: tuple[NodeReport, ...]
    refusals: tuple[Refusal, ...]
    feature_level: int
    required_level: int | None
    assumptions: tuple[str, ...] = field(default=())

    @property
    def convertible(self) -> bool:
        """Whether all of it converts."""
        return not self.refusals

    @property
    def verdict(self) -> str:
        """One line."""
        if self.convertible:
            return f"all {len(self.nodes)} nodes convert"
        if any(node.status == "unread" for node in self.nodes):
            return "the model is refused before its nodes are judged"
        refused = sum(node.status == "refused" for node in self.nodes)
        return f"{refused} of {len(self.nodes)} nodes are refused" if refused else "the model is refused"

    @property
    def cost(self) -> str:
        """What one run costs, in words."""
        moved, macs = (sum(getattr(node, name) for node in self.nodes) for name in ("bytes_moved", "macs"))
        return f"{macs / 1e6:.4g} million multiply-adds, {moved / 1e6:.4g} MB moved"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "convertible": self.convertible,
            "verdict": self.verdict,
            "feature_level": self.feature_level,
            "required_level": self.required_level,
            "nodes": [node.to_dict() for node in self.nodes],
            "refusals": [
                {
                    "title": refusal.title,
                    "reason": refusal.reason,
                    "nodes": list(refusal.places),
                    "way_out": refusal.way_out,
                    "required_level": refusal.required_level,
                }
                for refusal in self.refusals
            ],
            "assumptions": list(self.assumptions),
        }


@collector_off()
def check(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    options: Options | None = None,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
    **overrides: Any,
) -> Report:
    """Tell of every node what it becomes, or why not.

    Args:
        model: a path, the bytes of a file, or a ModelProto, which is not changed.
        options: of the conversion.
        base_dir: where external data is looked for; with a path the model's own folder.
        progress: called with the name of each stage before it runs.
        overrides: single options by name, on top of ``options``.

    Raises:
        InvalidModelError: no valid model, or options that contradict it. What cannot be converted is in the report.
    """
    from onnx2nnapi.api import convert
    from onnx2nnapi.dynamic import sample
    from onnx2nnapi.frontend.expand import expand_all
    from onnx2nnapi.frontend.importer import import_model
    from onnx2nnapi.frontend.load import load_model
    from onnx2nnapi.passes.legalize import has_rule

    chosen = Options.of(options, overrides)
    tell = progress or (lambda stage: None)
    tell("import")
    try:
        loaded = load_model(model, base_dir)
    except UnsupportedError as error:
        return Report((), _refusals([error], None), chosen.feature_level, None)
    file = _File.of(loaded.proto.graph, chosen)
    try:
        bound = sample(loaded.proto.graph, chosen) if chosen.keep_dynamic else chosen
        graph = import_model(loaded, bound)
        expand_all(graph, has_rule)
    except UnsupportedError as error:
        problems = _flat([error])
        nodes = _judged(list(file.nodes), {}, problems, unread=True)
        return Report(nodes, _refusals(problems, file), chosen.feature_level, None)
    del loaded
    source, problems, level = _convert(graph, bound, progress)
    assumptions = tuple(graph.assumptions)
    if bound is not chosen:
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in bound.shapes.items())
        assumptions = (*assumptions, f"bytes and MACs are those at the sizes {shapes}")
        if not problems:
            try:
                level = convert(model, chosen, base_dir=base_dir, progress=progress).required_level
            except UnsupportedError as error:
                problems = _flat([error])
    file.constants.update(name for name, value in source.values.items() if value.const is not None)
    found = {origin: NodeReport(origin, "unneeded") for origin in file.nodes if origin not in file.needed}
    return Report(
        _judged(_all_nodes(file.nodes, source), found | _account(graph), problems),
        _refusals(problems, file),
        chosen.feature_level,
        None if problems else level,
        assumptions,
    )


@dataclass(frozen=True, slots=True)
class _File:
    """What the report says of the file by its own names.

    Attributes:
        nodes: its nodes, with the tensors that each reads and writes.
        needed: those that the outputs depend on.
        inputs: the model's inputs.
        constants: tensors that are known to be constant.
        read: tensors that a node reads.
    """

    nodes: Mapping[Origin, tuple[Sequence[str], Sequence[str]]]
    needed: frozenset[Origin]
    inputs: frozenset[str]
    constants: set[str]
    read: frozenset[str]

    @classmethod
    def of(cls, graph: onnx.GraphProto, options: Options) -> _File:
        from onnx2nnapi.frontend.order import needed_nodes, origin_of, reads

        wanted = options.cut_outputs or [entry.name for entry in graph.output]
        fixed = {tensor.name for tensor in graph.initializer}
        fixed |= {tensor.values.name for tensor in graph.sparse_initializer}
        fixed |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
        return cls(
            {origin_of(node): (reads(node), [name for name in node.output if name]) for node in graph.node},
            frozenset(map(origin_of, needed_nodes(graph.node, wanted, options.cut_inputs))),
            frozenset(entry.name for entry in graph.input),
            fixed,
            frozenset(name for node in graph.node for name in reads(node)),
        )

    def cut(self, origin: Origin) -> str | None:
        """The flags that leave a node out: the part before it, and the part after it."""
        sources, results = self.nodes.get(origin, ((), ()))
        before = [name for name in dict.fromkeys(sources) if name not in self.constants]
        after = [name for name in results if name in self.read]
        parts = []
        if not self.inputs.issuperset(before):
            parts.append("what is before it with " + " ".join(f"--cut-outputs {name!r}" for name in before))
        if after:
            parts.append("what is after it with " + " ".join(f"--cut-inputs {name!r}" for name in after))
        return "convert " + ", and ".join(parts) if parts else None


def _convert(
    graph: Graph, options: Options, progress: Callable[[str], None] | None
) -> tuple[Graph, list[UnsupportedError], int]:
    """Run the passes over ``graph``, collecting what they refuse.

    Returns:
        The graph of ONNX operators that was legalized, the refusals, and the level of the result.
    """
    from onnx2nnapi.lower import lower
    from onnx2nnapi.passes import PIPELINE
    from onnx2nnapi.passes.legalize.driver import legalize, legalize_all
    from onnx2nnapi.passes.manager import run_passes

    place = PIPELINE.index(legalize)
    problems: list[UnsupportedError] = []
    level = 0
    run_passes(graph, options, pipeline=PIPELINE[:place], progress=progress)
    source = Graph("onnx", graph.name)
    source.become(graph)
    if progress is not None:
        progress("legalize")
    built, refused = legalize_all(source, options)
    problems += _flat(refused)
    graph.become(built)
    if problems:
        _detach_refused(graph)
    try:
        run_passes(graph, options, pipeline=PIPELINE[place + 1 :], progress=progress)
        if not problems:
            level = lower(graph, options).required_level
    except UnsupportedError as error:
        problems += _flat([error])
    return source, problems, level


def _detach_refused(graph: Graph) -> None:
    """Let the rest go through the other passes: what only refused nodes read is an output, what they give an input."""
    made = {name: graph.producer(name) is not None for name, value in graph.values.items() if value.const is None}
    inputs = [name for name, here in made.items() if not here and name not in graph.inputs and graph.uses(name)]
    outputs = [name for name, here in made.items() if here and not graph.uses(name)]
    graph.inputs += inputs
    graph.outputs += outputs
    if graph.interface is not None:
        ins, outs = ([Port(name, graph[name].known) for name in names] for names in (inputs, outputs))
        graph.interface = Interface((*graph.interface.inputs, *ins), (*graph.interface.outputs, *outs))


def _flat(errors: Iterable[UnsupportedError]) -> list[UnsupportedError]:
    return [problem for error in errors for problem in (error.problems or (error,))]


# -- nodes -------------------------------------------------------------------------------------------------------------


def _all_nodes(nodes: Iterable[Origin], source: Graph) -> list[Origin]:
    """The file's nodes in its order, then those in bodies of functions and of control flow."""
    known = dict.fromkeys(nodes)
    added = [origin for _, op in _every_op(source) for origin in op.origins if origin not in known]
    return [*known, *dict.fromkeys(added)]


def _judged(
    nodes: Sequence[Origin],
    found: dict[Origin, NodeReport],
    problems: Sequence[UnsupportedError],
    *,
    unread: bool = False,
) -> tuple[NodeReport, ...]:
    reasons: dict[Origin, list[str]] = {}
    for problem in problems:
        if isinstance(problem.where, Origin):
            reasons.setdefault(problem.where, []).append(problem.message)
    result = []
    for origin in nodes:
        entry = found.get(origin) or NodeReport(origin, "unread" if unread else "folded")
        if origin in reasons:
            entry = replace(entry, status="refused", reasons=tuple(reasons[origin]))
        result.append(entry)
    return tuple(result)


def _every_op(graph: Graph) -> Iterator[tuple[Graph, Op]]:
    """The operations of a graph and of its sub-graphs, each with the graph that it is in."""
    for op in graph.ops:
        yield graph, op
        for subgraph in op.subgraphs.values():
            yield from _every_op(subgraph)


def _account(main: Graph) -> dict[Origin, NodeReport]:
    """What the operations of a graph in NNAPI's dialect do, by the ONNX nodes that they stem from.

    Operations of a sub-model count once, however often it runs.
    """
    found: dict[Origin, NodeReport] = {}
    for graph, op in _every_op(main):
        level = _level(graph, op)
        for place, origin in enumerate(op.origins):
            entry = found.get(origin) or NodeReport(origin, "merged", part_of=_label(op.origin))
            entry = replace(entry, operations=(*entry.operations, op.kind), level=max(entry.level, level))
            if place == 0:
                entry = replace(
                    entry,
                    status="converted",
                    part_of=None,
                    bytes_moved=entry.bytes_moved + bytes_moved(graph, op),
                    macs=entry.macs + multiply_adds(graph, op),
                    approximation=main.approximations.get(origin),
                )
            found[origin] = entry
    return found


def _level(graph: Graph, op: Op) -> int:
    bound = bind_op(graph, op)
    try:
        return level_of(bound)
    except RuleError:  # its rank, which is a refusal in the report already
        return level_of(bound, ranks=False)


# -- refusals ----------------------------------------------------------------------------------------------------------


def _refusals(problems: Sequence[UnsupportedError], file: _File | None) -> tuple[Refusal, ...]:
    """Group what is refused for the same reason, in the order of the first of each."""
    groups: dict[tuple[str, str], list[UnsupportedError]] = {}
    for problem in problems:
        kind = problem.where.op_type if isinstance(problem.where, Origin) else str(problem.where or "the model")
        groups.setdefault((kind, problem.message), []).append(problem)
    return tuple(_refusal(kind, message, group, file) for (kind, message), group in groups.items())


def _refusal(kind: str, message: str, group: Sequence[UnsupportedError], file: _File | None) -> Refusal:
    origins = [problem.where for problem in group if isinstance(problem.where, Origin)]
    names = [_label(origin) for origin in origins]
    places = (*names[:_PLACES], *([f"and {len(names) - _PLACES} more"] if len(names) > _PLACES else []))
    first = group[0]
    level = first.required if isinstance(first, FeatureLevelError) else None
    cut = file.cut(origins[0]) if origins and file is not None else None
    hint = first.hint if level is None else f"raise --feature-level to {level}"
    if cut is not None and "--cut-" in (hint or ""):
        hint = None  # which says the same without the names
    count = f" ({len(origins)} nodes)" if len(origins) > 1 else ""
    return Refusal(kind + count, message, places, "; or ".join(text for text in (hint, cut) if text) or None, level)
