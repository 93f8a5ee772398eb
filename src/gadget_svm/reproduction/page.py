"""The files of a reproduction: CSV and LaTeX tables, PNG and PDF figures, and the page, in Markdown and HTML.

The HTML page is the Markdown page, rendered; it holds its figures and opens offline.
"""

import base64
import html
import os
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from gadget_svm.report.machine import machine
from gadget_svm.reproduction import figures
from gadget_svm.reproduction.claims import discussion
from gadget_svm.reproduction.reproduce import Reproduction
from gadget_svm.reproduction.tables import MAJORITY_NOTE, TABLES, TEXTS, Row

Drawing = tuple[str, Path]  # caption, PNG


def write_all(run: Reproduction, parts: Sequence[str], docs: Path | None = None) -> dict[str, Any]:
    """Write all files of a run; returns ``rows``, and the paths of ``figures``, ``md`` and ``html``.

    ``docs`` is another place for the Markdown page. A run of one part does not replace the complete page.
    """
    rows = {part: run.rows(part) for part in parts if part in TABLES}
    for part, table in rows.items():
        TABLES[part].write(run.out, part, table)
    drawings = draw_figures(run, parts, rows)
    name = "reproduction" if len(parts) > 1 else parts[0]
    files = {kind: run.out / f"{name}.{kind}" for kind in ("md", "html")}
    for path in filter(None, (files["md"], docs)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(markdown_page(run, rows, drawings, path.parent), encoding="utf-8")
    files["html"].write_text(html_page(files["md"]), encoding="utf-8")
    return {"rows": rows, "figures": [path for _, path in drawings], **files}


def draw_figures(run: Reproduction, parts: Sequence[str], rows: dict[str, list[Row]]) -> list[Drawing]:
    """Draw the figures of the parts, each as PNG and PDF."""
    drawings = []
    for name, data in run.sets.items() if "figures" in parts else ():
        traces = {method: run.result(name, f"{method}-trace")["trace"] for method in ("gadget", "pegasos")}
        optimum = float(run.result(name, "liblinear")["objective"][0])
        title = f"{run.label(name)}: {data.X.shape[0]:,} x {data.X.shape[1]:,}, lambda {run.lam(name):g}"
        path = figures.curves(run.out / "figures" / f"{name}.png", title, traces, optimum)
        drawings.append((f"{run.label(name)}: {TEXTS['figures']['curves']}", path))
    if "network" in rows:
        path = figures.network_panels(run.out / "figures" / "network.png", rows["network"])
        drawings.append((TEXTS["figures"]["network"], path))
    return drawings


def markdown_page(run: Reproduction, rows: dict[str, list[Row]], drawings: list[Drawing], folder: Path) -> str:
    """Return tables, figures and discussion as Markdown; figures have paths relative to ``folder``."""
    words = TEXTS["page"]
    made = f"Made on {date.today().isoformat()} by `gadget reproduce`, {machine()}"
    size = f"{run.nodes} nodes, {run.trials} trials."
    content = [f"# {words['title']}", f"{made}; {size} {words['quick'] if run.quick else ''}"]
    if run.missing:
        content.append("Left out:\n\n" + "\n".join(f"- {name}: {why}" for name, why in run.missing.items()))
    if {"table2", "table3"} <= set(rows):
        content += ["## What holds and what does not", words["introduction"], discussion(rows), words["explanation"]]
    for part, listed in rows.items():
        table = TABLES[part]
        content += [f"## {table.title}", table.caption, table.markdown(listed)]
        content += [rf"\* {MAJORITY_NOTE}"] if table.has_marks(listed) else []
    for caption, path in drawings:
        line = " ".join(caption.split())
        content += [f"![{line}]({os.path.relpath(path.resolve(), folder.resolve())})", line]
    return "\n\n".join(block.strip() for block in content) + "\n"


def html_page(markdown: Path) -> str:
    """Return a Markdown page as one HTML file, with its figures inside."""

    def embedded(match: re.Match[str]) -> str:
        data = (markdown.parent / match[1]).read_bytes()
        return f'src="data:image/png;base64,{base64.b64encode(data).decode()}"'

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown.read_text(encoding="utf-8"))
    title, style = html.escape(TEXTS["page"]["title"]), Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{style}</style>'
    return head + re.sub(r'src="([^"]+)"', embedded, body) + "</html>\n"
