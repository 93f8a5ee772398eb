"""The page of simulated peers: how models, certificates and traffic grow over simulated time, and the results."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gadget_svm.data.uris import parse_location, write_file
from gadget_svm.report import figures as curves
from gadget_svm.report.formatting import count, number, size
from gadget_svm.report.page import PLOTLY_CONFIG, facts_table, origin

MAX_ROWS = 200
EXCESS = "How far the worst model is above the optimum of all live rows, against simulated seconds."
TRAFFIC = "Everything that all peers together have sent. Bytes are on the right."
CERTIFIED = "How many peers have a certified model on their disk."


def write_simulation_report(
    path: str | Path, *, title: str, facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]],
    history: Sequence[dict[str, Any]],
) -> Path | str:  # fmt: skip
    """Write the page of simulated runs; the curves show ``history``, the records of the first run."""
    target = parse_location(path)
    write_file(target, page(title, facts, results, history).encode())
    return target


def page(
    title: str, facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]], history: Sequence[dict[str, Any]]
) -> str:
    """Return the whole file as text."""
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    script = Path(__file__).with_name("report.js").read_text(encoding="utf-8")
    failed = sum(bool(row["failure"]) for row in results)
    runs = "One simulated run" if len(results) == 1 else f"{len(results):,} simulated runs"
    lead = f"{runs} of real peers' code; {failed or 'none'} failed."
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{escape(title)}</title><style>
{style}</style></head>
<body><main><h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
{_tiles(results)}
<div class="cards">{_cards(history)}
<section><h2>Network</h2><p class="caption">What was simulated.</p>{facts_table(dict(facts))}</section>
<section class="wide"><h2>Runs</h2><p class="caption">One line per seed.</p>{_table(results)}</section></div>
<footer>{escape(origin())}</footer></main><script>
{script}</script></body></html>
"""


def _tiles(results: Sequence[Mapping[str, Any]]) -> str:
    first = results[0]
    shown = (
        (number(first["certified_after"], 4), "simulated seconds until certified"),
        (number(first["models_after"], 4), "until all models were good"),
        (count(first["ticks"]), "ticks"),
        (count(first["messages"]), "messages"),
        (size(first["bytes"]), "sent in all"),
        (size(first["bytes"] / first["peers"]), "sent by a peer"),
    )
    tiles = "".join(f'<div class="tile"><b>{escape(value)}</b><span>{name}</span></div>' for value, name in shown)
    return f'<div class="tiles">{tiles}</div>'


def _cards(history: Sequence[dict[str, Any]]) -> str:
    import plotly.io

    if not history:
        return ""
    excess = {"worst model": (curves.column(history, "excess", 100), curves.BLUE)}
    certified = {"peers": (curves.column(history, "certified"), curves.GREEN)}
    figures = {
        "Distance to the optimum": (curves.curve_figure(history, excess, "above the optimum", " %"), EXCESS),
        "Messages and bytes": (curves.traffic_figure(history), TRAFFIC),
        "Certified": (curves.curve_figure(history, certified, "peers"), CERTIFIED),
    }
    sections: list[str] = []
    for name, (figure, caption) in figures.items():
        axis = figure.layout.meta["axes"]["seconds"]
        for trace in figure.data:
            trace.x = axis["x"]
        figure.update_layout(xaxis={"title": {"text": "simulated seconds"}, "type": "linear"})
        html = plotly.io.to_html(
            figure, full_html=False, include_plotlyjs=not sections, include_mathjax=False, config=PLOTLY_CONFIG
        )
        sections.append(f'<section><h2>{name}</h2><p class="caption">{escape(caption)}</p>{html}</section>')
    return "\n".join(sections)


def _table(results: Sequence[Mapping[str, Any]]) -> str:
    columns = {
        "seed": "seed", "peers": "peers", "seconds": "simulated s", "models_after": "models good after s",
        "certified_after": "certified after s", "ticks": "ticks", "messages": "messages", "bytes": "bytes",
        "failure": "failure",
    }  # fmt: skip
    head = "".join(f"<th>{text}</th>" for text in columns.values())
    rows = []
    for row in results[:MAX_ROWS]:
        cells = [row[key] if isinstance(row[key], str) else number(row[key]) for key in columns]
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
