"""The errors that leave onnx2nnapi: one class a cause, each message naming the place, the limit and the way out."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ArtifactError",
    "DeviceError",
    "FeatureLevelError",
    "FeedError",
    "InternalError",
    "InvalidModelError",
    "Onnx2NnapiError",
    "Origin",
    "UnsupportedError",
    "UnsupportedForm",
    "UnsupportedOp",
    "android_version",
]

_ANDROID = {1: ("8.1", 27), 2: ("9", 28), 3: ("10", 29), 4: ("11", 30), 5: ("12", 31)}


def android_version(level: int) -> str:
    """The Android release that brought NNAPI feature level ``level``, as people name it."""
    if level in _ANDROID:
        release, api = _ANDROID[level]
        return f"Android {release}, API {api}"
    return "NNAPI runtime update on Android 12 or later" if 6 <= level <= 8 else "no Android release"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in the ONNX model something comes from.

    Attributes:
        name: the node's name, possibly empty.
        op_type: the ONNX operator, with its domain in front where it is not ONNX's own.
        outputs: the names of the tensors that the node writes.
    """

    name: str
    op_type: str
    outputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = self.op_type + (f" {self.name!r}" if self.name else "")
        if self.outputs:
            names = ", ".join(repr(output) for output in self.outputs[:3])
            text += f" (-> {names}{', …' if len(self.outputs) > 3 else ''})"
        return text


class Onnx2NnapiError(Exception):
    """Base of every error that this package raises on purpose.

    Args:
        message: what is wrong and the limit that it meets.
        where: the ONNX node, or a phrase that names a tensor, dimension or file.
        hint: the way out, in the imperative.
    """

    def __init__(self, message: str, *, where: Origin | str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.where = where
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where is not None else self.message
        return f"{text}; {self.hint}" if self.hint else text


class InvalidModelError(Onnx2NnapiError):
    """The input is no valid model: a broken file, a contradiction, an unknown name, a broken rule of NNAPI."""


class UnsupportedError(Onnx2NnapiError):
    """A valid model that cannot be expressed; ``problems`` holds every refusal when several are reported at once."""

    problems: tuple[UnsupportedError, ...] = ()

    @classmethod
    def collected(cls, problems: list[UnsupportedError]) -> UnsupportedError:
        """One error for all of ``problems`` (at least one), equal ones once; a single one is returned as it is."""
        different = list({str(problem): problem for problem in problems}.values())
        if len(different) == 1:
            return different[0]
        places = {str(problem.where) for problem in different}
        what = "nodes" if all(isinstance(problem.where, Origin) for problem in different) else "tensors and nodes"
        heading = f"{len(places)} {what} cannot be converted" if len(places) > 1 else f"{len(different)} refusals"
        error = cls("\n".join([f"{heading}:", *(f"  {problem}" for problem in different)]))
        error.problems = tuple(different)
        return error


class UnsupportedOp(UnsupportedError):
    """An operator that nothing here converts."""


class UnsupportedForm(UnsupportedError):
    """An operator that is converted, but not with these attributes, types, ranks or shapes."""


class FeatureLevelError(UnsupportedError):
    """Convertible, but only for a higher NNAPI feature level than the target.

    Args:
        message: what needs the level.
        required: the lowest feature level that has it.
        target: the level that was asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        required: int,
        target: int,
        where: Origin | str | None = None,
        hint: str | None = None,
    ) -> None:
        self.required = required
        self.target = target
        limit = f"{message} needs feature level {required} ({android_version(required)}), the target is {target}"
        super().__init__(limit, where=where, hint=hint or "raise --feature-level")


class ArtifactError(Onnx2NnapiError):
    """A .nnapi file that is cut, hostile, of another version, or cannot be read or written."""


class FeedError(Onnx2NnapiError):
    """An input array that is missing, unknown, or of the wrong dtype, shape or range."""


class DeviceError(Onnx2NnapiError):
    """A call into libneuralnetworks that failed.

    Args:
        message: what the result means in this place.
        call: the C function.
        code: the ResultCode's name, or None when no call was made.
    """

    def __init__(
        self,
        message: str,
        *,
        call: str | None = None,
        code: str | None = None,
        where: Origin | str | None = None,
        hint: str | None = None,
    ) -> None:
        self.call = call
        self.code = code
        head = f"{call} answered {code}: " if call and code else f"{call}: " if call else ""
        super().__init__(head + message, where=where, hint=hint)


class InternalError(Onnx2NnapiError):
    """A fault of onnx2nnapi itself; please report it with the model."""
