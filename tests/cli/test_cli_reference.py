"""The reference page of the command line matches the commands."""

from pathlib import Path

from gadget_svm.cli.reference import MARKER, commands, parameters, reference

(PAGE,) = (Path(__file__).parents[2] / "docs").rglob("command-line.md")
HEAD, _, GENERATED = PAGE.read_text(encoding="utf-8").partition(MARKER)


def test_page_is_up_to_date():
    command = f"python -m gadget_svm.cli.reference {PAGE.relative_to(PAGE.parents[1])}"
    assert GENERATED.partition("\n")[2].strip() == reference().strip(), f"an option changed: run {command}"


def test_every_command_and_option_is_named():
    found, parts = dict(commands()), reference().split("\n### ")[1:]
    assert {"gadget", "gadget train", "gadget predict", "gadget data list", "gadget peer run"} <= set(found)
    for part, (path, command) in zip(parts, found.items(), strict=True):
        assert part.startswith(path)
        for each in parameters(command):
            if each.param_type_name == "option":
                assert all(f"`{name}`" in part for name in (*each.opts, *each.secondary_opts)), (path, each.name)


def test_json_commands_are_listed():
    for path, command in commands():
        if any(each.name == "json" for each in parameters(command)):
            assert f"`{path.removeprefix('gadget ')}`" in HEAD
