"""The command line `gadget`: parses arguments, prints tables and writes files. Heavy imports happen on use."""

import sys


def main() -> None:
    """Run the command line. A signal while the program loads ends it without a traceback."""
    try:
        from gadget_svm.cli.signals import exit_at_once, handled

        with handled(exit_at_once):
            from gadget_svm.cli.app import app

            app(prog_name="gadget")
    except KeyboardInterrupt:
        print("aborted", file=sys.stderr)
        raise SystemExit(130) from None  # as `errors.INTERRUPTED`, which may not be loaded yet


__all__ = ["main"]
