"""The figures of a report: curves of a run's history, and the network as a picture.

Owns axes and which of them are logarithmic. Every curve carries all its horizontal axes in ``layout.meta``, so that the
page can switch between them. The picture of the network shows the nodes' quality as colours; above 300 nodes it is a
histogram.
"""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from gadget_svm.core.extras import require
from gadget_svm.core.network import Network
from gadget_svm.report.formatting import Node, finite, live_nodes, number, percent, table_entry

Record = dict[str, Any]
Values = list[float | None]

BLUE, ORANGE, GREEN = "#3b82f6", "#f97316", "#10b981"
AXES = {"iteration": "iterations", "seconds": "seconds of training", "messages": "messages sent"}
LOG_AXIS_RATIO = 50.0
"""A quantity is drawn on a logarithmic axis if its largest value is at least this multiple of its smallest."""
REFERENCE = "one machine"
STYLE: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("figure.json").read_text(encoding="utf-8"))
"""The style of figures and of the nodes of a network, as plotly names its properties."""


def require_plotly() -> Any:
    """Return plotly's graph objects; if plotly is missing, the error says what to install."""
    return require("plotly.graph_objects", "a report needs", "report")


def column(history: Sequence[Record], name: str, factor: float = 1.0) -> Values:
    """Return one quantity over the history. None, where it is missing or not finite, leaves a gap in the curve."""
    return [finite(record.get(name), factor) for record in history]


def axis_type(*columns: Values) -> str:
    """Return "log" if all values are positive and far apart, else "linear"."""
    values = [value for values in columns for value in values if value is not None]
    return "log" if values and min(values) > 0 and max(values) > LOG_AXIS_RATIO * min(values) else "linear"


def styled_figure() -> Any:
    """Return an empty figure in the style of the page: transparent, a legend above, titles no larger than the text."""
    return require_plotly().Figure(layout=STYLE["layout"])


def curve_figure(history: Sequence[Record], curves: dict[str, tuple[Values, str]], title: str, suffix: str = "") -> Any:
    """Draw named curves in their colours, at first against iterations. Lines of a reference are dashed."""
    figure = styled_figure()
    axes = {name: {"x": (x := column(history, name)), "title": words, "type": axis_type(x)}
            for name, words in AXES.items()}  # fmt: skip
    for name, (values, colour) in curves.items():
        dashed = name.startswith(REFERENCE)
        figure.add_scatter(
            x=axes["iteration"]["x"], y=values, name=name, mode="lines" if dashed else "lines+markers",
            line={"color": colour, "width": 2.5, "dash": "dash" if dashed else None}, marker={"size": 5},
        )  # fmt: skip
    kind = axis_type(*(values for values, _ in curves.values()))
    return figure.update_layout(
        meta={"axes": axes},
        xaxis={"title": {"text": AXES["iteration"]}, "type": axes["iteration"]["type"]},
        yaxis={"title": {"text": title}, "type": kind, "ticksuffix": suffix},
    )


def objective_figure(history: Sequence[Record], reference: dict[str, Any] | None) -> Any:
    """Draw the objective of the average model and of the worst node, and a reference as a horizontal line."""
    curves = {"network average": (column(history, "objective"), BLUE)}
    for name, words in (("worst_objective", "worst node"), ("worst_sampled_objective", "worst of 200 nodes")):
        if any(name in record for record in history):
            curves[words] = (column(history, name), ORANGE)
    if (level := finite((reference or {}).get("train_objective"))) is not None:
        curves[REFERENCE] = ([level] * len(history), GREEN)
    return curve_figure(history, curves, "objective")


def error_figure(history: Sequence[Record], reference: dict[str, Any] | None) -> Any:
    """Draw the share of wrong answers of the average model."""
    curves = {"training rows": (column(history, "error", 100), BLUE)}
    test = column(history, "test_error", 100)
    if any(value is not None for value in test):
        curves["test rows"] = (test, ORANGE)
    if (right := finite((reference or {}).get("test_accuracy"))) is not None:
        curves[f"{REFERENCE}, test rows"] = ([100 * (1 - right)] * len(history), GREEN)
    return curve_figure(history, curves, "wrong answers", " %")


def traffic_figure(history: Sequence[Record]) -> Any:
    """Draw messages on the left axis and bytes on the right axis."""
    figure = curve_figure(history, {"messages": (column(history, "messages"), BLUE)}, "messages")
    nbytes = column(history, "bytes")
    line = {"color": ORANGE, "width": 2.5, "dash": "dot"}
    figure.add_scatter(x=column(history, "iteration"), y=nbytes, name="bytes", yaxis="y2", mode="lines", line=line)
    right = {"overlaying": "y", "side": "right", "showgrid": False, "type": axis_type(nbytes)}
    return figure.update_layout(yaxis2=STYLE["layout"]["yaxis"] | right, yaxis2_title_text="bytes")


MAX_DRAWN_NODES = 300
MAX_NAMED_NODES = 60
MAX_LISTED_NEIGHBOURS = 12


def quality(nodes: Sequence[Node]) -> tuple[str, list[float | None]]:
    """Return the name of the figure by which nodes are compared, and its value for each: None for a lost node.

    The figure is the test accuracy in per cent if it differs between nodes, else the objective. If remote actors hold
    the rows, nodes may have no objective. Then it is the test accuracy, or without test rows the number of rows.
    """
    live = live_nodes(nodes)
    accuracy, objective = ([finite(node.get(key)) for node in live] for key in ("test_accuracy", "train_objective"))
    no_objective = objective.count(None) == len(live) > 0
    if len(set(accuracy)) > 1 or (None not in accuracy and no_objective):
        name, key, factor = "test accuracy, %", "test_accuracy", 100.0
    else:
        name, key, factor = ("number of rows", "rows", 1.0) if no_objective else ("objective", "train_objective", 1.0)
    return name, [finite(node.get(key), factor) if node.get("lost") is None else None for node in nodes]


def network_figure(network: Network, nodes: Sequence[Node]) -> Any:
    """Draw the graph, or a histogram of the nodes if there are too many to draw."""
    if network.n > MAX_DRAWN_NODES or len(nodes) < network.n:
        return histogram(nodes)
    import networkx as nx

    graph = nx.from_scipy_sparse_array(network.adjacency())
    layout = nx.spring_layout(graph, seed=0, iterations=100)  # the same for the same graph
    x, y = ([float(layout[i][axis]) for i in range(network.n)] for axis in (0, 1))
    figure = styled_figure()
    edges = [(i, j) for i, j in zip(network.sources.tolist(), network.indices.tolist(), strict=True)
             if i < j or network.directed]  # fmt: skip
    figure.add_scatter(  # all edges as one broken line
        x=[place for i, j in edges for place in (x[i], x[j], None)],
        y=[place for i, j in edges for place in (y[i], y[j], None)],
        mode="lines", hoverinfo="skip", line={"width": 1, "color": "rgba(128,128,128,.45)"},
    )  # fmt: skip
    named = network.n <= MAX_NAMED_NODES
    figure.add_scatter(
        x=x, y=y, mode="markers+text" if named else "markers", textfont={"color": "white", "size": 12},
        text=[str(node["node"]) for node in nodes] if named else None,
        hovertext=[describe(network, node) for node in nodes], hoverinfo="text",
        marker=_markers(*quality(nodes), network.n),
    )  # fmt: skip
    bare = {"visible": False, "showgrid": False}
    return figure.update_layout(showlegend=False, height=460, xaxis=bare, yaxis=bare, margin={"b": 72, "l": 24})


def _markers(name: str, values: list[float | None], n_nodes: int) -> dict[str, Any]:
    known = [value for value in values if value is not None] or [0.0]
    least, most = min(known), max(known)
    room = max((most - least) * 0.05, abs(most) * 1e-3, 1e-9)  # equal nodes need a scale too
    return STYLE["nodes"] | {
        "size": 30 if n_nodes <= 20 else 22 if n_nodes <= MAX_NAMED_NODES else 11,
        "color": np.array(values, dtype=float),  # None becomes NaN, which is drawn grey
        "cmin": least - room,
        "cmax": most + room,
        "reversescale": name == "objective",
        "showscale": name != "number of rows" or least < most,
        "colorbar_title_text": name,
    }


def describe(network: Network, node: Node) -> str:
    """Return the text that is shown at a node: its name, its figures and its neighbours."""
    i = node["node"]
    near = [str(j) for j in network.indices[network.indptr[i] : network.indptr[i + 1]].tolist()]
    more = ["..."] if len(near) > MAX_LISTED_NEIGHBOURS else []
    name, node = table_entry(node)
    lines = [f"<b>node {escape(name)}</b>", f"{node.get('rows', '?')} rows"]
    figures = {"test accuracy": percent(node.get("test_accuracy")), "objective": number(node.get("train_objective")),
               "train accuracy": percent(node.get("train_accuracy"))}  # fmt: skip
    lines += [f"{words} {figure}" for words, figure in figures.items() if figure != "-"]
    return "<br>".join([*lines, f"sends to {escape(', '.join(near[:MAX_LISTED_NEIGHBOURS] + more))}"])


def histogram(nodes: Sequence[Node]) -> Any:
    """Draw the number of nodes by quality."""
    name, values = quality(nodes)
    figure = styled_figure()
    figure.add_histogram(x=[value for value in values if value is not None], marker={"color": BLUE}, nbinsx=40)
    return figure.update_layout(xaxis={"title": {"text": name}}, yaxis={"title": {"text": "nodes"}}, bargap=0.05)
