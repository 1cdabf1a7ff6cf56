"""Reading a JSON description with every type and range checked, each refusal naming the place in it."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from onnx2nnapi.errors import InvalidModelError

__all__ = ["Entry", "as_integer", "as_list"]

_MAX_BITS = 64


def _shown(value: object) -> str:
    """A value for messages, whatever it is: repr would write huge ones in full, or recurse without end."""
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (list, tuple, Mapping)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{reprlib.repr(value):.40}"


class Entry:
    """A JSON object that is read with its types checked; ``where`` is its place in the description."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping):
            raise InvalidModelError(f"must be an object, not {type(data).__name__}", where=where)
        self.data = data
        self.where = where

    def __getitem__(self, key: str) -> Any:
        if key not in self.data:
            raise InvalidModelError(f"lacks {key!r}", where=self.where)
        return self.data[key]

    def get(self, key: str, default: Any) -> Any:
        return self.data.get(key, default)

    def boolean(self, key: str, *, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise InvalidModelError(f"{key!r} must be true or false, not {_shown(value)}", where=self.where)
        return value

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value = self[key] if default is None else self.get(key, default)
        return as_integer(value, low, high, f"{self.where}.{key}")

    def number(self, key: str) -> float:
        value = self.get(key, 0.0)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidModelError(f"{key!r} must be a number, not {_shown(value)}", where=self.where)
        try:
            number = float(value)
        except OverflowError:
            raise InvalidModelError(f"{key!r} is out of range", where=self.where) from None
        if not math.isfinite(number):
            raise InvalidModelError(f"{key!r} must be finite, not {number}", where=self.where)
        return number

    def text(self, key: str) -> str:
        value = self[key]
        if not isinstance(value, str):
            raise InvalidModelError(f"{key!r} must be a string, not {_shown(value)}", where=self.where)
        return value

    def integers(self, key: str, low: int, high: int, default: list[int] | None = None) -> tuple[int, ...]:
        value = self[key] if default is None else self.get(key, default)
        if isinstance(value, (list, tuple)) and all(type(item) is int and low <= item <= high for item in value):
            return tuple(value)
        where = f"{self.where}.{key}"
        return tuple(as_integer(item, low, high, where) for item in as_list(value, where))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, empty where it is left out."""
        value = as_list(self.get(key, ()), f"{self.where}.{key}")
        for item in value:
            if not isinstance(item, str):
                raise InvalidModelError(f"must hold strings, not {_shown(item)}", where=f"{self.where}.{key}")
        return tuple(value)


def as_list(value: object, where: str) -> Sequence[Any]:
    """``value``, which must be a list."""
    if not isinstance(value, (list, tuple)):
        raise InvalidModelError(f"must be a list, not {type(value).__name__}", where=where)
    return value


def as_integer(value: object, low: int, high: int, where: str) -> int:
    """``value``, which must be an integer of the range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidModelError(f"must be an integer, not {_shown(value)}", where=where)
    if not low <= value <= high:
        raise InvalidModelError(f"{_shown(value)} is out of range, it must be {low} to {high}", where=where)
    return value
