"""`onnx2nnapi check`: what every node becomes, or why not and the way out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from onnx2nnapi.cli.arguments import conversion_options, json_option, options_of
from onnx2nnapi.cli.display import level_text, print_json, print_table, progress, quantity, size_text
from onnx2nnapi.cli.page import page
from onnx2nnapi.errors import ArtifactError
from onnx2nnapi.nnapi.artifact import replacing

if TYPE_CHECKING:
    from onnx2nnapi.report import Report

__all__ = ["check"]


@click.command()
@click.argument("model", type=click.Path())
@conversion_options
@json_option
@click.option("--html", metavar="FILE", type=click.Path(), help="Also write the report as a page of HTML.")
def check(model: str, as_json: bool, html: str | None, **conversion: Any) -> None:
    """Tell of every node of MODEL, an .onnx file, what it becomes in NNAPI, or why it is refused and the way out.

    Exits with 0 only when all of the model converts.
    """
    from onnx2nnapi.report import check as check_model

    with progress(as_json) as stage:
        report = check_model(model, options_of(conversion), progress=stage)
    if html is not None:
        if os.path.exists(html) and os.path.samefile(html, model):
            raise ArtifactError("is the model itself", where=html, hint="choose another name")
        with replacing(html, html) as file:
            file.write(page(report, model).encode())
    if as_json:
        print_json({"model": model, **report.to_dict()})
    else:
        _show(report)
    click.get_current_context().exit(0 if report.convertible else 1)


def _show(report: Report) -> None:
    rows = [["node", "operator", "NNAPI operations", "level", "bytes", "MACs", ""]]
    rows += [
        [
            node.label,
            node.origin.op_type,
            node.becomes,
            str(node.level) if node.level else "",
            size_text(node.bytes_moved) if node.bytes_moved else "",
            quantity(node.macs) if node.macs else "",
            node.remark,
        ]
        for node in report.nodes
    ]
    print_table(rows)
    for group in report.refusals:
        click.echo(f"\n{group.title}: {group.reason}")
        if group.places:
            click.echo(f"  at: {', '.join(group.places)}")
        if group.way_out:
            click.echo(f"  way out: {group.way_out}")
    for assumption in report.assumptions:
        click.echo(f"\nassumed: {assumption}")
    click.echo(f"\n{report.verdict}")
    if report.convertible:
        click.echo(f"feature level {level_text(report.required_level or 1)}; {report.cost}")
