"""The pages of the documentation and their fenced code blocks."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<why>.*?) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


class CodeBlock(NamedTuple):
    """A fenced block: its language, its text, its first line in the page, and why it is not run ("": it is)."""

    kind: str
    text: str
    line: int
    not_run: str


def code_blocks(text: str) -> list[CodeBlock]:
    """Return the fenced blocks of a page, in order."""
    return [
        CodeBlock(m["kind"], m["text"], text.count("\n", 0, m.start("text")) + 1, m["why"] or "")
        for m in FENCE.finditer(text)
    ]


def without_code(text: str) -> str:
    """Return the page without its fenced blocks."""
    return FENCE.sub("", text)
