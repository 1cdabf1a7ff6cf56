"""The cells of recurrent layers: one time step of an LSTM, GRU or RNN, of one direction, as NNAPI operations.

A cell is NNAPI's own LSTM or RNN where that computes the same. Otherwise the products with the inputs of all steps are
one FULLY_CONNECTED, and a step adds to its part what depends on the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from onnx2nnapi.errors import InternalError
from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import rule_for
from onnx2nnapi.passes.legalize.elementwise import clamp, difference, scale, shift
from onnx2nnapi.passes.legalize.matmul import fully_connected
from onnx2nnapi.passes.legalize.movement import sliced, split_axis
from onnx2nnapi.passes.legalize.shapes import binary, unary

__all__ = ["Cell", "Direction", "cell_of", "lstm_operands", "section"]

Parameters = Mapping[str, Value]
Activation = Callable[[Builder, Value], Value]
Step = Callable[[Builder, Parameters, Sequence[Value], Sequence[Value]], "list[Value]"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_INPUT, _OUTPUT, _FORGET, _CELL = range(4)  # ONNX's order of an LSTM's gates, and of its peepholes
_NNAPI_ORDER = (_INPUT, _FORGET, _CELL, _OUTPUT)


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a node.

    Attributes:
        backward: whether it goes through time from the end.
        weights, recurrent: [gates · hidden, size] and [gates · hidden, hidden].
        bias: [2 · gates · hidden], that of the weights before that of the recurrent weights.
        peepholes: [3 · hidden].
        states: hidden state and, of an LSTM, cell state at the start [batch, hidden].
    """

    backward: bool
    weights: Value
    recurrent: Value
    bias: Value | None
    peepholes: Value | None
    states: Sequence[Value]

    @property
    def hidden(self) -> int:
        return self.recurrent.shape[-1]


@dataclass(frozen=True, slots=True)
class Cell:
    """How a direction is computed.

    Attributes:
        sequences: what the steps read, of the input [time, batch, size]: sequences [time, batch, …].
        parameters: what every step reads.
        step: the next state, the hidden one first, from a builder, the parameters, the slices and the state.
        native: NNAPI's activation, where its LSTM or RNN computes this cell; the parameters then are its operands.
    """

    sequences: Callable[[Value], list[Value]]
    parameters: Parameters
    step: Step
    native: int | None = None


def section(b: Builder, value: Value, axis: int, index: int, count: int, span: int = 1) -> Value:
    """Parts ``index`` to ``index + span`` of ``count`` equal parts along an axis.

    Level 1 has no slices; along the first axis its EMBEDDING_LOOKUP does.
    """
    if count == span:
        return value
    size = value.shape[axis] // count
    shape = [span * size if i == axis else n for i, n in enumerate(value.shape)]
    if value.const is None and axis == 0 and not b.at_least(2):
        places = b.const(np.arange(index * size, (index + span) * size, dtype=np.int32))
        rows = value if value.rank > 1 else b.reshape(value, (value.shape[0], 1))
        return b.reshape(b.emit("EMBEDDING_LOOKUP", places, rows), shape)
    if value.const is None:
        begin = [index * size if i == axis else 0 for i in range(value.rank)]
        return sliced(b, value, begin, shape, [1] * value.rank)
    place = (slice(None),) * axis + (slice(index * size, (index + span) * size),)
    part = value.const.then(f"part[{index}+{span} of {count}]", lambda array: array[place], shape=shape)
    return b.const(part, name=f"{value.name}.part")


def cell_of(b: Builder, op: Op, direction: Direction, index: int) -> Cell:
    """The cell of a node's direction number ``index``.

    Raises:
        UnsupportedForm: an activation has no operations.
    """
    names = _activations(op, index)
    native = None if op.kind == "GRU" else _native(op, names)
    if native is not None:
        return (_native_lstm if op.kind == "LSTM" else _native_rnn)(b, direction, native)
    clip = float(op.attrs.get("clip") or 0)
    activate = [partial(_activated, kind, attrs, clip) for kind, attrs in names]
    if op.kind == "LSTM":
        show = partial(_activated, *names[-1], 0.0)  # onnxruntime clips what goes into the gates, not the cell state
        return _lstm(b, direction, activate, show, coupled=bool(op.attrs.get("input_forget", 0)))
    if op.kind == "GRU":
        return _gru(b, direction, activate, reset_last=bool(op.attrs.get("linear_before_reset", 0)))
    return _rnn(b, direction, activate)


# -- activations -------------------------------------------------------------------------------------------------------

_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_NATIVE = {"Relu": 1, "Tanh": 4, "Sigmoid": 6}

# The functions with the defaults of their parameters; all but two are the operators of the same name.
_FUNCTIONS: dict[str, dict[str, float]] = {
    "Affine": {"alpha": 1.0, "beta": 0.0},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "LeakyRelu": {"alpha": 0.01},
    "Relu": {},
    "ScaledTanh": {"alpha": 1.0, "beta": 1.0},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 1.0},
}


def _activations(op: Op, index: int) -> list[tuple[str, dict[str, float]]]:
    """The functions of direction ``index`` with their parameters, which the functions that have some share out."""
    default = _DEFAULTS[op.kind]
    named = [str(name) for name in op.attrs.get("activations") or ()]
    known = {name.lower(): name for name in _FUNCTIONS}
    names = [known.get(name.lower(), name) for name in named] or list(default) * (index + 1)
    given = {key: list(op.attrs.get(f"activation_{key}") or ()) for key in ("alpha", "beta")}
    functions = []
    for name in names:
        attrs = dict(_FUNCTIONS.get(name, {}))
        attrs.update({key: given[key].pop(0) for key in attrs if given[key]})
        functions.append((name, attrs))
    return functions[index * len(default) : (index + 1) * len(default)]


def _native(op: Op, functions: Sequence[tuple[str, dict[str, float]]]) -> int | None:
    """NNAPI's activation where its cell computes this one: gates by Sigmoid, one other function, nothing clipped."""
    names = [name for name, _ in functions]
    gate = names.pop(0) if op.kind == "LSTM" else "Sigmoid"
    if op.attrs.get("clip") or op.attrs.get("input_forget", 0) or gate != "Sigmoid" or len(set(names)) != 1:
        return None
    return _NATIVE.get(names[0])


def _activated(kind: str, attrs: Mapping[str, float], clip: float, b: Builder, x: Value) -> Value:
    """A function of an input that is clipped before."""
    if clip:
        x = clamp(b, x, -clip, clip)
    if kind == "Affine":
        return shift(b, scale(b, x, attrs["alpha"]), attrs["beta"])
    if kind == "ScaledTanh":
        return scale(b, unary(b, "TANH", scale(b, x, attrs["beta"])), attrs["alpha"])
    rule = rule_for(kind) if kind in _FUNCTIONS else None
    if rule is None:
        b.unsupported(f"the activation {kind!r} has no NNAPI operations", f"those of {', '.join(_FUNCTIONS)} have")
    b.env[_OPERAND] = x
    result = rule(b, Op(kind, (_OPERAND,), (), dict(attrs), (b.op.origin,)))
    del b.env[_OPERAND]
    return result if isinstance(result, Value) else _only(result)


_OPERAND = "\0operand"  # no name of an ONNX tensor


def _only(values: Sequence[Value | None]) -> Value:
    (value,) = values
    if value is None:
        raise InternalError("the rule of an activation gives nothing")
    return value


# -- cells that NNAPI has ----------------------------------------------------------------------------------------------


def _bias(b: Builder, direction: Direction, gates: int, *, halves: bool = False) -> list[Value]:
    """The sum of both biases [gates · hidden]; with ``halves`` both by themselves."""
    size = gates * direction.hidden
    if direction.bias is None:
        zeros = b.const(np.zeros(size, direction.weights.known.dtype))
        return [zeros, zeros] if halves else [zeros]
    first, second = (section(b, direction.bias, 0, half, 2) for half in range(2))
    return [first, second] if halves else [_sum(b, first, second)]


def _sum(b: Builder, x: Value, y: Value) -> Value:
    if x.const is not None and y.const is not None:
        return b.const(x.const.numpy() + y.const.numpy())
    return binary(b, "ADD", x, y)


def _native_rnn(b: Builder, direction: Direction, activation: int) -> Cell:
    """NNAPI's RNN."""
    parameters = {"weights": direction.weights, "recurrent": direction.recurrent, "bias": _bias(b, direction, 1)[0]}

    def step(b: Builder, operands: Parameters, slices: Sequence[Value], state: Sequence[Value]) -> list[Value]:
        return b.emit_all("RNN", slices[0], *operands.values(), state[0], activation=activation)[1:]

    return Cell(lambda x: [x], parameters, step, activation)


def _native_lstm(b: Builder, direction: Direction, activation: int) -> Cell:
    """NNAPI's LSTM, without projection; the parameters are its weights in order."""
    (bias,) = _bias(b, direction, 4)
    parameters: dict[str, Value] = {}
    for name, value in (("weights", direction.weights), ("recurrent", direction.recurrent)):
        parameters |= {f"{name}{gate}": section(b, value, 0, gate, 4) for gate in _NNAPI_ORDER}
    if direction.peepholes is not None:
        gates = (_INPUT, _FORGET, _OUTPUT)
        parameters |= {f"peephole{gate}": section(b, direction.peepholes, 0, gate, 3) for gate in gates}
    parameters |= {f"bias{gate}": section(b, bias, 0, gate, 4) for gate in _NNAPI_ORDER}

    def step(b: Builder, weights: Parameters, slices: Sequence[Value], state: Sequence[Value]) -> list[Value]:
        made = b.emit_all(
            "LSTM",
            slices[0],
            *lstm_operands(weights),
            *state,
            activation=activation,
            cell_clip=0.0,
            projection_clip=0.0,
        )
        return made[1:3]

    return Cell(lambda x: [x], parameters, step, activation)


def lstm_operands(weights: Parameters) -> list[Value | None]:
    """The operands from input_to_input_weights to projection_bias of NNAPI's LSTMs, of a native cell's parameters."""
    order = {"weights": _NNAPI_ORDER, "recurrent": _NNAPI_ORDER, "peephole": (_INPUT, _FORGET, _OUTPUT)}
    order["bias"] = _NNAPI_ORDER
    return [*(weights.get(f"{name}{gate}") for name, gates in order.items() for gate in gates), None, None]


# -- cells of simpler operations ---------------------------------------------------------------------------------------


def _groups(b: Builder, first: int, count: int) -> list[tuple[int, int]]:
    """Neighbouring gates (first, number) by matrix product: all in one; at level 1, which cannot split, each alone."""
    return [(first, count)] if b.at_least(2) else [(gate, 1) for gate in range(first, first + count)]


def _cell(
    b: Builder,
    direction: Direction,
    groups: Sequence[tuple[int, int]],
    step: Step,
    *,
    apart: Sequence[tuple[int, int]] = (),
) -> Cell:
    """A cell whose steps read x·Wᵀ + biases of each group of gates, and as parameters the groups' recurrent weights.

    Args:
        b: the builder.
        direction: what is computed.
        groups: of gates.
        step: of the cell.
        apart: groups whose recurrent bias is a parameter of its own instead.
    """
    gates = direction.weights.shape[0] // direction.hidden
    parameters: dict[str, Value] = {}
    (both,), (first, second) = _bias(b, direction, gates), _bias(b, direction, gates, halves=True)
    for group in groups:
        parameters[f"recurrent{group[0]}"] = section(b, direction.recurrent, 0, group[0], gates, group[1])
        if group in apart:
            parameters[f"bias{group[0]}"] = section(b, second, 0, group[0], gates, group[1])
    if direction.peepholes is not None:
        for gate in (_INPUT, _OUTPUT, _FORGET):
            parameters[f"peephole{gate}"] = section(b, direction.peepholes, 0, gate, 3)

    def sequences(x: Value) -> list[Value]:
        time, batch, size = x.shape
        rows = b.reshape(x, (time * batch, size))
        result = []
        for group in groups:
            weights = section(b, direction.weights, 0, group[0], gates, group[1])
            bias = section(b, first if group in apart else both, 0, group[0], gates, group[1])
            product = fully_connected(b, rows, weights, bias)
            result.append(b.reshape(product, (time, batch, product.shape[1])))
        return result

    return Cell(sequences, parameters, step)


def _sums(
    b: Builder, groups: Sequence[tuple[int, int]], parameters: Parameters, slices: Sequence[Value], state: Value
) -> list[Value]:
    """What goes into the gates [batch, hidden] each: a slice of x·Wᵀ + biases, and state·Rᵀ."""
    result = []
    for (first, count), part in zip(groups, slices, strict=True):
        total = binary(b, "ADD", part, fully_connected(b, state, parameters[f"recurrent{first}"]))
        result += split_axis(b, total, 1, [total.shape[1] // count] * count)
    return result


def _rnn(b: Builder, direction: Direction, activate: Sequence[Activation]) -> Cell:
    groups = [(0, 1)]

    def step(b: Builder, parameters: Parameters, slices: Sequence[Value], state: Sequence[Value]) -> list[Value]:
        (total,) = _sums(b, groups, parameters, slices, state[0])
        return [activate[0](b, total)]

    return _cell(b, direction, groups, step)


def _gru(b: Builder, direction: Direction, activate: Sequence[Activation], *, reset_last: bool) -> Cell:
    """Gates z, r, h; with ``reset_last`` (linear_before_reset) r scales what the state adds to h, else the state."""
    groups, candidate = _groups(b, 0, 2), (2, 1)

    def step(b: Builder, parameters: Parameters, slices: Sequence[Value], state: Sequence[Value]) -> list[Value]:
        (hidden,) = state
        sums = _sums(b, groups, parameters, slices[:-1], hidden)
        update, reset = (activate[0](b, total) for total in sums)
        weights = parameters["recurrent2"]
        if reset_last:
            through = binary(b, "MUL", reset, fully_connected(b, hidden, weights, parameters["bias2"]))
        else:
            through = fully_connected(b, binary(b, "MUL", reset, hidden), weights)
        new = activate[1](b, binary(b, "ADD", slices[-1], through))
        return [binary(b, "ADD", new, binary(b, "MUL", update, difference(b, hidden, new)))]

    return _cell(b, direction, [*groups, candidate], step, apart=[candidate] if reset_last else [])


def _lstm(b: Builder, direction: Direction, activate: Sequence[Activation], show: Activation, *, coupled: bool) -> Cell:
    """Gates i, o, f, c; the output gate lets ``show`` of the cell state out; ``coupled``: f is 1 - i."""
    groups = _groups(b, 0, 4)

    def step(b: Builder, parameters: Parameters, slices: Sequence[Value], state: Sequence[Value]) -> list[Value]:
        hidden, cell = state
        sums = _sums(b, groups, parameters, slices, hidden)

        def gate(index: int, seen: Value) -> Value:
            peephole = parameters.get(f"peephole{index}")
            total = sums[index]
            if peephole is not None:
                total = binary(b, "ADD", total, binary(b, "MUL", seen, peephole))
            return activate[0](b, total)

        admit = gate(_INPUT, cell)
        forget = shift(b, scale(b, admit, -1.0), 1.0) if coupled else gate(_FORGET, cell)
        candidate = activate[1](b, sums[_CELL])
        cell = binary(b, "ADD", binary(b, "MUL", forget, cell), binary(b, "MUL", admit, candidate))
        return [binary(b, "MUL", gate(_OUTPUT, cell), show(b, cell)), cell]

    return _cell(b, direction, groups, step)
