"""What a row of the schema table is made of: forms, slots, type rows, ranks, rules, shapes, quantization and layout.

A row is the single source of truth on one NNAPI operation. The builder, lowering, layout, validation, the interpreter
and the documentation all ask it, and restate nothing. Rows live in ``nnapi/table/<family>.py``.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode

if TYPE_CHECKING:
    from onnx2nnapi.nnapi.rules import Bound

__all__ = [
    "REQUIRED",
    "SCHEMAS",
    "Fixed",
    "Form",
    "Free",
    "Quantize",
    "Rank",
    "Role",
    "SameAs",
    "Schema",
    "Slot",
    "TypeRow",
    "array",
    "optional",
    "register",
    "scalar",
    "submodel",
    "tensor",
    "type_rows",
]


class Role(enum.Enum):
    """How an operand takes part in its operation."""

    TENSOR = "tensor"  # data: an input of the graph's operation
    ARRAY = "array"  # a small tensor that says how (axes, perm, paddings): an attribute of the graph's operation
    SCALAR = "scalar"  # likewise, a scalar
    MODEL = "model"  # a sub-model


class _Required(enum.Enum):
    REQUIRED = "required"


REQUIRED = _Required.REQUIRED


@dataclass(frozen=True, slots=True)
class Slot:
    """One named operand of a form, or one output.

    Attributes:
        name: ours, the same everywhere for the same meaning; the kernel's parameter has it too.
        role: see Role.
        code: its element type where that is always the same; None where the type row ties it to the others.
        default: the value that an operation of the graph has when it names none. REQUIRED: it must name one.
        optional: trailing operand that a model may leave out; it then has its default. A ``group`` comes together.
        since: the level that a value other than the default needs (with ``presence_counts``: that writing it needs).
        omittable: a tensor that may be absent (NNAPI: an operand without value; in the graph: None).
        constant: Android reads the value while it prepares the model, so it must be constant.
        variadic: any number of operands stands here (at most one such slot in a form).
    """

    name: str
    role: Role
    code: OperandCode | None = None
    default: object = REQUIRED
    optional: bool = False
    group: str = ""
    since: int = 1
    presence_counts: bool = False
    omittable: bool = False
    constant: bool = False
    variadic: bool = False


def tensor(
    name: str,
    code: OperandCode | None = None,
    *,
    omittable: bool = False,
    variadic: bool = False,
    constant: bool = False,
    since: int = 1,
) -> Slot:
    """A data operand."""
    return Slot(name, Role.TENSOR, code, omittable=omittable, variadic=variadic, constant=constant, since=since)


def array(
    name: str,
    code: OperandCode = OperandCode.TENSOR_INT32,
    *,
    default: object = REQUIRED,
    omittable: bool = False,
    constant: bool = False,
) -> Slot:
    """A small tensor that the graph's operation holds as an attribute."""
    return Slot(name, Role.ARRAY, code, default, omittable=omittable, constant=constant)


def scalar(
    name: str, code: OperandCode | None = OperandCode.INT32, *, default: object = REQUIRED, since: int = 1
) -> Slot:
    """A scalar operand that is always written. ``code`` None: the type row says which."""
    return Slot(name, Role.SCALAR, code, default, since=since)


def optional(
    name: str, code: OperandCode | None, default: object, *, since: int, group: str = "", presence_counts: bool = False
) -> Slot:
    """A trailing scalar that is left out when it has its default."""
    return Slot(
        name,
        Role.SCALAR,
        code,
        default,
        optional=True,
        group=group or name,
        since=since,
        presence_counts=presence_counts,
    )


def submodel(name: str) -> Slot:
    """A sub-model (IF, WHILE)."""
    return Slot(name, Role.MODEL, OperandCode.MODEL)


@dataclass(frozen=True, slots=True)
class Form:
    """One operand list of an operation, for example that with explicit padding."""

    name: str
    slots: tuple[Slot, ...]

    def prefixes(self) -> Iterator[tuple[Slot, ...]]:
        """The operand lists that a model may write: all, then with one trailing optional group less each time."""
        slots = self.slots
        yield slots
        while slots and slots[-1].optional:
            group = slots[-1].group
            slots = tuple(slot for slot in slots if not (slot.optional and slot.group == group))
            yield slots


@dataclass(frozen=True, slots=True)
class TypeRow:
    """One combination of element types, over every operand and output whose code is not fixed."""

    codes: Mapping[str, OperandCode]
    since: int


def type_rows(names: str, *rows: tuple[str, int]) -> tuple[TypeRow, ...]:
    """Rows over the space-separated operand ``names``: ("F32 F32 F32", level); one code alone stands for all of them.

    Codes: F32 F16 I32 BOOL U8 (QUANT8_ASYMM) S8 (…_SIGNED) Y8 (QUANT8_SYMM) C8 (…_SYMM_PER_CHANNEL) Y16 (QUANT16_SYMM)
    A16 (QUANT16_ASYMM), and f32 f16 i32 bool for scalars.
    """
    keys = names.split()
    result = []
    for text, since in rows:
        codes = [_SHORT[word] for word in text.split()]
        if len(codes) == 1:
            codes *= len(keys)
        result.append(TypeRow(dict(zip(keys, codes, strict=True)), since))
    return tuple(result)


_SHORT = {
    "F32": OperandCode.TENSOR_FLOAT32,
    "F16": OperandCode.TENSOR_FLOAT16,
    "I32": OperandCode.TENSOR_INT32,
    "BOOL": OperandCode.TENSOR_BOOL8,
    "U8": OperandCode.TENSOR_QUANT8_ASYMM,
    "S8": OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    "Y8": OperandCode.TENSOR_QUANT8_SYMM,
    "C8": OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    "Y16": OperandCode.TENSOR_QUANT16_SYMM,
    "A16": OperandCode.TENSOR_QUANT16_ASYMM,
    "f32": OperandCode.FLOAT32,
    "f16": OperandCode.FLOAT16,
    "i32": OperandCode.INT32,
    "bool": OperandCode.BOOL,
}


@dataclass(frozen=True, slots=True)
class Rank:
    """The ranks that a tensor may have (``high`` None: no limit), and the level that those outside ``base`` need."""

    low: int
    high: int | None
    since: int = 1
    base: tuple[int, int | None] | None = None


# -- quantization of an output: one policy for each ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Free:
    """The model chooses the output's scale and zero point."""


@dataclass(frozen=True, slots=True)
class SameAs:
    """The output has the scale and zero point of an input (of the first one, where the input is variadic)."""

    name: str


@dataclass(frozen=True, slots=True)
class Fixed:
    """The output's scale and zero point are given by NNAPI, by element type: {code: (scale, zero_point)}."""

    values: Mapping[OperandCode, tuple[float, int]]


Quantize = Free | SameAs | Fixed


# -- layout traits: how an operation behaves under a permutation of its input's dimensions ----------------------------


@dataclass(frozen=True, slots=True)
class Permutes:
    """The operation permutes: attribute ``perm`` composes."""

    perm: str = "perm"


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Every output element depends on the input elements at the same (broadcast) place: any permutation passes."""


@dataclass(frozen=True, slots=True)
class AxisAttr:
    """Passes any permutation of ``input`` (or of each variadic input), when attribute ``name`` (a dimension) is mapped.

    ``keeps`` names a BOOL that decides whether the dimension stays in the output; None: it stays; ``drops``: it goes;
    ``inserts``: the dimension is one of the output's only. Where the output's rank is another than these say (GATHER
    by indices that are no vector), no permutation passes.
    """

    name: str
    drops: bool = False
    keeps: str | None = None
    inserts: bool = False


@dataclass(frozen=True, slots=True)
class AxesAttr:
    """Passes any permutation, when attribute ``name`` (a list of dimensions) is mapped; the rest as in AxisAttr.

    Where the operation names no dimensions (SQUEEZE of all that are 1), no permutation passes.
    """

    name: str
    keeps: str | None = None
    drops: bool = False


@dataclass(frozen=True, slots=True)
class PermutesAttr:
    """Passes any permutation, when the attributes ``names`` (an entry, or a row, for each dimension) are permuted.

    ``masks`` are integers with a bit for each dimension; those of ``dropped`` say which dimensions go.
    """

    names: tuple[str, ...]
    masks: tuple[str, ...] = ()
    dropped: str | None = None


@dataclass(frozen=True, slots=True)
class Regroups:
    """A reshape: passes a permutation that it only merges or splits neighbouring dimensions of."""

    shape: str = "shape"


@dataclass(frozen=True, slots=True)
class Contracts:
    """Sums over dimensions of ``input`` with the constant ``constant``: a permutation goes into the constant."""

    input: str
    constant: str


@dataclass(frozen=True, slots=True)
class Barrier:
    """No permutation passes."""


Layout = Permutes | Elementwise | AxisAttr | AxesAttr | PermutesAttr | Regroups | Contracts | Barrier

Rule = Callable[["Bound"], "int | None"]
ShapeRule = Callable[["Bound"], "Sequence[Shape]"]


@dataclass(frozen=True)
class Schema:
    """A row of the table.

    Attributes:
        code, since: the operation and the level that brought it.
        forms: its operand lists.
        outputs: its outputs; a variadic one stands for any number; trailing omittable ones may be left out.
        types: all combinations of the element types that are not fixed by the slots.
        ranks: by operand name.
        rules: value rules; each returns the level that it asks for (or None), or raises RuleError.
        shapes: output shapes from known input shapes and values. Raises RuleError where the sizes do not fit, and
            UnknownValue where they depend on a value that is known only when the model runs.
        quantization: of the outputs, by name; Free where nothing is said.
        layout: trait; Barrier where nothing is said.
        zero_sized_since: level from which inputs of zero elements are accepted; None: never.
        doc: one line.
    """

    code: OperationCode
    since: int
    forms: tuple[Form, ...]
    outputs: tuple[Slot, ...]
    types: tuple[TypeRow, ...]
    shapes: ShapeRule
    ranks: Mapping[str, Rank] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    quantization: Mapping[str, Quantize] = field(default_factory=dict)
    layout: Layout = Barrier()
    zero_sized_since: int | None = None
    doc: str = ""

    @property
    def name(self) -> str:
        return self.code.name

    @property
    def operand_names(self) -> tuple[str, ...]:
        """Every operand name of every form, once, in order."""
        return tuple(dict.fromkeys(slot.name for form in self.forms for slot in form.slots))


FAMILIES = (
    "elementwise",
    "activation",
    "convolution",
    "matmul",
    "pooling",
    "reduction",
    "movement",
    "selection",
    "blocks",
    "quantization",
    "normalization",
    "resize",
    "lookup",
    "recurrent",
    "quantized_lstm",
    "detection",
    "control",
)

_rows: dict[OperationCode, Schema] = {}


def register(*schemas: Schema) -> None:
    """Add rows; a second one for an operation is a fault of ours."""
    for schema in schemas:
        if schema.code in _rows:
            raise KeyError(f"{schema.name} has two rows")
        _rows[schema.code] = schema


class _Table(Mapping[OperationCode, Schema]):
    """The rows by operation, imported when first asked for."""

    def _all(self) -> dict[OperationCode, Schema]:
        if not self._loaded:
            for family in FAMILIES:
                importlib.import_module(f"onnx2nnapi.nnapi.table.{family}")
            self._loaded = True
        return _rows

    _loaded = False

    def __getitem__(self, code: OperationCode) -> Schema:
        return self._all()[code]

    def __iter__(self) -> Iterator[OperationCode]:
        return iter(sorted(self._all()))

    def __len__(self) -> int:
        return len(self._all())


SCHEMAS: Mapping[OperationCode, Schema] = _Table()
