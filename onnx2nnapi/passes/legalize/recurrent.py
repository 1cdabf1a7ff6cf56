"""LSTM, GRU and RNN: NNAPI's operation over the sequence where it computes the same, else step by step or as a loop.

Inside, sequences are [time, batch, size], whatever the layout of the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnx2nnapi.ir.graph import Op, Value
from onnx2nnapi.passes.builder import Builder
from onnx2nnapi.passes.legalize import legalizes
from onnx2nnapi.passes.legalize.along import along
from onnx2nnapi.passes.legalize.carry import carried, from_bool
from onnx2nnapi.passes.legalize.cells import Cell, Direction, cell_of, lstm_operands, section
from onnx2nnapi.passes.legalize.elementwise import one, scale, shift
from onnx2nnapi.passes.legalize.logic import select
from onnx2nnapi.passes.legalize.loops import placed, while_loop
from onnx2nnapi.passes.legalize.movement import concat, gather_axis, sliced, split_axis
from onnx2nnapi.passes.legalize.shapes import binary

UNROLLED = 128  # steps; longer sequences are loops where the target has them


@dataclass(slots=True)
class _Layer:
    """A node: what it reads, in one form for all three operators.

    Attributes:
        x: the input as the node has it, [time, batch, size] or with ``batch_first`` [batch, time, size].
        batch_first: the node's layout 1.
        directions: one or two.
        lengths: of the sequences [batch]; None where all are whole.
    """

    op: Op
    x: Value
    batch_first: bool
    directions: list[Direction]
    lengths: Value | None = None

    @property
    def time(self) -> int:
        return self.x.shape[self.batch_first]

    @property
    def batch(self) -> int:
        return self.x.shape[not self.batch_first]

    def wants(self, index: int) -> bool:
        return index < len(self.op.outputs) and self.op.outputs[index] is not None


@legalizes("LSTM", "GRU", "RNN")
def recurrent(b: Builder, op: Op) -> list[Value | None]:
    """UNIDIRECTIONAL or BIDIRECTIONAL_SEQUENCE_LSTM / _RNN from level 3; else a cell for each step, or WHILE.

    The operation over the sequence does it where activations, clip, gates and lengths are those that NNAPI has. A cell
    is NNAPI's LSTM or RNN where that computes the same, else FULLY_CONNECTED and elementwise operations; more than 128
    steps are a WHILE from level 4 on.
    """
    layer = _layer(b, op)
    cells = [cell_of(b, op, direction, index) for index, direction in enumerate(layer.directions)]
    whole = _whole_sequence(b, layer, cells) if b.at_least(3) else None
    return _finished(b, layer, *(whole or _by_steps(b, layer, cells)))


def _layer(b: Builder, op: Op) -> _Layer:
    x, weights, recurrent_weights = b.inputs(op)[:3]
    bias, lengths, hidden, cell, peepholes = (b.optional_input(op, index) for index in range(3, 8))
    batch_first = bool(op.attrs.get("layout", 0))
    backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[op.attrs["direction"]]
    batch = x.shape[0 if batch_first else 1]
    zeros = b.const(np.zeros((batch, recurrent_weights.shape[-1]), x.known.dtype))
    states = [hidden, cell] if op.kind == "LSTM" else [hidden]
    if batch_first:
        states = [None if state is None else b.transpose(state, (1, 0, 2)) for state in states]

    def of(value: Value, index: int) -> Value:
        return b.reshape(section(b, value, 0, index, len(backward)), value.shape[1:])

    directions = [
        Direction(
            reverse,
            of(weights, index),
            of(recurrent_weights, index),
            None if bias is None else of(bias, index),
            None if peepholes is None else of(peepholes, index),
            [zeros if state is None else of(state, index) for state in states],
        )
        for index, reverse in enumerate(backward)
    ]
    layer = _Layer(op, x, batch_first, directions, lengths)
    if lengths is not None and lengths.const is not None and (lengths.const.numpy() == layer.time).all():
        layer.lengths = None
    return layer


# -- the whole sequence by one operation -------------------------------------------------------------------------------


def _whole_sequence(b: Builder, layer: _Layer, cells: Sequence[Cell]) -> tuple[list[Value], list[list[Value]]] | None:
    """The node by NNAPI's operation over a sequence; None where that computes something else.

    Returns:
        The output [time, batch, directions · hidden], or with the batch first, and each direction's last states.
    """
    activations = {cell.native for cell in cells}
    activation = activations.pop()
    if layer.lengths is not None or activations or activation is None:
        return None
    states = layer.wants(2)  # a cell state is no slice of the output
    if states and not b.at_least(4):
        return None
    lstm, both = layer.op.kind == "LSTM", len(cells) == 2
    axis = int(layer.batch_first)
    flip = not both and layer.directions[0].backward
    operands: list[Value | None] = [_reversed(b, layer.x, axis) if flip else layer.x]
    if lstm:
        operands += [operand for cell in cells for operand in lstm_operands(cell.parameters)]
        operands += [state for direction in layer.directions for state in direction.states]
    else:
        for cell, direction in zip(cells, layer.directions, strict=True):
            operands += [*cell.parameters.values(), *direction.states]
    attrs: dict[str, Any] = {"activation": activation, "time_major": not layer.batch_first}
    if both:
        operands += [None] * (9 if lstm else 3)  # auxiliary input and weights
        attrs["merge_outputs"] = True
    if lstm:
        operands += [None] * 4 * len(cells)  # layer normalization
    each = len(layer.directions[0].states)
    kind = f"{'BIDIRECTIONAL' if both else 'UNIDIRECTIONAL'}_SEQUENCE_{layer.op.kind}"
    output, *ends = b.emit_all(kind, *operands, results=1 + each * len(cells) if states else 0, **attrs)
    if flip:
        output = _reversed(b, output, axis)
    last = [ends[i * each : (i + 1) * each] for i in range(len(cells))] if states else []
    return [output], last or [
        [_last_step(b, layer, output, index)] for index in range(len(cells) if layer.wants(1) else 0)
    ]


def _reversed(b: Builder, x: Value, axis: int) -> Value:
    """``x`` from its end to its start along an axis."""
    begin = [size - 1 if i == axis else 0 for i, size in enumerate(x.shape)]
    return sliced(b, x, begin, x.shape, [-1 if i == axis else 1 for i in range(x.rank)]) if x.shape[axis] > 1 else x


def _last_step(b: Builder, layer: _Layer, output: Value, index: int) -> Value:
    """What a direction gave out in its last step [batch, hidden]."""
    direction = layer.directions[index]
    at = 0 if direction.backward else layer.time - 1
    begin = [0, 0, index * direction.hidden]
    begin[layer.batch_first] = at
    size = [1, layer.batch, direction.hidden] if not layer.batch_first else [layer.batch, 1, direction.hidden]
    return b.reshape(sliced(b, output, begin, size, (1, 1, 1)), (layer.batch, direction.hidden))


# -- step by step ------------------------------------------------------------------------------------------------------


def _by_steps(b: Builder, layer: _Layer, cells: Sequence[Cell]) -> tuple[list[Value], list[list[Value]]]:
    """The node by its cells, unrolled or as loops: the outputs of each direction, where wanted, and its last states."""
    x = b.transpose(layer.x, (1, 0, 2)) if layer.batch_first else layer.x
    mask = _mask(b, layer)
    run = _looped if layer.time > UNROLLED and b.at_least(4) else _unrolled
    runs = [
        run(b, direction, cell, [*cell.sequences(x), *mask], masked=bool(mask), wanted=layer.wants(0))
        for direction, cell in zip(layer.directions, cells, strict=True)
    ]
    states = [last for _, last in runs]
    outputs = [output for output, _ in runs if output is not None]
    return [b.transpose(output, (1, 0, 2)) for output in outputs] if layer.batch_first else outputs, states


def _mask(b: Builder, layer: _Layer) -> list[Value]:
    """[time, batch, 1] that is 1 where a step is within its sequence, where not all are."""
    lengths, dtype = layer.lengths, layer.x.known.dtype
    if lengths is None:
        return []
    times = np.arange(layer.time, dtype=np.int32).reshape(-1, 1, 1)
    if lengths.const is not None:
        return [b.const((times < lengths.const.numpy().reshape(1, -1, 1)).astype(dtype))]
    b.needs_level(3, "sequence_lens that are computed")
    within = binary(b, "LESS", b.const(times), b.reshape(lengths, (1, layer.batch, 1)))
    return [from_bool(b, within, dtype)]


def _step(
    b: Builder, cell: Cell, slices: Sequence[Value], state: Sequence[Value], masked: bool
) -> tuple[Value, list[Value]]:
    """One step: what it gives out, and the next state; beyond its sequence's end 0, and the state as it was."""
    new = cell.step(b, cell.parameters, slices[:-1] if masked else slices, state)
    if not masked:
        return new[0], new
    mask = slices[-1]
    if mask.const is not None and mask.const.numpy().all():
        return new[0], new
    rest = shift(b, scale(b, mask, -1.0), 1.0)
    shown = [binary(b, "MUL", value, mask) for value in new]
    kept = [binary(b, "MUL", value, rest) for value in state]
    return shown[0], [binary(b, "ADD", *pair) for pair in zip(shown, kept, strict=True)]


def _unrolled(
    b: Builder, direction: Direction, cell: Cell, sequences: Sequence[Value], *, masked: bool, wanted: bool
) -> tuple[Value | None, list[Value]]:
    """The outputs [time, batch, hidden] where they are wanted, and the last state."""
    slices = list(zip(*(_unstacked(b, sequence) for sequence in sequences), strict=True))
    state = list(direction.states)
    nothing = b.const(np.zeros(state[0].shape, state[0].known.dtype))
    outputs = [nothing] * len(slices)
    for time in reversed(range(len(slices))) if direction.backward else range(len(slices)):
        mask = slices[time][-1].const if masked else None
        if mask is None or mask.numpy().any():
            outputs[time], state = _step(b, cell, slices[time], state, masked)
    if not wanted:
        return None, state
    return concat(b, [b.reshape(output, (1, *output.shape)) for output in outputs], 0), state


def _unstacked(b: Builder, sequence: Value) -> list[Value]:
    """The steps of a sequence."""
    time, shape = sequence.shape[0], sequence.shape[1:]
    if sequence.const is not None:
        return [b.const(step) for step in sequence.const.numpy()]
    if b.at_least(3):
        parts = split_axis(b, sequence, 0, [1] * time)
    else:
        parts = [section(b, sequence, 0, step, time) for step in range(time)]
    return [b.reshape(part, shape) for part in parts]


def _looped(
    b: Builder, direction: Direction, cell: Cell, sequences: Sequence[Value], *, masked: bool, wanted: bool
) -> tuple[Value | None, list[Value]]:
    """The same by WHILE, whose state is that of the cell, the outputs so far, and the time."""
    time, batch = sequences[0].shape[:2]
    count = len(direction.states)
    flat = batch * direction.hidden
    start = list(direction.states)
    if wanted:
        start.append(b.const(np.zeros((time, flat), start[0].known.dtype)))
    start.append(b.const([time - 1 if direction.backward else 0], np.int32))

    def goes_on(b: Builder, values: Sequence[Value]) -> Value:
        return binary(
            b,
            *(
                ("GREATER", values[-1], one(b, values[-1], -1))
                if direction.backward
                else ("LESS", values[-1], one(b, values[-1], time))
            ),
        )

    def body(b: Builder, values: Sequence[Value]) -> list[Value]:
        now = values[-1]
        inner = replace(cell, parameters={name: b.capture(value) for name, value in cell.parameters.items()})
        slices = [
            b.reshape(b.emit("GATHER", b.capture(sequence), now, axis=0), sequence.shape[1:]) for sequence in sequences
        ]
        output, state = _step(b, inner, slices, values[:count], masked)
        outputs = [placed(b, values[count], now, b.reshape(output, (1, flat)))] if wanted else []
        return [*state, *outputs, shift(b, now, -1 if direction.backward else 1)]

    results = while_loop(b, start, goes_on, body, len(start) - 1)
    output = b.reshape(results[count], (time, batch, direction.hidden)) if wanted else None
    return output, results[:count]


# -- the outputs as the node has them ----------------------------------------------------------------------------------


def _finished(
    b: Builder, layer: _Layer, outputs: Sequence[Value], states: Sequence[Sequence[Value]]
) -> list[Value | None]:
    """Y, Y_h and Y_c, where they are wanted."""
    results: list[Value | None] = [_with_directions(b, layer, outputs) if layer.wants(0) else None]
    for index in range(1, len(layer.op.outputs)):
        ends = [state[index - 1] for state in states] if layer.wants(index) else []
        results.append(_joined(b, ends, int(layer.batch_first)) if ends else None)
    return results


def _joined(b: Builder, parts: Sequence[Value], axis: int) -> Value:
    """Parts of one shape along a new axis."""
    shape = list(parts[0].shape)
    shape.insert(axis, 1)
    return concat(b, [b.reshape(part, shape) for part in parts], axis)


def _with_directions(b: Builder, layer: _Layer, outputs: Sequence[Value]) -> Value:
    """Y: the directions as a dimension of their own, before or (with the batch first) after the batch."""
    if len(outputs) == len(layer.directions):
        return _joined(b, outputs, 2 if layer.batch_first else 1)
    first, second, size = outputs[0].shape
    apart = b.reshape(outputs[0], (first, second, 2, size // 2))
    return apart if layer.batch_first else b.transpose(apart, (0, 2, 1, 3))


@legalizes("ReverseSequence")
def reverse_sequence(b: Builder, op: Op) -> Value:
    """A gather of each sequence's steps; where the lengths are computed, one GATHER at computed places (level 3)."""
    x, lengths = b.inputs(op)
    time, batch = op.attrs["time_axis"], op.attrs["batch_axis"]
    if lengths.const is None:
        return _reversed_by_lengths(b, x, lengths, time, batch)
    counts = b.constant(lengths, "sequence_lens").reshape(-1).astype(int)
    if len(counts) != x.shape[batch] or not ((counts >= 0) & (counts <= x.shape[time])).all():
        b.unsupported(f"sequence_lens must be {x.shape[batch]} numbers up to {x.shape[time]}, not {counts.tolist()}")
    if (counts == counts[0]).all():
        return _reversed_start(b, x, time, int(counts[0]))
    parts = [
        _reversed_start(b, part, time, int(count))
        for part, count in zip(split_axis(b, x, batch, [1] * len(counts)), counts, strict=True)
    ]
    return concat(b, parts, batch)


def _reversed_by_lengths(b: Builder, x: Value, lengths: Value, time: int, batch: int) -> Value:
    """Step t of a sequence is step length - 1 - t, or t itself beyond the length, of the flattened steps."""
    b.needs_level(3, "sequence_lens that are computed")
    steps, sequences = x.shape[time], x.shape[batch]
    grid = [1, 1]
    grid[batch] = sequences
    lens = b.reshape(lengths, grid)
    lens.bounds = lengths.bounds = (0, steps)  # ONNX allows no others
    times = np.expand_dims(np.arange(steps, dtype=np.int32), batch)
    mirrored = binary(b, "SUB", lens, b.const(times + 1))
    places = select(b, binary(b, "LESS", b.const(times), lens), mirrored, b.const(times))
    places.bounds = (0, steps - 1)
    numbers = np.expand_dims(np.arange(sequences, dtype=np.int32), time)
    if time == 0:
        starts = binary(b, "MUL", places, one(b, places, sequences))
        starts.bounds = (0, (steps - 1) * sequences)
        flat = binary(b, "ADD", starts, b.const(numbers))
    else:
        flat = binary(b, "ADD", places, b.const(numbers * steps))
    flat.bounds = (0, steps * sequences - 1)
    rows = b.reshape(x, (steps * sequences, x.known.size // (steps * sequences)))
    index = b.reshape(flat, (steps * sequences,))
    moved = carried(b, "GATHER", rows, lambda value: b.emit("GATHER", value, index, axis=0))
    return b.reshape(moved, x.shape)


def _reversed_start(b: Builder, x: Value, axis: int, count: int) -> Value:
    """The first ``count`` elements along an axis from last to first, the others as they are."""
    size = x.shape[axis]
    if count == size:
        return along(b, x, axis, lambda value, at: _reversed(b, value, at))
    places = np.concatenate([np.arange(count)[::-1], np.arange(count, size)])
    return x if count < 2 else along(b, x, axis, lambda value, at: gather_axis(b, value, places, at))
