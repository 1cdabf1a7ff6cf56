"""What the commands have in common on their command lines: named values, and the options of a conversion."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from onnx2nnapi.errors import FeedError, InvalidModelError
from onnx2nnapi.options import LAYOUTS, MAX_LEVEL, MIN_LEVEL, Options
from onnx2nnapi.program import Program, load

__all__ = ["conversion_options", "given", "is_onnx", "json_option", "open_program", "options_of", "split_file"]

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V")


class _Pair(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases
    """NAME, a separator, and a value. Names may hold the separator: the last one counts."""

    def __init__(self, name: str, separator: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.separator = separator
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        name, found, text = str(value).rpartition(self.separator)
        if not found or not name:
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        try:
            return name, self.parse(text)
        except ValueError as error:
            self.fail(f"{value!r} is not {self.name}: {error}", param, ctx)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(_size(item) for item in text.split(",")) if text.strip() else ()


def _size(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{text.strip()!r} is no size")
    return int(text)


def _layout(text: str) -> str:
    if text.lower() not in LAYOUTS:
        raise ValueError(f"the layouts are {', '.join(LAYOUTS)}")
    return text.lower()


def split_file(text: str) -> tuple[str, str] | None:
    """NAME=FILE at the last "=" that leaves an existing file, since both may hold one; None where there is none."""
    for place in range(len(text) - 1, 0, -1):
        if text[place] == "=" and os.path.isfile(text[place + 1 :]):
            return text[:place], text[place + 1 :]
    return None


class _Setting(click.ParamType):  # type: ignore[type-arg]
    """NAME=VALUE, where VALUE is a .npy file, a number, true or false, or a list of these in JSON."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        file = split_file(value)
        if file is not None:
            return file
        name, found, text = value.rpartition("=")
        if not found or not name:
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        special = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
        try:
            return name, special[text.lower()] if text.lower() in special else json.loads(text)
        except ValueError:
            self.fail(f"{text!r} is neither a file that exists nor a number or list", param, ctx)


_CONVERSION = (
    click.option(
        "--feature-level",
        type=click.IntRange(MIN_LEVEL, MAX_LEVEL),
        default=Options.feature_level,
        show_default=True,
        help="The newest NNAPI that may be needed: 1-4 are Android 8.1, 9, 10, 11 (API 27-30), 5 is Android 12, "
        "6-8 are later updates.",
    ),
    click.option(
        "--input-shape",
        "input_shapes",
        metavar="NAME:SIZES",
        type=_Pair("NAME:SIZES", ":", _shape),
        multiple=True,
        help="The shape of an input, e.g. image:1,3,224,224.",
    ),
    click.option(
        "--dim",
        "dims",
        metavar="SYMBOL=SIZE",
        type=_Pair("SYMBOL=SIZE", "=", _size),
        multiple=True,
        help="The size of a symbolic dimension.",
    ),
    click.option(
        "--keep-dynamic",
        metavar="[SYMBOL]",
        is_flag=False,
        flag_value="*",
        multiple=True,
        help="Leave a symbolic dimension open, or all of them: alone at the end, or before another option.",
    ),
    click.option(
        "--set",
        "set",
        metavar="NAME=VALUE",
        type=_Setting(),
        multiple=True,
        help="Freezes an input: a number, a list in JSON, or a .npy file.",
    ),
    click.option("--relaxed-float16", is_flag=True, help="Let the device compute float32 in half precision."),
    click.option("--allow-float64", is_flag=True, help="Compute double tensors in float32."),
    click.option(
        "--input-layout",
        "input_layouts",
        metavar="NAME:LAYOUT",
        type=_Pair("NAME:LAYOUT", ":", _layout),
        multiple=True,
        help="nhwc: the application hands the input over with its channels last.",
    ),
    click.option(
        "--output-layout",
        "output_layouts",
        metavar="NAME:LAYOUT",
        type=_Pair("NAME:LAYOUT", ":", _layout),
        multiple=True,
        help="nhwc: the application gets the output with its channels last.",
    ),
    click.option("--cut-inputs", metavar="NAME", multiple=True, help="A tensor that becomes an input; repeatable."),
    click.option("--cut-outputs", metavar="NAME", multiple=True, help="A tensor that becomes an output; repeatable."),
)
_MAPPINGS = {
    "input_shapes": "--input-shape",
    "dims": "--dim",
    "set": "--set",
    "input_layouts": "--input-layout",
    "output_layouts": "--output-layout",
}


def conversion_options(command: F) -> F:
    """Give a command the options of a conversion; it takes them as keywords and hands them to ``options_of``."""
    for option in reversed(_CONVERSION):
        command = option(command)
    return command


def json_option(command: F) -> F:
    """Give a command ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def options_of(values: Mapping[str, Any]) -> Options:
    """The conversion that ``conversion_options`` describe."""
    chosen = dict(values)
    for name, flag in _MAPPINGS.items():
        chosen[name] = _unique(chosen[name], flag)
    return Options(**chosen)


def _unique(pairs: Iterable[tuple[str, V]], flag: str) -> dict[str, V]:
    result: dict[str, V] = {}
    for name, value in pairs:
        if name in result:
            raise click.BadParameter(f"{name!r} is given twice", param_hint=f"'{flag}'")
        result[name] = value
    return result


def given(values: Mapping[str, Any]) -> list[str]:
    """The flags of the conversion's options that the command line names."""
    context = click.get_current_context()
    named = click.core.ParameterSource.COMMANDLINE
    return [
        option.opts[0]
        for option in context.command.params
        if option.name in values and context.get_parameter_source(option.name) is named
    ]


def is_onnx(path: str) -> bool:
    """Whether a file is to be converted first: by its name, and where that says nothing by what it begins with."""
    name = path.lower()
    if name.endswith((".onnx", ".nnapi")):
        return name.endswith(".onnx")
    try:
        with open(path, "rb") as file:
            head = file.read(9)
    except OSError:
        return False  # opening it as a program tells what is wrong
    return head[8:] != b"{"  # a safetensors header is a JSON object after its length


def open_program(
    path: str, values: Mapping[str, Any], progress: Callable[[str], None] | None = None
) -> tuple[Program, bool]:
    """The program in a .nnapi file, or that of an .onnx file, converted; and whether it was converted.

    Raises:
        InvalidModelError: options of a conversion are given, and there is nothing to convert.
    """
    if is_onnx(path):
        from onnx2nnapi.api import convert

        return convert(path, options_of(values), progress=progress), True
    flags = given(values)
    if flags:
        raise InvalidModelError(
            f"{', '.join(flags)} can only be chosen when an .onnx file is converted", where=path, hint="leave it out"
        )
    return load(path), False


def feed_files(texts: Sequence[str]) -> list[tuple[str | None, str]]:
    """``--input``: NAME=FILE, or FILE alone (an .npz file whose arrays have the inputs' names).

    Raises:
        FeedError: no such file.
    """
    found: list[tuple[str | None, str]] = []
    for text in texts:
        if os.path.isfile(text):
            found.append((None, text))
            continue
        pair = split_file(text)
        if pair is None:
            raise FeedError(
                "there is no such file", where=f"--input {text}", hint="give NAME=FILE.npy or NAME=FILE.npz"
            )
        found.append(pair)
    return found
