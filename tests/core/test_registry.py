"""Parts by name, from this package and from others."""

from importlib.metadata import EntryPoint

import pytest

from gadget_svm.core import registry
from gadget_svm.core.lookup import lookup
from gadget_svm.core.registry import Registry


@pytest.fixture
def table(monkeypatch):
    points = [EntryPoint("ours", "math:inf", "example.parts"), EntryPoint("theirs", "math:pi", "example.parts")]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "example.parts" else [])
    return Registry("example.parts", {"ours": 1.0})


def test_a_part_of_another_package_is_found_by_name(table):
    assert table["theirs"] == pytest.approx(3.14159, abs=1e-5)
    assert "theirs" in table
    assert sorted(table) == ["ours", "theirs"]
    assert len(table) == 2


def test_an_entry_point_replaces_no_member(table):
    assert table["ours"] == 1.0


def test_an_unknown_name_lists_parts_of_both(table):
    with pytest.raises(ValueError, match=r"unknown part 'their'. Did you mean 'theirs'\? Known: ours, theirs"):
        lookup("part", "their", table)


def test_a_registry_without_entry_points_is_its_members():
    assert dict(Registry("example.none", {"a": 1})) == {"a": 1}


def test_a_part_that_cannot_be_imported_names_its_entry_point_and_leaves_the_others_usable(table, monkeypatch):
    points = {name: EntryPoint(name, "math:nothing", "example.parts") for name in ("broken", "also-broken")}
    monkeypatch.setattr(table, "_outside", {**points, "theirs": EntryPoint("theirs", "math:pi", "example.parts")})
    with pytest.raises(ImportError, match=r"'broken' is the entry point 'math:nothing' .* correct or uninstall"):
        table["broken"]
    assert table["theirs"] == pytest.approx(3.14159, abs=1e-5)
    assert table.builtin == {"ours": 1.0}


def needs_a_value(value: int) -> float:
    return float(value)


def test_a_part_that_cannot_be_made_from_its_name_alone_is_refused() -> None:
    parts = Registry("example.parts", {"one": lambda: 1.0, "other": needs_a_value, "wrong": lambda: "text"})
    assert parts.resolve("part", "one", float, "1.0") == parts.resolve("part", 1.0, float, "1.0") == 1.0
    with pytest.raises(TypeError, match=r"part 'other' cannot be made from its name alone \(.*'value'\): give an obj"):
        parts.resolve("part", "other", float, "1.0")
    for given in ("wrong", float, None):
        with pytest.raises(TypeError, match=r"part is a name \(one, other, wrong\) or an .* such as (1|float)"):
            parts.resolve("part", given, float, "1.0")
