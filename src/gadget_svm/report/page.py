"""The page: words, tables and figures in one HTML file that needs no network. Every word from outside is escaped."""

from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gadget_svm.core.network import Network
from gadget_svm.data.uris import parse_location, write_file
from gadget_svm.report import curves, graph
from gadget_svm.report.assets import CSS, SCRIPT
from gadget_svm.report.formatting import absences, at_most, count, number, percent, size
from gadget_svm.report.lost_nodes import entry, present
from gadget_svm.report.machine import machine
from gadget_svm.report.needs import require_plotly

CONFIG = {"displaylogo": False, "responsive": True, "displayModeBar": False}


def write_report(
    path: str | Path,
    *,
    summary: dict[str, Any],
    history: Sequence[dict[str, Any]],
    network: Network,
    title: str | None = None,
) -> Path | str:
    """Write the report of one run to a path or URI, and return where it is.

    ``summary`` is what `gadget train --json` prints: dataset, parameters, nodes, average, n_iter, why, messages,
    bytes, seconds; ``history`` its records; ``network`` the graph the nodes gossiped on.
    """
    target = parse_location(path)
    text = page(summary, history, network, title or f"Gossip on {summary['dataset']['name']}")
    write_file(target, text.encode())
    return target


def page(summary: dict[str, Any], history: Sequence[dict[str, Any]], network: Network, title: str) -> str:
    """The whole file as text."""
    require_plotly()
    body = "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            f'<p class="lead">{escape(lead(summary, network, history))}</p>',
            tiles(summary),
            axis_switch(),
            f'<div class="cards">{cards(summary, history, network)}</div>',
            f"<footer>{escape(origin())}</footer>",
        ]
    )
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title><style>{CSS}</style>'
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n'
        f"<body><main>{body}</main><script>{SCRIPT}</script></body></html>\n"
    )


def lead(summary: dict[str, Any], network: Network, history: Sequence[dict[str, Any]] = ()) -> str:
    """What was done, in two sentences, and who was lost on the way."""
    data, why, missed = summary["dataset"], str(summary["why"]), absences(history)
    return (
        f"{network.n:,} nodes on a {network.name} graph learned a linear support vector machine from "
        f"{data['rows']:,} rows of {data['features']:,} features without sharing a row: they exchange weight "
        f"vectors only. {why[:1].upper()}{why[1:]}.{' ' if missed else ''}{missed}"
    )


def tiles(summary: dict[str, Any]) -> str:
    """The figures to remember."""
    key = "train_accuracy" if summary["average"].get("test_accuracy") is None else "test_accuracy"
    words = key.replace("_", " ")
    known = [node[key] for node in present(summary["nodes"]) if node.get(key) is not None]
    shown = [
        *((percent(min(known)), f"{words}, worst node") for _ in known[:1]),
        (percent(summary["average"].get(key)), f"{words}, network average"),
        (count(summary["n_iter"]), "iterations"),
        (count(summary["messages"]), "messages"),
        (size(summary["bytes"]), "sent in all"),
        (f"{number(summary['seconds'], 3)} s", "of training"),
    ]
    if summary.get("gap_bound") is not None:
        shown.insert(2, (at_most(summary["gap_bound"]), "above the optimum at most, certified"))
    parts = [f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in shown]
    return f'<div class="tiles">{"".join(parts)}</div>'


def axis_switch() -> str:
    """The choice of the horizontal axis, for all curves at once."""
    choices = {"iteration": "iterations", "seconds": "seconds", "messages": "messages"}
    inputs = [
        f'<label><input type="radio" name="axis" value="{name}"{" checked" * (name == "iteration")}> {words}</label>'
        for name, words in choices.items()
    ]
    return f"<fieldset><legend>Curves against</legend>{''.join(inputs)}</fieldset>"


def cards(summary: dict[str, Any], history: Sequence[dict[str, Any]], network: Network) -> str:
    """Figures and tables, each with its caption; plotly's code comes with the first figure, once."""
    reference = summary.get("reference")
    drawn = [
        ("Objective", curves.objective_figure(history, reference), OBJECTIVE + unseen(summary) + against(reference)),
        ("Wrong answers", curves.error_figure(history, reference), ERROR + unseen(summary)),
        ("Disagreement", curves.disagreement_figure(history), DISAGREEMENT),
        ("Messages and bytes", curves.traffic_figure(history), TRAFFIC),
        ("The network", graph.network_figure(network, summary["nodes"]), network_caption(summary, network)),
    ]
    parts = [
        card(name, embed(figure, first=i == 0), caption, wide=name == "The network")
        for i, (name, figure, caption) in enumerate(drawn)
    ]
    parts.append(card("Nodes", nodes_table(summary), nodes_caption(summary), wide=True))
    parts.append(card("Data", facts_table(summary["dataset"]), "What the nodes learned from."))
    parts.append(
        card(
            "Parameters",
            facts_table(summary["parameters"]),
            "The same choices give the same bits.",
        )
    )
    return "\n".join(parts)


def embed(figure: Any, first: bool) -> str:
    """The figure as HTML."""
    import plotly.io

    text: str = plotly.io.to_html(figure, full_html=False, include_plotlyjs=first, include_mathjax=False, config=CONFIG)
    return text


def card(name: str, inside: str, caption: str, wide: bool = False) -> str:
    """A box with a heading, a sentence and something to see."""
    kind = ' class="wide"' if wide else ""
    return f'<section{kind}><h2>{escape(name)}</h2><p class="caption">{escape(caption)}</p>{inside}</section>'


OBJECTIVE = "What the nodes minimise, over all rows: lower is better. Both curves meet when the nodes agree."
ERROR = "How many rows the network's average model gets wrong. It often settles long before the objective does."
DISAGREEMENT = "How far the node farthest from the average is from it, as a share of the average's length."
TRAFFIC = "Everything sent by all nodes together since the start. Bytes are on the right."


def unseen(summary: dict[str, Any]) -> str:
    """Rows that only actors have are out of sight while the actor is lost; rows that are here are not."""
    away = any(event["event"] == "lost" for event in summary.get("events", []))
    elsewhere = all(node.get("train_objective") is None for node in summary["nodes"])
    return " The rows of nodes that are lost are left out until they are back." if away and elsewhere else ""


def against(reference: dict[str, Any] | None) -> str:
    """Who the level line is."""
    return "" if reference is None else f" The level line is {reference['name']}: {reference['text']}."


def network_caption(summary: dict[str, Any], network: Network) -> str:
    """What is seen, or why there is no graph."""
    words, _ = graph.quality(summary["nodes"])
    if network.n > graph.MOST_DRAWN:
        return (
            f"{network.n:,} nodes: a drawing of more than {graph.MOST_DRAWN} nodes is a blot, so this shows how many "
            f"nodes have which {words.rstrip(', %')}."
        )
    grey = " Grey nodes are lost." if len(present(summary["nodes"])) < len(summary["nodes"]) else ""
    return f"Who gossips with whom. The colour is a node's {words.rstrip(', %')}; rest on a node for its details.{grey}"


def nodes_caption(summary: dict[str, Any]) -> str:
    """Whether these are all nodes, and what is said of lost ones."""
    nodes = summary["nodes"]
    total = summary["parameters"].get("nodes", len(nodes))
    lost = " Lost nodes are not in the average, nor are their rows counted there." * ("rows" in summary["average"])
    if len(nodes) < total:
        return f"An even sample of {len(nodes):,} of the {total:,} nodes: judging all would take long.{lost}"
    return f"Every node has a model of its own and can answer alone.{lost}"


def nodes_table(summary: dict[str, Any]) -> str:
    """One row per node, and the network average."""
    rows = [_node_row(*entry(node)) for node in summary["nodes"]]
    rows.append(_node_row("average", {"rows": summary["dataset"]["rows"], **summary["average"]}, ' class="total"'))
    head = "".join(f"<th>{name}</th>" for name in ("node", "rows", "train accuracy", "test accuracy", "objective"))
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    return table if len(rows) <= 51 else f"<details><summary>{len(rows) - 1:,} nodes</summary>{table}</details>"


def _node_row(name: str, node: dict[str, Any], kind: str = "") -> str:
    cells = [
        name,
        count(node.get("rows")),
        percent(node.get("train_accuracy")),
        percent(node.get("test_accuracy")),
        number(node.get("train_objective")),
    ]
    return f"<tr{kind}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def facts_table(facts: dict[str, Any]) -> str:
    """Names and values, nested ones flattened."""
    rows = [
        f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{escape(value)}</td></tr>" for name, value in flat(facts)
    ]
    return f'<table class="facts"><tbody>{"".join(rows)}</tbody></table>'


def flat(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Pairs of name and text; what is not set is left out."""
    pairs: list[tuple[str, str]] = []
    for name, value in facts.items():
        if isinstance(value, dict):
            pairs += flat(value)
        elif value is not None and value != []:
            pairs.append((str(name), ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return pairs


def origin() -> str:
    """Who made this, when and on what."""
    try:
        made_by = f"gadget-svm {version('gadget-svm')}"
    except PackageNotFoundError:  # run from a checkout that is not installed
        made_by = "gadget-svm"
    when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return f"Written by {made_by} on {when}; {machine()}."
