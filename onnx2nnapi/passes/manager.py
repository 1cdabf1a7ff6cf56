"""Runs the passes in order, and holds each of them to what it must leave intact."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Sequence

from onnx2nnapi.errors import ArtifactError, InternalError, Onnx2NnapiError
from onnx2nnapi.ir.garbage import collector_off
from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.ir.text import print_graph
from onnx2nnapi.ir.verify import verify
from onnx2nnapi.options import Options
from onnx2nnapi.passes import PIPELINE, Pass
from onnx2nnapi.passes.check_dialect import verify_dialect

__all__ = ["VERIFY_ALL", "run_passes"]

VERIFY_ALL = "ONNX2NNAPI_VERIFY"  # environment: "all" checks the whole dialect after every pass, as the tests do


@collector_off()
def run_passes(
    graph: Graph,
    options: Options,
    *,
    pipeline: Sequence[Pass] | None = None,
    progress: Callable[[str], None] | None = None,
    dump: str | os.PathLike[str] | None = None,
) -> Graph:
    """Run the passes over ``graph``, which they change in place, and return it.

    Args:
        graph: of the ONNX dialect, as the frontend gives it.
        options: of the conversion.
        pipeline: the passes; None: ``PIPELINE``.
        progress: called with each pass's name before it runs.
        dump: a folder (made where it is missing) that gets the graph as text, before the first pass and after each that
            changed it.

    Raises:
        UnsupportedError: what cannot be converted.
        ArtifactError: the dump cannot be written.
        InternalError: a pass broke the graph or failed; it names the pass and those before it.
    """
    done: list[str] = []
    _write(dump, "00_import", graph)
    _verify(graph, options, done, whole=True)
    passes = PIPELINE if pipeline is None else pipeline
    for number, function in enumerate(passes, 1):
        name = function.__name__
        if progress is not None:
            progress(name)
        done.append(name)
        dialect = graph.dialect
        try:
            changed = function(graph, options)
        except Onnx2NnapiError:
            raise
        except Exception as error:
            raise InternalError(f"{_story(done)} failed: {type(error).__name__}: {error}") from error
        if changed:
            _write(dump, f"{number:02d}_{name}", graph)
            at_border = graph.dialect != dialect or os.environ.get(VERIFY_ALL) == "all"
            if number < len(passes):  # else what follows checks all
                _verify(graph, options, done, whole=at_border)
    _verify(graph, options, done, whole=True)
    return graph


def _verify(graph: Graph, options: Options, done: Sequence[str], *, whole: bool) -> None:
    try:
        verify(graph)
        if whole and graph.dialect == "nnapi":
            verify_dialect(graph, options)
    except InternalError as error:
        raise InternalError(f"after {_story(done)}: {error.message}", where=error.where) from None


def _story(done: Sequence[str]) -> str:
    if not done:
        return "the frontend"
    before = f" (before it: {', '.join(done[:-1])})" if len(done) > 1 else ""
    return f"pass {done[-1]}{before}"


def _write(folder: str | os.PathLike[str] | None, name: str, graph: Graph) -> None:
    if folder is None:
        return
    path = pathlib.Path(folder) / f"{name}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(print_graph(graph), encoding="utf-8")
    except OSError as error:
        raise ArtifactError(f"cannot be written: {error.strerror or error}", where=str(path)) from None
