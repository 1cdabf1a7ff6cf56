"""The benchmarks measure what they say: processes, synthetic models, the .tflite files for LiteRT."""

from __future__ import annotations

import gzip
import json
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks import convert, host, synthetic_models
from benchmarks.process import CommandError, Cost, interleaved, measure


def script(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_measure_sees_time_and_memory() -> None:
    idle = measure(script("import time; time.sleep(0.3)"))
    busy = measure(script("x = bytearray(b'1') * (500 << 20)"))
    assert idle.wall >= 0.3
    assert idle.cpu < idle.wall
    assert idle.peak < 450 < busy.peak


def test_measure_tells_why_a_command_failed() -> None:
    with pytest.raises(CommandError, match=r"^out of luck$"):
        measure(script("import sys; print('begun'); sys.exit('out of luck')"))


def test_measure_ends_what_takes_too_long() -> None:
    with pytest.raises(CommandError, match="exit status -9"):
        measure(script("import time; time.sleep(60)"), seconds=0.2)


def test_interleaved_keeps_going_without_the_command_that_fails() -> None:
    costs, failures = interleaved({"good": script("pass"), "bad": script("raise SystemExit('no')")}, rounds=2)
    assert list(costs) == ["good"]
    assert failures == {"bad": "no"}


def test_median_of_each_figure() -> None:
    assert Cost.median([Cost(1, 5, 9), Cost(2, 4, 7), Cost(3, 6, 8)]) == Cost(2, 5, 8)


def test_growth_is_judged_without_the_time_of_a_start() -> None:
    def row(cpu: float) -> dict[str, Cost]:
        return {"onnx2nnapi": Cost(1, cpu, 1)}

    results = {"chain_40": row(1), "chain_10000": row(2), "chain_50000": row(6)}
    assert list(convert.bounds(results)) == [("chain: exponent from 10,000 to 50,000 nodes", pytest.approx(1.0), 1.2)]


def test_host_bounds_are_ratios_to_the_peer() -> None:
    results = {"resnet50": {"onnx2nnapi": 0.3, "onnxruntime": 0.2}}
    assert list(host.bounds(results)) == [("resnet50: time over that of onnxruntime", pytest.approx(1.5), 1.6)]


@pytest.mark.parametrize("name", ["chain_40", "branch_40", "mobilenet_v2_qdq", "transformer"])
def test_synthetic_model_is_sound_and_gives_finite_values(name: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    synthetic_models.MODELS[name](path)
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (source,) = session.get_inputs()
    (result,) = session.run(None, {source.name: np.random.default_rng(0).standard_normal(source.shape, np.float32)})
    assert np.isfinite(result).all()
    assert result.std() > 1e-3


def test_quantized_operator_stays_near_the_float_one(tmp_path: pathlib.Path) -> None:
    outputs = []
    for writer in (synthetic_models.Writer, synthetic_models.QdqWriter):
        net = writer("pair")
        x = net.relu6(net.conv(net.input("x", [1, 8, 9, 9]), 8, 16))
        net.op("GlobalAveragePool", net.op("Add", net.conv(x, 16, 16), x), outputs=["y"])
        net.save(tmp_path / "pair.onnx", {"y": [1, 16, 1, 1]})
        session = onnxruntime.InferenceSession(tmp_path / "pair.onnx", providers=["CPUExecutionProvider"])
        outputs.append(session.run(None, {"x": np.random.default_rng(1).standard_normal((1, 8, 9, 9), np.float32)})[0])
    np.testing.assert_allclose(outputs[1], outputs[0], atol=0.05)
    assert np.abs(outputs[0] - outputs[1]).max() > 0


def test_external_weights_stand_beside_the_model(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "external.onnx"
    synthetic_models.external(path, layers=2, features=16)
    onnx.checker.check_model(path)
    assert path.with_suffix(".data").stat().st_size == 2 * 16 * 16 * 4


LITERT_SPECS = [
    *("conv_float_2", "conv2d_per_channel", "depthwise_conv2d_float"),
    *("max_pool_float_1", "softmax_float_1", "mean_float_1"),
]


@pytest.mark.parametrize("spec", LITERT_SPECS)
def test_tflite_file_computes_what_android_does(spec: str, shared: pathlib.Path) -> None:
    pytest.importorskip("flatbuffers", reason="flatbuffers is not installed")
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    from benchmarks.tflite import Translator
    from onnx2nnapi.nnapi import Model

    (path,) = (shared / "vts").glob(f"V1_*/{spec}.json.gz")
    case = json.loads(gzip.decompress(path.read_bytes()))[0]
    operands = case["main"]["operands"]
    interpreter = litert.Interpreter(model_content=Translator(Model.from_dict(case).main).model())
    interpreter.allocate_tensors()
    for detail, index, values in zip(
        interpreter.get_input_details(), case["main"]["inputs"], case["input_values"], strict=True
    ):
        array = np.array(values).reshape(operands[index]["dimensions"])
        shift = 128 if operands[index]["type"] == "TENSOR_QUANT8_ASYMM" else 0
        interpreter.set_tensor(detail["index"], (array - shift).astype(detail["dtype"]))
    interpreter.invoke()
    for detail, index, values in zip(
        interpreter.get_output_details(), case["main"]["outputs"], case["output_values"], strict=True
    ):
        shift = 128 if operands[index]["type"] == "TENSOR_QUANT8_ASYMM" else 0
        got = interpreter.get_tensor(detail["index"]).reshape(-1) + float(shift)
        np.testing.assert_allclose(got, values, rtol=1e-5, atol=1 if shift else 1e-5)
