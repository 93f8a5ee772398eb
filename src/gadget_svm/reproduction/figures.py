"""Draws the figures as PNG and PDF: objective and zero-one error against training time, and the study of networks.

matplotlib is imported on use.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gadget_svm.core.extras import require

Rows = Sequence[dict[str, Any]]
COLOURS = {"gadget": "#0b62a4", "pegasos": "#c44e00"}
TITLES = {"gadget": "GADGET (persistent mass), each node", "pegasos": "Pegasos, all rows"}


def pyplot() -> Any:
    """Return matplotlib.pyplot without a display; if it is missing, the error says what to install."""
    require("matplotlib", "figures need", "paper").use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False,
                         "axes.spines.right": False, "figure.dpi": 150})  # fmt: skip
    return plt


def curves(path: Path, title: str, traces: dict[str, Sequence[Any]], optimum: float | None) -> Path:
    """Draw two panels, objective and error: each method's mean over nodes as a line, its range as a band."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.0, 2.7), constrained_layout=True)
    for method, trace in traces.items():
        seconds = np.array([point[0] for point in trace])
        for axis, values in ((left, [point[2] for point in trace]), (right, [point[3] for point in trace])):
            table = np.array(values) * (1.0 if axis is left else 100.0)
            axis.plot(seconds, table.mean(axis=1), color=COLOURS[method], label=TITLES[method])
            axis.fill_between(seconds, table.min(axis=1), table.max(axis=1), color=COLOURS[method], alpha=0.2, lw=0)
    if optimum is not None:
        left.axhline(optimum, color="#555", ls="--", lw=1, label="optimum (LIBLINEAR)")
    left.set(xscale="log", yscale="log", xlabel="training time per node (s)", ylabel="objective F(w), all rows")
    right.set(xscale="log", yscale="log", xlabel="training time per node (s)", ylabel="zero-one test error (%)")
    left.legend(frameon=False, fontsize=8)
    for axis in (left, right):
        _plain_ticks(plt, axis.yaxis, axis.get_ylim())
    figure.suptitle(title, fontsize=10)
    return _saved(plt, figure, path)


def _plain_ticks(plt: Any, side: Any, limits: tuple[float, float]) -> None:
    """Put ticks at 1, 2 and 5 of every decade, as plain numbers, so that a short logarithmic axis has some too."""
    ticker = plt.matplotlib.ticker
    side.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0) if limits[1] / limits[0] < 1e3 else (1.0,)))
    side.set_major_formatter(ticker.FormatStrFormatter("%g"))
    side.set_minor_formatter(ticker.NullFormatter())


def network_panels(path: Path, rows: Rows) -> Path:
    """Draw disagreement by graph, and the worst node by number of nodes, lost messages and crashed nodes."""
    plt = pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(7.0, 5.4), constrained_layout=True)
    _graphs(plt, axes[0, 0], [r for r in rows if r["study"] == "topology"])
    nodes = {study: next((r["nodes"] for r in rows if r["study"] == study), 0) for study in ("loss", "crash")}
    _lines(axes[0, 1], rows, "size", "nodes", "topology", "number of nodes", "Number of nodes", log=True)
    _lines(axes[1, 0], rows, "loss", "level", "gossip", "messages lost (%)", f"Message loss, {nodes['loss']} nodes")
    _lines(axes[1, 1], rows, "crash", "level", "gossip", f"nodes that crash, of {nodes['crash']}", "Node failure")
    return _saved(plt, figure, path)


def _graphs(plt: Any, axis: Any, rows: Rows) -> None:
    """Draw a line for every graph, the best connected on top. The names are beside the axis and do not overlap."""
    graphs = sorted(rows, key=lambda r: r["spectral_gap"])
    places = range(len(graphs))
    axis.errorbar([100 * r["disagreement"] for r in graphs], places, xerr=_bars(graphs, "disagreement", 100),
                  fmt="o", ms=4, color="#0b62a4", lw=1)  # fmt: skip
    axis.set_yticks(places, [f"{r['topology']}, {r['spectral_gap']:.2g}" for r in graphs], fontsize=7)
    title = f"Topology, {graphs[0]['nodes'] if graphs else 0} nodes"
    axis.set(xscale="log", xlabel="disagreement (% of |w|)", ylabel="graph, spectral gap", title=title)
    _plain_ticks(plt, axis.xaxis, axis.get_xlim())


def _bars(rows: Rows, column: str, scale: float = 1.0) -> list[float]:
    """Return the deviations over trials, zero for a single trial. On a logarithmic axis no bar may reach zero."""
    return [min(scale * (r[f"{column}_sd"] or 0.0), 0.9 * scale * r[column]) for r in rows]


def _lines(axis: Any, rows: Rows, study: str, x: str, by: str, label: str, title: str, log: bool = False) -> None:
    chosen = [r for r in rows if r["study"] == study]
    for name in dict.fromkeys(r[by] for r in chosen):
        mine = sorted((r for r in chosen if r[by] == name), key=lambda r: r[x])
        axis.errorbar([r[x] for r in mine], [r["accuracy_min"] for r in mine], yerr=_bars(mine, "accuracy_min"),
                      marker="o", ms=3, lw=1.2, capsize=2, label=name)  # fmt: skip
    axis.set(xlabel=label, ylabel="worst node, test accuracy (%)", title=title)
    if log:
        axis.set_xscale("log")
    axis.legend(frameon=False, fontsize=7)


def _saved(plt: Any, figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    for file in (path, path.with_suffix(".pdf")):
        figure.savefig(file, dpi=200)
    plt.close(figure)
    return path
