"""convert(): the order of the stages, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from onnx2nnapi.ir.garbage import collector_off
from onnx2nnapi.options import Options
from onnx2nnapi.program import Program

if TYPE_CHECKING:
    import onnx

__all__ = ["convert"]


@collector_off()
def convert(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    options: Options | None = None,
    *,
    base_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
    dump: str | os.PathLike[str] | None = None,
    **overrides: Any,
) -> Program:
    """Convert an ONNX model to a program of NNAPI models.

    Args:
        model: a path, the bytes of a file, or a ModelProto, which is not changed.
        options: of the conversion.
        base_dir: where external data is looked for; with a path the model's own folder.
        progress: called with the name of each stage before it runs.
        dump: a folder that gets the graph as text after each pass.
        overrides: single options by name, on top of ``options``.

    Raises:
        InvalidModelError: no valid model, or options that contradict it.
        UnsupportedError: it cannot be expressed in NNAPI at the target's level; all refusals at once.
    """
    chosen = Options.of(options, overrides)
    build = partial(_build, model, base_dir, described=chosen, progress=progress, dump=dump)
    if not chosen.keep_dynamic:
        return build(chosen)
    from onnx2nnapi.dynamic import convert_open
    from onnx2nnapi.frontend.load import load_model

    return convert_open(build, load_model(model, base_dir).proto.graph, chosen)


def _build(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    base_dir: str | os.PathLike[str] | None,
    options: Options,
    *,
    described: Options,
    progress: Callable[[str], None] | None,
    dump: str | os.PathLike[str] | None,
) -> Program:
    """Convert a model whose sizes ``options`` bind; the program's metadata tell of the options ``described``."""
    from onnx2nnapi.frontend.expand import expand_all
    from onnx2nnapi.frontend.importer import import_model
    from onnx2nnapi.frontend.load import load_model
    from onnx2nnapi.lower import lower
    from onnx2nnapi.passes.legalize import has_rule
    from onnx2nnapi.passes.manager import run_passes

    tell = progress or (lambda stage: None)
    tell("import")
    loaded = load_model(model, base_dir)
    nodes = len(loaded.proto.graph.node)
    graph = import_model(loaded, options)
    del loaded  # the graph has all that is needed of it
    expand_all(graph, has_rule)
    run_passes(graph, options, progress=progress, dump=dump)
    tell("lower")
    sources = (os.fspath(model),) if isinstance(model, (str, os.PathLike)) else ()
    return lower(graph, options, metadata=_metadata(model, described, nodes), sources=sources)


def _metadata(model: str | os.PathLike[str] | bytes | onnx.ModelProto, options: Options, nodes: int) -> dict[str, str]:
    return {
        "model_sha256": _digest(model),
        "onnx_nodes": str(nodes),
        "options": json.dumps(_described(options), sort_keys=True, separators=(",", ":")),
    }


def _digest(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> str:
    """SHA-256 of the .onnx file; external data files are not part of it."""
    digest = hashlib.sha256()
    if isinstance(model, bytes):
        digest.update(model)
    elif isinstance(model, (str, os.PathLike)):
        with open(model, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    else:
        digest.update(model.SerializeToString(deterministic=True))
    return digest.hexdigest()


def _described(options: Options) -> dict[str, Any]:
    """The options that differ from their defaults, as JSON; frozen inputs by name, since values may be paths."""
    default = Options()
    chosen: dict[str, Any] = {}
    for name, value in vars(options).items():
        if value == getattr(default, name):
            continue
        if name == "set":
            chosen[name] = sorted(value)
        elif name == "input_shapes":
            chosen[name] = {key: [int(dim) for dim in shape] for key, shape in value.items()}
        elif isinstance(value, Mapping):
            chosen[name] = {key: int(item) if name == "dims" else item for key, item in value.items()}
        else:
            chosen[name] = list(value) if isinstance(value, tuple) else value
    return chosen
