"""The command line: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

import onnx2nnapi
from onnx2nnapi.cli import main
from onnx2nnapi.errors import InternalError

ODD = "a/b:0=c"  # a name as TensorFlow's exporters write them
COMMANDS = ["check", "convert", "devices", "inspect", "ops", "run"]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def succeed(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def error_line(*arguments: object, status: int = 1) -> str:
    """The one line on stderr of a command that fails."""
    result = invoke(*arguments)
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def python(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    folder = pathlib.Path(__file__).parents[1]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, check=False)


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    return python("-m", "onnx2nnapi", *arguments)


def script(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return python("-c", code, *arguments)


@pytest.fixture(scope="module")
def digits(checkout: pathlib.Path) -> pathlib.Path:
    return checkout / "models" / "digits.onnx"


@pytest.fixture(scope="module")
def converted(digits: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    target = tmp_path_factory.mktemp("converted") / "digits.nnapi"
    onnx2nnapi.convert(digits).save(target)
    return target


@pytest.fixture
def odd(tmp_path: pathlib.Path) -> pathlib.Path:
    """y = relu(a/b:0=c) with an open size."""
    return save(tmp_path / "odd.onnx", [helper.make_node("Relu", [ODD], ["y"])], {ODD: ["N", 3]}, ["y"])


@pytest.fixture
def refused(tmp_path: pathlib.Path) -> pathlib.Path:
    nodes = [helper.make_node("Det", ["x"], [name], name=name) for name in ("first", "second")]
    return save(tmp_path / "refused.onnx", nodes, {"x": [3, 3]}, ["first", "second"])


def save(path: pathlib.Path, nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str]) -> pathlib.Path:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


# -- help and usage ----------------------------------------------------------------------------------------------------


def test_the_commands() -> None:
    assert main.list_commands(click.Context(main)) == COMMANDS
    text = succeed("--help")
    assert all(re.search(rf"^  {command} ", text, re.MULTILINE) for command in COMMANDS)
    assert succeed("--version").strip() == f"onnx2nnapi, version {onnx2nnapi.__version__}"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option(command: str) -> None:
    text = succeed(command, "--help")
    described = main.get_command(click.Context(main), command)
    assert described is not None
    for parameter in described.params:
        if parameter.param_type_name == "option":
            assert parameter.opts[-1] in text
    assert succeed(command, "-h") == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["transmogrify"], "No such command 'transmogrify'"),
        (["convert"], "Missing argument 'MODEL'"),
        (["convert", "m.onnx", "--feature-level", "9"], "9 is not in the range 1<=x<=8"),
        (["convert", "m.onnx", "--input-shape", "x"], "'x' is not NAME:SIZES"),
        (["convert", "m.onnx", "--input-shape", "x:1,-3"], "'-3' is no size"),
        (["convert", "m.onnx", "--dim", "N"], "'N' is not SYMBOL=SIZE"),
        (["convert", "m.onnx", "--dim", "N=1", "--dim", "N=2"], "'N' is given twice"),
        (["convert", "m.onnx", "--set", "x=one"], "'one' is neither a file that exists nor a number or list"),
        (["convert", "m.onnx", "--input-layout", "x:chwn"], "the layouts are nchw, nhwc"),
        (["run", "m.nnapi", "--compare", "gpu"], "'gpu' is none of host, sync, async, burst, fenced"),
        (["run", "m.nnapi", "--json", "--csv"], "--json and --csv exclude each other"),
        (["run", "m.nnapi", "--runs", "0"], "0 is not in the range"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


# -- convert -----------------------------------------------------------------------------------------------------------


def test_convert_tells_what_it_did(digits: pathlib.Path, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "d.nnapi"
    lines = succeed("convert", digits, "-o", target).splitlines()
    assert lines[0] == f"{digits} -> {target}"
    facts = dict(re.split(r"  +", line, maxsplit=1) for line in lines[1:])
    assert facts["operations"] == "14 ONNX nodes -> 9 NNAPI operations"
    assert facts["transposes"] == "0"
    assert facts["feature level"] == "1 (Android 8.1, API 27)"
    assert set(facts) == {"operations", "transposes", "feature level", "size", "time"}
    assert onnx2nnapi.load(target).required_level == 1


def test_convert_names_what_forces_the_level(tmp_path: pathlib.Path) -> None:
    nodes = [helper.make_node(kind, [x], [y], name=y) for kind, x, y in (("Sin", "x", "wave"), ("Relu", "wave", "y"))]
    source = save(tmp_path / "m.onnx", nodes, {"x": [2]}, ["y"])
    assert "3 (Android 10, API 29), forced by SIN of wave" in succeed("convert", source)
    data = json.loads(succeed("convert", source, "--json"))
    assert (data["feature_level"], data["forced_by"]) == (3, {"SIN": ["wave"]})
    uneven = [helper.make_node("Split", ["x"], ["a", "b"], name="halves", num_outputs=2)]
    data = json.loads(succeed("convert", save(source, uneven, {"x": [3]}, ["a", "b"]), "--json"))
    assert data["forced_by"] == {"SLICE": ["halves"]}  # two operations
    relaxed = succeed("convert", save(source, nodes[1:], {"wave": [2]}, ["y"]), "--relaxed-float16")
    assert "2 (Android 9, API 28), forced by relaxed float16" in relaxed


def test_convert_writes_beside_the_model_by_default(digits: pathlib.Path, tmp_path: pathlib.Path) -> None:
    source = tmp_path / "net.v1.onnx"
    source.write_bytes(digits.read_bytes())
    assert succeed("convert", source, "-q") == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.v1.nnapi", "net.v1.onnx"]


def test_convert_as_json(digits: pathlib.Path, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "d.nnapi"
    data = json.loads(succeed("convert", digits, "-o", target, "--json"))
    assert data["operations"] == 9
    assert data["onnx_nodes"] == 14
    assert data["bytes"] == target.stat().st_size
    assert data["output"] == str(target)


def test_convert_dumps_the_graph(digits: pathlib.Path, tmp_path: pathlib.Path) -> None:
    succeed("convert", digits, "-o", tmp_path / "d.nnapi", "--dump-ir", tmp_path / "ir", "-q")
    names = sorted(path.name for path in (tmp_path / "ir").iterdir())
    assert names[0] == "00_import.txt"
    assert any("legalize" in name for name in names)


def test_names_may_hold_separators(odd: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for flag, value in (("--input-shape", f"{ODD}:2,3"), ("--dim", "N=2")):
        succeed("convert", odd, "-o", tmp_path / "o.nnapi", flag, value)
        assert onnx2nnapi.load(tmp_path / "o.nnapi").inputs[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        (["--keep-dynamic"], ("*",)),
        (["--keep-dynamic", "-q"], ("*",)),
        (["--keep-dynamic", "N"], ("N",)),
        (["--keep-dynamic=N", "--keep-dynamic=M"], ("N", "M")),
        ([], ()),
    ],
)
def test_symbols_that_stay_open(
    flags: list[str], kept: tuple[str, ...], odd: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: str, options: onnx2nnapi.Options, **_: object) -> None:
        raise onnx2nnapi.UnsupportedError(f"kept {options.keep_dynamic}")

    monkeypatch.setattr("onnx2nnapi.api.convert", fail)
    assert error_line("convert", odd, *flags) == f"kept {kept}"


@pytest.mark.parametrize("value", ["[[1, -1, 2]]", "FILE"])
def test_set_freezes_an_input(tmp_path: pathlib.Path, value: str) -> None:
    nodes = [helper.make_node("Mul", ["x", ODD], ["y"])]
    source = save(tmp_path / "m.onnx", nodes, {"x": [1, 3], ODD: [1, 3]}, ["y"])
    if value == "FILE":
        value = str(tmp_path / "k=1:2.npy")
        np.save(value, np.array([[1, -1, 2]], np.float32))
    succeed("convert", source, "-q", "--set", f"{ODD}={value}")
    with onnx2nnapi.Session(tmp_path / "m.nnapi", backend="host") as session:
        assert [port.name for port in session.inputs] == ["x"]
        np.testing.assert_array_equal(session.run({"x": np.ones((1, 3), np.float32)})["y"], [[1, -1, 2]])


def test_layout_and_cut_options(digits: pathlib.Path, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "d.nnapi"
    flags = ["--input-layout", "image:nhwc", "--cut-outputs", onnx.load(digits).graph.node[0].output[0]]
    succeed("convert", digits, "-o", target, *flags, "--output-layout", f"{flags[-1]}:NHWC", "--feature-level", 1)
    program = onnx2nnapi.load(target)
    assert program.inputs[0].shape == (1, 8, 8, 1)
    assert [port.name for port in program.outputs] == [flags[-1]]
    assert [operation.code.name for operation in program.model.main.operations] == ["CONV_2D"]


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), (b"", "it is empty"), (b"hello" * 9, "it is no ONNX model"), ("cut", "damaged")],
)
@pytest.mark.parametrize("command", ["convert", "check", "inspect", "run"])
def test_what_is_no_model(
    command: str, content: bytes | str | None, message: str, digits: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    source = tmp_path / "m.onnx"
    if content is not None:
        source.write_bytes(digits.read_bytes()[:999] if isinstance(content, str) else content)
    assert message in error_line(command, source)
    assert not (tmp_path / "m.nnapi").exists()


@pytest.mark.parametrize("command", ["run", "inspect", "devices"])
def test_what_is_no_program(command: str, converted: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert "No such file" in error_line(command, tmp_path / "missing.nnapi")
    source = tmp_path / "cut.nnapi"
    source.write_bytes(converted.read_bytes()[:5000])
    assert str(source) in error_line(command, source)


def test_the_model_itself_is_never_overwritten(odd: pathlib.Path) -> None:
    before = odd.read_bytes()
    assert "is a file that the model is read from" in error_line("convert", odd, "-o", odd, "--dim", "N=1")
    assert "is the model itself" in error_line("check", odd, "--html", odd, "--dim", "N=1")
    assert odd.read_bytes() == before


def test_an_output_that_cannot_be_written(odd: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert "cannot be written" in error_line("convert", odd, "--dim", "N=1", "-o", tmp_path / "no" / "o.nnapi")
    assert "no regular file" in error_line("convert", odd, "--dim", "N=1", "-o", tmp_path)
    assert "no regular file" in error_line("convert", odd, "--dim", "N=1", "-o", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd.onnx"]


def test_only_regular_files_are_replaced(odd: pathlib.Path, tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe"  # stands for a device, which a rename would replace as well
    os.mkfifo(pipe)
    assert "no regular file" in error_line("check", odd, "--dim", "N=1", "--html", pipe)
    assert pipe.is_fifo()


def test_an_open_size(odd: pathlib.Path) -> None:
    assert f"dimension 0 ('N') of input '{ODD}' is not bound (give --dim N=1 or" in error_line("convert", odd)


def test_several_refusals_are_one_line(refused: pathlib.Path) -> None:
    line = error_line("convert", refused)
    assert line.startswith("2 nodes cannot be converted: Det 'first' (-> 'first'): ")
    assert line.endswith("and 1 more, which `onnx2nnapi check` lists")


def test_options_of_a_conversion_need_something_to_convert(converted: pathlib.Path) -> None:
    line = error_line("run", converted, "--feature-level", 3, "--dim", "N=1")
    assert "--feature-level, --dim can only be chosen when an .onnx file is converted" in line


@pytest.mark.parametrize("error", [InternalError("it broke"), ZeroDivisionError("it broke"), OSError("it broke")])
def test_a_fault_of_ours_has_a_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch, odd: pathlib.Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("onnx2nnapi.report.check", fail)
    result = invoke("check", odd)
    assert result.exit_code == 70
    assert "Traceback" in result.stderr
    assert "it broke" in result.stderr
    assert "please report it with the model" in result.stderr.splitlines()[-1]


def test_too_little_memory_is_no_fault(monkeypatch: pytest.MonkeyPatch, odd: pathlib.Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("onnx2nnapi.report.check", fail)
    assert error_line("check", odd) == "there is not enough memory for this"


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, odd: pathlib.Path) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onnx2nnapi.report.check", interrupt)
    result = invoke("check", odd)
    assert (result.exit_code, result.output) == (130, "")


# -- run ---------------------------------------------------------------------------------------------------------------


def test_run_makes_seeded_inputs_and_says_so(converted: pathlib.Path) -> None:
    text = succeed("run", converted, "--backend", "host", "--runs", 3)
    assert "inputs made from seed 0: image[1, 1, 8, 8]" in text
    assert re.search(r"^probabilities: float32\[1, 10\], \S+ … \S+, mean 0\.1$", text, re.MULTILINE)
    assert re.search(r"^  highest: \d \(0\.\d+\)(, \d \(\S+\)){4}$", text, re.MULTILINE)
    assert re.search(r"^series +count +min +mean +std +p50 +p90 +p99 +max$", text, re.MULTILINE)
    assert re.search(r"^host +3( +\d+\.\d{3}){7}$", text, re.MULTILINE)


def test_run_on_given_inputs(digits: pathlib.Path, converted: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import onnxruntime

    image = np.random.default_rng(1).random((1, 1, 8, 8), np.float32)
    (expected,) = onnxruntime.InferenceSession(digits).run(None, {"image": image})
    np.save(tmp_path / "i.npy", image)
    np.savez(tmp_path / "one.npz", anything=image)
    np.savez(tmp_path / "named.npz", image=image, spare=image)
    files = ["i.npy", "image=i.npy", "image=one.npz", "image=named.npz"]
    for given in files:
        name, _, file = given.rpartition("=")
        flag = f"{name}={tmp_path / file}" if name else str(tmp_path / file)
        text = succeed("run", converted, "--backend", "host", "--runs", 1, "--input", flag, "--save", tmp_path / "out")
        assert "seed" not in text
        np.testing.assert_allclose(np.load(tmp_path / "out" / "probabilities.npy"), expected, rtol=1e-4, atol=1e-6)


def test_run_converts_an_onnx_file_first(odd: pathlib.Path, tmp_path: pathlib.Path) -> None:
    np.save(tmp_path / "a=b.npy", np.array([[-1, 0, 2]], np.float32))
    flags = ["--dim", "N=1", "--input", f"{ODD}={tmp_path / 'a=b.npy'}", "--backend", "host", "--json"]
    data = json.loads(succeed("run", odd, *flags))
    assert data["inputs"] == {"seed": None, "made": [], "shapes": {ODD: [1, 3]}}
    (output,) = data["outputs"]
    assert (output["name"], output["dtype"], output["shape"], output["max"]) == ("y", "float32", [1, 3], 2)


def test_saved_names_are_files(tmp_path: pathlib.Path) -> None:
    source = save(tmp_path / "m.onnx", [helper.make_node("Neg", ["x"], [ODD])], {"x": [2]}, [ODD])
    data = json.loads(succeed("run", source, "--backend", "host", "--save", tmp_path / "out", "--json", "--runs", 1))
    assert data["saved"] == {ODD: str(tmp_path / "out" / "a%2Fb:0=c.npy")}
    assert np.load(data["saved"][ODD]).shape == (2,)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("image=nowhere.npy", "there is no such file"),
        ("z={x}", "the model has no input 'z'; its inputs are 'image'"),
        ("image={text}", "cannot be read"),
        ("image={two}", "holds several arrays, none of them called 'image'"),
        ("image={x}", "input 'image': has shape [2], the model takes [1, 1, 8, 8]"),
        ("image={object}", "cannot be read"),
    ],
)
def test_a_feed_that_does_not_fit(converted: pathlib.Path, tmp_path: pathlib.Path, given: str, message: str) -> None:
    files = {name: tmp_path / f"{name}.npz" for name in ("two", "text", "object")} | {"x": tmp_path / "x.npy"}
    np.save(files["x"], np.zeros(2, np.float32))
    np.savez(files["two"], a=np.zeros(1), b=np.zeros(1))
    files["text"].write_text("hello")
    np.savez(files["object"], image=np.array([{}], dtype=object))
    assert message in error_line("run", converted, "--backend", "host", "--input", given.format(**files))


def test_the_same_input_twice(converted: pathlib.Path, tmp_path: pathlib.Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 8, 8), np.float32))
    flags = ["--input", f"image={tmp_path / 'x.npy'}"] * 2
    assert "input 'image': is given twice" in error_line("run", converted, "--backend", "host", *flags)


def test_the_same_seed_gives_the_same_numbers(converted: pathlib.Path) -> None:
    flags = ["--backend", "host", "--runs", 1, "--warmup", 0, "--json"]
    first, again, other = (json.loads(succeed("run", converted, *flags, "--seed", seed)) for seed in (1, 1, 2))
    assert first["outputs"] == again["outputs"] != other["outputs"]
    assert first["timing"]["modes"][0]["runs"]["warmup"] is None


def test_the_profile_speaks_of_onnx_nodes(converted: pathlib.Path) -> None:
    text = succeed("run", converted, "--backend", "host", "--profile", "--runs", 2)
    assert re.search(r"^1  CONV_2D +\d+\.\d{3} +\d+\.\d% +\d+\.\d%  conv_0, batchnormalization_0, relu_0$", text, re.M)
    rows = json.loads(succeed("run", converted, "--backend", "host", "--profile", "--runs", 2, "--json"))["profile"]
    assert len(rows) == 9
    assert rows[-1]["cumulative"] == pytest.approx(1)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert all(row["seconds"] >= 0 for row in rows)
    assert max(rows, key=lambda row: row["seconds"])["operation"] in ("CONV_2D", "MAX_POOL_2D")


def test_times_as_csv(converted: pathlib.Path) -> None:
    lines = succeed("run", converted, "--backend", "host", "--runs", 4, "--csv").splitlines()
    assert lines[0] == "series,count,min,max,mean,std,p50,p90,p99"
    assert [line.split(",")[:2] for line in lines[1:]] == [["host warm-up", "1"], ["host", "4"]]


def test_runs_go_on_or_stop_by_the_clock(converted: pathlib.Path) -> None:
    flags = ["--backend", "host", "--json"]
    longer = json.loads(succeed("run", converted, *flags, "--runs", 1, "--min-secs", 0.1))
    steady = longer["timing"]["modes"][0]["runs"]["steady"]
    assert steady["count"] * steady["mean"] >= 0.1
    shorter = json.loads(succeed("run", converted, *flags, "--runs", 1000000, "--max-secs", 0.05))
    assert shorter["timing"]["modes"][0]["runs"]["steady"]["count"] < 1000000


@pytest.mark.parametrize(
    "flag", [["--explain"], ["--bisect"], ["--compare", "host"], ["--device", "cpu"], ["--library", "none.so"]]
)
def test_what_needs_nnapi_says_so(converted: pathlib.Path, flag: list[str]) -> None:
    line = error_line("run", converted, "--backend", "host", *flag)
    assert line.startswith(f"{flag[0]} needs NNAPI, and this runs on the host; use --backend nnapi")


def test_not_a_number_is_json_too(tmp_path: pathlib.Path) -> None:
    source = save(tmp_path / "m.onnx", [helper.make_node("Log", ["x"], ["y"])], {"x": [2]}, ["y"])
    np.save(tmp_path / "x.npy", np.array([0, -1], np.float32))
    text = succeed("run", source, "--backend", "host", "--input", tmp_path / "x.npy", "--runs", 1, "--json")
    (output,) = json.loads(text)["outputs"]
    assert output["not_finite"] == 2
    assert "min" not in output


# -- inspect, check, ops, devices --------------------------------------------------------------------------------------


def test_inspect_a_program(converted: pathlib.Path) -> None:
    text = succeed("inspect", converted)
    assert "feature level  1 (Android 8.1, API 27)" in text
    assert "operations     9: CONV_2D 3, " in text
    assert re.search(r"^input +image +float32 +\[1, 1, 8, 8\]$", text, re.MULTILINE)
    assert re.search(r"^TENSOR_FLOAT32 +18 +\S+ kB +18 kB$", text, re.MULTILINE)
    listed = succeed("inspect", converted, "--operations")
    assert listed.startswith(text.rstrip())
    assert "[1,8,8,1] [16,3,3,1] [16]" in listed


def test_inspect_as_json(converted: pathlib.Path) -> None:
    data = json.loads(succeed("inspect", converted, "--json", "--operations"))
    assert data["operations"]["CONV_2D"] == 3
    assert data["inputs"] == [{"name": "image", "dtype": "float32", "shape": [1, 1, 8, 8]}]
    assert data["operands"]["TENSOR_FLOAT32"]["constant_bytes"] > 60000
    assert data["operation_list"][1]["origin"] == ["conv_0", "batchnormalization_0", "relu_0"]
    assert sum(data["operations"].values()) == len(data["operation_list"])


def test_inspect_an_onnx_file(digits: pathlib.Path, refused: pathlib.Path) -> None:
    text = succeed("inspect", digits)
    assert "operators  14: Conv 3, " in text
    assert "feature level  1 (Android 8.1, API 27)" in text
    data = json.loads(succeed("inspect", refused, "--json"))
    assert data["converts"] is False
    assert [node["op_type"] for node in data["onnx"]["nodes"]] == ["Det", "Det"]
    assert "no: 2 refusals; `onnx2nnapi check` tells why" in succeed("inspect", refused, "--operations")


def test_check_exits_with_0_only_when_all_converts(digits: pathlib.Path, refused: pathlib.Path) -> None:
    text = succeed("check", digits)
    assert "all 14 nodes convert" in text
    result = invoke("check", refused)
    assert result.exit_code == 1
    assert "Det (2 nodes): NNAPI computes no determinants\n  at: first, second" in result.stdout
    data = json.loads(invoke("check", refused, "--json").stdout)
    assert data["convertible"] is False


def test_check_writes_a_page(digits: pathlib.Path, tmp_path: pathlib.Path) -> None:
    succeed("check", digits, "--html", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "all 14 nodes convert" in text
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_ops_prints_a_row() -> None:
    text = succeed("ops", "--nnapi", "softmax")
    assert text.startswith("# SOFTMAX (operation 25, feature level 1)")
    assert json.loads(succeed("ops", "--nnapi", "SOFTMAX", "--json"))["code"] == 25
    assert "did you mean SOFTMAX, " in error_line("ops", "--nnapi", "SOFTMAXX")


@pytest.fixture
def host_library() -> Any:
    from tests.runtime.conftest import host_library as build

    return build()


@pytest.fixture
def on_device(host_library: Any) -> Callable[..., list[object]]:
    """Flags that run on the host library."""
    return lambda *flags: ["--library", host_library.path, *flags]


def test_devices(on_device: Callable[..., list[object]], converted: pathlib.Path, tmp_path: pathlib.Path) -> None:
    text = succeed("devices", *on_device())
    assert re.search(r"^ +0  nnapi-reference  cpu +\S+ +8$", text, re.MULTILINE)
    text = succeed("devices", converted, *on_device("--save", tmp_path / "profile.json"))
    assert "all 9 operations on nnapi-reference" in text
    assert json.loads((tmp_path / "profile.json").read_text())["format"] == 1
    data = json.loads(succeed("devices", converted, *on_device("--json")))
    assert data["devices"][0]["name"] == "nnapi-reference"
    assert data["models"][0]["verdicts"] == ["all 9 operations on nnapi-reference"]


def test_run_on_a_device(
    on_device: Callable[..., list[object]], converted: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    cache, vector = tmp_path / "cache", tmp_path / "v.json"
    flags = ["--device", "cpu", "--compare", "sync,burst,fenced,host", "--explain", "--bisect", "--vector", vector]
    text = succeed("run", converted, "--runs", 2, *on_device(*flags, "--cache", cache))
    for mode in ("sync", "burst", "fenced"):
        assert re.search(rf"^{mode} +2( +\d+\.\d{{3}}){{7}}$", text, re.MULTILINE)
        assert re.search(rf"^{mode} duration on hardware +2 ", text, re.MULTILINE)
    assert "miss, stored" in text
    assert "hit, saved" in text
    assert "probabilities: largest difference 0" in text
    assert "every operation is right" in text
    assert not vector.exists()
    assert "needs one device" not in text


def test_durations_need_one_device(on_device: Callable[..., list[object]], converted: pathlib.Path) -> None:
    text = succeed("run", converted, "--runs", 1, *on_device())
    assert "durations on the hardware and in the driver need one device: --device NAME" in text
    assert "timeout needs one device; name it: --device NAME" in error_line(
        "run", converted, *on_device("--timeout", 1)
    )
    assert "drivers do not tell the time of each" in error_line("run", converted, *on_device("--profile"))


def test_a_wrong_driver_is_found(
    host_library: Any, on_device: Callable[..., list[object]], converted: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    from tests.runtime.test_bisect import wrong_numbers

    host_library.compute = wrong_numbers("MAX_POOL_2D", 0.25)
    vector = tmp_path / "v.json"
    result = invoke("run", converted, "--runs", 1, *on_device("--compare", "host", "--bisect", "--vector", vector))
    assert result.exit_code == 1
    assert "beyond tolerance" in result.stdout
    assert "operation 3 MAX_POOL_2D of maxpool_0: " in result.stdout
    (case,) = json.loads(vector.read_text())
    assert case["main"]["operations"][0]["op"] == "MAX_POOL_2D"


def test_a_driver_that_fails_is_explained_and_bisected(
    host_library: Any, on_device: Callable[..., list[object]], converted: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    vector = tmp_path / "v.json"
    host_library.add_device("acme-npu", 4, supports=["RESHAPE", "CONV_2D"])
    flags = on_device("--device", "acme-npu", "--explain", "--bisect", "--vector", vector)
    result = invoke("run", converted, *flags)
    assert result.exit_code == 1
    assert "3  MAX_POOL_2D      no        maxpool_0" in result.stdout
    assert "5 of 9 operations on acme-npu, and no CPU for the rest" in result.stdout
    assert "operation 3 MAX_POOL_2D of maxpool_0: ANeuralNetworksCompilation_finish answered BAD_DATA" in result.stdout
    assert re.match(r"error: device acme-npu: ANeuralNetworksCompilation_finish answered BAD_DATA", result.stderr)
    (case,) = json.loads(vector.read_text())
    assert case["main"]["operations"][0]["op"] == "MAX_POOL_2D"
    result = invoke("run", converted, "--json", *flags)
    data = json.loads(result.stdout)
    assert (data["bisect"]["index"], data["explain"][0]["devices"][0]["name"]) == (3, "acme-npu")
    assert data["error"] in result.stderr
    assert invoke("run", converted, "--json", *on_device("--device", "acme-npu")).stdout == ""


# -- as a process ------------------------------------------------------------------------------------------------------


def test_the_module_and_the_script_run(checkout: pathlib.Path) -> None:
    assert process("--version").stdout.startswith("onnx2nnapi, version")
    assert python(checkout / "cli.py", "--version").stdout.endswith(onnx2nnapi.__version__ + "\n")


def test_a_process_that_fails(tmp_path: pathlib.Path) -> None:
    done = process("convert", tmp_path / "m.onnx")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "No such file" in done.stderr


def test_a_reader_that_leaves_is_no_error(converted: pathlib.Path) -> None:
    command = [sys.executable, "-m", "onnx2nnapi", "inspect", str(converted), "--operations", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=pathlib.Path(__file__).parents[1]
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""


INTERRUPTED = """
import os, signal, sys, threading
from onnx2nnapi.cli import main
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
main(sys.argv[1:])
"""


def test_ctrl_c(converted: pathlib.Path) -> None:
    done = script(INTERRUPTED, "run", converted, "--backend", "host", "--min-secs", 60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


HIDDEN = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"onnx", "networkx", "ml_dtypes", "rich", "google"}:
            raise ModuleNotFoundError(f"{name} is hidden", name=name)
sys.meta_path.insert(0, Hidden())
from onnx2nnapi.cli import main
main(sys.argv[1:], prog_name="onnx2nnapi")
"""


def test_numpy_and_click_are_enough_to_run(
    on_device: Callable[..., list[object]], converted: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    vector = tmp_path / "v.json"
    for arguments in (
        ["run", converted, "--backend", "host", "--profile", "--runs", 1],
        ["inspect", converted, "--operations"],
        ["devices", converted, *on_device()],
        ["run", converted, "--runs", 1, *on_device("--compare", "sync,host", "--bisect", "--vector", vector)],
        ["ops", "--nnapi", "ADD"],
    ):
        done = script(HIDDEN, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments


def test_a_conversion_without_onnx_says_what_to_install(digits: pathlib.Path) -> None:
    done = script(HIDDEN, "convert", digits)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: a conversion needs onnx, which is not installed; pip install")
