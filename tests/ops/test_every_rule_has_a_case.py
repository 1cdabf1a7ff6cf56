"""No rule without a row: each operator that has one is in a case of this folder."""

from __future__ import annotations

import importlib
import pathlib

from onnx2nnapi.passes.legalize import rules
from tests.ops.harness import Case

# These need more than one node, and are tested with whole graphs in test_control.py.
WHOLE_GRAPHS = {"If", "Loop", "Scan"}


def test_every_rule_has_a_case() -> None:
    covered = set(WHOLE_GRAPHS)
    for path in sorted(pathlib.Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.ops.{path.stem}")
        for value in vars(module).values():
            if isinstance(value, (list, tuple)):
                covered |= {f"{row.domain}::{row.op_type}".removeprefix("::") for row in value if isinstance(row, Case)}
    missing = sorted(set(rules()) - covered)
    assert not missing, ", ".join(missing)
