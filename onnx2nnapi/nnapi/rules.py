"""Binding an operation's operands to its row, and asking the row which feature level they need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from onnx2nnapi.ir.types import Array, Scalar, Shape
from onnx2nnapi.nnapi.codes import OperandCode
from onnx2nnapi.nnapi.schema import REQUIRED, Fixed, Form, Role, SameAs, Schema, Slot, TypeRow
from onnx2nnapi.nnapi.types import MAX_RANK, OperandType

__all__ = [
    "MAX_BYTES",
    "Argument",
    "Bound",
    "RuleError",
    "UnknownValue",
    "arrange",
    "bind",
    "expand_slots",
    "level_of",
    "output_types",
]

T = TypeVar("T")
MAX_BYTES = 2**32 - 1  # NNAPI keeps the size of an operand in 32 bits


class RuleError(Exception):
    """A row's answer that NNAPI would refuse these operands; whoever asked adds the place."""


class UnknownValue(Exception):
    """A rule asked for a value or a size that is known only when the model runs."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An operand as a rule sees it.

    Attributes:
        type: its type.
        value: of a constant; a sub-model for Role.MODEL.
        certain: whether it is there in every run. An input of the model may still be omitted when the model runs.
    """

    type: OperandType
    value: Any = None
    certain: bool = True


@dataclass(slots=True)
class Bound:
    """An operation whose operands have found their names.

    Attributes:
        schema, form, slots: the row, the operand list and the slots of it that are written.
        arguments: by slot name; None is an omitted operand; slots that are not written are missing.
        variadic: the arguments of the variadic slot.
        outputs: output types as declared (before inference: empty).
        row: the type row that fits.
    """

    schema: Schema
    form: Form
    slots: tuple[Slot, ...]
    arguments: Mapping[str, Argument | None]
    variadic: tuple[Argument, ...] = ()
    outputs: tuple[OperandType | None, ...] = ()
    row: TypeRow = field(default_factory=lambda: TypeRow({}, 1))

    def __getitem__(self, name: str) -> OperandType:
        """The type of a present operand."""
        argument = self.arguments[name]
        if argument is None:
            raise RuleError(f"operand {name!r} is omitted")
        return argument.type

    def has(self, name: str) -> bool:
        """Whether the operand is written and not omitted."""
        return self.arguments.get(name) is not None

    def shape(self, name: str) -> Shape:
        """Sizes of a present tensor; UnknownValue when the rank is unspecified (sizes may be 0, see ``sizes``)."""
        shape = self[name].shape
        if not shape and self[name].code.is_tensor:
            raise UnknownValue(name)
        return shape

    def scalar(self, name: str) -> Any:
        """A scalar's value, its default where it is not written; UnknownValue when only the run will tell."""
        if name not in self.arguments:
            return next((slot.default for form in self._forms() for slot in form.slots if slot.name == name), None)
        argument = self.arguments[name]
        if argument is None:
            return None
        if argument.value is None:
            raise UnknownValue(name)
        return np.asarray(argument.value).reshape(-1)[0].item()

    def array(self, name: str) -> Array | None:
        """An array operand's value, None where it is not there; UnknownValue when only the run will tell."""
        argument = self.arguments.get(name)
        if argument is None:
            return None
        if argument.value is None:
            raise UnknownValue(name)
        value = argument.value
        return np.asarray(value.numpy() if hasattr(value, "numpy") else value)

    def operand_types(self) -> dict[str, OperandType]:
        """The types of the present operands by name, a variadic one's by ``name[i]``."""
        types = {name: argument.type for name, argument in self.arguments.items() if argument is not None}
        variadic = next((slot.name for slot in self.slots if slot.variadic), "")
        types.update((f"{variadic}[{index}]", argument.type) for index, argument in enumerate(self.variadic))
        return types

    def _forms(self) -> Iterable[Form]:
        return (self.form, *(form for form in self.schema.forms if form is not self.form))


def arrange(
    schema: Schema, tensors: Sequence[T | None], attrs: Mapping[str, Any]
) -> tuple[Form, list[tuple[Slot, T | Any]]]:
    """The operand list of a graph's operation: (slot, tensor or attribute value) in NNAPI's order.

    The form is the first that has all the attributes and lacks none; trailing optionals at their default are left out.

    Raises:
        RuleError: no form takes these attributes, or the number of tensors is wrong.
    """
    form = _form_for(schema, attrs)
    fixed = [slot for slot in form.slots if slot.role is Role.TENSOR and not slot.variadic]
    extra = len(tensors) - len(fixed)
    has_variadic = any(slot.variadic for slot in form.slots)
    if (extra < 0 and not all(slot.omittable for slot in fixed[extra:])) or (extra > 0 and not has_variadic):
        raise RuleError(
            f"{schema.name} takes {len(fixed)} tensors{' or more' if has_variadic else ''}, not {len(tensors)}"
        )
    items: list[tuple[Slot, T | Any]] = []
    queue = [*tensors, *([None] * max(0, -extra))]
    for slot in form.slots:
        if slot.variadic:
            items.extend((slot, queue.pop(0)) for _ in range(max(extra, 0)))
        elif slot.role is Role.TENSOR:
            items.append((slot, queue.pop(0)))
        else:
            items.append((slot, attrs.get(slot.name, slot.default)))
    while items and items[-1][0].optional:
        group = [item for item in items if item[0].optional and item[0].group == items[-1][0].group]
        if not all(same_value(slot.default, value) for slot, value in group):
            break
        del items[-len(group) :]
    return form, items


def _form_for(schema: Schema, attrs: Mapping[str, Any]) -> Form:
    unknown: set[str] = set()
    for form in schema.forms:
        names = {slot.name for slot in form.slots if slot.role is not Role.TENSOR}
        needed = {slot.name for slot in form.slots if slot.role is not Role.TENSOR and slot.default is REQUIRED}
        if needed <= set(attrs) <= names:
            return form
        unknown = (set(attrs) - names) or (needed - set(attrs))
    raise RuleError(f"{schema.name} has no form with these attributes (see {', '.join(sorted(unknown))})")


def same_value(a: object, b: object) -> bool:
    """Equality of attribute values, arrays included."""
    if a is REQUIRED or b is REQUIRED or a is None or b is None:
        return a is b
    return np.array_equal(np.asarray(a), np.asarray(b))


def bind(schema: Schema, inputs: Sequence[Argument | None], outputs: Sequence[OperandType | None] = ()) -> Bound:
    """Give an operation's operands their names by the first form that takes their number and types.

    Args:
        schema: the row.
        inputs: in NNAPI's order, None = omitted.
        outputs: declared output types; empty when they are still to be inferred.

    Raises:
        RuleError: naming the operand that fits no form.
    """
    counts: set[int] = set()
    reason = ""
    for form in schema.forms:
        for slots in form.prefixes():
            expanded = expand_slots(slots, len(inputs))
            if expanded is None:
                counts.add(len(slots))
                continue
            bound = Bound(schema, form, slots, *_named(expanded, inputs), tuple(outputs))
            problem = _misfit(bound, expanded, inputs) or _output_misfit(bound) or _pick_row(bound)
            if problem is None:
                return bound
            reason = reason or problem
    if reason:
        raise RuleError(reason)
    raise RuleError(f"{schema.name} takes {', '.join(map(str, sorted(counts)))} operands, not {len(inputs)}")


def expand_slots(slots: Sequence[Slot], count: int) -> list[Slot] | None:
    """One slot for each operand, the variadic slot repeated; None when the number does not fit."""
    if not any(slot.variadic for slot in slots):
        return list(slots) if len(slots) == count else None
    repeat = count - len(slots) + 1
    if repeat < 0:
        return None
    return [item for slot in slots for item in ([slot] * repeat if slot.variadic else [slot])]


def _named(
    slots: Sequence[Slot], inputs: Sequence[Argument | None]
) -> tuple[dict[str, Argument | None], tuple[Argument, ...]]:
    arguments = {slot.name: argument for slot, argument in zip(slots, inputs, strict=True) if not slot.variadic}
    variadic = tuple(
        argument for slot, argument in zip(slots, inputs, strict=True) if slot.variadic and argument is not None
    )
    return arguments, variadic


def _misfit(bound: Bound, slots: Sequence[Slot], inputs: Sequence[Argument | None]) -> str | None:
    for slot, argument in zip(slots, inputs, strict=True):
        if argument is None:
            if not slot.omittable:
                return f"operand {slot.name!r} must not be omitted"
            continue
        code = argument.type.code
        if slot.code is not None and code != slot.code:
            return f"operand {slot.name!r} is {code.name}, it must be {slot.code.name}"
        if slot.code is None and code.is_tensor != (slot.role in (Role.TENSOR, Role.ARRAY)):
            return f"operand {slot.name!r} is {code.name}, it must be a {'tensor' if not code.is_tensor else 'scalar'}"
        if slot.constant and argument.value is None:
            return f"operand {slot.name!r} must be constant"
    return None


def _output_misfit(bound: Bound) -> str | None:
    outputs, slots = bound.outputs, bound.schema.outputs
    if not outputs or any(slot.variadic for slot in slots):
        return None
    least = sum(not slot.omittable for slot in slots)
    if not least <= len(outputs) <= len(slots):
        counts = f"{least} to {len(slots)}" if least < len(slots) else str(least)
        return f"{bound.schema.name} has {counts} outputs, not {len(outputs)}"
    for slot, type_ in zip(slots, outputs, strict=False):
        if slot.code is not None and type_ is not None and type_.code != slot.code:
            return f"output {slot.name!r} is {type_.code.name}, it must be {slot.code.name}"
    return None


def _pick_row(bound: Bound) -> str | None:
    """Set the type row that all operands and declared outputs fit; the reason when there is none."""
    if not bound.schema.types:
        return None
    present = _codes(bound)
    for row in bound.schema.types:
        if all(row.codes.get(name, code) == code for name, code in present.items()):
            bound.row = row
            return None
    allowed = sorted({row.codes[name].name for row in bound.schema.types for name in present if name in row.codes})
    text = ", ".join(
        f"{name}: {code.name}" for name, code in present.items() if any(name in row.codes for row in bound.schema.types)
    )
    return f"{bound.schema.name} has no type combination ({text}); it takes {', '.join(allowed)}"


def _codes(bound: Bound) -> dict[str, OperandCode]:
    codes = {name: argument.type.code for name, argument in bound.arguments.items() if argument is not None}
    for slot in bound.slots:
        if slot.variadic and bound.variadic:
            kinds = {argument.type.code for argument in bound.variadic}
            codes[slot.name] = next(iter(kinds)) if len(kinds) == 1 else OperandCode.MODEL  # MODEL matches no row
    for slot, type_ in zip(_output_slots(bound.schema, len(bound.outputs)), bound.outputs, strict=False):
        if type_ is not None:
            codes[slot.name] = type_.code
    return codes


def _output_slots(schema: Schema, count: int) -> list[Slot]:
    """One slot for each of ``count`` outputs."""
    return expand_slots(schema.outputs, count) or list(schema.outputs)[:count]


def level_of(bound: Bound, *, ranks: bool = True) -> int:
    """The feature level that a bound operation needs; rules over what is not known yet are left to the run.

    Raises:
        RuleError: NNAPI would refuse it.
    """
    schema = bound.schema
    level = max(schema.since, bound.row.since)
    for slot in bound.slots:
        argument = bound.arguments.get(slot.name)
        if argument is None or slot.since <= level:
            continue
        if (
            slot.presence_counts
            or slot.role is Role.TENSOR
            or argument.value is None
            or not same_value(slot.default, bound.scalar(slot.name))
        ):
            level = slot.since
    for slot in _output_slots(schema, len(bound.outputs)):
        level = max(level, slot.since)
    if ranks:
        level = max(level, _rank_level(bound))
    for rule in schema.rules:
        try:
            level = max(level, rule(bound) or 1)
        except UnknownValue:
            continue
    return level


def _rank_level(bound: Bound) -> int:
    level = 1
    for name, rank in bound.schema.ranks.items():
        types = (
            [bound[name]]
            if bound.has(name)
            else [a.type for a in bound.variadic if any(s.variadic and s.name == name for s in bound.slots)]
        )
        for type_ in types:
            if not type_.shape:
                continue
            if type_.rank < rank.low or (rank.high is not None and type_.rank > rank.high):
                high = "or more" if rank.high is None else f"to {rank.high}"
                raise RuleError(f"operand {name!r} has rank {type_.rank}, {bound.schema.name} takes {rank.low} {high}")
            low, top = rank.base or (rank.low, rank.high)
            if type_.rank < low or (top is not None and type_.rank > top):
                level = max(level, rank.since)
    return level


def output_types(bound: Bound, declared: Sequence[OperandType | None] = ()) -> tuple[OperandType, ...]:
    """Types of the outputs: code by the type row, sizes and quantization by the schema's functions.

    Args:
        bound: its operands have known sizes.
        declared: their scale and zero point are taken where the schema leaves them free, their code where no row
            says it.

    Raises:
        RuleError: the sizes do not fit each other.
        UnknownValue: they depend on a value that only the run will tell.
    """
    shapes = [tuple(int(dim) for dim in shape) for shape in bound.schema.shapes(bound)]
    slots = _output_slots(bound.schema, len(shapes))
    result = []
    for index, (slot, shape) in enumerate(zip(slots, shapes, strict=True)):
        given = declared[index] if index < len(declared) else None
        code = slot.code or bound.row.codes.get(slot.name) or (given.code if given else None)
        if code is None:
            raise UnknownValue(slot.name)
        scale, zero_point = (given.scale, given.zero_point) if given is not None and given.code == code else (0.0, 0)
        channels = given.channel_quant if given is not None else None
        policy = bound.schema.quantization.get(slot.name)
        if isinstance(policy, Fixed):
            scale, zero_point = policy.values.get(code, (scale, zero_point))
        elif isinstance(policy, SameAs):
            source = bound[policy.name] if bound.has(policy.name) else bound.variadic[0].type
            if source.code == code:
                scale, zero_point, channels = source.scale, source.zero_point, source.channel_quant
        if len(shape) > MAX_RANK:
            raise RuleError(f"its result {slot.name!r} has {len(shape)} dimensions, {MAX_RANK} is the limit")
        type_ = OperandType(code, shape, scale, zero_point, channels)
        if type_.nbytes > MAX_BYTES:
            raise RuleError(
                f"its result {slot.name!r} is {type_}, more than the {MAX_BYTES} bytes that NNAPI can address"
            )
        result.append(type_)
    return tuple(result)


def scalar_array(value: Scalar, code: OperandCode) -> Array:
    """A scalar operand's value as NNAPI stores it: an array of one element."""
    return np.asarray([value]).astype(code.dtype)
