"""Writes transformer_block.onnx: token ids -> embedding -> one encoder layer -> logits of each token.

    python models/make_transformer_block.py

int64 ids into a Gather, multi-head attention by Reshape, Transpose and MatMul, LayerNormalization, Gelu spelled out
with Erf. Seeded weights; the same bytes every time.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
from onnx import TensorProto

from models.writer import Writer


def linear(net: Writer, x: str, features: int, out: int) -> str:
    """MatMul and bias over the last axis."""
    weight = net.weight(features, out, scale=features**-0.5)
    return net.op("Add", net.op("MatMul", x, weight), net.weight(out, scale=0.05))


def layer_norm(net: Writer, x: str, features: int) -> str:
    """LayerNormalization over the last axis."""
    scale, bias = (net.constant(np.linspace(*ends, features)) for ends in ((0.5, 1.5), (-0.2, 0.2)))
    return net.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)


def gelu(net: Writer, x: str) -> str:
    """0.5 · x · (1 + erf(x / √2)), node by node."""
    root, one, half = (net.constant(value) for value in (2**0.5, 1.0, 0.5))
    shifted = net.op("Add", net.op("Erf", net.op("Div", x, root)), one)
    return net.op("Mul", net.op("Mul", x, shifted), half)


def attention(net: Writer, x: str, tokens: int, features: int, heads: int) -> str:
    """Softmax(Q · Kᵀ / √d) · V in `heads` parts, and the projection back."""
    split = net.constant([1, tokens, heads, features // heads], np.int64)
    perms = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    query, key, value = (
        net.op("Transpose", net.op("Reshape", linear(net, x, features, features), split), perm=perm)
        for perm in perms.values()
    )
    scale = net.constant((features // heads) ** -0.5)
    weights = net.op("Softmax", net.op("Mul", net.op("MatMul", query, key), scale), axis=-1)
    mixed = net.op("Transpose", net.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    merged = net.op("Reshape", mixed, net.constant([1, tokens, features], np.int64))
    return linear(net, merged, features, features)


def encoder_layer(net: Writer, x: str, tokens: int, features: int, heads: int) -> str:
    """Attention and a feed-forward network, each with a residual sum and a normalisation after it."""
    x = layer_norm(net, net.op("Add", x, attention(net, x, tokens, features, heads)), features)
    wide = gelu(net, linear(net, x, features, 4 * features))
    return layer_norm(net, net.op("Add", x, linear(net, wide, 4 * features, features)), features)


def make(path: pathlib.Path) -> None:
    """Write the model to `path`."""
    tokens, features, words = 12, 32, 50
    net = Writer("transformer_block")
    ids = net.input("ids", [1, tokens], TensorProto.INT64)
    x = net.op("Gather", net.weight(words, features, scale=1.0), ids)
    x = net.op("Add", x, net.weight(1, tokens, features, scale=0.1))
    x = encoder_layer(net, x, tokens, features, heads=4)
    net.op("MatMul", x, net.weight(features, words, scale=features**-0.5), outputs=["logits"])
    net.save(path, {"logits": [1, tokens, words]})


if __name__ == "__main__":
    make(pathlib.Path(__file__).with_name("transformer_block.onnx"))
