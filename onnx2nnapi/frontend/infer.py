"""One topological sweep over the nodes: newest form, constants computed, the types of the rest inferred.

Nothing is iterated to a fixpoint and no weight passes through shape inference. A constant that is small is computed
at once; of a large one the computation is noted, and done when somebody reads it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto, shape_inference

from onnx2nnapi.errors import InvalidModelError, Onnx2NnapiError, Origin
from onnx2nnapi.evaluate import evaluate, node_proto
from onnx2nnapi.frontend import control
from onnx2nnapi.frontend.normalize import normalize
from onnx2nnapi.frontend.operators import (
    Operator,
    check_attribute,
    default_opset,
    kind_of,
    newest,
    operator_at,
    plain_attribute,
)
from onnx2nnapi.frontend.order import sort_nodes
from onnx2nnapi.frontend.tensors import TensorReader, numpy_dtype
from onnx2nnapi.frontend.types import completed, static_type, type_proto
from onnx2nnapi.ir.graph import Graph, Op, Provenance, Value
from onnx2nnapi.ir.types import Array, LazyArray, Shape, TensorType

__all__ = ["Scope", "Sweep"]

Functions = Mapping[tuple[str, str, str], FunctionProto]

_SMALL = 1 << 18  # bytes up to which a constant is computed at once
_DATA = 1 << 12  # elements up to which shape inference is given an integer constant
_FLOAT_DATA = frozenset({"Resize"})  # operators whose shape depends on floating-point constants
_RANDOM = frozenset(
    ["Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)
# A dequantized constant is how a model says that it is quantized: later passes want to see it.
_NOT_FOLDED = _RANDOM | {"DequantizeLinear"}
_BY_SHAPE = frozenset({"EyeLike", "Shape", "Size"})  # they read the type of their input only
_MAX_DEPTH = 64


@dataclass
class Scope:
    """The names that nodes of one body (a graph, a subgraph, a function) see.

    Attributes:
        opset: versions by domain.
        names: the body's own names and the values in the graph that they stand for.
        outer: the scope around it.
        attributes: those that the caller of a function gives.
        caller: the node whose body this is.
    """

    opset: Mapping[str, int]
    names: dict[str, str | None] = field(default_factory=dict)
    outer: Scope | None = None
    attributes: Mapping[str, AttributeProto] | None = None
    caller: Origin | None = None
    depth: int = 0

    def find(self, name: str) -> str | None:
        """The value that a name stands for; None for an omitted argument of a function.

        Raises:
            KeyError: nothing has this name.
        """
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        raise KeyError(name)

    def inside(self) -> Scope:
        """The scope of a subgraph here."""
        return Scope(self.opset, outer=self, caller=self.caller, depth=self.depth + 1)

    def sees(self, name: str) -> bool:
        """Whether ``find`` would find it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return True
            scope = scope.outer
        return False


@dataclass(frozen=True, slots=True, eq=False)
class _Computed:
    """A constant that an operator computes from constants when it is read."""

    op: Op
    opset: int
    inputs: tuple[LazyArray | None, ...]
    index: int
    dtype: np.dtype[Any]
    shape: Shape

    def read(self) -> Array:
        arrays = [None if item is None else item.numpy() for item in self.inputs]
        result = _evaluate(self.op, self.opset, arrays)[self.index]
        return result.astype(self.dtype, copy=False).reshape(self.shape)


class Sweep:
    """Builds an ONNX-dialect graph from nodes.

    Attributes:
        graph: gets the operations, when ``finish`` is called, and the values that they touch.
        ops: the operations so far.
        known: every value so far by name, constants that nothing reads included.
        declared: types that the model states, by value name; they stand in where nothing can be inferred.
        read: names that something reads (None: everything may be); other optional outputs are left out.
    """

    def __init__(
        self,
        graph: Graph,
        reader: TensorReader,
        functions: Functions,
        *,
        outer: Sweep | None = None,
        read: frozenset[str] | None = None,
    ) -> None:
        self.graph = graph
        self.reader = reader
        self.functions = functions
        self.outer = outer
        self.read = read
        self.ops: list[Op] = []
        self.known: dict[str, Value] = dict(graph.values)
        self.partial: dict[str, TypeProto] = {}
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

    def type_of(self, name: str) -> TypeProto | None:
        """What is known of a value's type."""
        sweep: Sweep | None = self
        while sweep is not None:
            if name in sweep.known:
                type_ = sweep.known[name].type
                return sweep.partial.get(name) if type_ is None else type_proto(type_)
            sweep = sweep.outer
        return None

    def constant(self, stem: str, value: Any, dtype: Any) -> str:
        """A new constant; its name."""
        array = np.asarray(value, dtype)
        return self.define(_constant(self.fresh(stem), LazyArray.of(array))).name

    def shape(self, name: str) -> Shape:
        """The static shape of a value; an error that names it where it has none."""
        return self.find(name).shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """The element type of a value, known even where the shape is not."""
        partial = self.type_of(name)
        if partial is None or not partial.tensor_type.elem_type:
            return self.find(name).known.dtype
        return numpy_dtype(partial.tensor_type.elem_type, f"tensor {name!r}")

    def array(self, name: str | None) -> Array | None:
        """The value of a small constant, else None."""
        const = None if name is None else self.find(name).const
        return const.numpy() if const is not None and const.nbytes <= _SMALL else None

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
        return Sweep(graph, self.reader, self.functions, outer=self)

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
            given = {a.name: _dereferenced(a, scope) for a in node.attribute}
            attributes = {key: value for key, value in given.items() if value is not None}
            self.call(function, attributes, inputs, outputs, origin, scope.depth)
            return
        operator = self._operator(domain, node.op_type, scope, origin)
        op = Op(kind, inputs, self._wanted(outputs, operator), self._attributes(node, operator, scope, origin), (origin,))
        if operator is None:
            self.settle(op, None)
            return
        operator.check_arity(inputs, op.outputs, origin)
        if any(isinstance(value, GraphProto) for value in op.attrs.values()):
            control.take_in(self, op, scope)
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
        self.run(nodes, scope)
        for result, output in zip(results, outputs, strict=False):
            if output is not None and output not in self.known:
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

    def _wanted(self, outputs: Sequence[str | None], operator: Operator | None) -> tuple[str | None, ...]:
        """The outputs without optional ones that nothing reads."""
        if operator is None or self.read is None:
            return tuple(outputs)
        optional = operator.optional_outputs
        return _stripped([
            None if at in optional and name not in self.read else name for at, name in enumerate(outputs)
        ])

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

    def _attributes(
        self, node: NodeProto, operator: Operator | None, scope: Scope, origin: Origin
    ) -> dict[str, Any]:
        attrs: dict[str, Any] = {} if operator is None else dict(operator.defaults)
        seen: set[str] = set()
        for entry in node.attribute:
            if entry.name in seen:
                raise InvalidModelError(f"its attribute {entry.name!r} is given twice", where=origin)
            seen.add(entry.name)
            attribute = _dereferenced(entry, scope)
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
        types: list[TypeProto | None] = [None] * len(op.outputs)
        if operator is not None:
            operator.check_types(op.inputs, [None if v is None else v.type for v in values], op.origin)
            types = self._infer(op, operator, values)
            if self._fold(op, values, types):
                return
        self.keep(op, types)

    def keep(self, op: Op, types: Sequence[TypeProto | None]) -> None:
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

    def _define_output(self, name: str, inferred: TypeProto | None, op: Op) -> None:
        known = completed(inferred, self.declared.get(name), op.origin, name)
        static = static_type(known, name)
        value = self.known.get(name)  # there already when a body takes an operation's place
        if value is None:
            value = self.define(Value(name, static, holds=Provenance(name)))
        elif value.type is None:
            value.type = static
        if static is None and known is not None:
            self.partial[name] = known
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

    # -- types -------------------------------------------------------------------------------------------------------

    def _infer(self, op: Op, operator: Operator, values: Sequence[Value | None]) -> list[TypeProto | None]:
        unknown: list[TypeProto | None] = [None] * len(op.outputs)
        types: dict[str, TypeProto] = {}
        data: dict[str, onnx.TensorProto] = {}
        for name, value in zip(op.inputs, values, strict=True):
            if name is None or value is None or name in types:
                continue
            type_ = self.type_of(name)
            if type_ is None:
                return unknown
            types[name] = type_
            const = value.const
            if const is not None and const.size <= _DATA and (const.dtype.kind in "iu" or op.kind in _FLOAT_DATA):
                data[name] = onnx.numpy_helper.from_array(np.ascontiguousarray(const.numpy()).reshape(const.shape))
        names = [f"{at}" if name is None else name for at, name in enumerate(op.outputs)]
        node = node_proto(op.kind, op.attrs, op.inputs, names)
        try:
            found = shape_inference.infer_node_outputs(
                operator.schema, node, types, data, opset_imports=_newest_imports(node.domain)
            )
        except shape_inference.InferenceError as error:
            raise InvalidModelError(_reason(error), where=op.origin) from None
        except (RuntimeError, ValueError, KeyError) as error:  # an inference function that trips over its input
            raise InvalidModelError(f"its types cannot be inferred: {_reason(error)}", where=op.origin) from None
        return [found.get(name) for name in names]

    # -- constants ---------------------------------------------------------------------------------------------------

    def _fold(self, op: Op, values: Sequence[Value | None], types: Sequence[TypeProto | None]) -> bool:
        """Compute the operation, or note its computation, where everything that it reads is known."""
        if not op.inputs or op.kind in _NOT_FOLDED:
            return False
        if op.kind in _BY_SHAPE and values[0] is not None and values[0].type is not None:
            type_ = values[0].type
            inputs: list[LazyArray | None] = [LazyArray.of(np.broadcast_to(np.zeros((), type_.dtype), type_.shape))]
        elif all(value is None or value.const is not None for value in values):
            inputs = [None if value is None else value.const for value in values]
        else:
            return False
        static = [
            None if name is None else static_type(type_, name)
            for name, type_ in zip(op.outputs, types, strict=True)
        ]
        opset = _opset_of(op.kind)
        read = 0 if op.kind in _BY_SHAPE else sum(item.nbytes for item in inputs if item is not None)
        large = read > _SMALL or any(type_ is not None and type_.nbytes > _SMALL for type_ in static)
        if not large:
            arrays = _evaluate(op, opset, [None if item is None else item.numpy() for item in inputs])
            results: list[LazyArray | None] = [LazyArray.of(np.asarray(array)) for array in arrays]
        elif all(name is None or type_ is not None for name, type_ in zip(op.outputs, static, strict=True)):
            results = [None if type_ is None else _noted(op, opset, inputs, at, type_) for at, type_ in enumerate(static)]
        else:
            return False
        for name, result in zip(op.outputs, results, strict=True):
            if name is not None and result is not None:
                self.define_constant(name, result)
        return True


def _noted(op: Op, opset: int, inputs: Sequence[LazyArray | None], index: int, type_: TensorType) -> LazyArray:
    """A large constant result: the steps of a movement, which later ones compose with, or the whole computation."""
    source = inputs[0]
    if source is not None:
        if op.kind in ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"):
            return source.reshape(type_.shape)
        if op.kind == "Transpose":
            return source.transpose(op.attrs.get("perm") or tuple(range(len(source.shape)))[::-1])
        if op.kind == "Cast" and type_.dtype == source.dtype:
            return source
    return LazyArray.of(_Computed(op, opset, tuple(inputs), index, type_.dtype, type_.shape))


def _evaluate(op: Op, opset: int, arrays: Sequence[Array | None]) -> list[Array]:
    try:
        return evaluate(op.kind, op.attrs, opset, arrays, len(op.outputs))
    except Onnx2NnapiError as error:
        raise InvalidModelError(error.message, where=op.origin) from error.__cause__


def _constant(name: str, const: LazyArray, holds: Provenance | None = None) -> Value:
    return Value(name, TensorType(const.dtype, const.shape), const, holds)


def _opset_of(kind: str) -> int:
    """The newest version of an operator's domain that the installed onnx knows."""
    domain, _, op_type = kind.rpartition("::")
    operator = newest(domain, op_type) if domain else None
    return operator.since if operator is not None else default_opset()


# -- small things ----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=16)
def _newest_imports(domain: str) -> list[onnx.OperatorSetIdProto]:
    imports = [onnx.OperatorSetIdProto(domain="", version=default_opset())]
    if domain:
        imports.append(onnx.OperatorSetIdProto(domain=domain, version=1))
    return imports


def _dereferenced(attribute: AttributeProto, scope: Scope) -> AttributeProto | None:
    """An attribute of a function's body with the caller's value in it; None where the caller gives none."""
    if not attribute.ref_attr_name:
        return attribute
    enclosing: Scope | None = scope
    while enclosing is not None and enclosing.attributes is None:
        enclosing = enclosing.outer
    found = None if enclosing is None or enclosing.attributes is None else enclosing.attributes.get(attribute.ref_attr_name)
    if found is None:
        return None
    copy = AttributeProto()
    copy.CopyFrom(found)
    copy.name = attribute.name
    return copy


def _stripped(names: list[str | None]) -> tuple[str | None, ...]:
    while names and names[-1] is None:
        names.pop()
    return tuple(names)


def _reason(error: BaseException) -> str:
    """onnx's message without its prefixes and node dumps."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    while text.startswith("[") and "]" in text:
        text = text[text.index("]") + 1 :].strip()
    return text or type(error).__name__

