"""Builds the page: text, tables and figures in one HTML file, which loads nothing else. Escapes all given text."""

from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from gadget_svm import __version__
from gadget_svm.core.network import Network
from gadget_svm.data.uris import parse_location, write_file
from gadget_svm.report import figures, formatting
from gadget_svm.report.machine import machine

Summary = dict[str, Any]
PLOTLY_CONFIG = {"displaylogo": False, "responsive": True, "displayModeBar": False}
MAX_OPEN_ROWS = 50
"""A table of more nodes is folded."""
OBJECTIVE = "What the nodes minimise, over all rows: lower is better. Both curves meet when the nodes agree."
ERROR = "How many rows the network's average model gets wrong. It often stops changing long before the objective does."
DISAGREEMENT = "Distance of the farthest node from the average, as a share of the average's length."
TRAFFIC = "Everything that all nodes together have sent since the start. Bytes are on the right."
PARAMETERS = "The same parameters give the same model, bit for bit."


def write_report(
    path: str | Path, *, summary: Summary, history: Sequence[dict[str, Any]], network: Network, title: str | None = None
) -> Path | str:
    """Write the report of a run.

    Parameters
    ----------
    path : str or Path
        A path or URI.
    summary : dict
        What `gadget train --json` prints: dataset, parameters, nodes, average, n_iter, why, messages, bytes, seconds.
    history : sequence of dict
        The records of the run.
    network : Network
        The graph on which the nodes gossip.
    title : str, optional
        The heading; by default it names the data set.

    Returns
    -------
    Path or str
        The place of the report.
    """
    target = parse_location(path)
    text = page(summary, history, network, title or f"Gossip on {summary['dataset']['name']}")
    write_file(target, text.encode())
    return target


def page(summary: Summary, history: Sequence[dict[str, Any]], network: Network, title: str) -> str:
    """Return the whole file as text."""
    template, style, script = (
        Path(__file__).with_name(f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js")
    )
    texts = {"title": title, "introduction": introduction(summary, network, history), "origin": origin()}
    parts = {"style": style, "script": script, "tiles": tiles(summary), "cards": cards(summary, history, network)}
    return Template(template).substitute(parts | {name: escape(text) for name, text in texts.items()})


def introduction(summary: Summary, network: Network, history: Sequence[dict[str, Any]] = ()) -> str:
    """Return what was done, in two sentences, and which actors were lost."""
    data, why, losses = summary["dataset"], str(summary["why"]), formatting.describe_losses(history)
    return (
        f"{network.n:,} nodes on a {network.name} graph learned a linear support vector machine from "
        f"{data['rows']:,} rows of {data['features']:,} features without sharing a row: they exchange weight "
        f"vectors only. {why[:1].upper()}{why[1:]}. {losses}"
    ).strip()


def tiles(summary: Summary) -> str:
    """Return the tiles at the top of the page, which show the most important numbers."""
    key = "train_accuracy" if summary["average"].get("test_accuracy") is None else "test_accuracy"
    words = key.replace("_", " ")
    known = [node[key] for node in formatting.live_nodes(summary["nodes"]) if node.get(key) is not None]
    shown = [
        *((formatting.percent(min(known)), f"{words}, worst node") for _ in known[:1]),
        (formatting.percent(summary["average"].get(key)), f"{words}, network average"),
        (formatting.count(summary["n_iter"]), "iterations"),
        (formatting.count(summary["messages"]), "messages"),
        (formatting.size(summary["bytes"]), "sent in all"),
        (f"{formatting.number(summary['seconds'], 3)} s", "of training"),
    ]
    if summary.get("gap_bound") is not None:
        shown.insert(2, (formatting.at_most(summary["gap_bound"]), "above the optimum at most, certified"))
    parts = [f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in shown]
    return f'<div class="tiles">{"".join(parts)}</div>'


def cards(summary: Summary, history: Sequence[dict[str, Any]], network: Network) -> str:
    """Return figures and tables, each with its caption; the first figure carries plotly's code."""
    import plotly.io

    reference, lost = summary.get("reference"), lost_rows_caption(summary)
    level = f" The level line is {reference['name']}: {reference['text']}." if reference else ""
    distance = {"farthest node": (figures.column(history, "disagreement", 100), figures.BLUE)}
    disagreement = figures.curve_figure(history, distance, "distance", " %")
    drawn = {
        "Objective": (figures.objective_figure(history, reference), OBJECTIVE + lost + level),
        "Wrong answers": (figures.error_figure(history, reference), ERROR + lost),
        "Disagreement": (disagreement, DISAGREEMENT),
        "Messages and bytes": (figures.traffic_figure(history), TRAFFIC),
        "The network": (figures.network_figure(network, summary["nodes"]), network_caption(summary, network)),
    }
    shown = {
        name: (plotly.io.to_html(figure, full_html=False, include_plotlyjs=name == "Objective",
                                 include_mathjax=False, config=PLOTLY_CONFIG), caption)
        for name, (figure, caption) in drawn.items()
    }  # fmt: skip
    shown |= {
        "Nodes": (nodes_table(summary), nodes_caption(summary)),
        "Data": (facts_table(summary["dataset"]), "The rows that the nodes learn from."),
        "Parameters": (facts_table(summary["parameters"]), PARAMETERS),
    }
    wide = {"The network": ' class="wide"', "Nodes": ' class="wide"'}
    return "\n".join(
        f'<section{wide.get(name, "")}><h2>{name}</h2><p class="caption">{escape(caption)}</p>{content}</section>'
        for name, (content, caption) in shown.items()
    )


def lost_rows_caption(summary: Summary) -> str:
    """Return a sentence for a caption if rows of lost actors are missing from the figure, else an empty text.

    Rows that the driver also holds are never missing.
    """
    lost = any(event["event"] == "lost" for event in summary.get("events", []))
    remote = all(node.get("train_objective") is None for node in summary["nodes"])
    return " The rows of lost nodes are left out until the nodes are back." if lost and remote else ""


def network_caption(summary: Summary, network: Network) -> str:
    """Return the caption of the network: it explains the drawing, or says why a large network is not drawn."""
    name = figures.quality(summary["nodes"])[0].rstrip(", %")
    if network.n > figures.MAX_DRAWN_NODES:
        return (
            f"{network.n:,} nodes: a drawing of more than {figures.MAX_DRAWN_NODES} nodes is unreadable, so this shows "
            f"how many nodes have which {name}."
        )
    grey = " Grey nodes are lost." if len(formatting.live_nodes(summary["nodes"])) < len(summary["nodes"]) else ""
    return f"Lines connect nodes that gossip. The colour is a node's {name}; point at a node for its details.{grey}"


def nodes_caption(summary: Summary) -> str:
    """Return the caption of the table of nodes: whether all nodes are listed, and how lost nodes are counted."""
    nodes = summary["nodes"]
    total = summary["parameters"].get("nodes", len(nodes))
    lost = " Lost nodes and their rows are not in the average." * ("rows" in summary["average"])
    if len(nodes) < total:
        return f"An even sample of {len(nodes):,} of the {total:,} nodes: evaluating all would take long.{lost}"
    return f"Every node has a model of its own and can answer alone.{lost}"


def nodes_table(summary: Summary) -> str:
    """Return one row per node, and the network average."""
    rows = [_table_row(formatting.table_cells(*formatting.table_entry(node))) for node in summary["nodes"]]
    rows.append(_table_row(formatting.table_cells(*formatting.average_entry(summary)), ' class="total"'))
    head = "".join(f"<th>{name}</th>" for name in formatting.NODE_COLUMNS)
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    n_nodes = len(summary["nodes"])
    return table if n_nodes <= MAX_OPEN_ROWS else f"<details><summary>{n_nodes:,} nodes</summary>{table}</details>"


def _table_row(cells: Sequence[str], kind: str = "") -> str:
    return f"<tr{kind}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def facts_table(facts: dict[str, Any]) -> str:
    """Return a table of names and values. Nested values are flattened."""
    rows = "".join(_table_row((name.replace("_", " "), value)) for name, value in _flat(facts))
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def _flat(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return pairs of name and text, without values that are not set."""
    pairs: list[tuple[str, str]] = []
    for name, value in facts.items():
        if isinstance(value, dict):
            pairs += _flat(value)
        elif value is not None and value != []:
            pairs.append((str(name), ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return pairs


def origin() -> str:
    """Return the sentence that names the version, the time and the machine."""
    when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return f"Written by gadget-svm {__version__} on {when}; {machine()}."
