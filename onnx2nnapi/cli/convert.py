"""`onnx2nnapi convert`: an .onnx file becomes a .nnapi file."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from onnx2nnapi.cli.arguments import conversion_options, json_option, options_of
from onnx2nnapi.cli.display import print_json, print_pairs, progress, size_text, time_text
from onnx2nnapi.cli.summary import level_with_reasons, operation_names, reasons_for_level
from onnx2nnapi.program import Program

__all__ = ["convert"]


@click.command()
@click.argument("model", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="The file to write; default: MODEL with .nnapi at its end.")
@conversion_options
@click.option("--dump-ir", metavar="DIR", help="Write the graph as text into DIR, after each pass that changed it.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def convert(model: str, output: str | None, dump_ir: str | None, as_json: bool, quiet: bool, **conversion: Any) -> None:
    """Convert MODEL, an .onnx file, to a .nnapi file.

    Names in options may hold any character: NAME:SIZES is split at the last colon, NAME=VALUE at the last equals sign.
    """
    from onnx2nnapi.api import convert as convert_model

    target = os.path.splitext(model)[0] + ".nnapi" if output is None else output
    start = time.perf_counter()
    with progress(quiet or as_json) as stage:
        program = convert_model(model, options_of(conversion), progress=stage, dump=dump_ir)
        if stage is not None:
            stage("write")
        program.save(target)
    seconds = time.perf_counter() - start
    if quiet:
        return
    facts = _facts(program, target, seconds)
    if as_json:
        print_json({"model": model, "output": target, **facts})
        return
    click.echo(f"{model} -> {target}")
    operations = f"{facts['onnx_nodes']} ONNX nodes -> {facts['operations']} NNAPI operations"
    if facts["segments"] > 1:
        operations += f" in {facts['segments']} models"
    print_pairs(
        [
            ("operations", operations),
            ("transposes", str(facts["transposes"])),
            ("feature level", level_with_reasons(program)),
            ("size", size_text(facts["bytes"])),
            ("time", time_text(seconds)),
        ]
    )


def _facts(program: Program, target: str, seconds: float) -> dict[str, Any]:
    names = operation_names(program)
    return {
        "onnx_nodes": int(program.metadata["onnx_nodes"]),
        "operations": len(names),
        "transposes": names.count("TRANSPOSE"),
        "segments": len(program.segments),
        "feature_level": program.required_level,
        "forced_by": reasons_for_level(program),
        "bytes": os.path.getsize(target),
        "seconds": seconds,
    }
