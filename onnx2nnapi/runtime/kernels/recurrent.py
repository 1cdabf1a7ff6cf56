"""Kernels of the recurrent operations on floats. float16 is computed in float32, an LSTM's states rounded at the end.

The products of the weights with all time steps' inputs are one matrix product; only what depends on the state is
computed step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.table.recurrent import GATES
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.arithmetic import widen

__all__: list[str] = []

Operands = Mapping[str, "Array | None"]

NORMALIZATION_EPSILON = 1e-8


def _sigmoid(x: Array) -> Array:
    power = np.exp(-x)
    power += 1
    return np.reciprocal(power, out=power)


_ACTIVATIONS: dict[int, Callable[[Array], Array]] = {
    0: lambda x: x,
    1: lambda x: np.maximum(x, 0),
    2: lambda x: np.clip(x, -1, 1),
    3: lambda x: np.clip(x, 0, 6),
    4: np.tanh,
    6: _sigmoid,
}


def _time_major(x: Array, time_major: bool | int) -> Array:
    """A sequence as (time, batch, size); the same permutation leads back."""
    return x if time_major else x.swapaxes(0, 1)


# -- RNN ---------------------------------------------------------------------------------------------------------------


def _run_rnn(
    inputs: Array,
    weights: Array,
    recurrent_weights: Array,
    bias: Array,
    state: Array,
    activation: int,
    auxiliary: tuple[Array, Array] | None = None,
    backward: bool = False,
) -> tuple[Array, Array]:
    """Outputs (time, batch, units) and the last state, of inputs (time, batch, size); ``auxiliary``: input, weights."""
    dtype = inputs.dtype
    activate = _ACTIVATIONS[activation]
    through = widen(inputs) @ widen(weights).T + widen(bias)
    if auxiliary is not None:
        through += widen(auxiliary[0]) @ widen(auxiliary[1]).T
    recurrent = widen(recurrent_weights).T
    outputs = np.empty(through.shape, dtype)
    steps = range(len(through))
    for step in reversed(steps) if backward else steps:
        outputs[step] = activate(through[step] + widen(state) @ recurrent)
        state = outputs[step]
    return outputs, state


@kernel("RNN")
def rnn(
    call: Call,
    input: Array,
    weights: Array,
    recurrent_weights: Array,
    bias: Array,
    hidden_state_in: Array,
    activation: int,
) -> tuple[Array, Array]:
    outputs, state = _run_rnn(input[np.newaxis], weights, recurrent_weights, bias, hidden_state_in, activation)
    return state, outputs[0]


@kernel("UNIDIRECTIONAL_SEQUENCE_RNN")
def unidirectional_sequence_rnn(
    call: Call,
    input: Array,
    weights: Array,
    recurrent_weights: Array,
    bias: Array,
    hidden_state_in: Array,
    activation: int,
    time_major: int,
) -> tuple[Array, ...]:
    inputs = _time_major(input, time_major)
    outputs, state = _run_rnn(inputs, weights, recurrent_weights, bias, hidden_state_in, activation)
    return (_time_major(outputs, time_major), state)[: len(call.outputs)]


@kernel("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_sequence_rnn(
    call: Call,
    input: Array,
    fw_weights: Array,
    fw_recurrent_weights: Array,
    fw_bias: Array,
    fw_hidden_state_in: Array,
    bw_weights: Array,
    bw_recurrent_weights: Array,
    bw_bias: Array,
    bw_hidden_state_in: Array,
    aux_input: Array | None,
    fw_aux_weights: Array | None,
    bw_aux_weights: Array | None,
    activation: int,
    time_major: bool,
    merge_outputs: bool,
) -> tuple[Array, ...]:
    inputs = backward_inputs = _time_major(input, time_major)
    forward_auxiliary = backward_auxiliary = None
    if aux_input is not None:
        auxiliary = _time_major(aux_input, time_major)
        if fw_aux_weights is not None and bw_aux_weights is not None:
            forward_auxiliary, backward_auxiliary = (auxiliary, fw_aux_weights), (auxiliary, bw_aux_weights)
        else:
            backward_inputs = auxiliary
    forward, forward_state = _run_rnn(
        inputs, fw_weights, fw_recurrent_weights, fw_bias, fw_hidden_state_in, activation, forward_auxiliary
    )
    backward, backward_state = _run_rnn(
        backward_inputs,
        bw_weights,
        bw_recurrent_weights,
        bw_bias,
        bw_hidden_state_in,
        activation,
        backward_auxiliary,
        backward=True,
    )
    outputs = _both(forward, backward, time_major, merge_outputs)
    return (*outputs, forward_state, backward_state)[: len(call.outputs)]


def _both(forward: Array, backward: Array, time_major: bool, merge: bool) -> tuple[Array, ...]:
    """The outputs of both directions, apart or joined."""
    outputs = (np.concatenate((forward, backward), axis=-1),) if merge else (forward, backward)
    return tuple(_time_major(output, time_major) for output in outputs)


# -- LSTM --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Cell:
    """An LSTM cell in float32, the weights of its gates side by side (without the input gate where it is coupled)."""

    gates: tuple[str, ...]
    input_weights: Array
    recurrent_weights: Array
    auxiliary_weights: Array | None
    bias: Array
    peepholes: dict[str, Array]
    norms: dict[str, Array]
    projection: Array | None
    projection_bias: Array | None

    @classmethod
    def of(cls, operands: Operands, prefix: str = "") -> _Cell:
        def find(name: str) -> Array | None:
            array = operands.get(prefix + name)
            return None if array is None else widen(array)

        def each(pattern: str) -> dict[str, Array]:
            return {gate: array for gate in gates if (array := find(pattern.format(gate))) is not None}

        def side_by_side(pattern: str) -> Array:
            parts = each(pattern)
            joined: Array = np.concatenate([parts[gate] for gate in gates]).T
            return joined

        gates = tuple(gate for gate in GATES if gate != "input" or find("input_to_input_weights") is not None)
        return cls(
            gates,
            side_by_side("input_to_{}_weights"),
            side_by_side("recurrent_to_{}_weights"),
            None if find("aux_to_forget_weights") is None else side_by_side("aux_to_{}_weights"),
            side_by_side("{}_gate_bias"),
            each("cell_to_{}_weights"),
            each("{}_layer_norm_weights"),
            find("projection_weights"),
            find("projection_bias"),
        )

    def run(
        self,
        inputs: Array,
        output_state: Array,
        cell_state: Array,
        activation: int,
        cell_clip: float,
        projection_clip: float,
        auxiliary: Array | None = None,
        backward: bool = False,
    ) -> tuple[Array, Array, Array, list[Array]]:
        """Outputs (time, batch, size), output state, cell state and the last step's gates, in float32.

        Without activation (0) Android gates the candidate where others gate the new cell state: so does this.
        """
        activate = _ACTIVATIONS[activation]
        through = widen(inputs) @ self.input_weights
        if auxiliary is not None and self.auxiliary_weights is not None:
            through += widen(auxiliary) @ self.auxiliary_weights
        if not self.norms:  # else a gate's bias is added after its normalization
            through += self.bias
        output, cell = widen(output_state), widen(cell_state)
        outputs = np.empty((*inputs.shape[:2], output.shape[-1]), np.float32)
        scratch: list[Array] = []
        steps = range(len(inputs))
        for step in reversed(steps) if backward else steps:
            parts = np.split(through[step] + output @ self.recurrent_weights, len(self.gates), axis=-1)
            sums = dict(zip(self.gates, parts, strict=True))
            forget = _sigmoid(self._gate("forget", sums, cell))
            candidate = activate(self._gate("cell", sums, cell))
            admit = _sigmoid(self._gate("input", sums, cell)) if "input" in sums else 1 - forget
            cell = forget * cell + candidate * admit
            if cell_clip > 0:
                cell = np.clip(cell, -cell_clip, cell_clip)
            shown = activate(cell) if activation else candidate
            output = _sigmoid(self._gate("output", sums, cell)) * shown
            scratch = [*([admit] if "input" in sums else []), shown, forget if "input" in sums else admit, output]
            if self.projection is not None:
                output = output @ self.projection.T
                if self.projection_bias is not None:
                    output += self.projection_bias
                if projection_clip > 0:
                    output = np.clip(output, -projection_clip, projection_clip)
            outputs[step] = output
        return outputs, output, cell, scratch

    def _gate(self, gate: str, sums: Mapping[str, Array], cell: Array) -> Array:
        """What goes into a gate's activation: peephole and layer normalization are applied where they are."""
        x = sums[gate]
        if gate in self.peepholes:
            x = x + cell * self.peepholes[gate]
        if gate not in self.norms:
            return x
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.mean(np.square(centred), axis=-1, keepdims=True)
        normalized = centred / np.sqrt(variance + np.float32(NORMALIZATION_EPSILON))
        bias = np.split(self.bias, len(self.gates))[self.gates.index(gate)]
        result: Array = normalized * self.norms[gate] + bias
        return result


def _cell(call: Call, operands: Operands, prefix: str = "") -> _Cell:
    """The cell, made once where all its weights are constant."""
    names = [name for name in operands if name.startswith(prefix) and name.endswith(("_weights", "_bias"))]
    present = [name for name in names if operands[name] is not None]
    return call.once(f"{prefix}cell", lambda: _Cell.of(operands, prefix), *present)


@kernel("LSTM")
def lstm(
    call: Call,
    *,
    input: Array,
    output_state_in: Array,
    cell_state_in: Array,
    activation: int,
    cell_clip: float,
    projection_clip: float,
    **weights: Array | None,
) -> tuple[Array, ...]:
    outputs, output, state, gates = _cell(call, weights).run(
        input[np.newaxis], output_state_in, cell_state_in, activation, cell_clip, projection_clip
    )
    scratch = np.concatenate(gates).reshape(len(input), -1)  # one gate of the whole batch after the other
    return tuple(array.astype(input.dtype, copy=False) for array in (scratch, output, state, outputs[0]))


@kernel("UNIDIRECTIONAL_SEQUENCE_LSTM")
def unidirectional_sequence_lstm(
    call: Call,
    *,
    input: Array,
    output_state_in: Array,
    cell_state_in: Array,
    activation: int,
    cell_clip: float,
    projection_clip: float,
    time_major: bool,
    **weights: Array | None,
) -> tuple[Array, ...]:
    inputs = _time_major(input, time_major)
    outputs, output, state, _ = _cell(call, weights).run(
        inputs, output_state_in, cell_state_in, activation, cell_clip, projection_clip
    )
    results = (_time_major(outputs, time_major), output, state)[: len(call.outputs)]
    return tuple(result.astype(input.dtype, copy=False) for result in results)


@kernel("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_sequence_lstm(
    call: Call,
    *,
    input: Array,
    fw_output_state_in: Array,
    fw_cell_state_in: Array,
    bw_output_state_in: Array,
    bw_cell_state_in: Array,
    aux_input: Array | None,
    activation: int,
    cell_clip: float,
    projection_clip: float,
    merge_outputs: bool,
    time_major: bool,
    **weights: Array | None,
) -> tuple[Array, ...]:
    inputs = backward_inputs = _time_major(input, time_major)
    auxiliary = None if aux_input is None else _time_major(aux_input, time_major)
    if auxiliary is not None and weights["fw_aux_to_forget_weights"] is None:
        backward_inputs, auxiliary = auxiliary, None
    how = (activation, cell_clip, projection_clip, auxiliary)
    forward, *forward_states, _ = _cell(call, weights, "fw_").run(inputs, fw_output_state_in, fw_cell_state_in, *how)
    backward, *backward_states, _ = _cell(call, weights, "bw_").run(
        backward_inputs, bw_output_state_in, bw_cell_state_in, *how, backward=True
    )
    outputs = _both(forward, backward, time_major, merge_outputs)
    results = (*outputs, *forward_states, *backward_states)[: len(call.outputs)]
    return tuple(result.astype(input.dtype, copy=False) for result in results)


# -- SVDF --------------------------------------------------------------------------------------------------------------


@kernel("SVDF")
def svdf(
    call: Call,
    input: Array,
    weights_feature: Array,
    weights_time: Array,
    bias: Array | None,
    state_in: Array,
    rank: int,
    activation: int,
) -> tuple[Array, Array]:
    filters, memory = weights_time.shape
    state = widen(state_in).reshape(len(input), filters, memory).copy()
    state[..., -1] = widen(input) @ widen(weights_feature).T
    filtered = np.einsum("bfm,fm->bf", state, widen(weights_time))
    output = filtered.reshape(len(input), filters // rank, rank).sum(axis=-1)
    if bias is not None:
        output += widen(bias)
    shifted = np.zeros_like(state)
    shifted[..., :-1] = state[..., 1:]
    return (
        shifted.reshape(state_in.shape).astype(input.dtype, copy=False),
        _ACTIVATIONS[activation](output).astype(input.dtype, copy=False),
    )
