from __future__ import annotations

import importlib
import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest

MODELS = pathlib.Path(__file__).resolve().parent.parent / "models"
SEEDED = ["mobilenet_block", "residual_net", "transformer_block"]


@pytest.mark.parametrize("name", SEEDED)
def test_committed_model_is_what_its_script_writes(name: str, tmp_path: pathlib.Path) -> None:
    written = tmp_path / f"{name}.onnx"
    importlib.import_module(f"models.make_{name}").make(written)
    # The nodes to the letter; weights to the last place, since numpy's log and cos may round it otherwise elsewhere.
    ours, committed = onnx.load(written), onnx.load(MODELS / f"{name}.onnx")
    for mine, theirs in zip(ours.graph.initializer, committed.graph.initializer, strict=True):
        np.testing.assert_allclose(onnx.numpy_helper.to_array(mine), onnx.numpy_helper.to_array(theirs), rtol=1e-6)
    del ours.graph.initializer[:], committed.graph.initializer[:]
    assert ours == committed


@pytest.mark.parametrize("name", [*SEEDED, "digits"])
def test_committed_model_is_sound_and_small(name: str) -> None:
    path = MODELS / f"{name}.onnx"
    onnx.checker.check_model(path, full_check=True)
    assert path.stat().st_size <= 300_000


def test_digits_are_read_by_the_trained_network() -> None:
    session = onnxruntime.InferenceSession(MODELS / "digits.onnx", providers=["CPUExecutionProvider"])
    with np.load(MODELS / "digits_samples.npz") as samples:
        images, labels = samples["images"], samples["labels"]
    answers = [session.run(["probabilities"], {"image": image})[0].argmax() for image in images[:, None]]
    assert len(labels) >= 100
    assert np.mean(answers == labels) > 0.97


def test_training_step_follows_the_gradient() -> None:
    digits = pytest.importorskip("models.make_digits", reason="scikit-learn is not installed")
    random = np.random.default_rng(1)
    layers = digits.make_layers(random)
    images = random.random((4, 1, 8, 8), np.float32)
    direction = random.standard_normal((4, 10)).astype(np.float32)

    def loss() -> float:
        return float((digits.run(layers, images, training=True) * direction).sum())

    loss()
    grad = direction
    for layer in reversed(layers):
        grad = layer.backward(grad)
    for layer in layers:
        for parameter, gradient in zip(layer.parameters, list(layer.gradients), strict=True):
            step = random.standard_normal(parameter.shape).astype(np.float32)
            step *= 1e-3 / np.linalg.norm(step)
            slope = (gradient * step).sum()
            parameter += step
            above = loss()
            parameter -= 2 * step
            below = loss()
            parameter += step
            assert (above - below) / 2 == pytest.approx(slope, rel=0.05, abs=2e-3)
