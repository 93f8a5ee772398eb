"""What a user did wrong, in one line and exit code 2. Owns which errors those are; GADGET_DEBUG=1 shows tracebacks.

Also in one line, but with exit code 1: a `Failure`, which is not the user's and may be over at the next try.
"""

import os
from typing import Any

import typer
from typer.core import TyperGroup

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130
USERS_ERRORS = (ValueError, TypeError, OSError, ImportError, IndexError)


class Failure(Exception):  # noqa: N818 - what happened
    """What went wrong though the command and the files are right: whoever supervises it should start it again."""


class PlainErrors(TyperGroup):
    """A group of commands whose users read sentences, not tracebacks."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; its errors become a line on stderr."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of a pipe has seen enough: typer knows how to leave quietly
            raise
        except (*USERS_ERRORS, Failure) as error:
            if os.environ.get("GADGET_DEBUG"):
                raise
            complain(error)
            raise typer.Exit(FAILED if isinstance(error, Failure) else WRONG_USE) from None
        except KeyboardInterrupt:
            typer.echo("aborted", err=True)
            raise typer.Exit(INTERRUPTED) from None


def complain(error: BaseException) -> None:
    """The error's own sentence, on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    typer.echo(f"error: {text}", err=True)
