"""recognize_normalizations: means, differences, squares and roots become the one operator that they spell.

Before::

    a = ReduceMean(x, [-1])
    b = Sub(x, a)
    c = Pow(b, 2)
    d = ReduceMean(c, [-1])
    e = Add(d, epsilon)
    f = Sqrt(e)
    y = Div(b, f)

After::

    y = LayerNormalization(x, ones) {axis=-1, epsilon=…}

A scale and a bias that follow stay as they are: they are a MUL and an ADD either way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.ir.types import LazyArray, Shape
from onnx2nnapi.options import Options
from onnx2nnapi.passes.pattern import (
    Apply,
    Either,
    Input,
    Made,
    Match,
    Number,
    Pattern,
    Product,
    Rule,
    Setting,
    rewrite,
    scalar,
)

__all__ = ["recognize_normalizations"]

_ZERO_LEVEL = 4  # from here on L2_NORMALIZATION of zeros is zero, as with what keeps models from dividing by 0
_RSQRT_LEVEL = 3
_GUARD = 1e-6  # norms below this are nothing that a model tells apart from 0
_ADDED = 1e-12  # and this is lost in rounding when it is added to the norm, or to the square, of what is something


def recognize_normalizations(graph: Graph, options: Options) -> bool:
    """Recognize Softmax, LogSoftmax, LpNormalization, Layer- and InstanceNormalization, and 1 / √x as x to the -½.

    ONNX dialect, float tensors. The power comes last: the others have it within.
    """
    guarded = _GUARDED if options.feature_level >= _ZERO_LEVEL else ()
    changed = rewrite(graph, options, (*_SOFTMAX, *_NORM, *guarded, *_MOMENTS))
    return (options.feature_level >= _RSQRT_LEVEL and rewrite(graph, options, _RSQRT)) or changed


_X, _AXES, _EPSILON = Input("x"), Setting("axes"), Setting("epsilon")


def _reduced(kind: str, x: Pattern) -> Apply:
    return Apply(kind, x, _AXES, keepdims=1)


def _square(x: Pattern) -> Product:
    return Product(1.0, x, x)


def _root(x: Pattern) -> Either:
    return Either(Apply("Sqrt", x), Apply("Pow", x, Number(0.5)))


def _inverse(x: Pattern) -> Either:
    return Either(Apply("Reciprocal", x), Apply("Div", Number(1.0), x), Apply("Pow", x, Number(-1.0)))


def _inverse_root(x: Pattern) -> Either:
    return Either(_inverse(_root(x)), _root(_inverse(x)), Apply("Pow", x, Number(-0.5)))


def _repeated(x: Pattern) -> Either:
    """As large as what it is to be divided by, which broadcasting does as well."""
    return Either(x, Apply("Expand", x, Setting("shape")))


def _axes(graph: Graph, found: Match) -> tuple[int, ...]:
    """The reduced axes in order, counted from the first."""
    rank = max(graph[found.values["x"]].rank, 1)
    const = graph.const(found.values["axes"])
    return () if const is None else tuple(sorted(int(axis) % rank for axis in const.numpy().reshape(-1)))


def _along_one(
    kind: str, guards: dict[str, float] | None = None, **attrs: float
) -> Callable[[Graph, Match], Made | None]:
    """Makes an operator with one axis, that of the reductions; numbers that guard it are at most as large as given."""

    def make(graph: Graph, found: Match) -> Made | None:
        axes = _axes(graph, found)
        for name, limit in (guards or {}).items():
            if name in found.values:
                number = scalar(graph, found.values[name])
                if number is None or not 0 <= number <= limit:
                    return None
        return (kind, (found.values["x"],), {"axis": axes[0], **attrs}) if len(axes) == 1 else None

    return make


# -- softmax -----------------------------------------------------------------------------------------------------------

_SHIFTED = Apply("Sub", _X, _repeated(_reduced("ReduceMax", _X)))  # so that no exponential overflows


def _softmax(powers: Pattern) -> Either:
    total = _repeated(_reduced("ReduceSum", powers))
    return Either(Apply("Div", powers, total), Product(1.0, powers, _inverse(total)))


_PARTS = Either(_softmax(Apply("Exp", _SHIFTED)), _softmax(Apply("Exp", _X)))
_LOG_PARTS = Apply("Sub", _SHIFTED, _repeated(Apply("Log", _reduced("ReduceSum", Apply("Exp", _SHIFTED)))))


def _log_softmax(graph: Graph, found: Match) -> Made:
    return "LogSoftmax", (found.values["x"],), {"axis": found.named["softmax"].attrs["axis"]}


_SOFTMAX = (
    Rule(Apply("Log", Apply("Softmax", _X, name="softmax")), _log_softmax),
    Rule(Either(_LOG_PARTS, Apply("Log", _PARTS)), _along_one("LogSoftmax")),
    Rule(_PARTS, _along_one("Softmax")),
)

# -- by the norm -------------------------------------------------------------------------------------------------------

_SQUARES = Either(_reduced("ReduceSum", _square(_X)), _reduced("ReduceSumSquare", _X))
_PLAIN = Either(_root(_SQUARES), _reduced("ReduceL2", _X))


def _raised(x: Pattern, floor: str) -> Either:
    return Either(Apply("Clip", x, Setting(floor)), Apply("Add", x, Setting("added")))


def _divided(norm: Pattern, squares: Pattern) -> Either:
    return Either(
        Apply("Div", _X, _repeated(norm)),
        Product(1.0, _X, _repeated(Either(_inverse(norm), _inverse_root(squares)))),
    )


_SAFE_SQUARES = _raised(_SQUARES, "squared floor")
_SAFE = Either(_raised(_PLAIN, "floor"), _root(_SAFE_SQUARES))
_LIMITS = {"floor": _GUARD, "squared floor": _GUARD**2, "added": _ADDED}
_NORM = (Rule(_divided(_PLAIN, _SQUARES), _along_one("LpNormalization", p=2)),)
_GUARDED = (Rule(_divided(_SAFE, _SAFE_SQUARES), _along_one("LpNormalization", _LIMITS, p=2)),)

# -- by mean and variance ----------------------------------------------------------------------------------------------

_MEAN = _reduced("ReduceMean", _X)
_CENTRED = Apply("Sub", _X, _repeated(_MEAN))
_VARIANCE = Apply("Add", _reduced("ReduceMean", _square(_CENTRED)), _EPSILON)
_DEVIATION = _inverse_root(_VARIANCE)
_GAMMA, _BETA = Setting("gamma"), Setting("beta")
_FACTOR = Product(1.0, _DEVIATION, _GAMMA)


def _normalization(graph: Graph, found: Match) -> Made | None:
    """InstanceNormalization over the two dimensions of images, LayerNormalization over the last ones."""
    x, epsilon, axes = graph[found.values["x"]], scalar(graph, found.values["epsilon"]), _axes(graph, found)
    if epsilon is None or axes != tuple(range(x.rank - len(axes), x.rank)) or not axes:
        return None
    of_images = axes == (2, 3)
    varying = (x.shape[1], 1, 1) if of_images else x.shape[axes[0] :]
    parameters = [
        _parameter(graph, found, name, varying, x.shape[1:2] if of_images else varying, neutral)
        for name, neutral in (("gamma", 1), ("beta", 0))
    ]
    if None in parameters:
        return None
    inputs = (x.name, *parameters)
    if of_images:
        return "InstanceNormalization", inputs, {"epsilon": epsilon}
    return "LayerNormalization", inputs, {"axis": axes[0], "epsilon": epsilon, "stash_type": 1}


def _parameter(graph: Graph, found: Match, name: str, varying: Shape, shape: Shape, neutral: int) -> str | None:
    """A constant of shape ``shape`` from one that broadcasts as ``varying`` does; None where it varies otherwise."""
    x = graph[found.values["x"]]
    if name not in found.values:
        array = np.full(shape, neutral, x.known.dtype)
        return graph.constant(f"{x.name}.{name}", LazyArray.of(array)).name
    const = graph[found.values[name]].const
    if const is None or (1,) * (x.rank - len(const.shape)) + const.shape != (1,) * (x.rank - len(varying)) + varying:
        return None
    return graph.constant(f"{x.name}.{name}", const.reshape(shape)).name


_MOMENTS = (
    # Keras spreads the scale and the bias over the formula; elsewhere they follow it.
    Rule(Apply("Add", Product(1.0, _X, _FACTOR), Apply("Sub", _BETA, Product(1.0, _MEAN, _FACTOR))), _normalization),
    Rule(
        Either(Apply("Div", _CENTRED, _repeated(_root(_VARIANCE))), Product(1.0, _CENTRED, _repeated(_DEVIATION))),
        _normalization,
    ),
)

# -- the root alone ----------------------------------------------------------------------------------------------------


def _power(graph: Graph, found: Match) -> Made:
    x = graph[found.values["x"]]
    exponent = graph.constant(f"{x.name}.exponent", LazyArray.of(np.asarray(-0.5, x.known.dtype)))
    return "Pow", (x.name, exponent.name), {}


_RSQRT = (Rule(Either(_inverse(_root(_X)), _root(_inverse(_X))), _power),)
