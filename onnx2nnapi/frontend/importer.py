"""import_model: a ModelProto becomes a Graph in the ONNX dialect, whose interface is fixed from here on."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from onnx2nnapi.errors import InvalidModelError, UnsupportedError, UnsupportedForm, UnsupportedOp
from onnx2nnapi.frontend.binding import Binding, bind_inputs, check_known
from onnx2nnapi.frontend.infer import Sweep
from onnx2nnapi.frontend.load import LoadedModel, load_model
from onnx2nnapi.frontend.operators import default_opset, newest
from onnx2nnapi.frontend.order import check_names, needed_nodes, origin_of, reads, sort_nodes
from onnx2nnapi.frontend.scope import Scope
from onnx2nnapi.frontend.types import ShapeError, as_proto, known_type
from onnx2nnapi.ir.garbage import collector_off
from onnx2nnapi.ir.graph import Graph, Interface, Op, Port, Provenance, Value
from onnx2nnapi.ir.types import LazyArray, TensorType
from onnx2nnapi.options import Options

__all__ = ["import_model"]


def import_model(
    model: str | os.PathLike[str] | bytes | bytearray | memoryview | ModelProto | LoadedModel,
    options: Options | None = None,
    base_dir: str | os.PathLike[str] | None = None,
) -> Graph:
    """Import a model.

    Args:
        model: path of a .onnx file, its content, or a ModelProto, which stays as it is; or what was loaded of one.
        options: shapes, dims, frozen inputs, layouts and cuts define the interface.
        base_dir: folder of external data; a path's own folder by default. Nothing outside of it is read.

    Returns:
        A graph of the newest opset's operators: attribute defaults filled in, initializers and whatever is computed
        from them and from shapes constant, every type known that can be.

    Raises:
        InvalidModelError: the model is broken, or the options contradict it; the message names the place.
        UnsupportedError: it needs what no NNAPI model has: open sizes, sequences, strings.
    """
    with collector_off():
        try:
            loaded = model if isinstance(model, LoadedModel) else load_model(model, base_dir)
            return _Import(loaded, options or Options()).graph()
        except ShapeError as error:
            raise InvalidModelError(error.message, where=error.where, hint=error.hint) from None


class _Import:
    """One import: the model's graph, and what the options ask of it."""

    def __init__(self, model: LoadedModel, options: Options) -> None:
        self.model = model
        self.options = options
        self.proto: GraphProto = model.proto.graph
        check_names(self.proto)
        self.initialized = {
            **{tensor.name: tensor for tensor in self.proto.initializer},
            **{tensor.values.name: tensor for tensor in self.proto.sparse_initializer},
        }
        self.inputs = {entry.name: entry for entry in self.proto.input if entry.name not in self.initialized}
        self.outputs = {entry.name: entry for entry in self.proto.output}
        if len(self.outputs) != len(self.proto.output):
            names = [entry.name for entry in self.proto.output]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidModelError("two outputs have this name", where=f"output {twice!r}")
        self.written = {name for node in self.proto.node for name in node.output if name}
        for name in self.outputs:
            if name not in self.written and name not in self.inputs and name not in self.initialized:
                raise InvalidModelError("nothing defines it", where=f"output {name!r}")
        # every node, so that a fault in one that nothing needs is told too
        self.nodes: Sequence[NodeProto] = sort_nodes(
            self.proto.node, lambda name: name in self.inputs or name in self.initialized
        )

    def graph(self) -> Graph:
        """The whole import."""
        options = self.options
        tensors = [*self.inputs, *self.initialized, *sorted(self.written)]
        check_known("tensor", [*options.cut_inputs, *options.cut_outputs], tensors)
        cut = [name for name in dict.fromkeys(options.cut_inputs) if name not in self.inputs]
        outputs = list(dict.fromkeys(options.cut_outputs)) or list(self.outputs)
        nodes = needed_nodes(self.nodes, outputs, cut)
        entries = self._entries(cut, outputs, nodes)
        check_known("input", [*options.set, *options.input_layouts], [entry.name for entry in entries])
        check_known("output", options.output_layouts, outputs)
        shapes = self._shapes([entry.name for entry in entries])
        binding = bind_inputs(entries, options, shapes, self.inputs.values())
        sweep = self._sweep(nodes, entries, outputs, binding, set(cut))
        return self._finish(sweep, entries, outputs, binding)

    def _entries(self, cut: Sequence[str], outputs: Sequence[str], nodes: Sequence[NodeProto]) -> list[ValueInfoProto]:
        """The inputs: the model's own (after a cut those that are still read), then the tensors cut at."""
        own = list(self.inputs.values())
        if not cut:
            return own
        used = {*outputs, *(name for node in nodes for name in reads(node))}
        for name in cut:
            if name not in used:
                raise InvalidModelError("no output depends on it", where=f"cut input {name!r}")
        return [entry for entry in own if entry.name in used] + [self._cut_entry(name) for name in cut]

    def _cut_entry(self, name: str) -> ValueInfoProto:
        """The type of a tensor cut at: as the model states it in full, else as the part before the cut says."""
        if name in self.initialized:
            raise InvalidModelError("it is constant", where=f"cut input {name!r}")
        every: tuple[ValueInfoProto, ...] = (*self.proto.value_info, *self.proto.output)
        stated = next((entry for entry in every if entry.name == name and entry.type.tensor_type.elem_type), None)
        if stated is not None and isinstance(known_type(stated.type, f"tensor {name!r}"), TensorType):
            return stated
        entries = list(self.inputs.values())
        shapes = {key: shape for key, shape in self._shapes([*self.inputs, name]).items() if key != name}
        try:
            binding = bind_inputs(entries, self.options, shapes)
            found = self._sweep(needed_nodes(self.nodes, [name]), entries, [name], binding, set()).type_of(name)
        except UnsupportedError:
            if stated is None:
                raise
            return stated
        if found is None:
            raise InvalidModelError("its type cannot be inferred", where=f"cut input {name!r}")
        return ValueInfoProto(name=name, type=as_proto(found))

    def _shapes(self, inputs: Sequence[str]) -> dict[str, Sequence[int]]:
        """The shapes that the options set, of what is not constant."""
        shapes = dict(self.options.shapes)
        for name, shape in self.options.shapes.items():
            tensor = self.initialized.get(name)
            if tensor is not None:
                if tuple(tensor.dims) != tuple(shape):
                    raise InvalidModelError(
                        f"its shape is set to {list(shape)}, it is a constant of {list(tensor.dims)}",
                        where=f"input {name!r}",
                    )
                del shapes[name]
        check_known("input", shapes, list(dict.fromkeys([*inputs, *self.inputs])))
        return shapes

    def _sweep(
        self,
        nodes: Sequence[NodeProto],
        entries: Sequence[ValueInfoProto],
        outputs: Sequence[str],
        binding: Binding,
        cut: set[str],
    ) -> Sweep:
        graph = Graph("onnx", self.proto.name)
        graph.opset = {**self.model.opset, "": default_opset()}
        read = frozenset([*outputs, *(name for node in nodes for name in reads(node))])
        sweep = Sweep(graph, self.model.reader, self.model.functions, shapes_chosen=binding.open)
        scope = Scope(self.model.opset, read=read)
        written = (item for node in nodes for item in node.output if item)
        for name in (*self.inputs, *self.initialized, *(entry.name for entry in entries), *written):
            scope.names[name] = name
            sweep.reserved.add(name)
        for entry in entries:
            name = entry.name
            if name in binding.values:
                sweep.define_constant(name, LazyArray.of(binding.values[name]))
            else:
                graph.add_value(sweep.define(Value(name, binding.types[name], holds=Provenance(name))))
        for name, tensor in self.initialized.items():
            if name in read and name not in cut:
                where = f"initializer {name!r}"
                reader = self.model.reader
                const = reader.sparse(tensor, where) if hasattr(tensor, "values") else reader.constant(tensor, where)
                sweep.define_constant(name, const)
        sweep.declare([binding.applied(entry) for entry in (*self.proto.value_info, *self.proto.output)], scope)
        for node in nodes:
            if cut.intersection(node.output):
                self._node_beside_cut(node, sweep, scope, cut)
            else:
                sweep.node(node, scope)
        return sweep

    def _node_beside_cut(self, node: NodeProto, sweep: Sweep, scope: Scope, cut: set[str]) -> None:
        """A node of which one output is cut at and another is needed."""
        copy = NodeProto()
        copy.CopyFrom(node)
        for at, name in enumerate(node.output):
            if name in cut:
                copy.output[at] = sweep.fresh(f"{name}.before_cut")
        sweep.node(copy, scope)

    def _finish(
        self, sweep: Sweep, entries: Sequence[ValueInfoProto], outputs: Sequence[str], binding: Binding
    ) -> Graph:
        graph, options = sweep.graph, self.options
        ports_in, ports_out = [], []
        heads: list[Op] = []
        for entry in entries:
            if entry.name in binding.values:
                continue
            value = sweep.find(entry.name)
            if options.input_layouts.get(entry.name) == "nhwc":
                value = self._channels_last_input(sweep, value, heads)
            graph.inputs.append(value.name)
            ports_in.append(Port(entry.name, value.known))
        sweep.ops[:0] = heads
        finals = []
        for name in outputs:
            value = sweep.find(name)
            self._check_output(sweep, name)
            if options.output_layouts.get(name) == "nhwc":
                value = self._channels_last_output(sweep, value)
            finals.append(value.name)
            ports_out.append(Port(name, value.known))
        sweep.finish(finals)
        graph.interface = Interface(tuple(ports_in), tuple(ports_out))
        return graph

    def _channels_last_input(self, sweep: Sweep, value: Value, heads: list[Op]) -> Value:
        """Feed ``value`` from an input that has its channels last."""
        perm = _channels_last(value.rank, f"input {value.name!r}")
        fed = Value(
            sweep.fresh(f"{value.name}.nhwc"),
            value.known.with_shape([value.shape[axis] for axis in perm]),
            holds=Provenance(value.name, perm),
        )
        sweep.graph.add_value(sweep.define(fed))
        back = tuple(int(axis) for axis in np.argsort(perm))
        heads.append(Op("Transpose", (fed.name,), (value.name,), {"perm": back}))
        return fed

    def _channels_last_output(self, sweep: Sweep, value: Value) -> Value:
        perm = _channels_last(value.rank, f"output {value.name!r}")
        name = sweep.fresh(f"{value.name}.nhwc")
        sweep.settle(Op("Transpose", (value.name,), (name,), {"perm": perm}), newest("", "Transpose"))
        result = sweep.find(name)
        result.holds = Provenance(value.name, perm)
        return result

    def _check_output(self, sweep: Sweep, name: str) -> None:
        """Refuse an output whose type is unknown, in the name of the node that it became unknown at."""
        value = sweep.find(name)
        if value.type is not None:
            self._check_declared(name, value.type)
            return
        for op in sweep.ops:
            if all(item is None or sweep.find(item).type is not None for item in op.inputs) and any(
                item is not None and sweep.find(item).type is None for item in op.outputs
            ):
                if newest(*op.kind.rpartition("::")[::2]) is None:
                    raise UnsupportedOp(
                        f"the operator is unknown, and with it the shape of output {name!r}",
                        where=op.origin,
                        hint="cut before it with --cut-outputs, or export it as operators of ONNX",
                    )
                raise UnsupportedForm(
                    f"the shape of its result depends on data or is unknown, and with it that of output {name!r}",
                    where=op.origin,
                    hint="NNAPI needs every shape when the model is converted; cut before it with --cut-outputs",
                )
        raise UnsupportedForm("its shape cannot be inferred", where=f"output {name!r}")

    def _check_declared(self, name: str, type_: TensorType) -> None:
        """Refuse an output that the model itself declares otherwise."""
        entry = self.outputs.get(name)
        stated = None if entry is None else known_type(entry.type, f"output {name!r}")
        if not isinstance(stated, TensorType) or stated == type_:
            return
        where = next((origin_of(node) for node in self.nodes if name in node.output), f"output {name!r}")
        declared = all(isinstance(known_type(item.type, item.name), TensorType) for item in self.inputs.values())
        if stated.dtype != type_.dtype or declared:
            raise InvalidModelError(f"output {name!r} is declared as {stated}, but is {type_}", where=where)


def _channels_last(rank: int, where: str) -> tuple[int, ...]:
    if rank < 3:
        raise InvalidModelError(f"it has rank {rank}, channels can be last from rank 3 on", where=where)
    return (0, *range(2, rank), 1)
