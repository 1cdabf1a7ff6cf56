"""How the commands show things: tables in plain text, JSON, numbers as people read them, and progress on a terminal."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from onnx2nnapi.errors import android_version

__all__ = [
    "counted",
    "level_text",
    "print_json",
    "print_pairs",
    "print_table",
    "progress",
    "quantity",
    "shape_text",
    "size_text",
    "time_text",
]

_NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?( ?[kKMGTµnm]?(B|s|%)?)?|[-–]?|inf|nan")


def print_table(rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Columns wide enough for their cells; the first row is the head, columns of numbers end at their right."""
    if title:
        click.echo(f"\n{title}")
    head, *body = rows
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    numeric = [bool(body) and all(_NUMBER.fullmatch(row[at]) for row in body) for at in range(len(head))]
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        line = "  ".join(cells).rstrip()
        click.echo(click.style(line, bold=True) if not number else line)


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Labels and what they label, one line each."""
    known = list(pairs)
    width = max((len(label) for label, _ in known), default=0)
    for label, text in known:
        click.echo(f"{label.ljust(width)}  {text}")


def print_json(data: Any) -> None:
    """JSON as every parser takes it: numbers that it lacks are the strings "nan", "inf" and "-inf"."""
    click.echo(json.dumps(_plain(data), indent=1, ensure_ascii=False, allow_nan=False))


def _plain(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {str(key): _plain(value) for key, value in data.items()}
    return [_plain(item) for item in data] if isinstance(data, (list, tuple)) else data


@contextlib.contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None] | None]:
    """Shows the stage that runs, on a terminal with rich; yields what to call with each stage's name."""
    status = None if quiet or not sys.stderr.isatty() else _status()
    if status is None:
        yield None
        return
    with status:
        yield lambda stage: status.update(stage.replace("_", " "))


def _status() -> Any:
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(stderr=True).status("")


# -- numbers and names -------------------------------------------------------------------------------------------------


def quantity(value: float, unit: str = "") -> str:
    """1234567 as 1.23 M, with the unit behind."""
    for prefix, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:g}" + (f" {unit}" if unit else "")


def size_text(size: int) -> str:
    """Bytes, in thousands."""
    return quantity(size, "B")


def time_text(seconds: float) -> str:
    """A duration in the unit that suits it."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}" if seconds < 1000 else f"{seconds:.0f} s"
    return f"{seconds / 1e-6:.3g} µs"


def shape_text(shape: Sequence[int | str | None]) -> str:
    """[1, 3, ?]."""
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def level_text(level: int) -> str:
    """A feature level with the Android release that brought it."""
    return f"{level} ({android_version(level)})"


def counted(names: Iterable[str]) -> str:
    """CONV_2D 3, ADD 1: names with their number, the most frequent first."""
    return ", ".join(f"{name} {count}" for name, count in Counter(names).most_common()) or "none"
