"""`onnx2nnapi devices`: what this machine's NNAPI drives, and what it would take of a model."""

from __future__ import annotations

import os

import click

from onnx2nnapi.cli.arguments import json_option
from onnx2nnapi.cli.display import level_text, print_json, print_table
from onnx2nnapi.errors import ArtifactError
from onnx2nnapi.program import load
from onnx2nnapi.runtime.explain import Support

__all__ = ["devices", "show_support"]


@click.command()
@click.argument("model", type=click.Path(), required=False)
@click.option("--library", metavar="PATH", help="Another libneuralnetworks.so, or a support library driver.")
@click.option("--device", "chosen", metavar="NAME", multiple=True, help="Ask these only: name, index, type, or cpu.")
@click.option("--save", metavar="FILE", type=click.Path(), help="Store devices, levels and support, to plan elsewhere.")
@json_option
def devices(model: str | None, library: str | None, chosen: tuple[str, ...], save: str | None, as_json: bool) -> None:
    """List the devices; with MODEL, a .nnapi file, also which of them support each operation."""
    from onnx2nnapi.runtime.device_list import list_devices, select_devices
    from onnx2nnapi.runtime.explain import explain_model, profile, save_profile
    from onnx2nnapi.runtime.library import open_library

    models = [segment.model for segment in load(model).segments] if model is not None else []
    nnapi = open_library(library)
    found = (select_devices(nnapi, chosen) if chosen else None) or list_devices(nnapi)
    supports = [explain_model(entry, nnapi, chosen or None) for entry in models]
    if save is not None:
        if model is not None and os.path.exists(save) and os.path.samefile(save, model):
            raise ArtifactError("is the model itself", where=save, hint="choose another name")
        save_profile(save, profile(nnapi, models))
    if as_json:
        print_json(
            {
                "library": nnapi.name,
                "feature_level": nnapi.level,
                "devices": [device.to_dict() for device in found],
                "models": [support.to_dict() for support in supports],
            }
        )
        return
    click.echo(f"{nnapi.name}: feature level {level_text(nnapi.level)}")
    if not found:
        click.echo("below feature level 3 (Android 10) NNAPI does not tell its devices")
    else:
        rows = [["index", "name", "type", "version", "level"]]
        rows += [
            [str(entry.index), entry.name, entry.type.name.lower(), entry.version, str(entry.feature_level)]
            for entry in found
        ]
        print_table(rows)
    for support in supports:
        show_support(support)
    if save is not None:
        click.echo(f"saved to {save}")


def show_support(support: Support) -> None:
    """Which device supports each operation, and a verdict on each device."""
    names = [device.name for device in support.devices]
    rows = [["", "operation", *names, "ONNX nodes"]]
    rows += [
        [
            str(entry.index),
            entry.operation,
            *("yes" if name in entry.devices else "no" for name in names),
            ", ".join(entry.origin),
        ]
        for entry in support.operations
    ]
    print_table(rows, "support")
    for verdict in support.verdicts():
        click.echo(verdict)
