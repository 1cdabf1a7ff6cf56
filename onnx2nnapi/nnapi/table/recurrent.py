"""Rows of the recurrent operations on floats: RNN, LSTM, SVDF and their sequences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, RuleError
from onnx2nnapi.nnapi.schema import Form, Rank, Role, Rule, Schema, Slot, TypeRow, register, scalar, tensor

__all__ = ["GATES", "cell_presence", "cell_shapes", "expect_shapes", "lstm_weights"]

GATES = ("input", "forget", "cell", "output")

# Activations of recurrent cells: FuseCode's, and two that only these operations have.
LINEAR, RELU, RELU1, RELU6, TANH, SIGMOID = 0, 1, 2, 3, 4, 6


# -- slots and types ---------------------------------------------------------------------------------------------------


def lstm_weights(prefix: str = "") -> tuple[Slot, ...]:
    """The weights of an LSTM cell up to its projection; those of the input gate, peepholes, projection are optional."""
    return (
        *(tensor(f"{prefix}input_to_{gate}_weights", omittable=gate == "input") for gate in GATES),
        *(tensor(f"{prefix}recurrent_to_{gate}_weights", omittable=gate == "input") for gate in GATES),
        *(tensor(f"{prefix}cell_to_{gate}_weights", omittable=True) for gate in GATES if gate != "cell"),
        *(tensor(f"{prefix}{gate}_gate_bias", omittable=gate == "input") for gate in GATES),
        tensor(f"{prefix}projection_weights", omittable=True),
        tensor(f"{prefix}projection_bias", omittable=True),
    )


def _states(prefix: str = "") -> tuple[Slot, ...]:
    return (tensor(f"{prefix}output_state_in"), tensor(f"{prefix}cell_state_in"))


def _layer_norm(prefix: str = "", *, group: str = "") -> tuple[Slot, ...]:
    """Layer normalization's weights; with a ``group`` a model may leave all four out."""
    return tuple(
        Slot(
            f"{prefix}{gate}_layer_norm_weights",
            Role.TENSOR,
            default=None,
            optional=bool(group),
            group=group,
            omittable=True,
        )
        for gate in GATES
    )


_CLIPS = (scalar("cell_clip", None, default=0.0), scalar("projection_clip", None, default=0.0))
_ACTIVATION = scalar("activation")
_FLOATS = ((OperandCode.TENSOR_FLOAT32, OperandCode.FLOAT32), (OperandCode.TENSOR_FLOAT16, OperandCode.FLOAT16))


def _floats(slots: Iterable[Slot], outputs: Iterable[Slot], since: int) -> tuple[TypeRow, ...]:
    """Type rows: every tensor and clip float32, or (from level 3) float16."""
    rows = []
    for level, (tensor_code, scalar_code) in zip((since, max(since, 3)), _FLOATS, strict=True):
        codes = {
            slot.name: tensor_code if slot.role is Role.TENSOR else scalar_code
            for slot in (*slots, *outputs)
            if slot.code is None
        }
        rows.append(TypeRow(codes, level))
    return tuple(rows)


# -- what must fit -----------------------------------------------------------------------------------------------------


def expect_shapes(bound: Bound, expected: Mapping[str, Shape]) -> None:
    """Refuse present operands of other shapes than these."""
    for name, shape in expected.items():
        if bound.has(name) and bound.shape(name) != shape:
            raise RuleError(f"operand {name!r} has shape {list(bound.shape(name))}, it must be {list(shape)}")


def _is_sure(bound: Bound, name: str) -> bool:
    """Whether an operand is there in every run."""
    argument = bound.arguments.get(name)
    return argument is not None and argument.certain


def _all_or_none(bound: Bound, what: str, names: Sequence[str]) -> bool | None:
    """Whether these operands are there, None where only the run will tell; RuleError when only some are."""
    absent = [name for name in names if not bound.has(name)]
    sure = [name for name in names if _is_sure(bound, name)]
    if absent and sure:
        raise RuleError(f"operand {absent[0]!r} is omitted but {sure[0]!r} is not; {what} needs all of them or none")
    return True if sure else False if absent else None


def _matrix(bound: Bound, name: str) -> tuple[int, int]:
    shape = bound.shape(name)
    if len(shape) != 2:
        raise RuleError(f"operand {name!r} has shape {list(shape)}, it must be a matrix")
    return shape[0], shape[1]


def cell_presence(bound: Bound, prefix: str = "") -> None:
    """Which of a cell's optional operands come together."""
    names = ("input_to_input_weights", "recurrent_to_input_weights", "input_gate_bias")
    input_gate = _all_or_none(bound, "an input gate", [prefix + name for name in names])
    gates = [gate for gate in GATES if gate != "input" or input_gate]
    peepholes = [f"{prefix}cell_to_{gate}_weights" for gate in gates if gate != "cell"]
    peephole = _all_or_none(bound, "a peephole", peepholes)
    if peephole is False and _is_sure(bound, f"{prefix}cell_to_input_weights"):
        raise RuleError(f"operand '{prefix}cell_to_input_weights' needs the other peepholes")
    _all_or_none(bound, "layer normalization", [f"{prefix}{gate}_layer_norm_weights" for gate in gates])
    if input_gate is False and _is_sure(bound, f"{prefix}input_layer_norm_weights"):
        raise RuleError(f"operand '{prefix}input_layer_norm_weights' must be omitted, as there is no input gate")
    if not bound.has(f"{prefix}projection_weights") and _is_sure(bound, f"{prefix}projection_bias"):
        raise RuleError(f"operand '{prefix}projection_bias' needs '{prefix}projection_weights'")
    for clip in ("cell_clip", "projection_clip"):
        if bound.scalar(clip) < 0:
            raise RuleError(f"operand {clip!r} is {bound.scalar(clip)}, it must not be negative (0 does not clip)")


def cell_shapes(bound: Bound, prefix: str, batch: int, input_size: int) -> tuple[int, int]:
    """Check the shapes of an LSTM cell's operands.

    Returns:
        The number of its cells, and the size of its output.
    """
    cells, _ = _matrix(bound, f"{prefix}input_to_output_weights")
    _, outputs = _matrix(bound, f"{prefix}recurrent_to_output_weights")
    expected: dict[str, Shape] = {"projection_weights": (outputs, cells), "projection_bias": (outputs,)}
    for gate in GATES:
        expected[f"input_to_{gate}_weights"] = (cells, input_size)
        expected[f"recurrent_to_{gate}_weights"] = (cells, outputs)
        expected[f"cell_to_{gate}_weights"] = expected[f"{gate}_gate_bias"] = (cells,)
        expected[f"{gate}_layer_norm_weights"] = (cells,)
    expected["output_state_in"], expected["cell_state_in"] = (batch, outputs), (batch, cells)
    expect_shapes(bound, {prefix + name: shape for name, shape in expected.items()})
    if not bound.has(f"{prefix}projection_weights") and outputs != cells:
        raise RuleError(f"an output of {outputs} from {cells} cells needs '{prefix}projection_weights'")
    return cells, outputs


def _writes_layer_norm(bound: Bound) -> int | None:
    """LSTM's operands of layer normalization came with level 3, which their places alone need, omitted or not."""
    return 3 if "output_layer_norm_weights" in bound.arguments else None


def _activates(*allowed: int) -> Callable[[Bound], None]:
    """A rule: the activation is one of these."""

    def rule(bound: Bound) -> None:
        if bound.scalar("activation") not in allowed:
            text = ", ".join(map(str, allowed))
            raise RuleError(f"operand 'activation' is {bound.scalar('activation')}, it must be one of {text}")

    return rule


_CELL_ACTIVATION = _activates(LINEAR, RELU, RELU6, TANH, SIGMOID)


def _steps(bound: Bound) -> tuple[int, int, int]:
    """(time, batch, size) of a sequence's input."""
    first, second, size = bound.shape("input")
    major = bound.scalar("time_major")
    if major not in (0, 1):
        raise RuleError(f"operand 'time_major' is {major}, it must be 0 or 1")
    return (first, second, size) if major else (second, first, size)


def _sequence(bound: Bound, size: int) -> Shape:
    """Shape of a sequence's output."""
    return (*bound.shape("input")[:2], size)


def _with_states(bound: Bound, outputs: list[Shape], states: list[Shape]) -> list[Shape]:
    """The outputs, with the states that an operation gives from level 4 on when it has as many outputs."""
    counts = (len(outputs), len(outputs) + len(states))
    if bound.outputs and len(bound.outputs) not in counts:
        raise RuleError(f"it has {len(bound.outputs)} outputs, it must have {counts[0]} or, with states, {counts[1]}")
    return outputs + states if len(bound.outputs) == counts[1] else outputs


# -- RNN ---------------------------------------------------------------------------------------------------------------


def _rnn_units(bound: Bound, prefix: str, batch: int, input_size: int) -> int:
    units, _ = _matrix(bound, f"{prefix}weights")
    expected: dict[str, Shape] = {
        "weights": (units, input_size),
        "recurrent_weights": (units, units),
        "bias": (units,),
        "hidden_state_in": (batch, units),
    }
    expect_shapes(bound, {prefix + name: shape for name, shape in expected.items()})
    return units


def _rnn(bound: Bound) -> list[Shape]:
    batch, size = _matrix(bound, "input")
    units = _rnn_units(bound, "", batch, size)
    return [(batch, units)] * 2


def _sequence_rnn(bound: Bound) -> list[Shape]:
    _, batch, size = _steps(bound)
    units = _rnn_units(bound, "", batch, size)
    return _with_states(bound, [_sequence(bound, units)], [(batch, units)])


def _auxiliary(bound: Bound, names: Sequence[str]) -> int | None:
    """Size of the auxiliary input where it is multiplied by weights, None where there are none.

    Without weights it is the input of the backward pass instead.
    """
    weighted = _all_or_none(bound, "the auxiliary input", names) is not False
    if not bound.has("aux_input"):
        if any(_is_sure(bound, name) for name in names):
            raise RuleError(f"operand {names[0]!r} needs 'aux_input'")
        return None
    shape, like = bound.shape("aux_input"), bound.shape("input")
    if len(shape) != 3 or shape[:2] != like[:2]:
        raise RuleError(f"operand 'aux_input' has shape {list(shape)}, it must be {[*like[:2], 'any']}")
    return shape[2] if weighted else None


def _backward_size(bound: Bound, size: int, auxiliary: int | None) -> int:
    return bound.shape("aux_input")[2] if bound.has("aux_input") and auxiliary is None else size


def _both_outputs(bound: Bound, forward: int, backward: int) -> list[Shape]:
    if bound.scalar("merge_outputs"):
        return [_sequence(bound, forward + backward)]
    return [_sequence(bound, forward), _sequence(bound, backward)]


def _bidirectional_rnn(bound: Bound) -> list[Shape]:
    _, batch, size = _steps(bound)
    auxiliary = _auxiliary(bound, ("fw_aux_weights", "bw_aux_weights"))
    forward = _rnn_units(bound, "fw_", batch, size)
    backward = _rnn_units(bound, "bw_", batch, _backward_size(bound, size, auxiliary))
    if auxiliary is not None:
        expect_shapes(bound, {"fw_aux_weights": (forward, auxiliary), "bw_aux_weights": (backward, auxiliary)})
    return _with_states(bound, _both_outputs(bound, forward, backward), [(batch, forward), (batch, backward)])


# -- LSTM --------------------------------------------------------------------------------------------------------------


def _lstm(bound: Bound) -> list[Shape]:
    batch, size = _matrix(bound, "input")
    cells, outputs = cell_shapes(bound, "", batch, size)
    gates = len(GATES) - (not bound.has("input_to_input_weights"))
    return [(batch, gates * cells), (batch, outputs), (batch, cells), (batch, outputs)]


def _sequence_lstm(bound: Bound) -> list[Shape]:
    _, batch, size = _steps(bound)
    cells, outputs = cell_shapes(bound, "", batch, size)
    return _with_states(bound, [_sequence(bound, outputs)], [(batch, outputs), (batch, cells)])


def _bidirectional_lstm(bound: Bound) -> list[Shape]:
    _, batch, size = _steps(bound)
    gates = [gate for gate in GATES if gate != "input" or bound.has("fw_input_to_input_weights")]
    names = [f"{prefix}aux_to_{gate}_weights" for prefix in ("fw_", "bw_") for gate in gates]
    auxiliary = _auxiliary(bound, names)
    sizes = {"fw_": size, "bw_": _backward_size(bound, size, auxiliary)}
    shapes = {prefix: cell_shapes(bound, prefix, batch, sizes[prefix]) for prefix in sizes}
    if auxiliary is not None:
        for prefix, (cells, _) in shapes.items():
            expect_shapes(bound, {f"{prefix}aux_to_{gate}_weights": (cells, auxiliary) for gate in GATES})
    outputs = _both_outputs(bound, shapes["fw_"][1], shapes["bw_"][1])
    return _with_states(bound, outputs, [(batch, n) for cells, out in shapes.values() for n in (out, cells)])


# -- SVDF --------------------------------------------------------------------------------------------------------------


def _svdf(bound: Bound) -> list[Shape]:
    batch, size = _matrix(bound, "input")
    filters, _ = _matrix(bound, "weights_feature")
    _, memory = _matrix(bound, "weights_time")
    rank = int(bound.scalar("rank"))
    if rank < 1 or filters % rank:
        raise RuleError(f"operand 'rank' is {rank}, which does not divide the {filters} filters")
    units = filters // rank
    expected: dict[str, Shape] = {
        "weights_feature": (filters, size),
        "weights_time": (filters, memory),
        "bias": (units,),
        "state_in": (batch, memory * filters),
    }
    expect_shapes(bound, expected)
    return [(batch, memory * filters), (batch, units)]


def _row(
    code: OperationCode,
    since: int,
    slots: tuple[Slot, ...],
    outputs: tuple[Slot, ...],
    shapes: Callable[[Bound], list[Shape]],
    *,
    rank: int,
    prefixes: tuple[str, ...] = (),
    rules: tuple[Rule, ...] = (_CELL_ACTIVATION,),
    doc: str,
) -> Schema:
    """A row of floats whose input has ``rank``; ``prefixes`` are those of its LSTM cells."""
    presence = [functools.partial(cell_presence, prefix=prefix) for prefix in prefixes]
    return Schema(
        code,
        since,
        (Form("", slots),),
        outputs,
        _floats(slots, outputs, since),
        shapes,
        ranks={"input": Rank(rank, rank)},
        rules=(*rules, *presence),
        doc=doc,
    )


def _state_outputs(*names: str) -> tuple[Slot, ...]:
    """Outputs that came with level 4 and may be left out."""
    return tuple(tensor(name, since=4, omittable=True) for name in names)


_RNN = tuple(tensor(name) for name in ("weights", "recurrent_weights", "bias", "hidden_state_in"))
_BOTH_RNN = tuple(tensor(prefix + slot.name) for prefix in ("fw_", "bw_") for slot in _RNN)
_BOTH_LSTM = (*lstm_weights("fw_"), *lstm_weights("bw_"), *_states("fw_"), *_states("bw_"))
_AUX_LSTM = tuple(
    tensor(f"{prefix}aux_to_{gate}_weights", omittable=True) for prefix in ("fw_", "bw_") for gate in GATES
)
_BOOLEANS = {name: scalar(name, OperandCode.BOOL) for name in ("time_major", "merge_outputs")}

register(
    _row(
        OperationCode.RNN,
        1,
        (tensor("input"), *_RNN, _ACTIVATION),
        (tensor("hidden_state_out"), tensor("output")),
        _rnn,
        rank=2,
        doc="One step of a recurrent layer: activation(input·weightsᵀ + state·recurrent_weightsᵀ + bias).",
    ),
    _row(
        OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN,
        3,
        (tensor("input"), *_RNN, _ACTIVATION, scalar("time_major")),
        (tensor("output"), *_state_outputs("hidden_state_out")),
        _sequence_rnn,
        rank=3,
        doc="RNN over a sequence.",
    ),
    _row(
        OperationCode.BIDIRECTIONAL_SEQUENCE_RNN,
        3,
        (
            tensor("input"),
            *_BOTH_RNN,
            *(tensor(name, omittable=True) for name in ("aux_input", "fw_aux_weights", "bw_aux_weights")),
            _ACTIVATION,
            _BOOLEANS["time_major"],
            _BOOLEANS["merge_outputs"],
        ),
        (
            tensor("fw_output"),
            tensor("bw_output", omittable=True),
            *_state_outputs("fw_hidden_state_out", "bw_hidden_state_out"),
        ),
        _bidirectional_rnn,
        rank=3,
        doc="RNN over a sequence in both directions; merge_outputs joins the two results in one output.",
    ),
    _row(
        OperationCode.LSTM,
        1,
        (
            tensor("input"),
            *lstm_weights(),
            *_states(),
            _ACTIVATION,
            *_CLIPS,
            *_layer_norm(group="layer normalization"),
        ),
        tuple(tensor(name) for name in ("scratch_buffer", "output_state_out", "cell_state_out", "output")),
        _lstm,
        rank=2,
        prefixes=("",),
        rules=(_CELL_ACTIVATION, _writes_layer_norm),
        doc="One step of an LSTM, with peepholes, projection and layer normalization where their weights are given.",
    ),
    _row(
        OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
        3,
        (
            tensor("input"),
            *lstm_weights(),
            *_states(),
            _ACTIVATION,
            *_CLIPS,
            _BOOLEANS["time_major"],
            *_layer_norm(),
        ),
        (tensor("output"), *_state_outputs("output_state_out", "cell_state_out")),
        _sequence_lstm,
        rank=3,
        prefixes=("",),
        doc="LSTM over a sequence.",
    ),
    _row(
        OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM,
        3,
        (
            tensor("input"),
            *_BOTH_LSTM,
            tensor("aux_input", omittable=True),
            *_AUX_LSTM,
            _ACTIVATION,
            *_CLIPS,
            _BOOLEANS["merge_outputs"],
            _BOOLEANS["time_major"],
            *_layer_norm("fw_"),
            *_layer_norm("bw_"),
        ),
        (
            tensor("fw_output"),
            tensor("bw_output", omittable=True),
            *_state_outputs("fw_output_state_out", "fw_cell_state_out", "bw_output_state_out", "bw_cell_state_out"),
        ),
        _bidirectional_lstm,
        rank=3,
        prefixes=("fw_", "bw_"),
        doc="LSTM over a sequence in both directions; merge_outputs joins the two results in one output.",
    ),
    _row(
        OperationCode.SVDF,
        1,
        (
            tensor("input"),
            tensor("weights_feature"),
            tensor("weights_time"),
            tensor("bias", omittable=True),
            tensor("state_in"),
            scalar("rank"),
            _ACTIVATION,
        ),
        (tensor("state_out"), tensor("output")),
        _svdf,
        rank=2,
        rules=(_activates(LINEAR, RELU, RELU1, RELU6, TANH, SIGMOID),),
        doc="A dense layer of low rank over the last inputs, which the state remembers.",
    ),
)
