"""Rules of passes/legalize/control.py, and the passes inline_control and settle_submodels."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import onnx2nnapi
from tests.ops.harness import CHECKED_LEVELS, bools, f32, ints

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


@dataclasses.dataclass(frozen=True)
class Flow:
    """A model with control flow.

    Attributes:
        name: of the row.
        text: of the graph, as onnx.parser reads it.
        feeds: several, so that every way through is taken.
        since: the level from which it converts; a refusal is due below, or everywhere for what ``refused`` matches.
        has: the operation with sub-models that it becomes at level 4, "" for none.
    """

    name: str
    text: str
    feeds: tuple[dict[str, Any], ...]
    since: int = 4
    has: str = ""
    refused: str = ""

    def oracle(self) -> Any:
        """onnx.reference for If; it joins a Loop's scan outputs otherwise than the standard, and knows few Scans."""
        if "If (" in self.text:
            return ReferenceEvaluator(self.model())
        return onnxruntime.InferenceSession(self.model().SerializeToString(), providers=["CPUExecutionProvider"])

    def model(self) -> onnx.ModelProto:
        return onnx.parser.parse_model(HEADER + self.text)


def flag(value: bool) -> np.ndarray[Any, Any]:
    return np.array(value)


def trips(value: int) -> np.ndarray[Any, Any]:
    return np.array(value, np.int64)


X = f32(2, 3)
BOTH = tuple({"c": flag(c), "x": f32(2, 3)} for c in (True, False))
FLOWS = [
    Flow(
        "if",
        """g (bool c, float[2,3] x) => (float[2,3] y) {
            y = If (c) <then_branch = t () => (a) { a = Relu(x) }, else_branch = e () => (b) { b = Neg(x) }>
        }""",
        BOTH,
        since=3,
        has="IF",
    ),
    Flow(
        "if with outputs that the branches hand through, repeat or hold constant",
        """g (bool c, float[2,3] x) => (float[2,3] y, float[2,3] z, float[1] k) {
            y, z, k = If (c) <
                then_branch = t () => (a, x1, k1) <float[1] k1 = {1.5}> { a = Relu(x) x1 = Identity(x) },
                else_branch = e () => (d, d, k2) <float[1] k2 = {2.5}> { d = Neg(x) }>
        }""",
        BOTH,
        since=3,
        has="IF",
    ),
    Flow(
        "if between constants",
        """g (bool c) => (int64[2] y, bool[1] z) {
            y, z = If (c) <
                then_branch = t () => (k1, m1) <int64[2] k1 = {1, 2}, bool[1] m1 = {1}> { },
                else_branch = e () => (k2, m2) <int64[2] k2 = {3, 4}, bool[1] m2 = {0}> { }>
        }""",
        tuple({"c": flag(c)} for c in (True, False)),
        since=3,
        has="IF",
    ),
    Flow(
        "nested if on a computed condition",
        """g (bool c, float[2,3] x) => (float[2,3] y) {
            s = ReduceSum <keepdims = 0> (x)
            zero = Constant <value = float {0}> ()
            d = Greater (s, zero)
            n = Neg (x)
            y = If (c) <
                then_branch = t () => (a) {
                    a = If (d) <then_branch = tt () => (p) { p = Add(n, n) }, else_branch = te () => (q) { q = Abs(n) }>
                },
                else_branch = e () => (b) { b = Transpose <perm = [1, 0]> (x) f = Transpose (b) b2 = Identity (f) }>
        }""".replace("=> (b) {", "=> (b2) {"),
        tuple({"c": flag(c), "x": x} for c in (True, False) for x in (X, -X)),
        has="IF",
    ),
    Flow(
        "if with convolutions, whose layout each branch settles for itself",
        """g (bool c, float[1,3,6,6] x, float[4,3,3,3] w) => (float[1,4,6,6] y)
        {
            y = If (c) <
                then_branch = t () => (a) { a0 = Conv <pads = [1,1,1,1]> (x, w) a = Relu(a0) },
                else_branch = e () => (b) { b0 = Relu(x) b = Conv <pads = [1,1,1,1]> (b0, w) }>
        }""",
        tuple({"c": flag(c), "x": f32(1, 3, 6, 6), "w": f32(4, 3, 3, 3)} for c in (True, False)),
        since=3,
        has="IF",
    ),
    Flow(
        "if over a lookup, which may fail in the branch that is not meant",
        """g (bool c, float[4,3] x, int64[2] i) => (float[2,3] y) {
            y = If (c) <
                then_branch = t () => (a) { a = Gather(x, i) },
                else_branch = e () => (b) <int64[1] s = {0}, int64[1] f = {2}> { b = Slice(x, s, f) }>
        }""",
        tuple({"c": flag(c), "x": f32(4, 3), "i": ints(2, low=0, high=3, dtype=np.int64)} for c in (True, False)),
        has="IF",
    ),
    Flow(
        "if with shapes that differ",
        """g (bool c, float[2,3] x) => (float[n] y) {
            y = If (c) <
                then_branch = t () => (a) { a = ReduceSum <keepdims = 0> (x, k) },
                else_branch = e () => (b) { b = ReduceSum <keepdims = 0> (x, m) }>
        }""".replace("{ a =", "<int64[1] k = {0}> { a =").replace("{ b =", "<int64[1] m = {1}> { b ="),
        BOTH,
        refused="shape",
    ),
    Flow(
        "loop of known trips, unrolled",
        """g (float[2,3] x) => (float[2,3] y, float[3,2,3] ys) <int64 m = {3}, bool go = {1}> {
            y, ys = Loop (m, go, x) <body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] t, float[2,3] u) {
                k2 = Identity(k) f = Cast <to = 1> (i) t = Add(s, f) u = Mul(t, x)
            }>
        }""",
        ({"x": X},),
        since=1,
    ),
    Flow(
        "if over tensors of rank 5 and of no elements",
        """g (bool c, float[1,2,3,2,2] x, float[2,0] z) => (float[1,2,3,2,2] y, float[2,0] v) {
            n = Neg(x)
            y, v = If (c) <
                then_branch = t () => (a, p) { a = Relu(n) p = Relu(z) },
                else_branch = e () => (d, q) { d = Transpose <perm = [0,1,2,4,3]> (n) q = Neg(z) }>
        }""",
        tuple({"c": flag(c), "x": f32(1, 2, 3, 2, 2), "z": f32(2, 0)} for c in (True, False)),
        since=3,
        has="IF",
    ),
    Flow(
        "loop that carries rank 5",
        """g (int64 m, float[1,2,3,2,2] x) => (float[1,2,3,2,2] y) <bool go = {1}> {
            y = Loop (m, go, x) <body = b (int64 i, bool k, float[1,2,3,2,2] s) => (bool k2, float[1,2,3,2,2] t) {
                k2 = Identity(k) r = Transpose <perm = [0,1,2,4,3]> (s) t = Add(r, x)
            }>
        }""",
        tuple({"m": trips(n), "x": f32(1, 2, 3, 2, 2)} for n in (0, 3)),
        has="WHILE",
    ),
    Flow(
        "loop whose trips the run tells",
        """g (int64 m, float[2,3] x) => (float[2,3] y) <bool go = {1}> {
            y = Loop (m, go, x) <body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] t) {
                k2 = Identity(k) f = Cast <to = 1> (i) p = Add(s, f) t = Mul(p, x)
            }>
        }""",
        tuple({"m": trips(n), "x": X} for n in (0, 1, 4)),
        has="WHILE",
    ),
    Flow(
        "loop that ends by its condition, with an integer state",
        """g (bool go, float[2,3] x, int64[1] n) => (float[2,3] y, int64[1] k) <int64 m = {9223372036854775807}> {
            y, k = Loop (m, go, x, n) <
                body = b (int64 i, bool c, float[2,3] s, int64[1] a) => (bool c2, float[2,3] t, int64[1] a2)
                <float limit = {40}, int64[1] one = {1}, float h = {1.5}> {
                    t = Mul(s, h) a2 = Add(a, one) top = ReduceMax <keepdims = 0> (t) c2 = Less(top, limit)
                }>
        }""",
        tuple({"go": flag(go), "x": np.abs(X) + 0.1, "n": np.array([7], np.int64)} for go in (True, False)),
        has="WHILE",
    ),
    Flow(
        "loop too long to unroll, with scan outputs",
        """g (float[2,3] x) => (float[2,3] y, float[200,2,3] ys, bool[200] bs)
        <int64 m = {200}, bool go = {1}, float h = {0.9}, float zero = {0}> {
            y, ys, bs = Loop (m, go, x) <
                body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] t, float[2,3] t2, bool p) {
                    k2 = Identity(k) f = Cast <to = 1> (i) w = Sin(f) v = Mul(s, h) t = Add(v, w) t2 = Neg(t)
                    q = ReduceSum <keepdims = 0> (t) p = Greater(q, zero)
                }>
        }""",
        ({"x": X},),
        since=3,
        has="WHILE",
    ),
    Flow(
        "loop with scan outputs of unknown number",
        """g (int64 m, float[2,3] x) => (float[n,2,3] ys) <bool go = {1}> {
            y, ys = Loop (m, go, x) <body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] t, float[2,3] u) {
                k2 = Identity(k) t = Add(s, x) u = Neg(t)
            }>
        }""",
        ({"m": trips(2), "x": X},),
        refused="shape|rows",
    ),
    Flow(
        "loop that carries a growing tensor",
        """g (int64 m, float[1,3] x) => (float[n,3] y) <bool go = {1}> {
            y = Loop (m, go, x) <body = b (int64 i, bool k, float[j,3] s) => (bool k2, float[l,3] t) {
                k2 = Identity(k) t = Concat <axis = 0> (s, x)
            }>
        }""",
        ({"m": trips(2), "x": f32(1, 3)},),
        refused="shape",
    ),
    Flow(
        "scan, unrolled, backward and along other axes",
        """g (float[3] s0, float[3,4] x, float[4,3] z) => (float[3] s, float[3,4] ys, float[4,3] zs) {
            s, ys, zs = Scan (s0, x, z) <
                num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [0, 1],
                scan_output_axes = [1, 0], scan_output_directions = [0, 1],
                body = b (float[3] a, float[3] p, float[3] q) => (float[3] a2, float[3] u, float[3] v) {
                    d = Mul(p, q) a2 = Add(a, d) u = Neg(a2) v = Relu(a2)
                }>
        }""",
        ({"s0": f32(3), "x": f32(3, 4), "z": f32(4, 3)},),
        since=2,
    ),
    Flow(
        "scan too long to unroll",
        """g (float[3] s0, float[3,300] x, float[300,3] z) => (float[3] s, float[3,300] ys, float[300,3] zs) {
            s, ys, zs = Scan (s0, x, z) <
                num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [0, 1],
                scan_output_axes = [1, 0], scan_output_directions = [0, 1],
                body = b (float[3] a, float[3] p, float[3] q) => (float[3] a2, float[3] u, float[3] v) {
                    d = Mul(p, q) a2 = Add(a, d) u = Neg(a2) v = Relu(a2)
                }>
        }""",
        ({"s0": f32(3), "x": f32(3, 300), "z": f32(300, 3)},),
        since=2,
        has="WHILE",
    ),
    Flow(
        "an if in an unrolled loop, which the trip decides",
        """g (float[2,3] x) => (float[2,3] y) <int64 m = {3}, bool go = {1}, int64 first = {0}> {
            y = Loop (m, go, x) <body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] t) {
                k2 = Identity(k) c = Equal(i, first)
                t = If (c) <then_branch = p () => (u) { u = Relu(s) }, else_branch = q () => (v) { v = Add(s, x) }>
            }>
        }""",
        ({"x": X},),
        since=1,
    ),
    Flow(
        "if over booleans",
        """g (bool c, bool[2,3] x, bool[2,3] z) => (bool[2,3] y) {
            y = If (c) <then_branch = t () => (a) { a = And(x, z) }, else_branch = e () => (b) { b = Not(x) }>
        }""",
        tuple({"c": flag(c), "x": bools(2, 3), "z": bools(2, 3)} for c in (True, False)),
        since=3,
        has="IF",
    ),
]


@pytest.mark.parametrize("level", CHECKED_LEVELS)
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_rule(flow: Flow, level: int) -> None:
    model = flow.model()
    if flow.refused or level < flow.since:
        with pytest.raises(onnx2nnapi.UnsupportedError, match=flow.refused or "needs feature level") as refusal:
            onnx2nnapi.convert(model, feature_level=level)
        assert re.search("-> '|output '|input '", str(refusal.value)), "a refusal names its place"
        return
    program = onnx2nnapi.convert(model, feature_level=level)
    assert program.required_level <= level
    kinds = {operation.code.name for operation in program.model.main.operations}
    assert kinds & {"IF", "WHILE"} == ({flow.has} if flow.has and level >= 4 else set())
    oracle = flow.oracle()
    with onnx2nnapi.Session(program, backend="host") as session:
        for feeds in flow.feeds:
            expected = oracle.run(None, feeds)
            for (name, value), want in zip(session.run(feeds).items(), expected, strict=True):
                assert value.dtype == np.asarray(want).dtype
                np.testing.assert_allclose(value, want, rtol=1e-4, atol=1e-4, err_msg=name)
