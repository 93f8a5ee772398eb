"""The reproduction as files: CSV, Markdown, PNG, and one HTML page that holds everything and opens offline."""

import base64
import html
import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from gadget_svm.report.machine import machine
from gadget_svm.reproduction import figures
from gadget_svm.reproduction.claims import discussion
from gadget_svm.reproduction.headings import CAPTIONS, HEADINGS, QUICK, STYLE
from gadget_svm.reproduction.reproduce import Reproduction
from gadget_svm.reproduction.tables import Row, markdown, shown, write_csv

Figures = list[tuple[str, Path]]


def named(run: Reproduction, rows: Sequence[Row]) -> list[Row]:
    """The rows for the eye: a data set that is a subset says so wherever it stands."""
    subsets = {name for name, data in run.sets.items() if "subset" in data.note}
    return [row | {"dataset": f"{row['dataset']} (subset)"} if row["dataset"] in subsets else row for row in rows]


def _discussed(run: Reproduction, rows: dict[str, list[Row]]) -> str:
    return discussion({part: named(run, table) for part, table in rows.items()})


def write_tables(run: Reproduction, parts: Sequence[str]) -> dict[str, list[Row]]:
    """Compute the parts asked for, write a CSV each, and return their rows."""
    rows = {}
    for part in parts:
        if part == "figures":
            continue
        rows[part] = getattr(run, part)()
        write_csv(run.out / f"{part}.csv", rows[part])
    return rows


def draw_figures(run: Reproduction, parts: Sequence[str], rows: dict[str, list[Row]]) -> Figures:
    """The PNG figures of the parts asked for, with their captions."""
    drawn: Figures = []
    if "figures" in parts:
        for name, data in run.sets.items():
            traces, optimum = run.traces(name)
            label = named(run, [{"dataset": name}])[0]["dataset"]
            title = f"{label}: {data.X.shape[0]:,} x {data.X.shape[1]:,}, lambda {run.lam(name):g}"
            path = figures.curves(run.out / "figures" / f"{name}.png", title, traces, optimum)
            drawn.append((f"{label}: objective and zero-one error against training time. {CAPTIONS['figures']}", path))
    if rows.get("network"):
        drawn.append(
            (CAPTIONS["network_figure"], figures.network_panels(run.out / "figures" / "network.png", rows["network"]))
        )
    return drawn


def write_markdown(run: Reproduction, rows: dict[str, list[Row]], drawn: Figures, path: Path) -> Path:
    """Tables, figures and discussion as one Markdown file; figures by relative path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(_sections(run, rows, drawn, path.parent)) + "\n", encoding="utf-8")
    return path


def _sections(run: Reproduction, rows: dict[str, list[Row]], drawn: Figures, folder: Path) -> list[str]:
    made = (
        f"Made on {date.today().isoformat()} by `gadget reproduce`, {machine()}; {run.nodes} nodes, {run.trials} trials"
    )
    parts = ["# The paper's evaluation, reproduced", made + (f". {QUICK}" if run.quick else ".")]
    if run.missing:
        parts.append("Not on this machine:\n\n" + "\n".join(f"- {name}: {why}" for name, why in run.missing.items()))
    if {"table2", "table3"} <= set(rows):
        parts += [
            "## What holds and what does not",
            _discussed(run, rows),
        ]
    for part, table in rows.items():
        parts += [f"## {HEADINGS[part][0]}", CAPTIONS[part], markdown(named(run, table), HEADINGS[part][1])]
    for caption, figure in drawn:
        parts += [f"![{caption}]({os.path.relpath(figure.resolve(), folder.resolve())})", caption]
    return parts


def write_html(run: Reproduction, rows: dict[str, list[Row]], drawn: Figures, path: Path) -> Path:
    """The same as one self-contained page, figures inside."""
    body = [f"<h1>The paper's evaluation, reproduced</h1><p>{html.escape(machine())}, {date.today().isoformat()}; "
            f"{run.nodes} nodes, {run.trials} trials. {QUICK if run.quick else ''}</p>"]  # fmt: skip
    body += [f"<p>Not on this machine: <b>{html.escape(n)}</b>: {html.escape(w)}</p>" for n, w in run.missing.items()]
    if {"table2", "table3"} <= set(rows):
        body.append("<h2>What holds and what does not</h2>" + _paragraphs(_discussed(run, rows)))
    for part, table in rows.items():
        heading, columns = HEADINGS[part]
        body.append(f"<h2>{heading}</h2>{_paragraphs(CAPTIONS[part])}{_table(named(run, table), columns)}")
    for caption, figure in drawn:
        data = base64.b64encode(figure.read_bytes()).decode()
        body.append(f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'
                    f"<figcaption>{html.escape(caption)}</figcaption></figure>")  # fmt: skip
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>GADGET SVM, reproduced</title>'
    path.write_text(f"{head}<style>{STYLE}</style>" + "\n".join(body) + "</html>\n", encoding="utf-8")
    return path


def _table(rows: Sequence[Row], columns: dict[str, str]) -> str:
    head = "".join(f"<th>{html.escape(title)}</th>" for title in columns.values())
    lines = ["".join(f"<td>{html.escape(shown(name, row.get(name)))}</td>" for name in columns) for row in rows]
    return f"<div class=wide><table><tr>{head}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>"


def _paragraphs(text: str) -> str:
    items: list[str] = []
    for block in text.split("\n\n"):
        if block.startswith("- "):
            items.append("<ul>" + "".join(f"<li>{_bold(line[2:])}</li>" for line in block.split("\n")) + "</ul>")
        else:
            items.append(f"<p>{_bold(block)}</p>")
    return "".join(items)


def _bold(text: str) -> str:
    pieces = html.escape(text).split("**")
    return "".join(f"<b>{piece}</b>" if i % 2 else piece for i, piece in enumerate(pieces))


def everything(run: Reproduction, parts: Sequence[str], docs: Path | None = None) -> dict[str, Any]:
    """All files of a run; returns their paths."""
    name = "reproduction" if len(parts) > 1 else parts[0]  # a part does not replace the page of the whole
    rows = write_tables(run, parts)
    drawn = draw_figures(run, parts, rows)
    files = {"markdown": write_markdown(run, rows, drawn, run.out / f"{name}.md"),
             "html": write_html(run, rows, drawn, run.out / f"{name}.html")}  # fmt: skip
    if docs is not None:
        files["docs"] = write_markdown(run, rows, drawn, docs)
    return {"rows": rows, "figures": [path for _, path in drawn], **files}
