"""`onnx2nnapi ops`: ONNX operators and NNAPI operations, from the tables."""

from __future__ import annotations

import click

from onnx2nnapi.cli.arguments import json_option
from onnx2nnapi.cli.display import print_json, print_pairs, print_table
from onnx2nnapi.nnapi.schema import SCHEMAS

__all__ = ["ops"]


@click.command()
@click.option("--nnapi", metavar="NAME", help="Print the row of one NNAPI operation: operands, types, levels, forms.")
@click.option("--markdown", is_flag=True, help="Print docs/operators.md.")
@json_option
def ops(nnapi: str | None, markdown: bool, as_json: bool) -> None:
    """List ONNX operators and NNAPI operations with their levels."""
    from onnx2nnapi.operators import (
        STATUS,
        describe_operation,
        document,
        find_operation,
        onnx_operators,
        operation_facts,
    )

    if nnapi is not None:
        schema = find_operation(nnapi)
        if as_json:
            print_json(operation_facts(schema))
        else:
            click.echo(describe_operation(schema))
        return
    if markdown:
        click.echo(document(), nl=False)
        return
    operators = onnx_operators()
    if as_json:
        print_json(
            {
                "onnx": [
                    {
                        "operator": entry.name,
                        "opset": entry.since,
                        "status": entry.status,
                        "level": entry.level,
                        "note": entry.note,
                        "operations": list(entry.operations),
                    }
                    for entry in operators
                ],
                "nnapi": [operation_facts(schema) for schema in SCHEMAS.values()],
            }
        )
        return
    rows = [["operator", "opset", "status", "level", "how"]]
    rows += [[entry.name, str(entry.since), entry.status, str(entry.level or ""), entry.note] for entry in operators]
    print_table(rows, "ONNX operators")
    click.echo()
    print_pairs(STATUS.items())
    rows = [["operation", "code", "level", ""]]
    rows += [[schema.name, str(int(schema.code)), str(schema.since), schema.doc] for schema in SCHEMAS.values()]
    print_table(rows, "NNAPI operations")
