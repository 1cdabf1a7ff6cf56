"""`onnx2nnapi run`: computes, times, and asks whether the driver is right."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from onnx2nnapi.cli.arguments import conversion_options, feed_files, json_option, open_program
from onnx2nnapi.cli.arrays import make_folder, read_inputs, save_outputs, seeded, summaries, summary_text
from onnx2nnapi.cli.devices import show_support
from onnx2nnapi.cli.display import print_json, print_table, progress
from onnx2nnapi.cli.timing import has_one_device, profile_rows, time_session
from onnx2nnapi.cli.verdict import bisected, compared
from onnx2nnapi.errors import DeviceError, InvalidModelError
from onnx2nnapi.nnapi.model import Model
from onnx2nnapi.program import Program
from onnx2nnapi.runtime.benchmark import BenchmarkReport
from onnx2nnapi.runtime.device import NnapiExecutor
from onnx2nnapi.runtime.explain import Support, explain_model
from onnx2nnapi.runtime.session import Session
from onnx2nnapi.runtime.timing import memory_use

__all__ = ["run"]

MODES = ("sync", "async", "burst", "fenced")
PREFERENCES = ("low-power", "fast-single-answer", "sustained-speed")
PRIORITIES = ("low", "medium", "high")


class _Comparisons(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases
    """host, ways to run, or both, with commas between."""

    name = "host|MODES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(str(value).split(",")))
        for word in words:
            if word not in ("host", *MODES):
                self.fail(f"{word!r} is none of host, {', '.join(MODES)}", param, ctx)
        return words


@dataclass(frozen=True)
class _Device:
    """The choices that concern NNAPI only."""

    library: str | None
    device: tuple[str, ...]
    mode: str | None
    preference: str | None
    priority: str | None
    cache: str | None
    timeout: float | None
    compile_timeout: float | None
    loop_timeout: float | None
    padding: bool

    @property
    def devices(self) -> list[str] | None:
        return list(self.device) or None

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of NnapiExecutor but the mode."""
        names = ("preference", "priority", "cache", "timeout", "compile_timeout", "loop_timeout", "padding")
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def open(self, model: Model) -> NnapiExecutor:
        """A model on the device chosen."""
        mode: Any = self.mode
        return NnapiExecutor(model, self.library, self.devices, mode=mode, **self.options)

    @property
    def chosen(self) -> list[str]:
        """The flags that are given."""
        names = [name for name in ("library", "device", "mode") if getattr(self, name)]
        return [f"--{name.replace('_', '-')}" for name in (*names, *self.options)]


def _device_options(command: Any) -> Any:
    seconds = click.FloatRange(0, min_open=True)
    for option in reversed(
        (
            click.option("--library", metavar="PATH", help="Another libneuralnetworks.so, or a driver."),
            click.option("--device", metavar="NAME", multiple=True, help="A device's name, index or type, or cpu."),
            click.option("--mode", type=click.Choice(MODES), help="How NNAPI runs it."),
            click.option("--preference", type=click.Choice(PREFERENCES), help="What the compilation is to favour."),
            click.option("--priority", type=click.Choice(PRIORITIES), help="Among the models that run."),
            click.option("--cache", metavar="DIR", help="Where drivers keep compiled models."),
            click.option("--timeout", type=seconds, help="Of a run, in seconds; needs one device."),
            click.option("--compile-timeout", type=seconds, help="Of the compilation, in seconds; needs one device."),
            click.option("--loop-timeout", type=seconds, help="Of a WHILE loop, in seconds."),
            click.option("--padding", is_flag=True, help="Hand over buffers as long as the device prefers."),
        )
    ):
        command = option(command)
    return command


@click.command()
@click.argument("model", type=click.Path())
@click.option("--input", "inputs", metavar="NAME=FILE", multiple=True, help="An input, from a .npy or .npz file.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="For inputs that are not given.")
@click.option("--save", metavar="DIR", type=click.Path(), help="Write the outputs to DIR as .npy files.")
@click.option("--backend", type=click.Choice(("auto", "host", "nnapi")), default="auto", show_default=True)
@click.option("--warmup", type=click.IntRange(0), default=1, show_default=True, help="Runs that do not count.")
@click.option("--runs", type=click.IntRange(1), default=10, show_default=True, help="Runs that count.")
@click.option("--min-secs", type=click.FloatRange(0), default=0.0, help="Run on until the counted runs took as long.")
@click.option("--max-secs", type=click.FloatRange(0), default=60.0, show_default=True, help="Stop after as long.")
@click.option("--profile", is_flag=True, help="Show the time of each operation (host).")
@click.option("--explain", is_flag=True, help="Show which device supports which operation.")
@click.option("--compare", type=_Comparisons(), help="host: compare outputs with the interpreter's. Or modes, timed.")
@click.option("--bisect", is_flag=True, help="Find the first operation that the device gets wrong.")
@click.option("--vector", metavar="FILE", default="bisect.json", show_default=True, help="Where --bisect writes it.")
@_device_options
@conversion_options
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print the times as CSV.")
def run(
    model: str,
    inputs: tuple[str, ...],
    seed: int,
    save: str | None,
    backend: Any,
    warmup: int,
    runs: int,
    min_secs: float,
    max_secs: float,
    profile: bool,
    explain: bool,
    compare: tuple[str, ...] | None,
    bisect: bool,
    vector: str,
    as_json: bool,
    as_csv: bool,
    **rest: Any,
) -> None:
    """Run MODEL, a .nnapi file, or an .onnx file, which is converted first.

    Without inputs it makes seeded ones.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")
    device = _Device(**{name: rest.pop(name) for name in _Device.__dataclass_fields__})
    started = time.perf_counter()
    quiet = as_json or as_csv
    with progress(quiet) as stage:
        program, _ = open_program(model, rest, stage)
    load_seconds = time.perf_counter() - started
    feeds = read_inputs(feed_files(inputs), program.inputs)
    made = [port for port in program.inputs if port.name not in feeds]
    generator = np.random.default_rng(seed)
    feeds |= {port.name: seeded(port, generator) for port in made}
    words = compare or ()
    how: dict[str, Any] = {
        "runs": runs,
        "warmup": warmup,
        "min_seconds": min_secs,
        "max_seconds": max(max_secs, min_secs) if max_secs else math.inf,
    }
    before, started = memory_use(), time.perf_counter()
    try:
        with _session(program, backend, device, profile) as session:
            open_seconds = time.perf_counter() - started
            _refuse_what_needs_nnapi(session, device, explain=explain, compare=bool(words), bisect=bisect)
            supports = _supports(program, device) if explain else []
            modes = [word for word in words if word != "host"]
            timing = time_session(
                session,
                feeds,
                load_seconds=load_seconds,
                open_seconds=open_seconds,
                before=before,
                modes=modes,
                options=device.options,
                **how,
            )
            outputs = session.run(feeds)
            files = save_outputs(save, outputs) if save is not None else {}
            data: dict[str, Any] = {
                "model": model,
                "backend": session.backend,
                "inputs": {
                    "seed": seed if made else None,
                    "made": [port.name for port in made],
                    "shapes": {name: list(np.shape(array)) for name, array in feeds.items()},
                },
                "outputs": summaries(outputs),
                "timing": timing.to_dict(),
            }
            if files:
                data["saved"] = files
            if supports:
                data["explain"] = [support.to_dict() for support in supports]
            if profile:
                data["profile"] = profile_rows(session)
            if "host" in words:
                data["compare"] = compared(session, feeds)
            if bisect:
                data["bisect"] = bisected(program, feeds, device.open, vector)
    except DeviceError as error:
        if (
            error.call is not None and (explain or bisect) and not as_csv
        ):  # what was asked to find out why is told all the same
            supports = _supports(program, device) if explain else []
            culprit = bisected(program, feeds, device.open, vector) if bisect else None
            _show_failure(model, error, supports, culprit, as_json=as_json, bisect=bisect)
        raise
    if as_csv:
        click.echo(timing.to_csv(), nl=False)
    elif as_json:
        print_json(data)
    else:
        _show(data, timing, supports)
    wrong = [entry for entry in data.get("compare", []) if not entry["within"]]
    if wrong or data.get("bisect"):
        click.get_current_context().exit(1)


@contextlib.contextmanager
def _session(program: Program, backend: Any, device: _Device, profile: bool) -> Iterator[Session]:
    options = device.options | ({"mode": device.mode} if device.mode else {})
    if device.cache is not None and backend != "host":
        make_folder(device.cache)
    if backend != "host" and has_one_device(device.library, device.devices):
        options["measure"] = True
    with Session(
        program,
        backend,
        library=device.library,
        devices=device.devices,
        profile=profile,
        device_options=options,
    ) as session:
        if profile and session.backend != "host":
            raise InvalidModelError("drivers do not tell the time of each operation", hint="use --backend host")
        yield session


def _refuse_what_needs_nnapi(session: Session, device: _Device, **wanted: bool) -> None:
    if session.backend == "nnapi":
        return
    flags = [f"--{name}" for name, value in wanted.items() if value] + device.chosen
    if flags:
        raise InvalidModelError(
            f"{', '.join(flags)} needs NNAPI, and this runs on the host",
            hint="use --backend nnapi, with --library PATH where Android's own is not there",
        )


def _supports(program: Program, device: _Device) -> list[Support]:
    return [explain_model(segment.model, device.library, device.devices) for segment in program.segments]


def _show_failure(
    model: str,
    error: DeviceError,
    supports: list[Support],
    culprit: dict[str, Any] | None,
    *,
    as_json: bool,
    bisect: bool,
) -> None:
    if as_json:
        data: dict[str, Any] = {"model": model, "backend": "nnapi", "error": str(error)}
        if supports:
            data["explain"] = [support.to_dict() for support in supports]
        print_json(data | ({"bisect": culprit} if bisect else {}))
        return
    for support in supports:
        show_support(support)
    if bisect:
        _show_culprit(culprit)


def _show(data: dict[str, Any], timing: BenchmarkReport, supports: list[Support]) -> None:
    where = "NNAPI" if data["backend"] == "nnapi" else "the host"
    made = data["inputs"]["made"]
    click.echo(f"{data['model']} on {where}")
    if made:
        names = ", ".join(f"{name}{data['inputs']['shapes'][name]}" for name in made)
        click.echo(f"inputs made from seed {data['inputs']['seed']}: {names}")
    for facts in data["outputs"]:
        for line in summary_text(facts):
            click.echo(line)
    for name, file in data.get("saved", {}).items():
        click.echo(f"{name} saved to {file}")
    for support in supports:
        show_support(support)
    for title, rows in timing.tables():
        if len(rows) > 1:
            print_table(rows, title)
    for remark in timing.remarks():
        click.echo(remark)
    if "profile" in data:
        _show_profile(data["profile"])
    if "compare" in data:
        click.echo("\ncompared with the host")
        for entry in data["compare"]:
            click.echo(entry["text"])
    if "bisect" in data:
        _show_culprit(data["bisect"])


def _show_culprit(culprit: dict[str, Any] | None) -> None:
    click.echo("\nbisected")
    click.echo("every operation is right" if culprit is None else f"{culprit['text']}\nwritten to {culprit['vector']}")


def _show_profile(rows: list[dict[str, Any]]) -> None:
    table = [["", "operation", "time, ms", "share", "cumulative", "ONNX nodes"]]
    table += [
        [
            str(number),
            row["operation"],
            f"{row['seconds'] * 1e3:.3f}",
            f"{row['share']:.1%}",
            f"{row['cumulative']:.1%}",
            ", ".join(row["origin"]),
        ]
        for number, row in enumerate(rows)
    ]
    print_table(table, "operations, mean of the runs after the first")
