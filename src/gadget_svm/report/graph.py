"""The network as a picture, with nodes coloured by quality; above 300 nodes a histogram."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from gadget_svm.core.network import Network
from gadget_svm.report.curves import BLUE, STYLE, styled_figure
from gadget_svm.report.formatting import finite, number, percent
from gadget_svm.report.node_table import live_nodes, table_entry

MAX_DRAWN_NODES = 300
MAX_NAMED_NODES = 60
MAX_LISTED_NEIGHBOURS = 12
Node = dict[str, Any]


def quality(nodes: Sequence[Node]) -> tuple[str, list[float | None]]:
    """Return the name of the figure by which nodes are compared, and its value for each: None for a lost node.

    It is the test accuracy in per cent if it differs between nodes, else the objective. Nodes whose rows are with
    remote actors may have no objective; without test rows they differ in their number of rows alone.
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
    """Draw the graph, or the histogram."""
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
