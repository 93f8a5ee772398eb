"""The network as a picture, nodes coloured by how well they do; above 300 nodes a histogram."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from gadget_svm.core.network import Network
from gadget_svm.report.curves import BLUE, dressed
from gadget_svm.report.formatting import finite
from gadget_svm.report.lost_nodes import absence, live_nodes, table_entry
from gadget_svm.report.needs import require_plotly

MOST_DRAWN = 300
MOST_NAMED = 60
Node = dict[str, Any]


def quality(nodes: Sequence[Node]) -> tuple[str, list[float | None]]:
    """What nodes are compared by: test accuracy in per cent where they differ in it, else the objective.

    Of nodes whose rows are elsewhere the objective may not be known; without test rows they differ in rows alone.
    A lost node has no value.
    """
    here = live_nodes(nodes)
    accuracy, objective = ([finite(node.get(key)) for node in here] for key in ("test_accuracy", "train_objective"))
    if len(set(accuracy)) > 1 or (accuracy.count(None) == 0 and objective.count(None) == len(here) > 0):
        return "test accuracy, %", _values(nodes, "test_accuracy", 100)
    if objective.count(None) == len(here) > 0:
        return "number of rows", _values(nodes, "rows")
    return "objective", _values(nodes, "train_objective")


def _values(nodes: Sequence[Node], key: str, factor: float = 1.0) -> list[float | None]:
    return [None if absence(node) else finite(node.get(key), factor) for node in nodes]


def network_figure(network: Network, nodes: Sequence[Node]) -> Any:
    """The graph, or the histogram."""
    if network.n > MOST_DRAWN or len(nodes) < network.n:
        return histogram(nodes)
    go = require_plotly()
    places = layout(network)
    words, values = quality(nodes)
    figure = go.Figure()
    lines = _edge_lines(network, places)
    figure.add_scatter(
        x=lines[0], y=lines[1], mode="lines", hoverinfo="skip", line={"width": 1, "color": "rgba(128,128,128,.45)"}
    )
    named = network.n <= MOST_NAMED
    figure.add_scatter(
        x=[x for x, _ in places],
        y=[y for _, y in places],
        mode="markers+text" if named else "markers",
        text=[str(node["node"]) for node in nodes] if named else None,
        textfont={"color": "white", "size": 12},
        hovertext=[describe(network, node) for node in nodes],
        hoverinfo="text",
        marker=_markers(words, values, network.n),
    )
    bare = {"visible": False, "showgrid": False}
    return dressed(figure).update_layout(
        showlegend=False, height=460, xaxis=bare, yaxis=bare, margin={"b": 72, "l": 24}
    )


def _markers(words: str, values: list[float | None], count: int) -> dict[str, Any]:
    known = [value for value in values if value is not None] or [0.0]
    least, most = min(known), max(known)
    room = max((most - least) * 0.05, abs(most) * 1e-3, 1e-9)  # equal nodes need a scale too
    title = {"text": words, "side": "bottom", "font": {"size": 13}}
    below = {"orientation": "h", "y": -0.02, "yanchor": "top", "x": 0.5, "len": 0.7}
    return {
        "size": 30 if count <= 20 else 22 if count <= MOST_NAMED else 11,
        "color": np.array(values, dtype=float),  # None becomes NaN, which is drawn grey
        "cmin": least - room,
        "cmax": most + room,
        "colorscale": [[0, "#b45309"], [0.5, "#7c3aed"], [1, "#1d4ed8"]],
        "reversescale": words == "objective",
        "showscale": words != "number of rows" or least < most,
        "colorbar": {**below, "title": title, "thickness": 12, "outlinewidth": 0, "nticks": 5},
        "line": {"width": 1.5, "color": "rgba(255,255,255,.8)"},
    }


def layout(network: Network) -> list[tuple[float, float]]:
    """Places of the nodes: springs, always the same for the same graph."""
    import networkx as nx

    graph = nx.from_scipy_sparse_array(network.adjacency())
    places = nx.spring_layout(graph, seed=0, iterations=100)
    return [(float(places[i][0]), float(places[i][1])) for i in range(network.n)]


def _edge_lines(network: Network, places: list[tuple[float, float]]) -> tuple[list[float | None], list[float | None]]:
    """All edges as one broken line; of the two directions of an edge only one is drawn."""
    x: list[float | None] = []
    y: list[float | None] = []
    for i, j in zip(network.sources.tolist(), network.indices.tolist(), strict=True):
        if i < j or network.directed:
            x += [places[i][0], places[j][0], None]
            y += [places[i][1], places[j][1], None]
    return x, y


def describe(network: Network, node: Node) -> str:
    """A node's details, for the pointer that rests on it."""
    i = int(node["node"])
    near = network.indices[network.indptr[i] : network.indptr[i + 1]].tolist()
    shown = ", ".join(map(str, near[:12])) + (", ..." if len(near) > 12 else "")
    name, node = table_entry(node)
    lines = [f"<b>node {escape(name)}</b>", f"{node.get('rows', '?')} rows"]
    for key, words in (("test_accuracy", "test accuracy"), ("train_accuracy", "train accuracy")):
        if (value := finite(node.get(key))) is not None:
            lines.append(f"{words} {100 * value:.2f} %")
    if (value := finite(node.get("train_objective"))) is not None:
        lines.append(f"objective {value:.5g}")
    return "<br>".join([*lines, f"sends to {escape(shown)}"])


def histogram(nodes: Sequence[Node]) -> Any:
    """How many nodes do how well."""
    go = require_plotly()
    words, values = quality(nodes)
    figure = go.Figure()
    figure.add_histogram(x=[value for value in values if value is not None], marker={"color": BLUE}, nbinsx=40)
    dressed(figure).update_layout(xaxis={"title": {"text": words}}, yaxis={"title": {"text": "nodes"}}, bargap=0.05)
    return figure
