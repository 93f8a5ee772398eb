"""The files of a reproduction: CSV and LaTeX tables, PNG and PDF figures, and one Markdown and one HTML page.

A page is a list of blocks, written twice. The HTML page holds its figures and opens offline.
"""

import base64
import html
import os
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from gadget_svm.report.machine import machine
from gadget_svm.reproduction import figures
from gadget_svm.reproduction.claims import discussion
from gadget_svm.reproduction.headings import CURVES_CAPTION, NETWORK_CAPTION, QUICK, TABLES
from gadget_svm.reproduction.reproduce import Reproduction
from gadget_svm.reproduction.tables import Row, Table

TITLE = "The paper's evaluation, reproduced"
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1240px;margin:2rem auto;padding:0 16px;color:#1c2430;"
    "background:#fff}table{border-collapse:collapse;font-size:12px;line-height:1.35;width:100%}"
    "th,td{padding:.2rem .35rem;border-bottom:1px solid #d8dee6;text-align:right;vertical-align:top}"
    "th.text,td.text{text-align:left}figure{margin:1.5rem 0}img{max-width:100%}figcaption{color:#556;font-size:13px}"
)


class Heading(NamedTuple):
    """A heading."""

    text: str
    level: int = 2


class Shown(NamedTuple):
    """Rows as a table."""

    table: Table
    rows: Sequence[Row]


class Drawing(NamedTuple):
    """A figure and its caption."""

    caption: str
    path: Path


Block = Heading | Shown | Drawing | str
"""A string is paragraphs and lists in Markdown, with bold and code spans."""


def write_all(run: Reproduction, parts: Sequence[str], docs: Path | None = None) -> dict[str, Any]:
    """Write all files of a run; returns ``rows``, and the paths of ``figures``, ``markdown`` and ``html``.

    ``docs`` is another place for the Markdown page. A single part does not replace the page of the whole.
    """
    rows = {part: run.rows(part) for part in parts if part in TABLES}
    for part, table in rows.items():
        TABLES[part].write(run.out, part, table)
    drawings = draw_figures(run, parts, rows)
    name = "reproduction" if len(parts) > 1 else parts[0]
    content = list(blocks(run, rows, drawings))
    files = {kind: run.out / f"{name}.{kind}" for kind in ("md", "html")}
    files["html"].write_text(html_page(content), encoding="utf-8")
    for path in filter(None, (files["md"], docs)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(markdown_page(content, path.parent), encoding="utf-8")
    return {"rows": rows, "figures": [drawing.path for drawing in drawings], **files}


def draw_figures(run: Reproduction, parts: Sequence[str], rows: dict[str, list[Row]]) -> list[Drawing]:
    """Draw the figures of the parts, each as PNG and PDF."""
    drawings = []
    for name, data in run.sets.items() if "figures" in parts else ():
        traces, optimum = run.traces(name)
        title = f"{run.label(name)}: {data.X.shape[0]:,} x {data.X.shape[1]:,}, lambda {run.lam(name):g}"
        path = figures.curves(run.out / "figures" / f"{name}.png", title, traces, optimum)
        drawings.append(Drawing(f"{run.label(name)}: {CURVES_CAPTION}", path))
    if "network" in rows:
        path = figures.network_panels(run.out / "figures" / "network.png", rows["network"])
        drawings.append(Drawing(NETWORK_CAPTION, path))
    return drawings


def blocks(run: Reproduction, rows: dict[str, list[Row]], drawings: list[Drawing]) -> list[Block]:
    """Return the content of the page."""
    made = f"Made on {date.today().isoformat()} by `gadget reproduce`, {machine()}"
    size = f"{run.nodes} nodes, {run.trials} trials."
    content: list[Block] = [Heading(TITLE, 1), f"{made}; {size}{f' {QUICK}' if run.quick else ''}"]
    if run.missing:
        content.append("Left out:\n\n" + "\n".join(f"- {name}: {why}" for name, why in run.missing.items()))
    if {"table2", "table3"} <= set(rows):
        content += [Heading("What holds and what does not"), discussion(rows)]
    for part, listed in rows.items():
        table = TABLES[part]
        content += [Heading(table.title), table.caption, Shown(table, listed), *filter(None, [table.note(listed)])]
    return [*content, *drawings]


def markdown_page(content: Sequence[Block], folder: Path) -> str:
    """Return the page as Markdown; figures have paths relative to ``folder``."""

    def text(block: Block) -> str:
        match block:
            case Heading(words, level):
                return f"{'#' * level} {words}"
            case Shown(table, rows):
                return table.markdown(rows)
            case Drawing(caption, path):
                return f"![{caption}]({os.path.relpath(path.resolve(), folder.resolve())})\n\n{caption}"
            case words:
                return words.replace("\n* ", "\n\\* ") if not words.startswith("* ") else f"\\{words}"

    return "\n\n".join(map(text, content)) + "\n"


def html_page(content: Sequence[Block]) -> str:
    """Return the page as one HTML file, with its figures inside."""

    def text(block: Block) -> str:
        match block:
            case Heading(words, level):
                return f"<h{level}>{html.escape(words)}</h{level}>"
            case Shown(table, rows):
                return table.html(rows)
            case Drawing(caption, path):
                image = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
                caption = html.escape(caption)
                return f'<figure><img alt="{caption}" src="{image}"><figcaption>{caption}</figcaption></figure>'
            case words:
                return "".join(map(_html_paragraph, words.split("\n\n")))

    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{TITLE}</title><style>{STYLE}</style>'
    return head + "\n".join(map(text, content)) + "</html>\n"


def _html_paragraph(text: str) -> str:
    escaped = html.escape(text)
    for mark, tag in ((r"\*\*", "b"), ("`", "code"), (r"\*", "i")):
        escaped = re.sub(rf"{mark}(\S[^*`]*?){mark}", rf"<{tag}>\1</{tag}>", escaped)
    if not text.startswith("- "):
        return f"<p>{escaped}</p>"
    return f"<ul>{''.join(f'<li>{line[2:]}</li>' for line in escaped.splitlines())}</ul>"
