"""An NNAPI model as frozen plain data, and its one description: the JSON shape that files, tests and tools share."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.ir.types import Array, LazyArray
from onnx2nnapi.nnapi.codes import OEM_SCALAR, OperandCode, OperationCode
from onnx2nnapi.nnapi.description import Entry, as_list
from onnx2nnapi.nnapi.types import MAX_RANK, ChannelQuant, OperandType

__all__ = ["Lifetime", "Model", "Operand", "Operation", "Subgraph"]


class Lifetime(enum.Enum):
    """Where an operand's value comes from."""

    CONSTANT = "CONSTANT"
    INPUT = "INPUT"
    OUTPUT = "OUTPUT"
    TEMPORARY = "TEMPORARY"
    NO_VALUE = "NO_VALUE"
    SUBGRAPH = "SUBGRAPH"


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """An operand.

    Attributes:
        type: element type, sizes, quantization.
        lifetime: where its value comes from.
        value: of a CONSTANT: an array of the operand's shape (scalars: one element), or a LazyArray.
        subgraph: of a SUBGRAPH: index into ``Model.subgraphs``.
        name: the ONNX tensor that it holds, where there is one.
        perm: from that tensor's dimensions to the operand's; () where they are the same.
    """

    type: OperandType
    lifetime: Lifetime
    value: Array | LazyArray | None = None
    subgraph: int | None = None
    name: str | None = None
    perm: tuple[int, ...] = ()

    def array(self) -> Array:
        """A constant's value; lazy ones are computed now."""
        value = self.value.numpy() if isinstance(self.value, LazyArray) else self.value
        if value is None:
            raise InvalidModelError("it has no constant value", where=f"operand {self.name!r}")
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """An operation: its code, operand indices in NNAPI's order, and the names of the ONNX nodes it stems from."""

    code: OperationCode
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    origin: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Subgraph:
    """The main graph of a model, or one that IF or WHILE runs."""

    operands: tuple[Operand, ...]
    operations: tuple[Operation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def input_types(self) -> list[OperandType]:
        return [self.operands[index].type for index in self.inputs]

    def output_types(self) -> list[OperandType]:
        return [self.operands[index].type for index in self.outputs]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A whole NNAPI model.

    Attributes:
        main: the graph that runs.
        subgraphs: those that IF and WHILE operands refer to.
        relaxed: float32 may be computed in the range and precision of float16.
    """

    main: Subgraph
    subgraphs: tuple[Subgraph, ...] = ()
    relaxed: bool = False

    @property
    def graphs(self) -> Iterator[Subgraph]:
        """Main and sub-models."""
        yield self.main
        yield from self.subgraphs

    def to_dict(self, *, values: bool = True, tensors: Callable[[Operand], str | None] | None = None) -> dict[str, Any]:
        """The model's description (docs/format.md).

        Args:
            values: whether to write the constants' values.
            tensors: names the tensor of a file that holds a constant's value in its stead, None for none.
        """
        return {
            "main": _graph_to_dict(self.main, values, tensors),
            "subgraphs": [_graph_to_dict(graph, values, tensors) for graph in self.subgraphs],
            "relaxed": self.relaxed,
        }

    @classmethod
    def from_dict(
        cls, description: Mapping[str, Any], *, tensors: Mapping[str, Array | LazyArray] | None = None
    ) -> Model:
        """The model that a description describes; ``tensors`` holds the arrays that its "tensor" entries name.

        The form is checked here (types, index ranges, lengths of constants), NNAPI's rules by ``validate``.

        Raises:
            InvalidModelError: naming the entry that is malformed.
        """
        entry = Entry(description, "model")
        count = len(as_list(entry.get("subgraphs", []), "subgraphs"))
        with np.errstate(all="ignore"):  # values that do not fit are refused by comparison
            graphs = [
                _graph_from_dict(Entry(graph, f"subgraphs[{index}]"), count, tensors or {})
                for index, graph in enumerate(entry.get("subgraphs", []))
            ]
            main = _graph_from_dict(Entry(entry["main"], "main"), count, tensors or {})
        return cls(main, tuple(graphs), entry.boolean("relaxed", default=False))


# -- writing -----------------------------------------------------------------------------------------------------------


def _graph_to_dict(graph: Subgraph, values: bool, tensors: Callable[[Operand], str | None] | None) -> dict[str, Any]:
    return {
        "operands": [_operand_to_dict(operand, values, tensors) for operand in graph.operands],
        "operations": [
            {"op": op.code.name, "inputs": list(op.inputs), "outputs": list(op.outputs)}
            | ({"origin": list(op.origin)} if op.origin else {})
            for op in graph.operations
        ],
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
    }


def _operand_to_dict(operand: Operand, values: bool, tensors: Callable[[Operand], str | None] | None) -> dict[str, Any]:
    type_ = operand.type
    entry: dict[str, Any] = {
        "type": "SUBGRAPH" if type_.code is OperandCode.MODEL else type_.code.name,
        "dimensions": list(type_.shape),
        "scale": type_.scale,
        "zero_point": type_.zero_point,
        "lifetime": operand.lifetime.value,
    }
    if type_.channel_quant is not None:
        entry["channel_quant"] = {
            "channel_dim": type_.channel_quant.channel_dim,
            "scales": list(type_.channel_quant.scales),
        }
    if operand.subgraph is not None:
        entry["subgraph"] = operand.subgraph
    if operand.name is not None:
        entry["name"] = operand.name
    if operand.perm:
        entry["perm"] = list(operand.perm)
    if operand.value is not None and tensors is not None and (tensor := tensors(operand)) is not None:
        entry["tensor"] = tensor
    elif values and operand.value is not None:
        entry["value"] = value_to_list(operand.array())
    return entry


def value_to_list(array: Array) -> list[Any]:
    """A flat list of Python numbers; values that JSON lacks are the strings "nan", "inf" and "-inf"."""
    flat = array.reshape(-1)
    if flat.dtype == np.bool_:
        return [int(item) for item in flat]
    items: list[Any] = flat.tolist()
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        return [item if math.isfinite(item) else str(item) for item in items]
    return items


# -- reading -----------------------------------------------------------------------------------------------------------

MAX_ELEMENTS = 2**32  # NNAPI counts bytes in 32 bits; larger products are refused before anything is allocated


def _graph_from_dict(entry: Entry, subgraphs: int, tensors: Mapping[str, Array | LazyArray]) -> Subgraph:
    types: dict[object, OperandType] = {}
    operands = tuple(
        _operand_from_dict(Entry(item, f"{entry.where}.operands[{index}]"), subgraphs, tensors, types)
        for index, item in enumerate(as_list(entry["operands"], f"{entry.where}.operands"))
    )
    last = len(operands) - 1
    operations = []
    for index, item in enumerate(as_list(entry["operations"], f"{entry.where}.operations")):
        operation = Entry(item, f"{entry.where}.operations[{index}]")
        inputs, outputs = operation.integers("inputs", 0, last), operation.integers("outputs", 0, last)
        operations.append(Operation(_operation_code(operation), inputs, outputs, operation.texts("origin")))
    return Subgraph(operands, tuple(operations), entry.integers("inputs", 0, last), entry.integers("outputs", 0, last))


def _operation_code(entry: Entry) -> OperationCode:
    name = entry.text("op")
    if name in OperationCode.__members__:
        return OperationCode[name]
    if name == "OEM_OPERATION":
        raise InvalidModelError(
            "OEM_OPERATION is a vendor's own and means something on one device only", where=entry.where
        )
    raise InvalidModelError(f"NNAPI has no operation {name!r:.60}", where=entry.where)


def _operand_code(entry: Entry) -> OperandCode:
    name = entry.text("type")
    name = "MODEL" if name == "SUBGRAPH" else name
    if name in OperandCode.__members__:
        return OperandCode[name]
    if name in ("OEM_SCALAR", "TENSOR_OEM_BYTE"):
        raise InvalidModelError(
            f"{name} (code {OEM_SCALAR if name == 'OEM_SCALAR' else OEM_SCALAR + 1}) is a vendor's own type",
            where=entry.where,
        )
    raise InvalidModelError(f"NNAPI has no operand type {name!r:.60}", where=entry.where)


def _operand_from_dict(
    entry: Entry, subgraphs: int, tensors: Mapping[str, Array | LazyArray], types: dict[object, OperandType]
) -> Operand:
    """An operand; ``types`` holds those of the graph so far, since most operands share theirs."""
    code = _operand_code(entry)
    lifetime_name = entry.text("lifetime")
    if lifetime_name not in Lifetime.__members__:
        raise InvalidModelError(f"lifetime {lifetime_name!r:.40} is unknown", where=entry.where)
    lifetime = Lifetime[lifetime_name]
    shape = entry.integers("dimensions", 0, 2**32 - 1, default=[])
    if len(shape) > MAX_RANK:
        raise InvalidModelError(f"has {len(shape)} dimensions, {MAX_RANK} is the limit", where=entry.where)
    if math.prod([size for size in shape if size]) > MAX_ELEMENTS:
        raise InvalidModelError(
            f"dimensions {list(shape)} have more elements than NNAPI can address", where=entry.where
        )
    channels = None
    if entry.get("channel_quant", None) is not None:
        quant = Entry(entry["channel_quant"], f"{entry.where}.channel_quant")
        scales = [
            Entry({"scale": scale}, quant.where).number("scale")
            for scale in as_list(quant["scales"], f"{quant.where}.scales")
        ]
        channels = ChannelQuant(quant.integer("channel_dim", 0, 2**32 - 1), tuple(scales))
    scale, zero_point = entry.number("scale"), entry.integer("zero_point", -(2**31), 2**31 - 1, default=0)
    type_ = types.get((code, shape, scale, zero_point, channels))
    if type_ is None:
        type_ = types[code, shape, scale, zero_point, channels] = OperandType(code, shape, scale, zero_point, channels)
    name = entry.text("name") if entry.get("name", None) is not None else None
    subgraph = entry.integer("subgraph", 0, subgraphs - 1) if lifetime is Lifetime.SUBGRAPH else None
    value = _value_from_dict(entry, type_, tensors) if lifetime is Lifetime.CONSTANT else None
    perm = entry.integers("perm", 0, 2**31 - 1, default=[])
    return Operand(type_, lifetime, value, subgraph, name, perm)


def _value_from_dict(entry: Entry, type_: OperandType, tensors: Mapping[str, Array | LazyArray]) -> Array | LazyArray:
    if type_.code is OperandCode.MODEL:
        raise InvalidModelError("a sub-model is no constant", where=entry.where)
    if not type_.is_specified:
        raise InvalidModelError(f"is constant, but dimensions {list(type_.shape)} are unspecified", where=entry.where)
    count = type_.size
    if "tensor" in entry.data:
        key = entry.text("tensor")
        if key not in tensors:
            raise InvalidModelError(f"there is no tensor {key!r:.60}", where=entry.where)
        array = tensors[key]
        if array.dtype != type_.dtype or array.size != count:
            raise InvalidModelError(
                f"tensor {key!r:.60} is {array.dtype}{list(array.shape)}, not {type_}", where=entry.where
            )
        return array.reshape(type_.shape or (1,))
    items = as_list(entry["value"], f"{entry.where}.value")
    if len(items) != count:
        raise InvalidModelError(f"has {len(items)} values, its type {type_} needs {count}", where=entry.where)
    try:
        wide = np.asarray(items, dtype=np.float64)
        array = wide.astype(type_.dtype)
    except (TypeError, ValueError, OverflowError):
        wide = array = np.zeros((0, 0))
    if wide.ndim != 1 or None in items:
        raise InvalidModelError("holds a value that is no number", where=entry.where)
    if type_.dtype.kind != "f" and not (array == wide).all():
        raise InvalidModelError(f"holds a value that {type_.code.name} cannot hold", where=entry.where)
    return array.reshape(type_.shape or (1,))
