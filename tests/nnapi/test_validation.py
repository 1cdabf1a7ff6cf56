from __future__ import annotations

import copy
import functools
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx2nnapi.errors import InvalidModelError, Onnx2NnapiError
from onnx2nnapi.nnapi import Model, validate
from onnx2nnapi.nnapi.validation import execution_order
from onnx2nnapi.runtime import Interpreter
from tests.nnapi.descriptions import (
    LEVELS,
    VALID,
    Description,
    branch,
    chain,
    f32,
    graph,
    i32,
    loop,
    model,
    operand,
    per_channel,
    quantized,
    u8,
)


def level(description: Description) -> int:
    return validate(Model.from_dict(description))


def refusal(description: Description) -> str:
    with pytest.raises(InvalidModelError) as info:
        level(description)
    return str(info.value)


@pytest.mark.parametrize("name", VALID)
def test_the_level_of_a_valid_model(name: str) -> None:
    assert level(VALID[name]()) == LEVELS[name]


# -- operands ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scale": 0.5}, ["operand 0 'x'", "scale is 0.5", "TENSOR_FLOAT32 must be 0"]),
        ({"zero_point": 1}, ["operand 0 'x'", "zero point is 1", "must be 0"]),
        ({"type": "TENSOR_QUANT8_ASYMM"}, ["operand 0 'x'", "scale is 0.0", "positive"]),
        ({"type": "TENSOR_QUANT8_ASYMM", "scale": -1.0}, ["scale is -1.0", "positive"]),
        ({"type": "TENSOR_QUANT8_ASYMM", "scale": 1e-60}, ["scale is 1e-60", "float32"]),
        ({"type": "TENSOR_QUANT8_ASYMM", "scale": 1.0, "zero_point": 256}, ["zero point is 256", "0 to 255"]),
        ({"type": "TENSOR_QUANT8_ASYMM_SIGNED", "scale": 1.0, "zero_point": 128}, ["128", "-128 to 127"]),
        ({"type": "TENSOR_QUANT16_SYMM", "scale": 1.0, "zero_point": 1}, ["zero point is 1", "must be 0"]),
        ({"type": "TENSOR_INT32", "scale": -1.0}, ["scale is -1.0"]),
        ({"type": "FLOAT32"}, ["operand 0 'x'", "scalar", "[2, 3]"]),
        ({"dimensions": [65536, 65535]}, ["[65536, 65535]", "4294967295 bytes"]),
        ({"dimensions": [0, 65536, 65535]}, ["[0, 65536, 65535]", "4294967295 bytes"]),
        ({"channel_quant": {"channel_dim": 0, "scales": [1.0, 1.0]}}, ["scales of channels", "must not have"]),
    ],
)
def test_an_operands_type_is_held_to_its_rules(change: Description, words: list[str]) -> None:
    description = chain()
    description["main"]["operands"][0] |= change
    message = refusal(description)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"channel_quant": None}, "no scales of channels"),
        ({"channel_quant": {"channel_dim": 4, "scales": [0.5, 0.5]}}, "channel dimension is 4, its rank is 4"),
        ({"channel_quant": {"channel_dim": 0, "scales": [0.5]}}, "1 scales of channels, dimension 0 is 2"),
        ({"channel_quant": {"channel_dim": 0, "scales": [0.5, 0.0]}}, "channel 1 is 0.0, it must be a positive"),
        ({"channel_quant": {"channel_dim": 0, "scales": [0.5, -0.5]}}, "channel 1 is -0.5"),
        ({"scale": 0.5}, "scale is 0.5, that of TENSOR_QUANT8_SYMM_PER_CHANNEL must be 0"),
    ],
)
def test_the_scales_of_channels(change: Description, words: str) -> None:
    description = per_channel()
    description["main"]["operands"][1] |= change
    assert words in refusal(description)


def test_int32_may_have_a_scale_since_biases_do() -> None:
    description = per_channel()
    description["main"]["operands"].append(operand("TENSOR_INT32", [1], "CONSTANT", scale=0.25, value=[0]))
    assert level(description) == 3


@pytest.mark.parametrize("lifetime", ["INPUT", "TEMPORARY"])
def test_a_submodel_has_its_own_lifetime(lifetime: str) -> None:
    description = branch()
    description["main"]["operands"][1]["lifetime"] = lifetime
    assert "SUBGRAPH" in refusal(description) or "MODEL" in refusal(description)


def test_an_unspecified_rank_needs_level_3() -> None:
    description = chain()
    description["main"]["operands"][4]["dimensions"] = []
    assert level(description) == 3


def test_unspecified_sizes_cost_nothing() -> None:
    description = chain()
    for index in (0, 3, 4):
        description["main"]["operands"][index]["dimensions"] = [0, 3]
    assert level(description) == 1


# -- interface and order -----------------------------------------------------------------------------------------------


def edited(make: Callable[[], Description], edit: Callable[[Description], Any]) -> Description:
    description = make()
    edit(description["main"])
    return description


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda main: main.update(inputs=[]), "no model inputs"),
        (lambda main: main.update(outputs=[]), "no model outputs"),
        (lambda main: main.update(operations=[]), "no operations"),
        (lambda main: main.update(inputs=[0, 0]), "operand 0 'x': it is listed twice as model input"),
        (lambda main: main.update(outputs=[4, 4]), "operand 4 'y': it is listed twice as model output"),
        (lambda main: main.update(inputs=[0, 1]), "operand 1 'b': it is listed as model input, but is CONSTANT"),
        (lambda main: main.update(outputs=[4, 0]), "operand 0 'x': it is listed as model output, but is INPUT"),
        (lambda main: main["operands"][3].update(lifetime="INPUT"), "operand 3 'sum': it is INPUT, but not listed"),
        (lambda main: main["operands"].append(f32("TEMPORARY", 1)), "operand 5: no operation writes it"),
        (lambda main: main["operations"].pop(), "operand 4 'y': no operation writes it"),
        (lambda main: main["operations"][1].update(outputs=[3]), "which operation 0 ADD writes too"),
        (lambda main: main["operations"][1].update(outputs=[1]), "which is CONSTANT; it must be TEMPORARY or OUTPUT"),
        (lambda main: main["operations"][0].update(inputs=[4, 1, 2]), "the graph has a cycle"),
        (lambda main: main["operations"][0].update(inputs=[3, 1, 2]), "operation 0 ADD: it depends on its own result"),
    ],
)
def test_what_goes_in_and_out_and_in_which_order(edit: Callable[[Description], Any], words: str) -> None:
    assert words in refusal(edited(chain, edit))


def test_unused_inputs_and_constants_and_results_are_accepted() -> None:
    description = chain()
    main = description["main"]
    main["operands"] += [f32("INPUT", 7), f32("CONSTANT", 1, value=[0]), f32("TEMPORARY", 2, 3)]
    main["inputs"].append(5)
    main["operations"].append({"op": "FLOOR", "inputs": [3], "outputs": [7]})
    assert level(description) == 1


def test_operations_may_stand_in_any_order() -> None:
    description = edited(chain, lambda main: main["operations"].reverse())
    assert level(description) == 1
    assert execution_order(Model.from_dict(description).main) == [1, 0]
    assert execution_order(Model.from_dict(chain()).main) == [0, 1]


# -- operations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda main: main["operations"][0]["inputs"].pop(), ["operation 0 ADD", "takes 3 operands, not 2"]),
        (lambda main: main["operations"][1].update(op="LOGICAL_NOT"), ["operation 1 LOGICAL_NOT", "TENSOR_BOOL8"]),
        (lambda main: main["operands"][2].update(value=[4]), ["operation 0 ADD", "'fuse_code' is 4", "3 (RELU6)"]),
        (
            lambda main: main["operands"][2].update(lifetime="NO_VALUE"),
            ["operation 0 ADD", "'fuse_code' must not be omitted"],
        ),
        (
            lambda main: main["operands"][0].update(dimensions=[1, 3, 1]),
            ["operation 0 ADD", "operand 3 'sum'", "shape [1, 3, 3]", "declared as [2, 3]"],
        ),
        (
            lambda main: main["operands"][4].update(dimensions=[3, 2]),
            ["operation 1 RELU", "operand 4 'y'", "[2, 3]", "declared as [3, 2]"],
        ),
        (
            lambda main: main["operands"][0].update(dimensions=[2, 4]),
            ["operation 0 ADD", "'input1' [2, 4]", "broadcast"],
        ),
        (lambda main: main["operands"][0].update(dimensions=[1, 1, 1, 2, 3]), ["'input1' has rank 5", "1 to 4"]),
    ],
)
def test_an_operation_is_held_to_its_row(edit: Callable[[Description], Any], words: list[str]) -> None:
    message = refusal(edited(chain, edit))
    for word in words:
        assert word in message


def test_sizes_are_followed_through_temporaries_that_have_none() -> None:
    description = chain()
    description["main"]["operands"][3]["dimensions"] = [0, 0]
    description["main"]["operands"][4]["dimensions"] = [2, 4]
    assert "declared as [2, 4]" in refusal(description)


def test_a_results_quantization_must_be_what_the_operation_gives() -> None:
    description = quantized()
    description["main"]["operands"][5]["scale"] = 1 / 128
    assert "must have 0.00390625 and 0" in refusal(description)


def test_a_temporarys_quantization_is_overwritten() -> None:
    operands = [u8("INPUT", 2), u8("TEMPORARY", 2, scale=9.0), u8("OUTPUT", 2)]
    assert level(model(graph(operands, [("RELU", [0], [1]), ("RELU6", [1], [2])]))) == 1


@pytest.mark.parametrize(("scale", "accepted"), [(0.2500001, True), (0.25, False)])
def test_the_scale_of_a_product_is_above_that_of_its_factors(scale: float, accepted: bool) -> None:
    description = quantized()
    description["main"]["operands"][3]["scale"] = scale
    if accepted:
        assert level(description) == 1
    else:
        assert "must be above 0.25" in refusal(description)


def test_an_omitted_operand_keeps_its_type() -> None:
    operands = [
        f32("INPUT", 1, 2),
        operand("TENSOR_FLOAT32", [], "NO_VALUE"),
        f32("OUTPUT", 2),
    ]
    assert "omitted" in refusal(model(graph(operands, [("SQUEEZE", [0, 1], [2])])))
    operands[1]["type"] = "TENSOR_INT32"
    assert level(model(graph(operands, [("SQUEEZE", [0, 1], [2])]))) == 2


def test_relaxed_computation_needs_level_2() -> None:
    assert level(chain() | {"relaxed": True}) == 2


def test_a_message_names_the_onnx_nodes() -> None:
    description = chain()
    description["main"]["operations"][0]["origin"] = ["stem/add"]
    description["main"]["operands"][2]["value"] = [9]
    assert "operation 0 ADD of 'stem/add'" in refusal(description)


# -- sub-models --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: d["main"]["operands"][0].update(dimensions=[2]), "'condition' is TENSOR_BOOL8[2]"),
        (lambda d: d["main"]["operands"][3].update(dimensions=[3]), "inputs of 'then_model'"),
        (lambda d: d["subgraphs"][1]["operands"][1].update(dimensions=[3]), "sub-model 1, operation 0 NEG"),
        (lambda d: d["subgraphs"][0].update(outputs=[]), "sub-model 0, the graph has no model outputs"),
        (lambda d: d["subgraphs"][0]["operations"][0].update(op="LOGICAL_NOT"), "sub-model 0, operation 0 LOGICAL_NOT"),
        (lambda d: d["main"]["operands"][2].update(type="FLOAT32"), "FLOAT32 and lifetime SUBGRAPH"),
    ],
)
def test_branches_take_the_inputs_and_give_the_outputs(edit: Callable[[Description], Any], words: str) -> None:
    description = branch()
    edit(description)
    assert words in refusal(description)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: d["subgraphs"][0]["operands"][2].update(type="TENSOR_FLOAT32"), "output 'output' is TENSOR_FLOAT32"),
        (lambda d: d["main"]["operands"][0].update(subgraph=1), "the output of 'condition_model' is TENSOR_FLOAT32[1]"),
        (lambda d: d["main"]["operands"][1].update(subgraph=0), "outputs of 'body_model'"),
    ],
)
def test_a_loops_state_goes_round(edit: Callable[[Description], Any], words: str) -> None:
    description = loop()
    edit(description)
    assert words in refusal(description)


def test_a_submodel_must_not_contain_itself() -> None:
    description = branch()
    for index in (0, 1):
        description["subgraphs"][index] = copy.deepcopy(description["main"])
    assert "contains itself" in refusal(description)


def test_deep_nesting_is_refused_before_it_runs() -> None:
    description = branch()
    main, leaf = description["main"], description["subgraphs"][0]
    description["subgraphs"] = [copy.deepcopy(main) for _ in range(100)] + [leaf]
    for index, graph_ in enumerate([main, *description["subgraphs"][:-1]]):
        for position in (1, 2):
            graph_["operands"][position]["subgraph"] = index
    assert "nested 101 deep, 64 is the limit" in refusal(description)


# -- speed and hostile descriptions ------------------------------------------------------------------------------------


def long_chain(count: int) -> Description:
    operands = [f32("INPUT", 1, 8, 8, 4)]
    operations = []
    for index in range(count):
        last = len(operands) - 1
        operands += [f32("CONSTANT", 4, value=[1.0, 2.0, 3.0, 4.0]), i32(index % 2)]
        operands.append(f32("OUTPUT" if index == count - 1 else "TEMPORARY", 1, 8, 8, 4))
        operations.append(("ADD", [last, last + 1, last + 2], [last + 3]))
    return model(graph(operands, operations))


def seconds(action: Callable[[], Any]) -> float:
    """Processor time, the best of three."""

    def once() -> float:
        start = time.process_time()
        action()
        return time.process_time() - start

    return min(once() for _ in range(3))


def test_validation_is_about_as_fast_as_reading_the_description() -> None:
    description = long_chain(10_000)
    text = json.dumps(description)
    made = Model.from_dict(description)
    assert seconds(lambda: validate(made)) < 3 * seconds(lambda: json.loads(text))


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(
        ["", "nan", "INPUT", "CONSTANT", "SUBGRAPH", "TENSOR_INT32", "TENSOR_QUANT8_ASYMM", "WHILE", "ADD"]
    ),
    st.lists(st.integers(-3, 2**32), max_size=4),
    st.dictionaries(st.sampled_from(["channel_dim", "scales", "value"]), st.integers(0, 3), max_size=2),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every entry of a description."""
    found = [path] if path else []
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        found += places(item, (*path, key))
    return found


@st.composite
def mutants(draw: st.DrawFn) -> Description:
    """A valid description with up to three entries replaced, removed, or exchanged for another one's."""
    description = VALID[draw(st.sampled_from(sorted(VALID)))]()
    for _ in range(draw(st.integers(1, 3))):
        paths = places(description)
        *parents, key = draw(st.sampled_from(paths))
        parent: Any = description
        for step in parents:
            parent = parent[step]
        action = draw(st.sampled_from(["replace", "remove", "copy"]))
        if action == "remove":
            del parent[key]
        elif action == "copy":
            source: Any = description
            for step in draw(st.sampled_from(paths)):
                source = source[step]
            parent[key] = copy.deepcopy(source)
        else:
            parent[key] = draw(junk)
        if not places(description):
            break
    return description


@settings(max_examples=250)
@given(mutants())
def test_whatever_is_wrong_is_refused_by_an_error_of_ours(description: Description) -> None:
    """Nothing else escapes; what is accepted survives the round trip and keeps its level."""
    try:
        made = Model.from_dict(description)
        needed = validate(made)
    except InvalidModelError:
        return
    assert validate(Model.from_dict(made.to_dict())) == needed
    assert 1 <= needed <= 8
    try:
        Interpreter(made)
    except Onnx2NnapiError as error:
        pytest.fail(f"validated, but the interpreter refuses it: {error}")


@pytest.mark.parametrize("key", ["type", "dimensions", "scale", "zero_point", "lifetime", "name", "perm", "value"])
def test_values_that_python_cannot_print_are_refused(key: str) -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (functools.reduce(lambda inner, _: [inner], range(10_000), 0), 10**5000, endless):
        for wrong in (value, [value]):
            description = chain()
            description["main"]["operands"][0] |= {"lifetime": "CONSTANT", "value": [0] * 6, key: wrong}
            assert len(refusal(description)) < 200


@pytest.mark.parametrize("description", [None, [], 3, "model", {}, {"main": None}, {"main": {}}, {"main": [1]}])
def test_what_is_no_description_is_refused(description: Any) -> None:
    with pytest.raises(InvalidModelError):
        Model.from_dict(description)


@pytest.mark.parametrize(
    "change",
    [
        {"dimensions": [2**32 - 1] * 50},
        {"dimensions": [1] * 100_000},
        {"dimensions": [0, 2**32 - 1, 2**32 - 1, 2**32 - 1]},
        {"dimensions": [2**31, 1], "lifetime": "CONSTANT", "value": [1]},
        {"scale": 10**400},
        {"value": [[[[[]]]]], "lifetime": "CONSTANT"},
        {"lifetime": "CONSTANT", "value": [None] * 6},
        {"lifetime": "CONSTANT", "value": ["one"] * 6},
        {"type": "TENSOR_BOOL8", "lifetime": "CONSTANT", "value": [2] * 6},
        {"type": "TENSOR_INT32", "lifetime": "CONSTANT", "value": [2**31] * 6},
        {"type": "TENSOR_INT32", "lifetime": "CONSTANT", "value": [0.5] * 6},
        {"type": "OEM_SCALAR"},
        {"type": "TENSOR_OEM_BYTE"},
    ],
    ids=str,
)
def test_an_absurd_operand_is_refused_at_once(change: Description) -> None:
    description = chain()
    description["main"]["operands"][0] |= change
    start = time.process_time()
    assert refusal(description)
    assert time.process_time() - start < 0.5
