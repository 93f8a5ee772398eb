"""Links between pages lead to files and headings that exist; files named in the text exist, too. No network."""

import re

import pytest

from support.pages import NAMES, ROOT, without_code

LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|md|proto|toml))`")
"""A file of the repository, named in code style; paths start at the root or at src/gadget_svm."""


def anchors(text):
    """Return the anchors of a page's headings, as GitHub makes them."""
    found = {}
    for heading in re.findall(r"^#+ (.*?)\s*$", without_code(text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        if found[slug]:
            found[f"{slug}-{found[slug]}"] = 0
    return set(found)


def broken_links(name, root=ROOT):
    """Return what is wrong with the links of a page."""
    page = root / name
    text, wrong = page.read_text(encoding="utf-8"), []
    for target in LINK.findall(without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.is_relative_to(root) or not file.exists():
            wrong.append(f"{target}: there is no such file")
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
            wrong.append(f"{target}: there is no such heading")
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    assert broken_links(name) == []


@pytest.mark.parametrize("name", [name for name in NAMES if name != "CHANGELOG.md"])  # it names old files, too
def test_named_files_exist(name):
    named = SOURCE.findall((ROOT / name).read_text(encoding="utf-8"))
    assert [path for path in named if not any((ROOT / home / path).exists() for home in ("", "src/gadget_svm"))] == []


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / target.partition("#")[0]).resolve() for target in LINK.findall(index)}
    assert [name for name in NAMES if name.startswith("docs/") and (ROOT / name).resolve() not in linked] == [
        "docs/index.md"
    ]


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "a.md").write_text("# One two\n[ok](#one-two) [bad](#three) [gone](b.md)\n```\n[code](c.md)\n```\n")
    assert broken_links("a.md", tmp_path) == ["#three: there is no such heading", "b.md: there is no such file"]


def test_pages_named_in_code_exist():
    named = {
        path
        for file in (ROOT / "src").rglob("*")
        if file.suffix in (".py", ".proto", ".toml")
        for path in re.findall(r"\bdocs/[\w./-]+\.md\b", file.read_text(encoding="utf-8"))
    }
    assert "docs/reference/wire-format.md" in named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
