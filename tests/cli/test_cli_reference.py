"""The reference of the command line matches the commands."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "reference"
COMMANDS = (DOCS / "commands.md").read_text(encoding="utf-8")


def test_page_is_up_to_date():
    command = [sys.executable, "-m", "typer", "gadget_svm.cli.app", "utils", "docs"]
    command += ["--name", "gadget", "--title", "Commands"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == COMMANDS.strip(), "an option changed: run make reference"


def test_json_commands_are_listed():
    head = (DOCS / "command-line.md").read_text(encoding="utf-8")
    sections = COMMANDS.split("# `gadget ")[1:]
    with_json = [section.partition("`")[0] for section in sections if "`--json`" in section]
    assert {"train", "data list"} <= set(with_json)
    assert [name for name in with_json if f"`{name}`" not in head] == []
