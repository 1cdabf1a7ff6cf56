"""Symbolic dimensions that stay open: a model converted at several sizes, and what these have in common.

A size that differs between the conversions is unspecified (0) in the NNAPI model; the target of a RESHAPE, and the
size of a SLICE that runs to the end, say -1 there. Where anything else differs, the symbol cannot stay open.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx2nnapi.errors import FeatureLevelError, InvalidModelError, UnsupportedError, UnsupportedForm
from onnx2nnapi.ir.types import Array, LazyArray, Shape
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.model import Lifetime, Model, Operand, Operation, Subgraph
from onnx2nnapi.nnapi.validation import validate
from onnx2nnapi.options import Options
from onnx2nnapi.program import Port, Program, Segment

if TYPE_CHECKING:
    import onnx

__all__ = ["convert_open", "sample"]

ALL = "*"
MAX_PORT_RANK = 4  # above, dimensions are merged at the border, which open ones cannot be

# Two sizes that share many divisors, and an odd one, which a model may refuse; the next ones where these do not fit.
SIZES = ((24, 36, 25), (2, 3, 5), (224, 320, 257))


def convert_open(convert: Callable[[Options], Program], graph: onnx.GraphProto, options: Options) -> Program:
    """Convert a model with the symbols of ``options.keep_dynamic`` open.

    Args:
        convert: converts the model, whose sizes the options bind.
        graph: of the model.
        options: what is asked for.

    Raises:
        InvalidModelError: a symbol that the model does not have, or that is bound too.
        UnsupportedError: something depends on a symbol that NNAPI must know; it names the node and the flag.
    """
    inputs = _open_inputs(graph, options)
    symbols = _symbols(inputs)
    refusal: UnsupportedError | InvalidModelError | None = None
    for sizes in SIZES:
        try:
            return _merged(convert, inputs, symbols, sizes, options)
        except (UnsupportedError, InvalidModelError) as error:
            refusal = refusal or error
    raise refusal or InvalidModelError("no sizes were tried")


def sample(graph: onnx.GraphProto, options: Options) -> Options:
    """The options of one of these conversions, with every open size bound, for a look at it.

    Raises:
        InvalidModelError, UnsupportedError: as from ``convert_open``, of the symbols.
    """
    inputs = _open_inputs(graph, options)
    return _bound(inputs, _symbols(inputs), SIZES[0], 0, options)[1]


def _symbols(inputs: Mapping[str, Sequence[int | str]]) -> list[str]:
    return list(dict.fromkeys(dim for dims in inputs.values() for dim in dims if isinstance(dim, str)))


def _bound(
    inputs: Mapping[str, Sequence[int | str]],
    symbols: Sequence[str],
    sizes: Sequence[int],
    position: int,
    options: Options,
) -> tuple[dict[str, int], Options]:
    """The symbols' sizes in the conversion ``position``, and its options."""
    # different sizes for different symbols, which need not be equal, at ratios that no pooling turns into another's
    chosen = {symbol: sizes[0] * number + sizes[position] for number, symbol in enumerate(symbols)}
    shapes = {name: [chosen[dim] if isinstance(dim, str) else dim for dim in dims] for name, dims in inputs.items()}
    return chosen, dataclasses.replace(options, input_shapes={**options.shapes, **shapes}, keep_dynamic=())


def _open_inputs(graph: onnx.GraphProto, options: Options) -> dict[str, list[int | str]]:
    """The dimensions of the inputs that have open ones: sizes, symbols, and ``input:axis`` for those without a name."""
    initialized = {tensor.name for tensor in graph.initializer}
    kept, wanted = set(options.keep_dynamic), set(options.keep_dynamic) - {ALL}
    inputs: dict[str, list[int | str]] = {}
    known: set[str] = set()
    for entry in graph.input:
        if entry.name in initialized or entry.name in options.shapes or entry.name in options.set:
            continue
        dims: list[int | str] = []
        for axis, dim in enumerate(entry.type.tensor_type.shape.dim):
            symbol = dim.dim_param or f"{entry.name}:{axis}"
            if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
                dims.append(dim.dim_value)
            elif symbol in options.dims:
                dims.append(int(options.dims[symbol]))
            else:
                dims.append(symbol)
                known.add(symbol)
        if any(isinstance(dim, str) and (dim in kept or ALL in kept) for dim in dims):
            inputs[entry.name] = dims
    for symbol in sorted(wanted - known):
        state = "it is bound" if symbol in options.dims else f"the open ones are {', '.join(sorted(known)) or 'none'}"
        raise InvalidModelError(f"it cannot be kept dynamic: {state}", where=f"dimension {symbol!r}")
    for symbol in sorted(known - wanted if ALL not in kept else ()):
        if any(symbol in dims for dims in inputs.values()):
            raise UnsupportedError(
                f"the size of dimension {symbol!r} is open", hint=f"give --dim {symbol}=1 or --keep-dynamic {symbol}"
            )
    return inputs


def _merged(
    convert: Callable[[Options], Program],
    inputs: Mapping[str, Sequence[int | str]],
    symbols: Sequence[str],
    sizes: Sequence[int],
    options: Options,
) -> Program:
    variants: list[tuple[dict[str, int], Program]] = []
    for position in range(len(sizes)):
        chosen, bound = _bound(inputs, symbols, sizes, position, options)
        try:
            variants.append((chosen, convert(bound)))
        except InvalidModelError:
            if position < 2:
                raise
    return _Merge([program for _, program in variants], symbols, [chosen for chosen, _ in variants]).program(options)


class _Merge:
    """What programs of one model at different sizes have in common.

    Args:
        programs: at least two.
        symbols: that differ.
        chosen: the size of each symbol, by program.
    """

    def __init__(
        self, programs: Sequence[Program], symbols: Sequence[str], chosen: Sequence[Mapping[str, int]]
    ) -> None:
        self.programs = programs
        self.symbols = symbols
        self.by_sizes = {tuple(sizes[symbol] for sizes in chosen): symbol for symbol in symbols}

    def refused(self, what: str, where: str) -> UnsupportedForm:
        flags = " ".join(f"--dim {symbol}=1" for symbol in self.symbols if ":" not in symbol)
        names = ", ".join(map(repr, self.symbols))
        return UnsupportedForm(
            f"{what} depends on the size of {names}, which NNAPI must know then",
            where=where,
            hint=f"bind it with {flags or '--input-shape'} instead of keeping it dynamic",
        )

    def program(self, options: Options) -> Program:
        """The program with the sizes open.

        Raises:
            UnsupportedError: the programs differ in more than sizes.
        """
        first, programs = self.programs[0], self.programs
        if len({len(program.segments) for program in programs}) > 1:
            raise self.refused("whether anything is left to compute", "the model")
        segments = []
        for parts in zip(*(program.segments for program in programs), strict=True):
            main = self._graph([part.model.main for part in parts])
            inner = [part.model.subgraphs for part in parts]
            subgraphs = tuple(self._graph(graphs) for graphs in zip(*inner, strict=True))
            segments.append(Segment(Model(main, subgraphs, parts[0].model.relaxed), parts[0].inputs, parts[0].outputs))
        level = max((self._level(segment.model, options) for segment in segments), default=1)
        inputs, outputs = (
            tuple(self._port(same) for same in zip(*sides, strict=True))
            for sides in ([program.inputs for program in programs], [program.outputs for program in programs])
        )
        return Program(tuple(segments), inputs, outputs, level, first.metadata, first.sources)

    def _level(self, model: Model, options: Options) -> int:
        try:
            level = validate(model)
        except InvalidModelError as error:
            raise UnsupportedForm(f"{error.message} while sizes are open", where=error.where, hint=error.hint) from None
        if level > options.feature_level:
            raise FeatureLevelError("the model with open sizes", required=level, target=options.feature_level)
        return level

    def _graph(self, graphs: Sequence[Subgraph]) -> Subgraph:
        first = graphs[0]
        for operations in zip(*(graph.operations for graph in graphs), strict=False):
            if len({(item.code, item.inputs, item.outputs) for item in operations}) > 1:
                raise self.refused("the choice of operations", _where(operations[0]))
        if len({(len(graph.operations), len(graph.operands), graph.inputs, graph.outputs) for graph in graphs}) > 1:
            raise self.refused("the number of operations", _where(first.operations[-1]))
        readers: dict[int, list[tuple[Operation, int]]] = {}
        for operation in first.operations:
            for position, index in enumerate(operation.inputs):
                readers.setdefault(index, []).append((operation, position))
        operands = tuple(
            self._operand([graph.operands[index] for graph in graphs], readers.get(index, ()), graphs)
            for index in range(len(first.operands))
        )
        return dataclasses.replace(first, operands=operands)

    def _operand(
        self, same: Sequence[Operand], readers: Iterable[tuple[Operation, int]], graphs: Sequence[Subgraph]
    ) -> Operand:
        first = same[0]
        where = next((_where(operation) for operation, _ in readers), f"tensor {first.name!r}")
        kinds = {(o.type.code, o.type.scale, o.type.zero_point, o.lifetime, o.type.rank, o.subgraph) for o in same}
        if len(kinds) > 1:
            raise self.refused("the type of an operand", where)
        if first.lifetime is not Lifetime.CONSTANT:
            return dataclasses.replace(first, type=first.type.with_shape(_common(o.type.shape for o in same)))
        if len({operand.type.shape for operand in same}) == 1:
            if _equal([operand.value for operand in same]):
                return first
            arrays = [operand.array() for operand in same]
            if all(_may_be_open(operation, position, arrays, graphs) for operation, position in readers):
                differs = np.any([array != arrays[0] for array in arrays], axis=0)
                return dataclasses.replace(first, value=np.where(differs, np.int32(-1), arrays[0]))
        raise self.refused("a constant", where)

    def _port(self, same: Sequence[Port]) -> Port:
        first = same[0]
        where = f"tensor {first.name!r}"
        if len({(port.tensor, port.source, len(port.shape)) for port in same}) > 1:
            raise self.refused("what it is bound to", where)
        if first.constant is not None and not _equal([port.constant for port in same]):
            raise self.refused("its constant value", where)
        shape = [
            sizes[0] if len(set(sizes)) == 1 else self._symbol(sizes)
            for sizes in zip(*(port.shape for port in same), strict=True)
        ]
        if len(shape) > MAX_PORT_RANK and not all(isinstance(dim, int) for dim in shape):
            raise self.refused(f"its form, which has rank {len(shape)},", where)
        return dataclasses.replace(first, shape=tuple(shape))

    def _symbol(self, sizes: tuple[Any, ...]) -> str | None:
        symbol = self.by_sizes.get(sizes)
        return None if symbol is None or ":" in symbol else symbol


def _where(operation: Operation) -> str:
    nodes = ", ".join(map(repr, operation.origin[:3]))
    return f"node {nodes} ({operation.code.name})" if nodes else operation.code.name


def _common(shapes: Iterable[Shape]) -> Shape:
    return tuple(sizes[0] if len(set(sizes)) == 1 else 0 for sizes in zip(*shapes, strict=True))


def _equal(values: Sequence[Array | LazyArray | None]) -> bool:
    """Whether constants are the same; large ones are read one pair at a time."""
    if len({(value.shape, value.dtype) for value in values if value is not None}) > 1 or values[0] is None:
        return all(value is None for value in values)
    first = _array(values[0])
    return all(value is not None and _array(value).tobytes() == first.tobytes() for value in values[1:])


def _array(value: Array | LazyArray) -> Array:
    return value.numpy() if isinstance(value, LazyArray) else value


def _may_be_open(operation: Operation, position: int, arrays: Sequence[Array], graphs: Sequence[Subgraph]) -> bool:
    """Whether the operand may say -1 where the arrays differ."""
    differs = np.any([array != arrays[0] for array in arrays], axis=0)
    if operation.code is OperationCode.RESHAPE and position == 1:
        return int(differs.sum()) == 1 and not any((array == -1).any() for array in arrays)
    if operation.code is not OperationCode.SLICE or position != 2:
        return False
    for graph, size in zip(graphs, arrays, strict=True):
        begin = graph.operands[operation.inputs[1]]
        whole = graph.operands[operation.inputs[0]].type.shape
        if begin.lifetime is not Lifetime.CONSTANT or (begin.array() + size != np.array(whole))[differs].any():
            return False
    return True
