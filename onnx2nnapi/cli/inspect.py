"""`onnx2nnapi inspect`: what is in a .nnapi or an .onnx file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from onnx2nnapi.cli.arguments import conversion_options, is_onnx, json_option, open_program
from onnx2nnapi.cli.display import (
    counted,
    print_json,
    print_pairs,
    print_table,
    progress,
    shape_text,
    size_text,
)
from onnx2nnapi.cli.summary import (
    level_with_reasons,
    models,
    operand_bytes,
    operation_names,
    origin_text,
    port_facts,
    reasons_for_level,
)
from onnx2nnapi.errors import UnsupportedError
from onnx2nnapi.nnapi.model import Subgraph
from onnx2nnapi.nnapi.validation import operation_levels
from onnx2nnapi.program import Program

__all__ = ["inspect"]


@click.command()
@click.argument("file", type=click.Path())
@click.option("--operations", is_flag=True, help="Also list every operation in order, with shapes.")
@conversion_options
@json_option
def inspect(file: str, operations: bool, as_json: bool, **conversion: Any) -> None:
    """Show what is in FILE, a .nnapi file or an .onnx file.

    Of an .onnx file both sides are shown: the ONNX graph as it is read, and the NNAPI model that it becomes by the
    options of a conversion.
    """
    source = _read_onnx(file) if is_onnx(file) else None
    program: Program | None = None
    refusal: str | None = None
    with progress(as_json) as stage:
        try:
            program, _ = open_program(file, conversion, stage)
        except UnsupportedError as error:
            if source is None:
                raise
            count = len(error.problems) or 1
            refusal = f"no: {count} refusal{'s' * (count > 1)}; `onnx2nnapi check` tells why"
    if as_json:
        data: dict[str, Any] = {"file": file, "bytes": os.path.getsize(file)}
        if source is not None:
            data["onnx"] = source
        if program is not None:
            data |= _facts(program) | ({"operation_list": list(_rows_as_facts(program))} if operations else {})
        print_json(data | ({"converts": program is not None} if source is not None else {}))
        return
    click.echo(f"{file}, {size_text(os.path.getsize(file))}")
    if source is not None:
        _show_onnx(source, operations and program is None)
    if program is not None:
        _show_program(program, with_interface=source is None)
        if operations:
            _show_operations(program)
    else:
        print_pairs([("converts", refusal or "")])


# -- .onnx -------------------------------------------------------------------------------------------------------------


def _read_onnx(file: str) -> dict[str, Any]:
    """The ONNX side: interface and nodes as the file has them, bytes of weights by type."""
    from onnx2nnapi.frontend.describe import describe_model

    return describe_model(file)


def _show_onnx(source: dict[str, Any], nodes: bool) -> None:
    print_pairs(
        [
            ("opset", ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in source["opset"].items())),
            ("producer", source["producer"] or "unknown"),
            ("operators", f"{len(source['nodes'])}: {counted(node['op_type'] for node in source['nodes'])}"),
        ]
    )
    _show_ports(source)
    rows = [["weights", "tensors", "bytes"]]
    rows += [[name, str(entry["tensors"]), size_text(entry["bytes"])] for name, entry in source["weights"].items()]
    if len(rows) > 1:
        click.echo()
        print_table(rows)
    if nodes:
        listing = [["node", "operator", "inputs", "outputs"]]
        listing += [
            [node["name"], node["op_type"], ", ".join(node["inputs"]), ", ".join(node["outputs"])]
            for node in source["nodes"]
        ]
        print_table(listing, "nodes")
    click.echo()


def _show_ports(facts: dict[str, Any]) -> None:
    rows = [["", "name", "type", "shape"]]
    for key in ("inputs", "outputs"):
        rows += [
            [key[:-1], port["name"], port["dtype"], "?" if port["shape"] is None else shape_text(port["shape"])]
            for port in facts[key]
        ]
    click.echo()
    print_table(rows)


# -- .nnapi ------------------------------------------------------------------------------------------------------------


def _facts(program: Program) -> dict[str, Any]:
    names = operation_names(program)
    return {
        "feature_level": program.required_level,
        "forced_by": reasons_for_level(program),
        "relaxed_float16": any(model.relaxed for model in models(program)),
        **port_facts(program),
        "operations": {name: names.count(name) for name in sorted(set(names))},
        "operands": operand_bytes(program),
        "metadata": dict(program.metadata),
    }


def _show_program(program: Program, *, with_interface: bool) -> None:
    names = operation_names(program)
    pairs = [
        ("feature level", level_with_reasons(program)),
        ("operations", f"{len(names)}: {counted(names)}"),
    ]
    if len(program.segments) != 1:
        pairs.append(("models", str(len(program.segments))))
    if any(model.relaxed for model in models(program)):
        pairs.append(("float32", "may be computed in half precision"))
    if program.metadata.get("options", "{}") != "{}":
        pairs.append(("options", program.metadata["options"]))
    print_pairs(pairs)
    if with_interface:
        _show_ports(port_facts(program))
    rows = [["operand type", "operands", "constant", "fed and computed"]]
    rows += [
        [name, str(entry["operands"]), size_text(entry["constant_bytes"]), size_text(entry["computed_bytes"])]
        for name, entry in operand_bytes(program).items()
    ]
    click.echo()
    print_table(rows)


def _show_operations(program: Program) -> None:
    for title, rows in _listings(program):
        print_table([["", "operation", "level", "inputs", "outputs", "ONNX nodes"], *rows], title)


def _listings(program: Program) -> Iterator[tuple[str, list[list[str]]]]:
    for number, model in enumerate(models(program)):
        name = "operations" if len(program.segments) == 1 else f"operations of model {number}"
        levels = operation_levels(model)
        yield name, _rows(model.main, [str(level) for level in levels])
        for place, graph in enumerate(model.subgraphs):
            yield f"sub-model {place}", _rows(graph, [""] * len(graph.operations))


def _rows(graph: Subgraph, levels: list[str]) -> list[list[str]]:
    return [
        [
            str(number),
            operation.code.name,
            level,
            " ".join(_tensors(graph, operation.inputs)),
            " ".join(_tensors(graph, operation.outputs)),
            origin_text(operation),
        ]
        for number, (operation, level) in enumerate(zip(graph.operations, levels, strict=True))
    ]


def _tensors(graph: Subgraph, indices: tuple[int, ...]) -> list[str]:
    """Shapes of the operands that are tensors."""
    types = [graph.operands[index].type for index in indices]
    return [shape_text(type_.shape).replace(" ", "") for type_ in types if type_.code.is_tensor]


def _rows_as_facts(program: Program) -> Iterator[dict[str, Any]]:
    for number, model in enumerate(models(program)):
        graph = model.main
        for operation, level in zip(graph.operations, operation_levels(model), strict=True):
            yield {
                "model": number,
                "operation": operation.code.name,
                "level": level,
                "inputs": [str(graph.operands[index].type) for index in operation.inputs],
                "outputs": [str(graph.operands[index].type) for index in operation.outputs],
                "origin": list(operation.origin),
            }
