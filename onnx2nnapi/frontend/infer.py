"""One topological sweep over the nodes: newest form, constants computed, the types of the rest inferred.

Nothing is iterated to a fixpoint and no weight passes through shape inference. A constant that is small is computed
at once; of a large one the computation is noted, and done when somebody reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto

from onnx2nnapi.errors import InvalidModelError, Origin
from onnx2nnapi.frontend import control
from onnx2nnapi.frontend.checks import check_node
from onnx2nnapi.frontend.contrib import contributed_types
from onnx2nnapi.frontend.fold import SMALL, fold
from onnx2nnapi.frontend.node_types import Memory, infer_types
from onnx2nnapi.frontend.normalize import normalize
from onnx2nnapi.frontend.operators import (
    Operator,
    check_attribute,
    kind_of,
    newest,
    operator_at,
    plain_attribute,
)
from onnx2nnapi.frontend.order import reads, sort_nodes
from onnx2nnapi.frontend.scope import Scope
from onnx2nnapi.frontend.tensors import TensorReader, numpy_dtype
from onnx2nnapi.frontend.types import Type, completed, elem_code
from onnx2nnapi.ir.graph import Graph, Op, Provenance, Value
from onnx2nnapi.ir.types import Array, LazyArray, Shape, TensorType

__all__ = ["Sweep"]

Functions = Mapping[tuple[str, str, str], FunctionProto]

_MAX_DEPTH = 64


class Sweep:
    """Builds an ONNX-dialect graph from nodes.

    Attributes:
        graph: gets the operations, when ``finish`` is called, and the values that they touch.
        ops: the operations so far.
        known: every value so far by name, constants that nothing reads included.
        shapes_chosen: whether the options, not the model, decide what shapes the inputs have.
        declared: types that the model states, by value name; they stand in where nothing can be inferred.
    """

    def __init__(
        self,
        graph: Graph,
        reader: TensorReader,
        functions: Functions,
        *,
        outer: Sweep | None = None,
        shapes_chosen: bool = False,
    ) -> None:
        self.graph = graph
        self.reader = reader
        self.functions = functions
        self.outer = outer
        self.shapes_chosen = shapes_chosen
        self.ops: list[Op] = []
        self.known: dict[str, Value] = dict(graph.values)
        self.partial: dict[str, TypeProto] = {}
        self.memory: Memory = {} if outer is None else outer.memory
        self.declared: dict[str, TypeProto] = {}
        self.reserved: set[str] = set()
        self._local: dict[str, str] = {}  # constants of enclosing graphs, copied here
        self._suffix: dict[str, int] = {}

    # -- names and values ----------------------------------------------------------------------------------------------

    def taken(self, name: str) -> bool:
        """Whether a value here or in an enclosing graph has this name."""
        return name in self.known or name in self.reserved or (self.outer is not None and self.outer.taken(name))

    def fresh(self, stem: str) -> str:
        """A name that no value has or will have, the stem itself where possible."""
        name = stem
        while self.taken(name):
            self._suffix[stem] = self._suffix.get(stem, 0) + 1
            name = f"{stem}_{self._suffix[stem]}"
        self.reserved.add(name)
        return name

    def define(self, value: Value) -> Value:
        """Make a value known."""
        self.known[value.name] = value
        return value

    def find(self, name: str) -> Value:
        """A value of this graph or of an enclosing one."""
        sweep: Sweep | None = self
        while sweep is not None:
            if name in sweep.known:
                return sweep.known[name]
            sweep = sweep.outer
        raise KeyError(name)

    def type_of(self, name: str) -> Type | None:
        """What is known of a value's type."""
        sweep: Sweep | None = self
        while sweep is not None:
            if name in sweep.known:
                return sweep.known[name].type or sweep.partial.get(name)
            sweep = sweep.outer
        return None

    def set_type(self, name: str, type_: Type | None) -> None:
        """Note what is known of a value's type."""
        if isinstance(type_, TensorType):
            self.known[name].type = type_
        elif type_ is not None:
            self.partial[name] = type_

    def constant(self, stem: str, value: Any, dtype: Any) -> str:
        """A new constant; its name."""
        array = np.asarray(value, dtype)
        return self.define(_constant(self.fresh(stem), LazyArray.of(array))).name

    def shape(self, name: str) -> Shape:
        """The static shape of a value; an error that names it where it has none."""
        return self.find(name).shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """The element type of a value, known even where the shape is not."""
        type_ = self.type_of(name)
        if type_ is None or isinstance(type_, TensorType) or not elem_code(type_):
            return self.find(name).known.dtype
        return numpy_dtype(elem_code(type_), f"tensor {name!r}")

    def array(self, name: str | None) -> Array | None:
        """The value of a small constant, else None."""
        const = None if name is None else self.find(name).const
        return const.numpy() if const is not None and const.nbytes <= SMALL else None

    def resolve(self, name: str, scope: Scope, origin: Origin) -> str | None:
        """The value that a node's input means; a constant of an enclosing graph is copied into this one."""
        if not name:
            return None
        try:
            found = scope.find(name)
        except KeyError:
            raise InvalidModelError(f"it reads {name!r}, which nothing before it defines", where=origin) from None
        if found is None or found in self.known or self.outer is None:
            return found
        value = self.find(found)
        if value.const is None:
            return found
        if found not in self._local:
            self._local[found] = self.define(_constant(self.fresh(found), value.const, value.holds)).name
        return self._local[found]

    def take_initializers(self, proto: GraphProto, scope: Scope) -> None:
        """The initializers of a subgraph, as constants here."""
        for tensor in proto.initializer:
            name = scope.names[tensor.name] = self.fresh(tensor.name)
            self.define(_constant(name, self.reader.constant(tensor, f"initializer {tensor.name!r}")))
        for sparse in proto.sparse_initializer:
            name = scope.names[sparse.values.name] = self.fresh(sparse.values.name)
            self.define(_constant(name, self.reader.sparse(sparse, f"initializer {sparse.values.name!r}")))

    def declare(self, entries: Iterable[onnx.ValueInfoProto], scope: Scope) -> None:
        """Note the types that the model states for tensors of a body."""
        for entry in entries:
            name = scope.names.get(entry.name)
            if name is not None:
                self.declared[name] = entry.type

    def child(self, graph: Graph) -> Sweep:
        """A sweep over a body that sees the values of this one."""
        return Sweep(graph, self.reader, self.functions, outer=self, shapes_chosen=self.shapes_chosen)

    def assume(self, sentence: str) -> None:
        """Note what is taken for granted, where the user finds it: at the outermost graph."""
        sweep = self
        while sweep.outer is not None:
            sweep = sweep.outer
        sweep.graph.assumptions.append(sentence)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def run(self, nodes: Iterable[NodeProto], scope: Scope) -> None:
        """Take in the nodes of a body, whatever their order."""
        for node in sort_nodes(list(nodes), scope.sees):
            self.node(node, scope)

    def node(self, node: NodeProto, scope: Scope) -> None:
        """Take in one node."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        kind = kind_of(domain, node.op_type)
        name = "/".join(part for part in (scope.caller.name if scope.caller else "", node.name) if part)
        origin = Origin(name, kind, tuple(item for item in node.output if item))
        inputs = _stripped([self.resolve(item, scope, origin) for item in node.input])
        outputs: Sequence[str | None] = [self._declare(item, scope) for item in node.output]
        function = self.functions.get((domain, node.op_type, getattr(node, "overload", "")))
        if function is not None:
            given = {a.name: scope.attribute(a) for a in node.attribute}
            attributes = {key: value for key, value in given.items() if value is not None}
            self.call(function, attributes, inputs, outputs, origin, scope.depth)
            return
        operator = self._operator(domain, node.op_type, scope, origin)
        op = Op(
            kind,
            inputs,
            self._wanted(node, outputs, operator, scope),
            self._attributes(node, operator, scope, origin),
            (origin,),
        )
        if operator is None:
            self.settle(op, None)
            return
        operator.check_arity(inputs, op.outputs, origin)
        if any(isinstance(value, GraphProto) for value in op.attrs.values()):
            for part in normalize(op, operator.since, self):
                control.take_in(self, part, scope)
            return
        self.form(op, operator)

    def form(self, op: Op, operator: Operator) -> None:
        """Settle an operation, in the newest form, that is in the form of ``operator``."""
        for part in normalize(op, operator.since, self):
            domain, _, op_type = part.kind.rpartition("::")
            newest_form = newest(domain, op_type)
            if newest_form is not None:
                known = newest_form.schema.attributes
                part.attrs = {
                    **newest_form.defaults,
                    **{key: value for key, value in part.attrs.items() if key in known},
                }
            self.settle(part, newest_form)

    def call(
        self,
        function: FunctionProto,
        attributes: Mapping[str, AttributeProto],
        inputs: Sequence[str | None],
        outputs: Sequence[str | None],
        origin: Origin,
        depth: int = 0,
    ) -> None:
        """Take in the body of a function in the place of a node that calls it."""
        if depth >= _MAX_DEPTH:
            raise InvalidModelError("its function calls itself, or functions are nested too deeply", where=origin)
        if len(inputs) > len(function.input) or len(outputs) > len(function.output):
            raise InvalidModelError(
                f"it has {len(inputs)} inputs and {len(outputs)} outputs, the function takes {len(function.input)} and"
                f" {len(function.output)}",
                where=origin,
            )
        given = {entry.name: entry for entry in function.attribute_proto}
        given.update(attributes)
        opset = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in function.opset_import}
        scope = Scope(opset, attributes=given, caller=origin, depth=depth + 1)
        for at, name in enumerate(function.input):
            scope.names[name] = inputs[at] if at < len(inputs) else None
        self.inline(function.node, scope, list(function.output), outputs, origin)

    def inline(
        self,
        nodes: Sequence[NodeProto],
        scope: Scope,
        results: Sequence[str],
        outputs: Sequence[str | None],
        origin: Origin,
    ) -> None:
        """Take in a body whose results become ``outputs``."""
        written = {name for node in nodes for name in node.output if name}
        for result, output in zip(results, outputs, strict=False):
            if output is not None and result in written and result not in scope.names:
                scope.names[result] = output
        scope.read = frozenset([*results, *(name for node in nodes for name in reads(node))])
        self.run(nodes, scope)
        for result, output in zip(results, outputs, strict=False):
            if output is not None and scope.names.get(result) != output:
                source = self.resolve(result, scope, origin)
                if source is None:
                    raise InvalidModelError(f"the function's output {result!r} is an omitted input", where=origin)
                self.settle(Op("Identity", (source,), (output,), {}, (origin,)), newest("", "Identity"))

    def _declare(self, name: str, scope: Scope) -> str | None:
        """The value name for what a node writes."""
        if not name:
            return None
        if name not in scope.names:
            scope.names[name] = self.fresh(name)
        return scope.names[name]

    def _wanted(
        self, node: NodeProto, outputs: Sequence[str | None], operator: Operator | None, scope: Scope
    ) -> tuple[str | None, ...]:
        """The outputs without optional ones that nothing reads."""
        if operator is None or scope.read is None:
            return tuple(outputs)
        unread = {at for at in operator.optional_outputs if at < len(outputs) and node.output[at] not in scope.read}
        return _stripped([None if at in unread else name for at, name in enumerate(outputs)])

    def _operator(self, domain: str, op_type: str, scope: Scope, origin: Origin) -> Operator | None:
        version = scope.opset.get(domain)
        if version is None:
            if domain == "":
                raise InvalidModelError("the model imports no opset of ONNX's own operators", where=origin)
            return None
        operator = operator_at(domain, op_type, version)
        later = newest(domain, op_type) if operator is None else None
        if later is not None:
            first = min(v for v in range(version, later.since + 1) if operator_at(domain, op_type, v) is not None)
            raise InvalidModelError(
                f"the operator exists from opset {first} on, the model says opset {version}", where=origin
            )
        return operator

    def _attributes(self, node: NodeProto, operator: Operator | None, scope: Scope, origin: Origin) -> dict[str, Any]:
        attrs: dict[str, Any] = {} if operator is None else dict(operator.defaults)
        seen: set[str] = set()
        for entry in node.attribute:
            if entry.name in seen:
                raise InvalidModelError(f"its attribute {entry.name!r} is given twice", where=origin)
            seen.add(entry.name)
            attribute = scope.attribute(entry)
            if attribute is None:
                continue
            if operator is not None:
                check_attribute(operator, attribute, origin)
            attrs[entry.name] = plain_attribute(attribute, self.reader, f"{origin}: attribute {entry.name!r}")
        if operator is not None:
            for name, known in operator.schema.attributes.items():
                if known.required and name not in attrs:
                    raise InvalidModelError(f"its attribute {name!r} is missing", where=origin)
        return attrs

    # -- operations --------------------------------------------------------------------------------------------------

    def settle(self, op: Op, operator: Operator | None) -> None:
        """Compute an operation in its newest form where it is constant; else infer its types and keep it."""
        if op.kind == "Constant":
            self._literal(op)
            return
        values = [None if name is None else self.find(name) for name in op.inputs]
        given = [None if name is None else self.type_of(name) for name in op.inputs]
        if operator is None:
            types = contributed_types(op, given)
        else:
            static = [None if value is None else value.type for value in values]
            constants = [None if value is None else value.const for value in values]
            operator.check_types(op.inputs, static, op.origin)
            check_node(op, static, constants)
            types = infer_types(op, operator, given, constants, self.memory)
            results = fold(op, values, types)
            if results is not None:
                for name, result in zip(op.outputs, results, strict=True):
                    if name is not None:
                        self.define_constant(name, result)
                return
        self.keep(op, types)

    def keep(self, op: Op, types: Sequence[Type | None]) -> None:
        """Keep an operation whose outputs have ``types``, as far as these are known."""
        for name in op.inputs:
            self.use(name)
        for name, type_ in zip(op.outputs, types, strict=True):
            if name is not None:
                self._define_output(name, type_, op)
        self.ops.append(op)

    def use(self, name: str | None) -> None:
        """Put a value of this sweep into the graph."""
        if name is not None and name in self.known and name not in self.graph.values:
            self.graph.add_value(self.known[name])

    def finish(self, outputs: Iterable[str] = ()) -> None:
        """Put the operations and the graph's outputs into the graph."""
        for op in self.ops:
            self.graph.add(op)
        self.ops = []
        for name in outputs:
            self.use(name)
            self.graph.outputs.append(name)

    def _define_output(self, name: str, inferred: Type | None, op: Op) -> None:
        if name not in self.known:  # it is there already when a body takes an operation's place
            self.define(Value(name, holds=Provenance(name)))
        if self.known[name].type is None:
            self.set_type(name, completed(inferred, self.declared.get(name), op.origin, name))
        self.use(name)

    def _literal(self, op: Op) -> None:
        """A Constant node, in any of its forms."""
        forms: dict[str, Any] = {"value_float": np.float32, "value_floats": np.float32, "value_string": object}
        forms |= {"value_int": np.int64, "value_ints": np.int64, "value_strings": object}
        given = [(key, value) for key, value in op.attrs.items() if value is not None]
        if len(given) != 1:
            raise InvalidModelError(f"it has {len(given)} values, a Constant has one", where=op.origin)
        key, value = given[0]
        const = value if isinstance(value, LazyArray) else LazyArray.of(np.asarray(value, forms[key]))
        for name in op.outputs:
            if name is not None:
                self.define_constant(name, const)

    def define_constant(self, name: str, const: LazyArray) -> None:
        """Make ``name`` a constant; a value that is in the graph already becomes one."""
        value = self.known.get(name)
        if value is None:
            self.define(_constant(name, const, Provenance(name)))
        else:
            value.const, value.type = const, TensorType(const.dtype, const.shape)


def _constant(name: str, const: LazyArray, holds: Provenance | None = None) -> Value:
    return Value(name, TensorType(const.dtype, const.shape), const, holds)


# -- small things ----------------------------------------------------------------------------------------------------


def _stripped(names: list[str | None]) -> tuple[str | None, ...]:
    while names and names[-1] is None:
        names.pop()
    return tuple(names)
