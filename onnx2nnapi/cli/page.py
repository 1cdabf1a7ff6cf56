"""The report of `check` as one page of HTML, which needs nothing beside it."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from onnx2nnapi.cli.display import quantity, size_text

if TYPE_CHECKING:
    from onnx2nnapi.report import Report

__all__ = ["page"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: .2rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.number { text-align: right; white-space: nowrap; }
tr.refused { background: #d002; }
tr.folded, tr.merged { opacity: .65; }
"""
_HEAD = ("node", "operator", "NNAPI operations", "level", "bytes moved", "MACs", "")
_NUMERIC = range(3, 6)


def page(report: Report, title: str) -> str:
    """The page; every text of the model is escaped."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(title)}</h1>",
        f"<p><strong>{html.escape(report.verdict)}</strong>, target feature level {report.feature_level}"
        + (f", required {report.required_level}; {html.escape(report.cost)}" if report.required_level else ""),
    ]
    if report.refusals:
        rows = [(group.title, group.reason, ", ".join(group.places), group.way_out or "") for group in report.refusals]
        parts += ["<h2>Refused</h2>", *_table(("what", "why", "where", "way out"), ((row, "") for row in rows))]
    if report.assumptions:
        parts += ["<h2>Assumed</h2><ul>", *(f"<li>{html.escape(text)}</li>" for text in report.assumptions), "</ul>"]
    nodes = (
        (
            (
                node.label,
                node.origin.op_type,
                node.becomes,
                str(node.level or ""),
                size_text(node.bytes_moved) if node.bytes_moved else "",
                quantity(node.macs) if node.macs else "",
                "; ".join(node.reasons) or node.remark,
            ),
            node.status,
        )
        for node in report.nodes
    )
    parts += ["<h2>Nodes</h2>", *_table(_HEAD, nodes, _NUMERIC), "</html>"]
    return "\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[tuple[Sequence[str], str]], numeric: Sequence[int] = ()) -> list[str]:
    lines = ["<table><tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in head) + "</tr>"]
    for cells, kind in rows:
        classes = (' class="number"' if place in numeric else "" for place in range(len(cells)))
        columns = (f"<td{cls}>{html.escape(cell)}</td>" for cls, cell in zip(classes, cells, strict=True))
        lines.append(f'<tr class="{kind}">{"".join(columns)}</tr>')
    return [*lines, "</table>"]
