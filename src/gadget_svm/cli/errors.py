"""Errors as one line on stderr, and exit codes. Owns which error has which code; GADGET_DEBUG=1 shows tracebacks."""

import os
import re
import signal
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from gadget_svm.cli.option_names import in_options
from gadget_svm.cli.signals import Terminated, handled, raise_interrupt

FAILED, WRONG_USE, ROWS_LOST = 1, 2, 3
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""130 and 143, as shells count them. docs/reference/exit-codes.md lists all of them."""
TYPED = "gadget_svm.typed"
"""Where a command's context keeps the words that were typed."""


class Failure(Exception):  # noqa: N818 - what happened
    """What went wrong though the command and the files are right: whoever supervises it should start it again."""


RETRY = (Failure, ConnectionError, TimeoutError, BlockingIOError)
"""Errors that may be over at the next attempt, also where they are errors of the user's kind as well."""
WRONG_INPUT = (
    ValueError, TypeError, ImportError, IndexError,
    FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError,
)  # fmt: skip


class PlainErrors(TyperGroup):
    """A group of commands whose users read sentences, not tracebacks."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words as typed: errors name the options as they were spelled."""
        ctx.meta[TYPED] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; its errors become a line on stderr and an exit code."""
        try:
            with handled(raise_interrupt):
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader of a pipe has seen enough: typer knows how to leave quietly
            raise
        except (*WRONG_INPUT, OSError, MemoryError, Failure) as error:
            if os.environ.get("GADGET_DEBUG"):
                raise
            complain(error, ctx.meta.get(TYPED, ()))
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt as error:
            typer.echo("terminated" if isinstance(error, Terminated) else "aborted", err=True)
            raise typer.Exit(exit_code(error)) from None


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, KeyboardInterrupt):
        return TERMINATED if isinstance(error, Terminated) else INTERRUPTED
    return WRONG_USE if isinstance(error, WRONG_INPUT) and not isinstance(error, RETRY) else FAILED


def complain(error: BaseException | str, typed: Sequence[str] = ()) -> None:
    """Print an error's own sentence, on one line, with options in the place of Python names."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = re.sub(r"\S*/gadget[^/\s]*/stdin\b", "stdin", text)  # as it was typed: the file is a copy, and gone
    about_data = type(error).__name__ == "DataFileError"  # compared by name: importing it would load numpy
    typer.echo(f"error: {in_options(text, typed, names=not about_data)}", err=True)
