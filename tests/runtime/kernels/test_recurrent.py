from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.nnapi import validate
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.schema import SCHEMAS
from onnx2nnapi.runtime import Interpreter
from tests.runtime.kernels.single import model, run

TIME, BATCH, SIZE, CELLS = 5, 2, 3, 4
GATES = ("input", "forget", "cell", "output")
TANH = 4


def rng_array(rng, *shape):
    return rng.uniform(-0.8, 0.8, shape).astype(np.float32)


def onnxruntime_result(op_type, inputs, outputs=2, **attrs):
    """Results of a one-node model in onnxruntime; inputs that are None are omitted."""
    names = ["" if array is None else f"i{index}" for index, array in enumerate(inputs)]
    node = helper.make_node(op_type, names, [f"o{index}" for index in range(outputs)], **attrs)
    constants = [
        numpy_helper.from_array(array, name) for name, array in zip(names, inputs, strict=True) if array is not None
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    graph = helper.make_graph([node], "one", [], results, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {})


# -- RNN ---------------------------------------------------------------------------------------------------------------


def rnn_weights(rng, directions=1):
    return [
        {
            "weights": rng_array(rng, CELLS, SIZE),
            "recurrent_weights": rng_array(rng, CELLS, CELLS),
            "bias": rng_array(rng, CELLS),
            "state": rng_array(rng, BATCH, CELLS),
        }
        for _ in range(directions)
    ]


def onnx_rnn(x, layers, activation):
    direction = "bidirectional" if len(layers) == 2 else "forward"
    stacked = {name: np.stack([layer[name] for layer in layers]) for name in layers[0]}
    bias = np.concatenate([stacked["bias"], np.zeros_like(stacked["bias"])], axis=1)
    y, last = onnxruntime_result(
        "RNN",
        [x, stacked["weights"], stacked["recurrent_weights"], bias, None, stacked["state"]],
        hidden_size=CELLS,
        direction=direction,
        activations=[activation] * len(layers),
    )
    return y, last


@pytest.mark.parametrize(("code", "name"), [(0, "Affine"), (1, "Relu"), (TANH, "Tanh"), (6, "Sigmoid")])
def test_rnn_equals_onnxruntime(code, name):
    rng = np.random.default_rng(code)
    x, (layer,) = rng_array(rng, 1, BATCH, SIZE), rnn_weights(rng)
    y, _ = onnx_rnn(x, [layer], name) if name != "Affine" else (None, None)
    if y is None:
        expected = x[0] @ layer["weights"].T + layer["state"] @ layer["recurrent_weights"].T + layer["bias"]
    else:
        expected = y[0, 0]
    for result in run("RNN", x[0], *layer.values(), activation=code):  # the state is the output
        np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize("time_major", [0, 1])
@pytest.mark.parametrize("outputs", [1, 2])
def test_sequence_rnn_equals_onnxruntime(time_major, outputs):
    rng = np.random.default_rng(2)
    x, (layer,) = rng_array(rng, TIME, BATCH, SIZE), rnn_weights(rng)
    y, last = onnx_rnn(x, [layer], "Tanh")
    given = x if time_major else x.swapaxes(0, 1)
    results = run(
        "UNIDIRECTIONAL_SEQUENCE_RNN", given, *layer.values(), activation=TANH, time_major=time_major, outputs=outputs
    )
    sequence = results if outputs == 1 else results[0]
    np.testing.assert_allclose(sequence if time_major else sequence.swapaxes(0, 1), y[:, 0], atol=1e-6)
    if outputs == 2:
        np.testing.assert_allclose(results[1], last[0], atol=1e-6)


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("states", [False, True])
def test_bidirectional_rnn_equals_onnxruntime(merge, states):
    rng = np.random.default_rng(3)
    x, layers = rng_array(rng, TIME, BATCH, SIZE), rnn_weights(rng, 2)
    y, last = onnx_rnn(x, layers, "Tanh")
    tensors = [x, *layers[0].values(), *layers[1].values(), None, None, None]
    how = {"activation": TANH, "time_major": True, "merge_outputs": merge, "outputs": 2 - merge + 2 * states}
    results = run("BIDIRECTIONAL_SEQUENCE_RNN", *tensors, **how)
    results = [results] if merge and not states else results
    joined = np.concatenate(results[: 2 - merge], axis=-1)
    np.testing.assert_allclose(joined, np.concatenate([y[:, 0], y[:, 1]], axis=-1), atol=1e-6)
    if states:
        np.testing.assert_allclose(np.stack(results[-2:]), last, atol=1e-6)


def test_bidirectional_rnn_reads_the_auxiliary_input_backward_or_through_its_weights():
    rng = np.random.default_rng(4)
    x, aux, layers = rng_array(rng, TIME, BATCH, SIZE), rng_array(rng, TIME, BATCH, SIZE), rnn_weights(rng, 2)
    weights = [rng_array(rng, CELLS, SIZE) for _ in layers]
    how = {"activation": TANH, "time_major": True, "merge_outputs": False, "outputs": 2}
    common = [*layers[0].values(), *layers[1].values()]
    parallel = run("BIDIRECTIONAL_SEQUENCE_RNN", x, *common, aux, None, None, **how)
    np.testing.assert_allclose(parallel[1], onnx_rnn(aux, layers, "Tanh")[0][:, 1], atol=1e-6)
    crossed = run("BIDIRECTIONAL_SEQUENCE_RNN", x, *common, aux, *weights, **how)
    wide = [  # the two inputs side by side are one
        {**layer, "weights": np.concatenate([layer["weights"], extra], axis=1)}
        for layer, extra in zip(layers, weights, strict=True)
    ]
    expected = onnx_rnn(np.concatenate([x, aux], axis=-1), wide, "Tanh")[0]
    np.testing.assert_allclose(np.stack(crossed, axis=1), expected, atol=1e-6)


@pytest.mark.parametrize("activation", [-1, 2, 5, 7])
def test_rnn_refuses_other_activations(activation):
    rng = np.random.default_rng(5)
    with pytest.raises(InvalidModelError, match=f"'activation' is {activation}, it must be one of 0, 1, 3, 4, 6"):
        run("RNN", rng_array(rng, BATCH, SIZE), *rnn_weights(rng)[0].values(), activation=activation)


# -- LSTM --------------------------------------------------------------------------------------------------------------


class Cell:
    """Random weights of an LSTM cell, by NNAPI's names."""

    def __init__(self, seed, *, coupled=False, peephole=False, projection=None, bias=True, norm=False, size=SIZE):
        rng = np.random.default_rng(seed)
        self.outputs = projection or CELLS
        self.tensors = {}
        for gate in GATES:
            here = not (coupled and gate == "input")
            self.tensors[f"input_to_{gate}_weights"] = rng_array(rng, CELLS, size) if here else None
            self.tensors[f"recurrent_to_{gate}_weights"] = rng_array(rng, CELLS, self.outputs) if here else None
            self.tensors[f"cell_to_{gate}_weights"] = rng_array(rng, CELLS) if here and peephole else None
            self.tensors[f"{gate}_gate_bias"] = rng_array(rng, CELLS) if here else None
            self.tensors[f"{gate}_layer_norm_weights"] = rng_array(rng, CELLS) if here and norm else None
            self.tensors[f"aux_to_{gate}_weights"] = None
        self.tensors["projection_weights"] = rng_array(rng, projection, CELLS) if projection else None
        self.tensors["projection_bias"] = rng_array(rng, projection) if projection and bias else None
        self.tensors["output_state_in"] = rng_array(rng, BATCH, self.outputs)
        self.tensors["cell_state_in"] = rng_array(rng, BATCH, CELLS)

    def __getitem__(self, name):
        return self.tensors[name]


def tensors_of(name, given):
    """Tensors in the order of a row; ``given`` by name."""
    form = SCHEMAS[OperationCode[name]].forms[0]
    return [given[slot.name] for slot in form.slots if slot.role.value == "tensor"]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(cell, x, *, cell_clip=0.0, projection_clip=0.0, activation=np.tanh, backward=False, aux=None):
    """The LSTM of NNAPI's documentation in float64, step by step."""
    h, c = cell["output_state_in"].astype(np.float64), cell["cell_state_in"].astype(np.float64)
    outputs = np.zeros((*x.shape[:2], cell.outputs))
    for t in range(len(x))[:: -1 if backward else 1]:

        def gate(name, state):
            total = x[t] @ cell[f"input_to_{name}_weights"].T + h @ cell[f"recurrent_to_{name}_weights"].T  # noqa: B023
            if aux is not None:
                total = total + aux[t] @ cell[f"aux_to_{name}_weights"].T  # noqa: B023
            if cell[f"cell_to_{name}_weights"] is not None:
                total = total + state * cell[f"cell_to_{name}_weights"]
            weights = cell[f"{name}_layer_norm_weights"]
            if weights is not None:
                total = (total - total.mean(-1, keepdims=True)) / np.sqrt(total.var(-1, keepdims=True) + 1e-8) * weights
            return total + cell[f"{name}_gate_bias"]

        forget = sigmoid(gate("forget", c))
        admit = sigmoid(gate("input", c)) if cell["input_to_input_weights"] is not None else 1 - forget
        candidate = activation(gate_without_peephole(gate))
        c = forget * c + admit * candidate
        if cell_clip:
            c = np.clip(c, -cell_clip, cell_clip)
        h = sigmoid(gate("output", c)) * activation(c)
        if cell["projection_weights"] is not None:
            h = h @ cell["projection_weights"].T
            if cell["projection_bias"] is not None:
                h = h + cell["projection_bias"]
            if projection_clip:
                h = np.clip(h, -projection_clip, projection_clip)
        outputs[t] = h
    return outputs, h, c


def gate_without_peephole(gate):
    return gate("cell", 0)


VARIANTS = {
    "plain": {},
    "coupled": {"coupled": True},
    "peephole": {"peephole": True},
    "projection": {"projection": 3},
    "projection without bias": {"projection": 6, "bias": False},
    "layer normalization": {"norm": True},
    "everything": {"peephole": True, "projection": 3, "norm": True},
    "everything coupled": {"coupled": True, "peephole": True, "projection": 3, "norm": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("constant", [False, True])
def test_lstm_step(variant, constant):
    cell, x = Cell(1, **VARIANTS[variant]), rng_array(np.random.default_rng(9), 1, BATCH, SIZE)
    cell.tensors["cell_to_cell_weights"] = None
    how = {"activation": TANH, "cell_clip": 0.3, "projection_clip": 0.2}
    tensors = tensors_of("LSTM", cell.tensors | {"input": x[0]})
    scratch, output_state, cell_state, output = run("LSTM", *tensors, **how, constant=constant)
    _, h, c = reference(cell, x.astype(np.float64), cell_clip=0.3, projection_clip=0.2)
    np.testing.assert_allclose(output, h, atol=2e-6)
    np.testing.assert_array_equal(output_state, output)
    np.testing.assert_allclose(cell_state, c, atol=2e-6)
    assert scratch.shape == (BATCH, CELLS * (3 if "coupled" in variant else 4))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("time_major", [False, True])
def test_sequence_lstm(variant, time_major):
    cell, x = Cell(2, **VARIANTS[variant]), rng_array(np.random.default_rng(8), TIME, BATCH, SIZE)
    cell.tensors["cell_to_cell_weights"] = None
    given = x if time_major else x.swapaxes(0, 1)
    tensors = tensors_of("UNIDIRECTIONAL_SEQUENCE_LSTM", cell.tensors | {"input": given})
    y, h, c = run("UNIDIRECTIONAL_SEQUENCE_LSTM", *tensors, activation=TANH, time_major=time_major, outputs=3)
    expected = reference(cell, x.astype(np.float64))
    np.testing.assert_allclose(y if time_major else y.swapaxes(0, 1), expected[0], atol=2e-6)
    np.testing.assert_allclose(h, expected[1], atol=2e-6)
    np.testing.assert_allclose(c, expected[2], atol=2e-6)


@pytest.mark.parametrize("peephole", [False, True])
def test_bidirectional_lstm_equals_onnxruntime(peephole):
    cells = {"fw_": Cell(3, peephole=peephole), "bw_": Cell(4, peephole=peephole)}
    x = rng_array(np.random.default_rng(7), TIME, BATCH, SIZE)
    order = ("input", "output", "forget", "cell")  # ONNX's

    def stacked(pattern, gates=order):
        return np.stack([np.concatenate([cell[pattern.format(gate)] for gate in gates]) for cell in cells.values()])

    bias = np.concatenate([stacked("{}_gate_bias"), np.zeros((2, 4 * CELLS), np.float32)], axis=1)
    states = [np.stack([cell[name] for cell in cells.values()]) for name in ("output_state_in", "cell_state_in")]
    peepholes = stacked("cell_to_{}_weights", order[:3]) if peephole else None
    y, last_h, last_c = onnxruntime_result(
        "LSTM",
        [x, stacked("input_to_{}_weights"), stacked("recurrent_to_{}_weights"), bias, None, *states, peepholes],
        outputs=3,
        hidden_size=CELLS,
        direction="bidirectional",
    )
    given = {prefix + name: array for prefix, cell in cells.items() for name, array in cell.tensors.items()}
    tensors = tensors_of("BIDIRECTIONAL_SEQUENCE_LSTM", given | {"input": x, "aux_input": None})
    how = {"activation": TANH, "time_major": True, "merge_outputs": False, "outputs": 6}
    forward, backward, fw_h, fw_c, bw_h, bw_c = run("BIDIRECTIONAL_SEQUENCE_LSTM", *tensors, **how)
    np.testing.assert_allclose(np.stack([forward, backward], axis=1), y, atol=2e-6)
    np.testing.assert_allclose([fw_h, bw_h], last_h, atol=2e-6)
    np.testing.assert_allclose([fw_c, bw_c], last_c, atol=2e-6)


@pytest.mark.parametrize("linked", ["parallel", "cross"])
def test_bidirectional_lstm_with_an_auxiliary_input(linked):
    rng = np.random.default_rng(6)
    cells = {"fw_": Cell(5), "bw_": Cell(6)}
    x, aux = rng_array(rng, TIME, BATCH, SIZE), rng_array(rng, TIME, BATCH, SIZE)
    if linked == "cross":
        for cell in cells.values():
            cell.tensors |= {f"aux_to_{gate}_weights": rng_array(rng, CELLS, SIZE) for gate in GATES}
    given = {prefix + name: array for prefix, cell in cells.items() for name, array in cell.tensors.items()}
    tensors = tensors_of("BIDIRECTIONAL_SEQUENCE_LSTM", given | {"input": x, "aux_input": aux})
    merged = run(
        "BIDIRECTIONAL_SEQUENCE_LSTM", *tensors, activation=TANH, time_major=True, merge_outputs=True, outputs=1
    )
    more = {"aux": aux} if linked == "cross" else {}
    forward = reference(cells["fw_"], x, **more)[0]
    backward = reference(cells["bw_"], x if linked == "cross" else aux, backward=True, **more)[0]
    np.testing.assert_allclose(merged, np.concatenate([forward, backward], axis=-1), atol=2e-6)


def test_lstm_without_activation_gates_its_candidate_as_android_does():
    cell, x = Cell(7), rng_array(np.random.default_rng(5), BATCH, SIZE)
    tensors = tensors_of("LSTM", cell.tensors | {"input": x})
    _, _, _, output = run("LSTM", *tensors, activation=0)

    def total(gate):
        through = x @ cell[f"input_to_{gate}_weights"].T
        return through + cell["output_state_in"] @ cell[f"recurrent_to_{gate}_weights"].T + cell[f"{gate}_gate_bias"]

    np.testing.assert_allclose(output, sigmoid(total("output")) * total("cell"), atol=2e-6)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"recurrent_to_input_weights": None}, "an input gate needs all of them or none"),
        ({"cell_to_output_weights": np.ones(CELLS, np.float32)}, "a peephole needs all of them or none"),
        ({"forget_layer_norm_weights": np.ones(CELLS, np.float32)}, "layer normalization needs all of them or none"),
        ({"projection_bias": np.ones(CELLS, np.float32)}, "needs 'projection_weights'"),
        ({"forget_gate_bias": np.ones(CELLS + 1, np.float32)}, r"shape \[5\], it must be \[4\]"),
        ({"cell_state_in": np.ones((BATCH + 1, CELLS), np.float32)}, r"must be \[2, 4\]"),
    ],
)
def test_lstm_refuses_what_does_not_fit(changes, what):
    cell, x = Cell(8), rng_array(np.random.default_rng(4), BATCH, SIZE)
    with pytest.raises(InvalidModelError, match=what):
        run("LSTM", *tensors_of("LSTM", cell.tensors | {"input": x} | changes), activation=TANH)


def test_float16_states_are_kept_in_float32_between_the_steps():
    cell, x = Cell(9), rng_array(np.random.default_rng(3), 200, BATCH, SIZE)
    halves = {name: None if array is None else array.astype(np.float16) for name, array in cell.tensors.items()}
    given = tensors_of("UNIDIRECTIONAL_SEQUENCE_LSTM", halves | {"input": x.astype(np.float16)})
    result = run("UNIDIRECTIONAL_SEQUENCE_LSTM", *given, activation=TANH, time_major=True, outputs=1)
    wide = tensors_of(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        {name: None if array is None else array.astype(np.float32) for name, array in halves.items()}
        | {"input": x.astype(np.float16).astype(np.float32)},
    )
    exact = run("UNIDIRECTIONAL_SEQUENCE_LSTM", *wide, activation=TANH, time_major=True, outputs=1)
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, exact.astype(np.float16))


# -- SVDF --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
def test_svdf_is_a_dense_layer_over_remembered_features(bias):
    rng = np.random.default_rng(2)
    rank, units, memory = 2, 3, 4
    feature, time = rng_array(rng, units * rank, SIZE), rng_array(rng, units * rank, memory)
    shift = rng_array(rng, units) if bias else None
    state = np.zeros((BATCH, units * rank * memory), np.float32)
    inputs = rng_array(rng, 6, BATCH, SIZE)
    for step, x in enumerate(inputs):
        state, output = run("SVDF", x, feature, time, shift, state, rank=rank, activation=1)
        past = inputs[max(0, step - memory + 1) : step + 1]  # the features of the last inputs, the newest last
        features = np.einsum("tbi,fi->bft", past, feature)
        filtered = (features * time[:, memory - len(past) :]).sum(axis=-1).reshape(BATCH, units, rank).sum(axis=-1)
        np.testing.assert_allclose(output, np.maximum(filtered + (0 if shift is None else shift), 0), atol=1e-6)


def test_the_input_gates_weights_may_be_omitted_when_the_model_runs():
    cell, x = Cell(10), rng_array(np.random.default_rng(1), BATCH, SIZE)
    made = model("LSTM", *tensors_of("LSTM", cell.tensors | {"input": x}), activation=TANH)
    assert validate(made) == 3  # the outputs' rank is left open
    coupled = Cell(10)
    for name in ("input_to_input_weights", "recurrent_to_input_weights", "input_gate_bias"):
        coupled.tensors[name] = None
    form = SCHEMAS[OperationCode.LSTM].forms[0]
    fed = [slot.name for slot in form.slots if slot.role.value == "tensor" and cell.tensors.get(slot.name) is not None]
    _, _, _, output = Interpreter(made).run([x, *(coupled[name] for name in fed)])
    np.testing.assert_allclose(output, reference(coupled, x[np.newaxis].astype(np.float64))[1], atol=2e-6)
    coupled.tensors["input_gate_bias"] = cell["input_gate_bias"]
    with pytest.raises(InvalidModelError, match="an input gate needs all of them or none"):
        Interpreter(made).run([x, *(coupled[name] for name in fed)])
