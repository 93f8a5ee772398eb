"""The commands of README and docs exist, with the options that they are shown with."""

import re
import shlex

import pytest
import typer

from gadget_svm.cli.app import app
from support.pages import NAMES, ROOT

SHOWN = re.compile(r"^(?: {4}|RUN )(?:\$ )?(.*\bgadget .*)$", re.MULTILINE)
"""An indented line that runs a command."""


def commands(text):
    """Return the words of every `gadget` command of a page; pipes and lists of commands are split."""
    joined = text.replace("\\\n", " ")
    parts = [part for line in SHOWN.findall(joined) for part in re.split(r"\|(?!\w)|&&|;", line.partition("  #")[0])]
    return [shlex.split(part[part.index("gadget ") :]) for part in parts if re.match(r"\s*(until )?gadget ", part)]


def unknown_words(words):
    """Return the command and options of these words that do not exist."""
    command = typer.main.get_command(app)
    for word in words[1:]:
        command = getattr(command, "commands", {}).get(word, command)
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"-h"}
    typed = [word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-zA-Z]", word)]
    no_command = (
        words[1:2] if getattr(command, "commands", {}) and not {"-h", "--install-completion"} & set(typed) else []
    )
    return no_command + [name for name in typed if name not in known]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "CHANGELOG.md"])
def test_commands_exist(name):
    found = commands((ROOT / name).read_text(encoding="utf-8"))
    assert [" ".join(words) for words in found if unknown_words(words)] == []


def test_commands_are_found():
    page = "    $ gadget train a.svm --nodes 3 \\\n      --lma 1   # a comment\n    zcat x | gadget predit - --out -\n"
    first, second = commands(page)
    assert unknown_words(first) == ["--lma"]
    assert unknown_words(second) == ["predit", "--out"]
    assert len(commands((ROOT / "README.md").read_text(encoding="utf-8"))) >= 10
