"""What the documents name is there: make targets, commands, options, files."""

from __future__ import annotations

import pathlib
import re

import click
import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "models").glob("*.md"), *(CHECKOUT / "docs").glob("*.md")])


def commands() -> dict[str, click.Command]:
    from onnx2nnapi.cli import main

    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(path: pathlib.Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text())
    missing = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_exist(path: pathlib.Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^ {4}|`)make (?:[A-Z]+=\S+ )*([a-z-]+)", path.read_text(), re.MULTILINE))
    assert named <= targets


def test_readme_names_commands_and_options_that_exist() -> None:
    text = (CHECKOUT / "README.md").read_text()
    named = set(re.findall(r"(?:^ {4}|`)onnx2nnapi ([a-z]+)", text, re.MULTILINE))
    assert {"convert", "run", "inspect", "check", "ops"} <= named <= set(commands())
    options = {option for command in commands().values() for p in command.params for option in p.opts}
    assert set(re.findall(r"(?<=[ `])--[a-z0-9-]+", text)) - {"--no-deps", "--help"} <= options


def test_readme_starts_with_the_two_commands() -> None:
    lines = [line for line in (CHECKOUT / "README.md").read_text().splitlines() if line]
    assert lines[1].startswith("    make demo")
    assert lines[2].startswith("    make test")
