"""The onnx2nnapi command: parses, calls the library, prints. One module a command.

Exit status: 0 well; 1 an error of the user's, in one line on stderr; 2 wrong usage; 70 a fault of ours, with a
traceback; 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from typing import Any

import click

from onnx2nnapi import __version__
from onnx2nnapi.errors import InternalError, Onnx2NnapiError, UnsupportedError

__all__ = ["main"]

EXIT_ERROR, EXIT_FAULT, EXIT_INTERRUPTED = 1, 70, 130
_FRAMES = -30  # the innermost calls: those of a runaway recursion are thousands
_FOR_CONVERSION = {"onnx", "networkx", "ml_dtypes", "google"}
REPORT = "this is a fault of onnx2nnapi; please report it with the model"


_COMMANDS = ("check", "convert", "devices", "inspect", "ops", "run")


class _Commands(click.Group):
    """Imports a command when it is asked for, and turns what goes wrong in it into its exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{cmd_name}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Onnx2NnapiError as error:
            if not isinstance(error, InternalError):
                click.echo(f"error: {_one_line(error)}", err=True)
                ctx.exit(EXIT_ERROR)
            _show_fault(ctx)
        except ModuleNotFoundError as error:
            name = str(error.name).split(".")[0]
            if name not in _FOR_CONVERSION:
                _show_fault(ctx)
            hint = f"pip install {name}, or convert elsewhere: running a .nnapi file does not need it"
            click.echo(f"error: a conversion needs {name}, which is not installed; {hint}", err=True)
            ctx.exit(EXIT_ERROR)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)
        except MemoryError:
            click.echo("error: there is not enough memory for this", err=True)
            ctx.exit(EXIT_ERROR)
        except OSError as error:
            if error.errno != errno.EPIPE:
                _show_fault(ctx)
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - whoever read it has left; nothing to flush at exit
            ctx.exit(EXIT_ERROR)
        except Exception:
            _show_fault(ctx)


def _show_fault(ctx: click.Context) -> None:
    """Print the exception at hand as the fault of ours that it is."""
    traceback.print_exc(limit=_FRAMES)
    click.echo(f"internal error: {REPORT}", err=True)
    ctx.exit(EXIT_FAULT)


def _one_line(error: Onnx2NnapiError) -> str:
    problems = error.problems if isinstance(error, UnsupportedError) else ()
    if problems:
        return (
            f"{str(error).splitlines()[0]} {_one_line(problems[0])}; "
            f"and {len(problems) - 1} more, which `onnx2nnapi check` lists"
        )
    return " ".join(str(error).split("\n"))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="onnx2nnapi")
def main() -> None:
    """Convert ONNX models to Android NNAPI models, and run them on the host and on the device."""
