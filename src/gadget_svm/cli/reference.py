"""The reference of the command line, generated from the commands: `python -m gadget_svm.cli.reference PAGE` writes it.

Owns the Markdown below the marker of docs/reference/command-line.md; what is above it is written by hand.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from gadget_svm.cli.app import app

MARKER = "<!-- generated below this line: python -m gadget_svm.cli.reference"
COMPLETION = ("install_completion", "show_completion")
"""Options that typer adds."""


def reference() -> str:
    """Return every command with its arguments and options, as Markdown."""
    return "\n".join(part for path, command in commands() for part in _section(path, command))


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its path, such as "gadget data list"; groups without options are left out."""
    yield from _below("gadget", typer.main.get_command(app))


def _below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", {})
    if not below or parameters(command):
        yield path, command
    for name, each in below.items():
        yield from _below(f"{path} {name}", each)


def parameters(command: Any) -> list[Any]:
    """Return the arguments and options of a command, without -h."""
    return [each for each in command.params if not each.hidden and each.name not in (*COMPLETION, "help")]


def _section(path: str, command: Any) -> Iterator[str]:
    given = parameters(command)
    usage = [_argument(each) for each in given if each.param_type_name == "argument"]
    yield f"\n### {' '.join([path, *usage])}\n\n{' '.join(command.help.split())}\n"
    if given:
        yield "| argument or option | meaning | default |\n|---|---|---|"
    for each in given:
        default = "" if each.default is None or each.default is False else f"`{each.default}`"
        yield f"| {_names(each)} | {_cell(each.help or '')} | {default} |"


def _argument(each: Any) -> str:
    name = each.metavar or each.name.upper()
    return name if each.required else f"[{name}]"


def _names(each: Any) -> str:
    if each.param_type_name == "argument":
        return f"`{_argument(each)}`"
    names = [f"`{name}`" for name in (*each.opts, *each.secondary_opts)]
    value = "" if each.is_flag or not each.metavar else f" {each.metavar}"
    return _cell(", ".join(names) + value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def write(page: Path) -> None:
    """Replace the text below the marker of the page."""
    head, marker, _ = page.read_text(encoding="utf-8").partition(MARKER)
    if not marker:
        raise ValueError(f"{page} lacks a line that starts with {MARKER}")
    page.write_text(f"{head}{MARKER} {page} -->\n{reference()}\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
