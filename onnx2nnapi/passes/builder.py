"""What a legalize rule talks to: every operation is checked against its row in the ONNX node's name."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NoReturn

import numpy as np

from onnx2nnapi.errors import FeatureLevelError, InternalError, UnsupportedForm
from onnx2nnapi.ir.graph import Graph, Op, Provenance, Value
from onnx2nnapi.ir.types import Array, LazyArray, Quantization, Scalar, Shape, TensorType
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.infer import bind_values, is_read_by_rules
from onnx2nnapi.nnapi.rules import Bound, RuleError, UnknownValue, level_of, output_types
from onnx2nnapi.nnapi.schema import SCHEMAS, Elementwise
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.options import Options
from onnx2nnapi.passes.element_types import nnapi_constant
from onnx2nnapi.passes.intervals import INT32, Interval, Intervals

__all__ = ["Builder"]

# Checked when layout has had its chance to remove them (DESIGN: charged to the node that asked for them).
_MOVES = ("RESHAPE", "TRANSPOSE", "EXPAND_DIMS")
_LATE = frozenset({OperationCode.TRANSPOSE, OperationCode.RESHAPE})


MAX_RANK = 4  # what most operations take at most
_SMALL = 4096  # constants up to this many elements are read for their bounds


class Builder:
    """Builds the NNAPI-dialect graph of one ONNX graph, one node at a time.

    Attributes:
        graph: the graph that is being built.
        options: the conversion's options.
        source: the ONNX graph, for the types that the node at hand has there.
        op: the ONNX node at hand; what it emits carries its origin.
        env: the values of the new graph by ONNX name.
        outer: of a sub-model, the builder of the graph around it.
        captured: the values of that graph that the sub-model reads, in the order of the inputs that stand for them.
    """

    def __init__(
        self, graph: Graph, options: Options, source: Graph | None = None, outer: Builder | None = None
    ) -> None:
        self.graph = graph
        self.options = options
        self.source = source if source is not None else Graph("onnx")
        self.op = Op("", (), ())
        self.env: dict[str, Value] = {}
        self.outer = outer
        self.captured: list[Value] = []
        self._captures: dict[str, Value] = {}
        self._intervals = Intervals(self.source)
        self._answers: dict[Hashable, tuple[int, list[TensorType]]] = {} if outer is None else outer._answers

    # -- what the node reads -----------------------------------------------------------------------------------------

    def value(self, name: str) -> Value:
        """What stands for an ONNX tensor in the new graph; constants come over when they are first asked for."""
        if name not in self.env and self.outer is not None and name not in self.source.values:
            self.env[name] = self.capture(self.outer.value(name))
        if name not in self.env:
            const = self.source[name].const
            if const is None:
                raise InternalError(f"tensor {name!r} is read before it is made", where=self.op.origin)
            array, type_ = nnapi_constant(const, self.options, f"constant {name!r}")
            self.env[name] = self.graph.constant(name, array, type_, Provenance(name))
        return self.env[name]

    def inputs(self, op: Op) -> list[Value]:
        """The node's inputs in the new graph; a rule that allows omitted ones asks ``optional_input``."""
        return [self.value(name) for name in op.inputs if name is not None]

    def optional_input(self, op: Op, index: int) -> Value | None:
        """Input ``index``, or None where the node omits it."""
        name = op.inputs[index] if index < len(op.inputs) else None
        return None if name is None else self.value(name)

    def in_type(self, op: Op, index: int = 0) -> TensorType:
        """The ONNX type of input ``index``: rank 0 is rank 0 there, and int64 int64."""
        name = op.inputs[index]
        if name is None:
            raise InternalError(f"input {index} is omitted", where=op.origin)
        return self.owner(name)[name].known

    def out_type(self, op: Op, index: int = 0) -> TensorType:
        """The ONNX type of output ``index``."""
        name = op.outputs[index]
        if name is None:
            raise InternalError(f"output {index} is not wanted", where=op.origin)
        return self.source[name].known

    def owner(self, name: str) -> Graph:
        """The ONNX graph, this or one around it, that a tensor belongs to."""
        builder = self
        while builder.outer is not None and name not in builder.source.values:
            builder = builder.outer
        return builder.source

    def out_shape(self, op: Op, index: int = 0) -> Shape:
        """The shape of output ``index`` in the new graph: (1,) for rank 0."""
        return self.out_type(op, index).shape or (1,)

    def constant(self, value: Value | None, what: str) -> Array:
        """The array of a constant input; a refusal that names ``what`` where it is none."""
        if value is None or value.const is None:
            self.unsupported(
                f"{what} must be constant" + (f", {value.name!r} is computed" if value is not None else "")
            )
        return value.const.numpy()

    def interval(self, value: Value) -> Interval:
        """Bounds on an integer value's elements: what a rule said, or those of the ONNX tensor that it holds."""
        if value.bounds is not None:
            return Interval(*value.bounds)
        if value.const is not None and 0 < value.known.size <= _SMALL:
            array = value.const.numpy()
            return Interval(float(array.min()), float(array.max()))
        if value.holds is not None and self.outer is not None and value.holds.name not in self.source.values:
            return self.outer.interval(value)
        if value.holds is None or value.holds.name not in self.source.values:
            return self._carried_interval(value)
        return self._intervals.of(value.holds.name)

    def _carried_interval(self, value: Value) -> Interval:
        """A value that only moved has the bounds of what it was."""
        producer = self.graph.producer(value.name) if value.name in self.graph.values else None
        if producer is None or producer.kind not in _MOVES or producer.inputs[0] is None:
            return INT32
        return self.interval(self.graph[producer.inputs[0]])

    def setting(self, op: Op, index: int, what: str) -> Array | None:
        """Input ``index`` that says how (axes, pads, ends of slices …) as the model has it; None where it is omitted.

        Refused where it is computed. It is not brought into int32, where the far ends of slices have no place.
        """
        name = op.inputs[index] if index < len(op.inputs) else None
        if name is None:
            return None
        const = self.source[name].const
        if const is None:
            self.unsupported(f"{what} must be constant, {name!r} is computed", f"freeze it with --set {name}=VALUE")
        return const.numpy().reshape(-1)

    def at_least(self, level: int) -> bool:
        """Whether the target has feature level ``level``."""
        return self.options.feature_level >= level

    def bounded(self, value: Value, low: float, high: float) -> Value:
        """``value``, whose elements are between ``low`` and ``high`` by what they mean (indices, counts)."""
        known = self.interval(value)
        value.bounds = (max(known.low, low), min(known.high, high))
        return value

    def unsupported(self, reason: str, hint: str | None = None) -> NoReturn:
        """Refuse the node at hand."""
        raise UnsupportedForm(reason, where=self.op.origin, hint=hint)

    def needs_level(self, level: int, what: str) -> None:
        """Refuse the node at hand unless the target has ``level``."""
        if not self.at_least(level):
            raise FeatureLevelError(what, required=level, target=self.options.feature_level, where=self.op.origin)

    def approximate(self, error: str) -> None:
        """Note that what the node at hand becomes is no exact form of it; ``error`` says how far off it is at most."""
        self.graph.approximations[self.op.origin] = error

    # -- sub-models --------------------------------------------------------------------------------------------------

    def of_body(self, body: Graph) -> Builder:
        """A builder that adds an ONNX body of the node at hand to the same graph."""
        inner = Builder(self.graph, self.options, body, self)
        inner.op = self.op
        return inner

    def inside(self) -> Builder:
        """A builder of a sub-model of the node at hand."""
        inner = Builder(Graph("nnapi", self.op.origin.name), self.options, None, self)
        inner.op = self.op
        return inner

    def stand_in(self, value: Value) -> Value:
        """A new value here of the type of one of the enclosing graph, to be an input of the sub-model."""
        return self.graph.add_value(Value(self.graph.fresh(value.name), value.type))

    def capture(self, value: Value) -> Value:
        """What is here for a value of the enclosing graph: a copy of the constant, or an input-to-be."""
        if self.outer is None or self.outer.graph is self.graph:
            return value
        if value.name not in self._captures:
            if value.const is not None:
                self._captures[value.name] = self.graph.constant(value.name, value.const, value.type, value.holds)
            elif not value.known.size:  # no operand can hold it, and nothing is in it
                nothing = LazyArray.of(np.zeros(value.shape, value.known.dtype))
                self._captures[value.name] = self.graph.constant(value.name, nothing, value.type, value.holds)
            else:
                given = value if value.rank <= MAX_RANK else self.outer.reshape(value, (value.known.size,))
                self.captured.append(given)
                inner = self.stand_in(given)
                inner.holds, inner.bounds = given.holds, given.bounds
                self._captures[given.name] = inner
                self._captures[value.name] = self.reshape(inner, value.shape)
        return self._captures[value.name]

    # -- what it makes -----------------------------------------------------------------------------------------------

    def const(
        self,
        array: Array | LazyArray | Sequence[Any] | Scalar,
        dtype: Any = None,
        *,
        quant: Quantization | None = None,
        name: str | None = None,
    ) -> Value:
        """A constant of the new graph."""
        lazy = array if isinstance(array, LazyArray) else LazyArray.of(np.asarray(array, dtype=dtype))
        if dtype is not None:
            lazy = lazy.astype(dtype)
        stem = name or f"{next((n for n in self.op.outputs if n), 'value')}.const"
        return self.graph.constant(stem, lazy, TensorType(lazy.dtype, lazy.shape, quant))

    def emit(
        self,
        kind: str,
        *tensors: Value | None,
        quant: Quantization | Sequence[Quantization | None] | None = None,
        dtype: Any = None,
        **attrs: Any,
    ) -> Value:
        """Add an operation of one output and return that output; see ``emit_all``.

        Elementwise operations on tensors of one shape may have any rank: leading dimensions beyond four are merged.
        """
        wide = max((value.shape for value in tensors if value is not None), key=len, default=())
        if len(wide) > MAX_RANK and _merges(kind, tensors, wide):
            flat = (math.prod(wide[: 1 - MAX_RANK]), *wide[1 - MAX_RANK :])
            tensors = tuple(v and self.reshape(v, flat if v.shape == wide else (1,)) for v in tensors)
            return self.reshape(self.emit(kind, *tensors, quant=quant, dtype=dtype, **attrs), wide)
        return self.emit_all(kind, *tensors, quant=quant, dtype=dtype, **attrs)[0]

    def emit_all(
        self,
        kind: str,
        *tensors: Value | None,
        quant: Quantization | Sequence[Quantization | None] | None = None,
        dtype: Any = None,
        results: int = 0,
        types: Sequence[TensorType] = (),
        **attrs: Any,
    ) -> list[Value]:
        """Add an NNAPI operation, checked against its row, and return its outputs.

        Args:
            kind: the operation's name.
            tensors: its data operands in order (the variadic ones in their place), None = omitted.
            quant: scale and zero point of the outputs, where the row leaves them free; the first operand's by default.
            dtype: element type of the output, where the inputs don't determine it (CAST, QUANTIZE).
            results: how many outputs, where more than the least are wanted (the last states of a sequence).
            types: of the outputs, where sub-models give them.
            attrs: every other operand by name; sub-models as Graphs. Those at their default may be left out.

        Raises:
            UnsupportedForm, FeatureLevelError: what the row answers, in the name of the node at hand.
        """
        kept = {name: _plain(value) for name, value in attrs.items() if value is not None}
        if quant is None and dtype is None and tensors and tensors[0] is not None:
            quant = tensors[0].known.quant
        quants = (quant,) if quant is None or isinstance(quant, Quantization) else tuple(quant)
        level, made = self._answer(kind, tensors, kept, quants, dtype, tuple(types) or results)
        if not self.at_least(level):
            raise FeatureLevelError(
                f"{kind} in this form", required=level, target=self.options.feature_level, where=self.op.origin
            )
        graph, suffix = self.graph, kind.lower()
        stem = f"{next((name for name in self.op.outputs if name), suffix)}.{suffix}"
        outputs = [graph.add_value(Value(graph.fresh(stem), type_)) for type_ in made]
        names = tuple([None if value is None else value.name for value in tensors])
        origins = self.op.origins or (self.op.origin,)
        graph.add(Op(kind, names, tuple([value.name for value in outputs]), kept, origins))
        return outputs

    def _answer(
        self,
        kind: str,
        tensors: Sequence[Value | None],
        attrs: dict[str, Any],
        quants: tuple[Quantization | None, ...],
        dtype: Any,
        wanted: tuple[TensorType, ...] | int,
    ) -> tuple[int, list[TensorType]]:
        """The row's answer: the level that the operation needs and the types of its results."""
        if any(value is not None and is_read_by_rules(value) for value in tensors):
            return self._ask(kind, tensors, attrs, quants, dtype, wanted)
        seen = tuple([None if value is None else (value.type, value.const is None) for value in tensors])
        key = (kind, seen, tuple(attrs.items()), quants, dtype, wanted)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._ask(kind, tensors, attrs, quants, dtype, wanted)
        return answer

    def _ask(
        self,
        kind: str,
        tensors: Sequence[Value | None],
        attrs: dict[str, Any],
        quants: tuple[Quantization | None, ...],
        dtype: Any,
        wanted: tuple[TensorType, ...] | int,
    ) -> tuple[int, list[TensorType]]:
        schema = SCHEMAS[OperationCode[kind]]
        given = () if isinstance(wanted, int) else tuple(OperandType.of(type_) for type_ in wanted)
        unknown = (None,) * wanted if isinstance(wanted, int) else ()
        try:
            bound = bind_values(schema, tensors, attrs, dtype, given or unknown)
            declared = given or [
                None if dtype is None and q is None else _declared(bound, dtype, q, i) for i, q in enumerate(quants)
            ]
            late = schema.code in _LATE
            level = 1 if late else level_of(bound)  # first, since sizes are computed from ranks and values that pass
            bound.outputs = made = output_types(bound, declared)
            level = level if late else level_of(bound)  # again, with what rules say of the outputs
        except RuleError as error:
            self.unsupported(f"{kind} refuses it: {error}")
        except UnknownValue as error:
            self.unsupported(f"{kind}: {error} must be known when the model is converted")
        return level, [type_.tensor_type() for type_ in made]

    # -- movement, for free on constants -----------------------------------------------------------------------------

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """``x`` with its dimensions permuted (``result.shape[i] == x.shape[perm[i]]``)."""
        order = tuple(int(axis) for axis in perm)
        if order == tuple(range(len(order))):
            return x
        if x.const is not None and x.known.quant is None:
            return self.const(x.const.transpose(order), name=f"{x.name}.transposed")
        result = self.emit("TRANSPOSE", x, perm=order)
        if x.holds is not None:
            before = x.holds.perm or tuple(range(len(order)))
            result.holds = Provenance(x.holds.name, tuple(before[axis] for axis in order))
        return result

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """``x`` with the same elements in another shape."""
        target = tuple(int(dim) for dim in shape)
        if target == x.shape:
            return x
        if x.const is not None and x.known.quant is None:
            return self.const(x.const.reshape(target), name=f"{x.name}.reshaped")
        if x.known.dtype.kind in "bi" and x.known.quant is None:
            return self._moved("RESHAPE", x, shape=target)
        return self.emit("RESHAPE", x, shape=target)

    def _moved(self, kind: str, x: Value, *, shape: Shape) -> Value:
        """A move whose element type NNAPI may lack: layout may remove it, and carry_types settles what is left."""
        stem = next((name for name in self.op.outputs if name), kind.lower())
        result = self.graph.add_value(Value(self.graph.fresh(f"{stem}.{kind.lower()}"), x.known.with_shape(shape)))
        result.bounds = x.bounds
        origins = self.op.origins or (self.op.origin,)
        self.graph.add(Op(kind, (x.name,), (result.name,), {"shape": shape}, origins))
        return result


def _merges(kind: str, tensors: Sequence[Value | None], wide: Shape) -> bool:
    """Whether an operation takes tensors of shape ``wide``, and of one element, with their dimensions merged."""
    alike = all(value is None or value.shape == wide or value.known.size == 1 for value in tensors)
    return alike and isinstance(SCHEMAS[OperationCode[kind]].layout, Elementwise)


def _declared(bound: Bound, dtype: Any, quant: Quantization | None, index: int) -> OperandType | None:
    """A declared output type that carries the caller's dtype and quantization."""
    slot = bound.schema.outputs[min(index, len(bound.schema.outputs) - 1)]
    code = slot.code or bound.row.codes.get(slot.name)
    if dtype is not None:
        return OperandType.of(TensorType(np.dtype(dtype), (), quant))
    if code is None or quant is None or "QUANT" not in code.name:
        return None
    return OperandType(code, (), quant.scale, quant.zero_point)


def _plain(value: Any) -> Any:
    """Attributes are plain Python data, so that texts, comparison and hashing are the same everywhere."""
    if isinstance(value, np.ndarray):
        return tuple(map(tuple, value.tolist())) if value.ndim > 1 else tuple(np.atleast_1d(value).tolist())
    if isinstance(value, np.generic):
        return value.item()
    return tuple(_plain(item) for item in value) if isinstance(value, (list, tuple)) else value
