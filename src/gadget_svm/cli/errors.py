"""Prints errors and warnings as one line on stderr. Owns the exit code of each error.

GADGET_DEBUG=1 shows tracebacks.
"""

import os
import re
import signal
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from gadget_svm.cli.option_names import in_options
from gadget_svm.cli.signals import Terminated, handled, raise_interrupt

FAILED, WRONG_USE, ROWS_LOST = 1, 2, 3
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""130 and 143, as in shells. docs/reference/exit-codes.md lists all exit codes."""
UsageError: Any = typer.BadParameter.__base__  # click's own, or that of the click inside typer
TYPED = "gadget_svm.typed"
"""The key under which a command's context holds the words that were typed."""


class RetryableError(Exception):
    """The command failed although its options and files are right. A supervisor should start it again."""


RETRYABLE = (RetryableError, ConnectionError, TimeoutError, BlockingIOError)
"""Errors that may not occur if the command is repeated, even if their base class means wrong input."""
WRONG_INPUT = (
    ValueError, TypeError, ImportError, IndexError,
    FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError,
)  # fmt: skip


class CommandGroup(TyperGroup):
    """A group of commands. Every error becomes one line on stderr and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words as typed: errors spell the options as the user did."""
        ctx.meta[TYPED] = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            raise _wrong_use(error, ctx) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command; its errors become a line on stderr and an exit code."""
        try:
            with handled(raise_interrupt), warnings.catch_warnings():
                warnings.showwarning = _shown_as_line(ctx, warnings.showwarning)
                return super().invoke(ctx)
        except UsageError as error:
            raise _wrong_use(error, ctx) from None
        except BrokenPipeError:  # the reader of a pipe has closed it: typer exits quietly
            raise
        except (*WRONG_INPUT, OSError, MemoryError, RetryableError) as error:
            if os.environ.get("GADGET_DEBUG"):
                raise
            print_error(error, ctx)
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt as error:
            typer.echo("terminated" if isinstance(error, Terminated) else "aborted", err=True)
            raise typer.Exit(exit_code(error)) from None


def _wrong_use(error: Any, ctx: Any) -> Exception:
    """Print a usage error on one line. A group without a command shows its help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return error  # type: ignore[no-any-return]
    path = error.ctx.command_path if error.ctx else f"{ctx.command_path} {ctx.invoked_subcommand or ''}".strip()
    value = _option_with_value(error, ctx.meta[TYPED]) if type(error) is typer.BadParameter else None
    text = f"{value}: {error.message.removeprefix('Value error, ')}" if value else error.format_message()
    typer.echo(f"error: {text.rstrip('.')} (see: {path} -h)", err=True)
    return typer.Exit(WRONG_USE)


def _option_with_value(error: Any, typed: Sequence[str]) -> str | None:
    """Return the option as typed, with the value that it cannot take; None if it is unknown."""
    options = [name for name in getattr(error.param, "opts", ()) if name.startswith("-")]
    for word, following in zip(typed[::-1], ["", *typed[:0:-1]], strict=True):
        name, equals, value = word.partition("=")
        if name in options:
            return f"{name} {value if equals else following}"
    return None


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, KeyboardInterrupt):
        return TERMINATED if isinstance(error, Terminated) else INTERRUPTED
    return WRONG_USE if isinstance(error, WRONG_INPUT) and not isinstance(error, RETRYABLE) else FAILED


def as_stdin(text: str) -> str:
    """Replace the name of the temporary copy of stdin by "stdin"."""
    return re.sub(r"\S*/gadget[^/\s]*/stdin\b", "stdin", text)


def print_error(error: BaseException | str, ctx: Any = None, label: str = "error") -> None:
    """Print an error on one line. The options of the context's command replace Python names."""
    text = as_stdin(" ".join(str(error).split()) or type(error).__name__)
    command, typed = (None, ()) if ctx is None else (ctx.command, ctx.meta.get(TYPED, ()))
    for word in typed:
        command = getattr(command, "commands", {}).get(word, command)
    about_data = type(error).__name__ == "DataFileError"  # compared by name: importing it would load numpy
    typer.echo(f"{label}: {in_options(text, command, typed, names=not about_data)}", err=True)


def _shown_as_line(ctx: Any, shown_by_python: Callable[..., None]) -> Callable[..., None]:
    """Return a function that prints a UserWarning like an error, and other warnings as Python does."""

    def show(message: Warning, category: type, *where: Any, **more: Any) -> None:
        if category is UserWarning:
            print_error(message, ctx, "warning")
        else:
            shown_by_python(message, category, *where, **more)

    return show
