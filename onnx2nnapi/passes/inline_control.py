"""inline_control: control flow that is known when the model is converted becomes the nodes that it runs.

Before::

    y, ys = Loop(3, true, x) {body: (i, going, s) -> (going, t = Add(s, w), t)}

After::

    t = Add(x, w)
    t_1 = Add(t, w)
    t_2 = Add(t_1, w)
    y = Identity(t_2)
    ys = Concat(Unsqueeze(t), Unsqueeze(t_1), Unsqueeze(t_2))

An If whose condition is constant is its branch; a Loop whose trips are constant, and a Scan, are as many copies of the
body, while these are few. On a target that has WHILE more is left to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.ir.types import Array, LazyArray, TensorType
from onnx2nnapi.options import Options
from onnx2nnapi.passes.fold_constants import fold_constants

__all__ = ["inline_control", "stays_true", "trip_count"]

WHILE_SINCE = 4
MOST_OPS, MOST_OPS_WITHOUT_WHILE = 512, 16384  # of all copies of a body


def inline_control(graph: Graph, options: Options) -> bool:
    """Replace If, Loop and Scan by what they run; ONNX dialect."""
    changed = False
    while _inline_once(graph, options):
        fold_constants(graph, options)  # which may tell what control flow in the bodies does
        changed = True
    for op in graph.ops:
        for subgraph in op.subgraphs.values():
            changed |= inline_control(subgraph, options)
    return changed


def _inline_once(graph: Graph, options: Options) -> bool:
    changed = False
    for op in graph.ops:
        if op.kind in _INLINED and _INLINED[op.kind](_Site(graph, op), options):
            graph.remove(op)
            changed = True
    return changed


def stays_true(body: Graph) -> bool:
    """Whether a Loop's body hands its condition on, or always wants another trip."""
    name = body.outputs[0]
    while name in body.values and (producer := body.producer(name)) is not None and producer.kind == "Identity":
        name = str(producer.inputs[0])
    return name == body.inputs[1] or (body.is_constant(name) and bool(_array(body, name).all()))


def trip_count(graph: Graph, op: Op) -> int | None:
    """How often a Loop or Scan of ``graph`` runs; None where only the run tells."""
    if op.kind == "Scan":
        scanned = str(op.inputs[-int(op.attrs["num_scan_inputs"])])
        type_ = graph[scanned].type if scanned in graph.values else None
        return None if type_ is None else type_.shape[(op.attrs.get("scan_input_axes") or (0,))[0]]
    trips, start = (*op.inputs, None, None)[:2]
    goes_on = start is None or (graph.is_constant(start) and bool(_array(graph, start).all()))
    if trips is None or not graph.is_constant(trips) or not goes_on or not stays_true(op.attrs["body"]):
        return None
    return max(int(_array(graph, trips).reshape(-1)[0]), 0)


def _array(graph: Graph, name: str) -> Array:
    const = graph[name].const
    return np.zeros(0) if const is None else const.numpy()


# -- what runs, in the place of the operation, which the caller removes ------------------------------------------------


def _branch(site: _Site, options: Options) -> bool:
    graph, op = site.graph, site.op
    condition = op.inputs[0]
    if condition is None or not graph.is_constant(condition):
        return False
    taken = op.attrs["then_branch" if _array(graph, condition).all() else "else_branch"]
    site.hand_over(site.copied(taken, ()))
    return True


def _loop(site: _Site, options: Options) -> bool:
    op = site.op
    body: Graph = op.attrs["body"]
    count = trip_count(site.graph, op)
    if count is None or not _are_few(body, count, options):
        return False
    going = site.constant(f"{body.inputs[1]}.true", np.array(True))
    carried = [str(name) for name in op.inputs[2:]]
    trips = []
    for trip in range(count):
        number = site.constant(f"{body.inputs[0]}.{trip}", np.array(trip, np.int64))
        _, *results = site.copied(body, [number, going, *carried])
        carried, rows = results[: len(carried)], results[len(carried) :]
        trips.append(rows)
    site.hand_over(carried, trips)
    return True


def _scan(site: _Site, options: Options) -> bool:
    op = site.op
    body: Graph = op.attrs["body"]
    count, scans = trip_count(site.graph, op), int(op.attrs["num_scan_inputs"])
    if count is None or not _are_few(body, count, options):
        return False
    names = [str(name) for name in op.inputs]
    carried, scanned = names[:-scans], names[-scans:]
    axes = op.attrs.get("scan_input_axes") or (0,) * scans
    backward = op.attrs.get("scan_input_directions") or (0,) * scans
    trips = []
    for trip in range(count):
        slices = []
        for name, axis, back, own in zip(scanned, axes, backward, body.inputs[len(carried) :], strict=True):
            place = site.constant(f"{own}.place", np.array(count - 1 - trip if back else trip, np.int64))
            attrs = {"axis": axis % site.graph[name].rank}
            slices.append(site.added("Gather", [name, place], attrs, f"{own}.slice", body[own].known))
        results = site.copied(body, [*carried, *slices])
        carried, rows = results[: len(carried)], results[len(carried) :]
        trips.append(rows)
    site.hand_over(carried, trips)
    return True


_INLINED: dict[str, Callable[[_Site, Options], bool]] = {"If": _branch, "Loop": _loop, "Scan": _scan}


def _are_few(body: Graph, count: int, options: Options) -> bool:
    """Whether so many copies of a body, all of whose types are known, may stand in the graph."""
    most = MOST_OPS if options.feature_level >= WHILE_SINCE else MOST_OPS_WITHOUT_WHILE
    return 0 < count * max(len(body), 1) <= most and all(value.type is not None for value in body.values.values())


@dataclass(slots=True)
class _Site:
    """An operation that gives way to others, in its graph."""

    graph: Graph
    op: Op

    def constant(self, stem: str, array: Array) -> str:
        return self.graph.constant(stem, LazyArray.of(array)).name

    def added(self, kind: str, inputs: Sequence[str], attrs: Mapping[str, Any], stem: str, type_: TensorType) -> str:
        """Add an operation; the name of its result."""
        result = self.graph.add_value(Value(self.graph.fresh(stem), type_)).name
        self.graph.add(Op(kind, tuple(inputs), (result,), dict(attrs), self.op.origins), at=self.op)
        return result

    def copied(self, body: Graph, inputs: Sequence[str]) -> list[str]:
        """Add a body's operations, which read ``inputs``; the names of its outputs."""
        names = dict(zip(body.inputs, inputs, strict=True))
        for name, value in body.values.items():
            if name not in names:
                copy = Value(self.graph.fresh(name), value.type, value.const, value.holds)
                names[name] = self.graph.add_value(copy).name
        for op in body.ops:
            self.graph.add(_renamed(op, names), at=self.op)
        return [names.get(name, name) for name in body.outputs]

    def hand_over(self, carried: Sequence[str], trips: Sequence[Sequence[str]] = ()) -> None:
        """Let the operation's outputs be ``carried``, then what each trip gave, stacked."""
        graph, op, outputs = self.graph, self.op, self.op.outputs
        graph.rewire(op, outputs=())
        for output, name in zip(outputs, carried, strict=False):
            if output is not None:
                graph.add(Op("Identity", (name,), (output,), {}, op.origins), at=op)
        count = len(outputs) - len(carried)
        axes = op.attrs.get("scan_output_axes") or (0,) * count
        backward = op.attrs.get("scan_output_directions") or (0,) * count
        for index, output in enumerate(outputs[len(carried) :]):
            if output is None:
                continue
            axis = axes[index] % graph[output].rank
            rows = [self._row(rows[index], axis) for rows in (trips[::-1] if backward[index] else trips)]
            graph.add(Op("Concat", tuple(rows), (output,), {"axis": axis}, op.origins), at=op)

    def _row(self, name: str, axis: int) -> str:
        type_ = self.graph[name].known
        axes = self.constant(f"{name}.axis", np.array([axis], np.int64))
        shape = (*type_.shape[:axis], 1, *type_.shape[axis:])
        return self.added("Unsqueeze", [name, axes], {}, f"{name}.row", type_.with_shape(shape))


def _renamed(op: Op, names: Mapping[str, str]) -> Op:
    attrs = {key: _reading(item, names) if isinstance(item, Graph) else item for key, item in op.attrs.items()}
    inputs, outputs = (tuple(name and names.get(name, name) for name in side) for side in (op.inputs, op.outputs))
    return Op(op.kind, inputs, outputs, attrs, op.origins)


def _reading(graph: Graph, names: Mapping[str, str]) -> Graph:
    """A copy of a subgraph that reads the values around it by their new names."""
    outer = {old: new for old, new in names.items() if old not in graph.values}
    copy = Graph(graph.dialect, graph.name)
    copy.opset = graph.opset
    for name, value in graph.values.items():
        copy.add_value(Value(name, value.type, value.const, value.holds))
    for op in graph.ops:
        copy.add(_renamed(op, outer))
    copy.inputs = list(graph.inputs)
    copy.outputs = [outer.get(name, name) for name in graph.outputs]
    return copy
