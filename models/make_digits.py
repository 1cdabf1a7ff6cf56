"""Trains a small convolutional network on scikit-learn's handwritten digits, in numpy, and writes it as ONNX.

    python models/make_digits.py [--epochs N]

writes digits.onnx (8 × 8 grey images in 0 … 1, batch 1 -> the ten classes' probabilities) and digits_samples.npz (the
held-out images and their labels) beside this script. The last fifth of the images is held out. Seeded; the bytes depend
on the machine's BLAS, so the committed files are the ones to use.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from models.writer import Writer

HERE = pathlib.Path(__file__).parent
HELD_OUT = 360
Array = NDArray[np.float32]
Integers = NDArray[np.int64]


class Layer:
    """One differentiable step on NCHW batches; `parameters` and `gradients` run in parallel."""

    def __init__(self, *parameters: NDArray[Any]) -> None:
        self.parameters: list[Array] = [np.asarray(p, dtype=np.float32) for p in parameters]
        self.gradients: list[Array] = [np.zeros_like(p) for p in self.parameters]

    def forward(self, x: Array, training: bool) -> Array:
        """The layer's result; in training it keeps what `backward` needs."""
        raise NotImplementedError

    def backward(self, grad: Array) -> Array:
        """Set `gradients`, and return the loss's gradient by the input from that by the result."""
        raise NotImplementedError

    def write(self, net: Writer, x: str) -> str:
        """Add the layer to an ONNX graph."""
        raise NotImplementedError


class Conv(Layer):
    """3 × 3 convolution with one pixel of zero padding and no bias: a BatchNorm follows."""

    def __init__(self, random: np.random.Generator, channels: int, out: int) -> None:
        scale = np.sqrt(2.0 / (9 * channels))
        super().__init__(random.standard_normal((out, channels, 3, 3)) * scale)

    @staticmethod
    def _windows(x: Array) -> Array:
        """[N, C, H, W] -> [N, C, H, W, 3, 3]."""
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))

    @staticmethod
    def _convolve(windows: Array, weight: Array) -> Array:
        return np.moveaxis(np.tensordot(windows, weight, axes=((1, 4, 5), (1, 2, 3))), 3, 1)

    def forward(self, x: Array, training: bool) -> Array:
        """[N, C, H, W] -> [N, O, H, W]."""
        self.windows = self._windows(x)
        return self._convolve(self.windows, self.parameters[0])

    def backward(self, grad: Array) -> Array:
        """The input's gradient is the convolution with the weights turned round."""
        self.gradients[0] = np.tensordot(grad, self.windows, axes=((0, 2, 3), (0, 2, 3)))
        turned = self.parameters[0][:, :, ::-1, ::-1].swapaxes(0, 1)
        return self._convolve(self._windows(grad), turned)

    def write(self, net: Writer, x: str) -> str:
        """One Conv node."""
        return net.op("Conv", x, net.constant(self.parameters[0]), kernel_shape=[3, 3], pads=[1, 1, 1, 1])


class BatchNorm(Layer):
    """Normalisation per channel, with running statistics for inference."""

    EPSILON = 1e-5

    def __init__(self, channels: int) -> None:
        super().__init__(np.ones(channels), np.zeros(channels))
        self.mean = np.zeros(channels, np.float32)
        self.variance = np.ones(channels, np.float32)

    def forward(self, x: Array, training: bool) -> Array:
        """[N, C, H, W] -> the same shape."""
        if training:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
            self.mean += 0.1 * (mean - self.mean)
            self.variance += 0.1 * (variance - self.variance)
        else:
            mean, variance = self.mean, self.variance
        scale, bias = (p[:, None, None] for p in self.parameters)
        self.deviation = np.sqrt(variance + self.EPSILON)[:, None, None]
        self.normal = (x - mean[:, None, None]) / self.deviation
        return self.normal * scale + bias

    def backward(self, grad: Array) -> Array:
        """The batch's own mean and variance depend on the input, too."""
        self.gradients = [(grad * self.normal).sum((0, 2, 3)), grad.sum((0, 2, 3))]
        count = grad.size / grad.shape[1]
        along, level = (g[:, None, None] / np.float32(count) for g in self.gradients)
        return self.parameters[0][:, None, None] / self.deviation * (grad - level - self.normal * along)

    def write(self, net: Writer, x: str) -> str:
        """One BatchNormalization node."""
        statistics = [net.constant(array) for array in (*self.parameters, self.mean, self.variance)]
        return net.op("BatchNormalization", x, *statistics, epsilon=self.EPSILON)


class Relu(Layer):
    """max(x, 0)."""

    def forward(self, x: Array, training: bool) -> Array:
        """Any shape -> the same shape."""
        self.positive = x > 0
        return x * self.positive

    def backward(self, grad: Array) -> Array:
        """Only positive inputs hand a gradient on."""
        return grad * self.positive

    def write(self, net: Writer, x: str) -> str:
        """One Relu node."""
        return net.op("Relu", x)


class MaxPool(Layer):
    """The largest of each 2 × 2 block."""

    def forward(self, x: Array, training: bool) -> Array:
        """[N, C, H, W] -> [N, C, H/2, W/2], H and W even."""
        n, c, h, w = x.shape
        blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
        largest = blocks.max((3, 5), keepdims=True)
        self.chosen = blocks == largest
        return largest.reshape(n, c, h // 2, w // 2)

    def backward(self, grad: Array) -> Array:
        """Equal largest values share the gradient."""
        n, c, h, w = grad.shape
        share = self.chosen / self.chosen.sum((3, 5), keepdims=True, dtype=np.float32)
        return (share * grad.reshape(n, c, h, 1, w, 1)).reshape(n, c, 2 * h, 2 * w)

    def write(self, net: Writer, x: str) -> str:
        """One MaxPool node."""
        return net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])


class Dense(Layer):
    """Flatten and a fully connected layer."""

    def __init__(self, random: np.random.Generator, features: int, out: int) -> None:
        super().__init__(random.standard_normal((out, features)) / np.sqrt(features), np.zeros(out))

    def forward(self, x: Array, training: bool) -> Array:
        """[N, C, H, W] -> [N, out]."""
        self.shape, self.flat = x.shape, x.reshape(len(x), -1)
        return self.flat @ self.parameters[0].T + self.parameters[1]

    def backward(self, grad: Array) -> Array:
        """By the weights, and by the image."""
        self.gradients = [grad.T @ self.flat, grad.sum(0)]
        return (grad @ self.parameters[0]).reshape(self.shape)

    def write(self, net: Writer, x: str) -> str:
        """A Flatten and a Gemm node."""
        weight, bias = (net.constant(p) for p in self.parameters)
        return net.op("Gemm", net.op("Flatten", x), weight, bias, transB=1)


class Adam:
    """Adaptive moment estimation, with a learning rate given at each step."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.moments = [[(np.zeros_like(p), np.zeros_like(p)) for p in layer.parameters] for layer in layers]
        self.steps = 0

    def step(self, rate: float) -> None:
        """Move every parameter against its gradient."""
        self.steps += 1
        rate *= float(np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps))
        for layer, moments in zip(self.layers, self.moments, strict=True):
            for parameter, gradient, (first, second) in zip(layer.parameters, layer.gradients, moments, strict=True):
                first += 0.1 * (gradient - first)
                second += 0.001 * (gradient**2 - second)
                parameter -= rate * first / (np.sqrt(second) + 1e-8)


def make_layers(random: np.random.Generator) -> list[Layer]:
    """Three convolutions, 8 × 8 -> 4 × 4 -> 2 × 2, and a classifier."""
    layers: list[Layer] = []
    for channels, out, pool in ((1, 16, False), (16, 32, True), (32, 32, True)):
        layers += [Conv(random, channels, out), BatchNorm(out), Relu()]
        layers += [MaxPool()] if pool else []
    return [*layers, Dense(random, 32 * 2 * 2, 10)]


def run(layers: list[Layer], x: Array, training: bool = False) -> Array:
    """The logits [N, 10] of the images [N, 1, 8, 8]."""
    for layer in layers:
        x = layer.forward(x, training)
    return x


def distorted(images: Array, random: np.random.Generator) -> Array:
    """Each image [1, 8, 8] turned, sheared, scaled and moved a little, as another hand might have written it."""
    count = len(images)
    angle, shear = random.uniform(-0.2, 0.2, count), random.uniform(-0.25, 0.25, count)
    scale = random.uniform(0.85, 1.15, (2, count, 1, 1))
    move = random.uniform(-0.8, 0.8, (2, count, 1, 1))
    y, x = np.indices((8, 8)) - 3.5
    sine, cosine, lean = (value[:, None, None] for value in (np.sin(angle), np.cos(angle), shear))
    rows = np.clip((cosine * y - sine * x) * scale[0] + move[0] + 4.5, 0, 8.999)
    columns = np.clip((sine * y + (cosine + lean) * x) * scale[1] + move[1] + 4.5, 0, 8.999)
    padded, which = np.pad(images[:, 0], ((0, 0), (1, 1), (1, 1))), np.arange(count)[:, None, None]
    top, left = rows.astype(int), columns.astype(int)
    down, right = rows - top, columns - left
    upper = padded[which, top, left] * (1 - right) + padded[which, top, left + 1] * right
    lower = padded[which, top + 1, left] * (1 - right) + padded[which, top + 1, left + 1] * right
    return (upper * (1 - down) + lower * down).astype(np.float32)[:, None]


def train(layers: list[Layer], images: Array, labels: Integers, epochs: int, random: np.random.Generator) -> None:
    """Minimise the cross-entropy by Adam in batches of 64, the rate falling to zero along a cosine."""
    optimizer, batch = Adam(layers), 64
    for epoch in range(epochs):
        rate = 2e-3 * (1 + np.cos(np.pi * epoch / epochs))
        losses = []
        for chosen in np.array_split(random.permutation(len(images)), len(images) // batch):
            logits = run(layers, distorted(images[chosen], random), training=True)
            logits = logits - logits.max(1, keepdims=True)
            probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            right = np.arange(len(chosen)), labels[chosen]
            losses.append(-np.log(probabilities[right]).mean())
            probabilities[right] -= 1
            grad = probabilities / np.float32(len(chosen))
            for layer in reversed(layers):
                grad = layer.backward(grad)
            optimizer.step(float(rate))
        print(f"epoch {epoch + 1:3}: loss {np.mean(losses):.4f}")


def main() -> None:
    """Train, say how well the held-out images are read, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    args = parser.parse_args()
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    random = np.random.default_rng(0)
    layers = make_layers(random)
    train(layers, images[:-HELD_OUT], labels[:-HELD_OUT], args.epochs, random)
    right = run(layers, images[-HELD_OUT:]).argmax(1) == labels[-HELD_OUT:]
    print(f"held-out images: {right.sum()} of {right.size} right ({right.mean():.2%})")

    net = Writer("digits")
    x = net.input("image", [1, 1, 8, 8])
    for layer in layers:
        x = layer.write(net, x)
    net.op("Softmax", x, outputs=["probabilities"], axis=1)
    net.save(HERE / "digits.onnx", {"probabilities": [1, 10]})
    np.savez_compressed(HERE / "digits_samples.npz", images=images[-HELD_OUT:], labels=labels[-HELD_OUT:])


if __name__ == "__main__":
    main()
