"""The reference page of the command line says what the commands say."""

import re
from pathlib import Path

from gadget_svm.cli.reference import MARKER, commands, parameters, reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"


def test_the_page_is_up_to_date():
    _, marker, below = PAGE.read_text(encoding="utf-8").partition(MARKER)
    assert marker
    command = "python -m gadget_svm.cli.reference docs/reference/command-line.md"
    assert below.strip() == reference().strip(), f"an option changed: run {command}"


def test_every_command_and_option_is_named():
    parts = re.split(r"^### ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = dict(commands())
    assert {"gadget", "gadget train", "gadget predict", "gadget data list", "gadget peer run"} <= set(found)
    assert len(parts) == len(found)
    for part, (path, command) in zip(parts, found.items(), strict=True):
        assert part.startswith(path)
        for each in parameters(command):
            if each.param_type_name == "option":
                assert all(f"`{name}`" in part for name in (*each.opts, *each.secondary_opts)), (path, each.name)


def test_commands_that_print_json_are_listed():
    head = PAGE.read_text(encoding="utf-8").partition(MARKER)[0]
    for path, command in commands():
        if any(each.name == "json" for each in parameters(command)):
            assert f"`{path.removeprefix('gadget ')}`" in head
