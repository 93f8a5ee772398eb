"""The command `gadget`: arguments in, tables and files out. Owns no mathematics; heavy imports wait for use."""


def main() -> None:
    """Run the command line."""
    from gadget_svm.cli.app import app

    app(prog_name="gadget")


__all__ = ["main"]
