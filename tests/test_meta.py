"""What holds of the code itself: who may import whom, how long a module is, what no file says."""

from __future__ import annotations

import ast
import importlib.util
import pathlib
import re
from collections.abc import Iterator

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "onnx2nnapi"
MODULES = sorted(PACKAGE.rglob("*.py"))

# A module imports from the lines above its own and from its own part; the parts of one line know nothing of each other.
LAYERS = [
    ["errors"],
    ["options"],
    ["ir"],
    ["nnapi"],
    ["program"],
    ["runtime.kernels"],
    ["evaluate"],
    ["frontend", "passes"],
    ["lower"],
    ["runtime"],
    ["dynamic"],
    ["api"],
    ["report"],
    ["probes"],
    ["operators"],
    ["cli"],
    ["__main__"],
]
RANKS = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
ROOT = "onnx2nnapi"

# Imported only where they are used: loading and running a program needs none of them.
HEAVY = {"onnx", "networkx", "rich", "ml_dtypes", "google"}


def module_name(path: pathlib.Path) -> str:
    """onnx2nnapi/ir/graph.py -> ir.graph; a package's __init__ is the package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The longest entry of LAYERS that the module lies in."""
    parts = [part for part in RANKS if module == part or module.startswith(part + ".")]
    return max(parts, key=len, default="")


def imports(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """The modules of the package that a module imports, anywhere in it, with the line."""
    names = {module_name(module) for module in MODULES}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, a.name[len(ROOT) + 1 :]) for a in node.names if a.name.split(".")[0] == ROOT)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            if (node.module or "").split(".")[0] == ROOT:
                base = (node.module or "")[len(ROOT) + 1 :]
                for alias in node.names:
                    inner = f"{base}.{alias.name}".strip(".")
                    if inner in names or base:
                        yield node.lineno, inner if inner in names else base
                    elif alias.name != "__version__":
                        yield node.lineno, alias.name


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_run_one_way(path: pathlib.Path) -> None:
    mine = part_of(module_name(path))
    if path == PACKAGE / "__init__.py":
        return  # names everything, and imports it where it is asked for
    assert mine, f"{path}: add its place to LAYERS"
    for line, module in imports(path):
        theirs = part_of(module)
        assert theirs == mine or RANKS.get(theirs, len(LAYERS)) < RANKS[mine], f"{path}:{line}: {mine} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_module_is_short_and_has_a_telling_name(path: pathlib.Path) -> None:
    assert len(path.read_text().splitlines()) < 500
    assert path.stem not in {"utils", "helpers", "common", "misc"}


def test_every_module_says_its_one_job() -> None:
    silent = [module_name(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def text_files() -> list[pathlib.Path]:
    kinds = {".py", ".md", ".toml", ".txt", ".c", ".h", ".html"}
    folders = [CHECKOUT / name for name in ("onnx2nnapi", "tests", "models", "benchmarks", "docs")]
    found = [*CHECKOUT.iterdir(), *(path for folder in folders for path in folder.rglob("*"))]
    return [CHECKOUT / "Makefile", CHECKOUT / ".ci" / "run", *(path for path in found if path.suffix in kinds)]


def test_no_file_names_a_place_of_one_machine() -> None:
    places = re.compile(r"(?<![\w.*<}])/(?:home|root|work|Users|tmp)/\w|[A-Z]:\\\\?Users")
    found = [
        f"{path.relative_to(CHECKOUT)}:{number}: {line.strip()[:80]}"
        for path in text_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if places.search(line)
    ]
    assert found == []


def test_no_module_is_left_unfinished() -> None:
    marks = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
    found = [f"{module_name(path)}: {mark}" for path in MODULES for mark in marks.findall(path.read_text())]
    assert found == []


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    """The modules that a running program needs import none of them at their top."""
    light = {"errors", "options", "ir.types", "nnapi", "program", "runtime.kernels", "runtime", "cli"}
    for path in MODULES:
        name = module_name(path)
        if not any(name == entry or name.startswith(entry + ".") for entry in light):
            continue
        for node in ast.parse(path.read_text()).body:
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            heavy = {entry.split(".")[0] for entry in names} & HEAVY
            assert not heavy, f"{name}: imports {heavy} at its top"


def test_the_layers_name_modules_that_exist() -> None:
    missing = [part for part in RANKS if importlib.util.find_spec(f"{ROOT}.{part}") is None]
    assert missing == []
