"""layout: what it removes, what it must leave, and that the numbers stay, on adversarial and on random graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx2nnapi.errors import InternalError, InvalidModelError
from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.passes.layout import layout, moves
from onnx2nnapi.passes.layout import rewriter as rewriting
from onnx2nnapi.passes.layout.moves import Move
from onnx2nnapi.passes.layout.permutations import (
    Perm,
    arrange_shape,
    channels_first,
    channels_last,
    compose,
    invert,
    is_identity,
    moves_only_ones,
    orders,
    reduced,
    refine,
)
from tests.passes.conftest import NnapiGraph, check

Build = Callable[..., None]
CASES: dict[str, tuple[Build, int, int]] = {}


def case(transposes: int, level: int = 4) -> Callable[[Build], Build]:
    """A graph, how many transposes layout leaves of it, and the target level."""

    def add(build: Build) -> Build:
        CASES[build.__name__] = (build, transposes, level)
        return build

    return add


@case(2)
def chain(g):
    g.output(g.conv(g.emit("RELU", g.conv(g.input("x", 1, 3, 8, 8), 4)), 5))


@case(0)
def nhwc_interface(g):
    y = g.first(g.input("x", 1, 8, 8, 3))
    g.output(g.last(g.emit("RELU", g.conv(y, 4))))


@case(0, level=1)
def nhwc_interface_at_level_1(g):
    y = g.bare_conv(g.input("x", 1, 8, 8, 3), 4)
    y = g.emit("AVERAGE_POOL_2D", y, padding_left=0, padding_right=0, padding_top=0, padding_bottom=0,
               stride_width=1, stride_height=1, filter_width=8, filter_height=8)  # fmt: skip
    g.output(g.dense(g.reshape(y, (1, 4)), 10))


@case(1)
def residual_and_head(g):
    y = g.conv(g.input("x", 1, 3, 8, 8), 4)
    z = g.conv(g.emit("RELU", y), 4)
    y = g.emit("MEAN", g.emit("RELU", g.emit("ADD", y, z)), axes=(2, 3), keep_dims=0)
    g.output(g.dense(y, 10))


@case(1)
def flatten_into_weights(g):
    y = g.emit("RELU", g.conv(g.input("x", 2, 3, 8, 8), 4))
    y = g.emit("ADD", g.emit("TANH", g.reshape(y, (2, 256))), g.weights(256))
    g.output(g.dense(y, 10))


@case(2)
def flatten_that_is_also_an_output(g):
    y = g.reshape(g.conv(g.input("x", 1, 3, 8, 8), 4), (1, 256))
    g.output(g.dense(y, 10))
    g.output(y)


@case(2)
def concat_split_softmax(g):
    x = g.input("x", 1, 3, 8, 8)
    y = g.emit("CONCATENATION", g.conv(x, 4), g.conv(x, 6), axis=1)
    y = g.emit("SUB", *g.emit_all("SPLIT", y, axis=1, count=2))
    g.output(g.conv(g.emit("SOFTMAX", y, axis=1), 3))


@case(4, level=2)
def softmax_that_has_only_the_last_axis(g):
    y = g.emit("SOFTMAX", g.conv(g.input("x", 1, 3, 8, 8), 4))
    g.output(g.conv(y, 3))


@case(3)
def branches_with_mixed_layouts(g):
    x = g.input("x", 1, 3, 8, 8)
    a = g.conv(x, 3)
    y = g.conv(g.emit("ADD", a, x), 3)
    y = g.emit("ADD", g.emit("MUL", g.emit("ADD", y, g.weights(3, 1, 1)), g.weights(1, 3, 1, 1)), g.weights(8))
    g.output(y)
    g.output(a)


@case(2)
def broadcasts_of_lower_rank(g):
    y = g.emit("MUL", g.conv(g.input("x", 1, 3, 8, 8), 3), g.input("c", 3, 1, 1))
    g.output(g.conv(g.emit("ADD", y, g.input("w", 8)), 2))


@case(3)
def broadcast_of_lower_rank_that_really_moves(g):
    y = g.emit("MUL", g.conv(g.input("x", 1, 3, 64, 64), 3), g.input("m", 3, 64, 64))
    g.output(g.conv(y, 2))


@case(2)
def squeeze_and_excite(g):
    y = g.conv(g.input("x", 1, 4, 8, 8), 4)
    s = g.emit("RELU", g.conv(g.emit("MEAN", y, axes=(2, 3), keep_dims=1), 2, 1))
    g.output(g.conv(g.emit("MUL", y, g.emit("LOGISTIC", g.conv(s, 4, 1))), 4))


@case(1)
def sequence_over_the_width(g):
    y = g.emit("MEAN", g.conv(g.input("x", 1, 3, 4, 8), 6), axes=(2,), keep_dims=0)
    g.output(g.dense(g.reshape(g.transpose(y, (0, 2, 1)), (8, 6)), 5))


@case(2)
def space_flattened_and_back(g):
    y = g.emit("RELU", g.reshape(g.conv(g.input("x", 1, 3, 4, 8), 6), (1, 6, 32)))
    g.output(g.conv(g.reshape(y, (1, 6, 8, 4)), 2))


@case(0)
def attention_that_cancels_through_a_chain(g):
    y = g.transpose(g.reshape(g.input("x", 1, 6, 8), (1, 6, 2, 4)), (0, 2, 1, 3))
    y = g.transpose(g.emit("TANH", g.emit("RELU", y)), (0, 2, 1, 3))
    g.output(g.reshape(y, (1, 6, 8)))


@case(1)
def transposes_compose(g):
    y = g.transpose(g.transpose(g.input("x", 2, 3, 4), (1, 0, 2)), (0, 2, 1))
    g.output(y)


@case(2)
def several_readers_of_a_transpose(g):
    t = g.last(g.input("x", 1, 3, 8, 8))
    g.output(g.first(g.emit("ADD", g.bare_conv(t, 3), g.emit("RELU", t))))
    g.output(t)


@case(1)
def twice_the_same_transpose(g):
    x = g.input("x", 1, 3, 8, 8)
    g.output(g.emit("ADD", g.emit("RELU", g.last(x)), g.emit("TANH", g.last(x))))


@case(0)
def moved_ones_are_a_reshape(g):
    g.output(g.emit("RELU", g.transpose(g.input("x", 1, 5, 1, 1), (0, 2, 3, 1))))


@case(1)
def rank_6_merges(g):
    y = g.transpose(g.reshape(g.input("x", 2, 8, 8, 4), (2, 2, 4, 2, 4, 4)), (0, 1, 3, 2, 4, 5))
    g.output(g.reshape(y, (8, 16, 4)))


@case(2)
def rank_6_in_two_steps(g):
    y = g.transpose(g.reshape(g.input("x", 1, 8, 3, 5), (1, 2, 2, 2, 3, 5)), (0, 1, 4, 2, 5, 3))
    g.output(g.reshape(y, (1, 2, 6, 10)))


@case(2)
def pads_slices_and_tiles(g):
    y = g.emit("PAD", g.conv(g.input("x", 1, 3, 8, 8), 4), paddings=((0, 0), (0, 1), (2, 0), (0, 3)))
    y = g.emit("SLICE", y, begin=(0, 1, 0, 2), size=(1, 3, 9, 8))
    y = g.emit("TILE", y, multiples=(1, 2, 1, 1))
    y = g.emit("STRIDED_SLICE", y, begin=(0, 0, 1, 0), end=(1, 6, 9, 8), strides=(1, 2, 1, 3),
               begin_mask=2, end_mask=4, shrink_axis_mask=0)  # fmt: skip
    g.output(g.conv(y, 3))


@case(2)
def strided_slice_that_drops_a_dimension(g):
    y = g.emit("STRIDED_SLICE", g.conv(g.input("x", 2, 3, 8, 8), 4), begin=(0, 0, 1, 0), end=(2, 4, 2, 8),
               strides=(1, 1, 1, 1), begin_mask=0, end_mask=0, shrink_axis_mask=4)  # fmt: skip
    g.output(g.emit("RELU", y))
    g.output(g.transpose(y, (0, 2, 1)))


@case(3)
def comparison_and_select(g):
    a, b = g.conv(g.input("x", 1, 3, 8, 8), 4), g.conv(g.input("z", 1, 3, 8, 8), 4)
    g.output(g.conv(g.emit("SELECT", g.emit("LESS", a, b), a, g.emit("ABS", b)), 3))


@case(1)
def arg_max_over_channels(g):
    g.output(g.emit("ARGMAX", g.conv(g.input("x", 1, 3, 8, 8), 4), axis=1))


@case(2)
def gather_along_a_dimension(g):
    index = g.const(np.array([2, 0], np.int32))
    g.output(g.conv(g.emit("GATHER", g.conv(g.input("x", 1, 3, 8, 8), 4), index, axis=1), 3))


@case(0)
def output_is_input(g):
    x = g.input("x", 1, 3, 4, 4)
    g.output(g.first(g.last(x)))


@pytest.mark.parametrize("name", CASES)
def test_layout_leaves_the_transposes_that_must_be(name: str, check_pass, nnapi_graph) -> None:
    build, transposes, level = CASES[name]
    g = nnapi_graph(level)
    build(g)
    graph = check_pass(g.done(), layout, g.options)
    kinds = Counter(op.kind for op in graph.ops)
    assert kinds["TRANSPOSE"] == transposes, [op.kind for op in graph.ops]
    assert all(graph[name].rank <= 4 for op in graph.ops for name in (*op.inputs, *op.outputs) if name)


def test_reshape_moves_behind_an_activation(check_pass, nnapi_graph) -> None:
    g = nnapi_graph()
    y = g.dense(g.input("x", 6, 8), 4)
    g.output(g.emit("RELU", g.emit("ADD", g.reshape(y, (1, 6, 4)), g.weights(1, 1, 4))))
    graph = check_pass(g.done(), layout)
    assert [op.kind for op in graph.ops] == ["FULLY_CONNECTED", "ADD", "RELU", "RESHAPE"]


def test_what_a_value_holds_follows_its_permutation(nnapi_graph) -> None:
    g = nnapi_graph()
    y = g.emit("RELU", g.conv(g.input("x", 1, 3, 8, 8), 4))
    y.holds = type(y.holds)("act")
    g.output(g.conv(y, 2))
    graph = g.done()
    layout(graph, g.options)
    held = [value.holds for value in graph.values.values() if value.holds is not None and value.holds.name == "act"]
    assert [holds.perm for holds in held] == [(0, 2, 3, 1)]


# -- random graphs -----------------------------------------------------------------------------------------------------


@st.composite
def programs(draw) -> list[tuple[str, int, int, int]]:
    kinds = st.sampled_from(
        [
            "conv",
            "conv",
            "relu",
            "add",
            "mul",
            "concat",
            "split",
            "mean",
            "pad",
            "softmax",
            "transpose",
            "flat",
            "dense",
        ]
    )
    number = st.integers(0, 11)
    return draw(st.lists(st.tuples(kinds, number, number, number), min_size=2, max_size=12))


def interpret(g, program: list[tuple[str, int, int, int]]) -> None:
    """Build the graph that a list of numbers spells: each step reads what earlier ones made."""
    pool: list[Value] = [g.input("x", 1, 3, 4, 6), g.input("z", 1, 3, 4, 6), g.input("v", 2, 3, 6)]
    for kind, first, second, third in program:
        x = pool[first % len(pool)]
        y = _step(g, pool, kind, x, second, third)
        if y is not None:
            pool.append(y)
    last = [value for value in pool if not g.graph.readers(value.name)] or pool[-1:]
    for value in last:
        g.output(value)
    if len(pool) > 4:
        g.output(pool[4])


def _step(g, pool: list[Value], kind: str, x: Value, second: int, third: int) -> Value | None:
    rank = x.rank
    if kind == "conv":
        return g.conv(x, 3, 1 + 2 * (second % 2)) if rank == 4 and max(x.shape) < 40 else None
    if kind == "relu":
        return g.emit(("RELU", "TANH", "ABS")[second % 3], x)
    if kind == "add":
        other = pool[second % len(pool)]
        return g.emit("ADD", x, other) if other.shape == x.shape else None
    if kind == "mul":
        shape = [size if (third >> axis) & 1 else 1 for axis, size in enumerate(x.shape)]
        return g.emit("MUL", x, g.weights(*shape[second % rank :]))
    if kind == "concat":
        others = [value for value in pool if value.shape == x.shape][:2]
        return g.emit("CONCATENATION", x, *others, axis=second % rank) if max(x.shape) < 20 else None
    if kind == "split":
        axis = second % rank
        return g.emit("SUB", *g.emit_all("SPLIT", x, axis=axis, count=2)) if x.shape[axis] % 2 == 0 else None
    if kind == "mean":
        return g.emit("MEAN", x, axes=(second % rank,), keep_dims=third % 2) if rank > 1 else None
    if kind == "pad":
        return g.emit("PAD", x, paddings=tuple((int(axis == second % rank), 0) for axis in range(rank)))
    if kind == "softmax":
        return g.emit("SOFTMAX", x, axis=second % rank)
    if kind == "transpose":
        perm = tuple(np.random.default_rng(second * 12 + third).permutation(rank).tolist())
        return g.transpose(x, (channels_last(4), channels_first(4), perm)[third % 3] if rank == 4 else perm)
    if kind == "flat":
        if rank < 3:
            return None
        at = second % (rank - 1)
        merged = (*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :])
        return g.reshape(x, merged)
    return g.dense(g.reshape(x, (x.shape[0], x.known.size // x.shape[0])), 4) if rank > 1 else None


@settings(max_examples=60)
@given(programs())
def test_layout_of_random_graphs(program: list[tuple[str, int, int, int]]) -> None:
    g = NnapiGraph()
    interpret(g, program)
    graph = g.done()
    before = weigh(graph)
    check(graph, layout, g.options, tolerance=1e-4)
    assert weigh(graph) <= before


def weigh(graph: Graph) -> float:
    rewriter = rewriting.Rewriter(graph, 4)
    return sum(rewriter.cost(graph[op.inputs[0]].known, rewriter.perm_of(op) or ()) for op in rewriter.transposes())


# -- planted faults: each must turn the checks red ---------------------------------------------------------------------

FAULTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "attributes stay as they were": (
        moves, "_along", lambda op, perm, out, attrs: Move(_all(op, perm), (out,) * len(op.outputs), op.attrs)
    ),
    "weights stay as they were": (rewriting, "reindex", lambda const, axis, sizes, perm: const),
    "constants stay as they were": (rewriting.Rewriter, "_constant", lambda self, name, shape, perm: name),
    "a reshape lets all pass": (moves, "_blocks", lambda atoms, order: dict(enumerate(atoms.after))),
    "rows are not asked": (moves, "_ask", lambda *arguments: True),
}  # fmt: skip


def _all(op: Op, perm: Perm) -> tuple[Perm, ...]:
    return (perm,) * len(op.inputs)


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault: str, monkeypatch, check_pass, nnapi_graph) -> None:
    g = nnapi_graph(2)
    y = g.emit("SOFTMAX", g.conv(g.input("x", 1, 4, 4, 4), 4))
    y = g.emit("PAD", g.conv(y, 4), paddings=((0, 0), (0, 0), (1, 0), (0, 0)))
    y = g.emit("RELU", g.conv(g.emit("MUL", y, g.weights(4, 1, 1)), 4))
    g.output(g.conv(g.reshape(g.conv(y, 4), (1, 5, 4, 4)), 3))
    g.output(g.dense(g.reshape(g.conv(y, 4), (1, 80)), 5))
    graph = g.done()
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises((AssertionError, InternalError, InvalidModelError, ValueError)):
        check_pass(graph, layout, g.options)


# -- permutations ------------------------------------------------------------------------------------------------------

shapes = st.lists(st.integers(1, 3), min_size=1, max_size=6).map(tuple)


@given(shapes, st.randoms(use_true_random=False))
def test_reduced_permutations_move_the_elements_alike(shape, random) -> None:
    perm = tuple(random.sample(range(len(shape)), len(shape)))
    x = np.arange(np.prod(shape)).reshape(shape)
    sizes, order = reduced(shape, perm)
    np.testing.assert_array_equal(x.reshape(sizes).transpose(order).ravel(), x.transpose(perm).ravel())
    assert moves_only_ones(shape, perm) == np.array_equal(x.ravel(), x.transpose(perm).ravel())
    assert arrange_shape(shape, perm) == x.transpose(perm).shape
    assert is_identity(compose(perm, invert(perm)))


@given(shapes, st.randoms(use_true_random=False))
def test_refine_finds_the_common_factors(shape, random) -> None:
    before, after = list(shape), list(shape)
    for sizes in (before, after):
        while len(sizes) > 1 and random.random() < 0.5:
            at = random.randrange(len(sizes) - 1)
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    atoms = refine(before, after)
    assert atoms is not None
    for sizes, parts in ((before, atoms.before), (after, atoms.after)):
        assert [int(np.prod([atoms.sizes[atom] for atom in part])) for part in parts] == sizes
        assert [atom for part in parts for atom in part] == list(range(len(atoms.sizes)))


def test_refine_refuses_what_interleaves() -> None:
    assert refine((4, 6), (6, 4)) is None
    assert refine((0, 2), (2, 0)) is None


def test_orders_prefer_the_known_permutations() -> None:
    assert list(orders([0, 2], 4)) == [(0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2)]
    assert next(iter(orders([1, 0], 2))) == (1, 0)
