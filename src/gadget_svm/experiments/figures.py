"""The paper's figures: objective and zero-one error against training time, as PNG. matplotlib is imported on use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

COLOURS = {"gadget": "#0b62a4", "pegasos": "#c44e00"}
TITLES = {"gadget": "GADGET, each node", "pegasos": "Pegasos, all rows"}


def pyplot() -> Any:
    """matplotlib without a screen; its absence says what to install."""
    try:
        import matplotlib
    except ImportError as missing:
        raise ImportError("figures need matplotlib: pip install 'gadget-svm[paper]'") from missing
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False,
                         "axes.spines.right": False, "figure.dpi": 150})  # fmt: skip
    return plt


def curves(path: Path, title: str, traces: dict[str, Sequence[Any]], optimum: float | None) -> Path:
    """Two panels, objective and error; each method's mean over nodes as a line, least to most over nodes as a band."""
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
        _plain_ticks(plt, axis)
    figure.suptitle(title, fontsize=10)
    return _saved(plt, figure, path)


def _plain_ticks(plt: Any, axis: Any) -> None:
    """1, 2 and 5 of every decade, written as plain numbers, so that a short logarithmic axis has some too."""
    ticker = plt.matplotlib.ticker
    low, high = axis.get_ylim()
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)))
    axis.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.yaxis.set_minor_formatter(ticker.NullFormatter())


def network_panels(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """What the graph, the number of nodes, lost messages and dead nodes do to the worst node's accuracy."""
    plt = pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(7.0, 5.4), constrained_layout=True)
    graphs = sorted((r for r in rows if r["study"] == "topology"), key=lambda r: r["spectral_gap"])
    axes[0, 0].scatter([r["spectral_gap"] for r in graphs], [100 * r["disagreement"] for r in graphs], color="#0b62a4")
    for r in graphs:
        axes[0, 0].annotate(r["topology"], (r["spectral_gap"], 100 * r["disagreement"]), fontsize=6,
                            xytext=(3, 3 if graphs.index(r) % 2 else -8), textcoords="offset points")  # fmt: skip
    axes[0, 0].set(xscale="log", yscale="log", xlabel="spectral gap of the graph", ylabel="disagreement (% of |w|)",
                   title="Topology, 16 nodes, one neighbour a round")  # fmt: skip
    _plain_ticks(plt, axes[0, 0])
    _lines(axes[0, 1], rows, "size", "nodes", "topology", "number of nodes", "Number of nodes", log=True)
    _lines(axes[1, 0], rows, "loss", "level", "gossip", "messages lost (%)", "Message loss, 10 nodes")
    _lines(axes[1, 1], rows, "crash", "level", "gossip", "nodes that crash, of 10", "Node failure")
    return _saved(plt, figure, path)


def _lines(
    axis: Any, rows: Sequence[dict[str, Any]], study: str, x: str, by: str, label: str, title: str, log: bool = False
) -> None:
    chosen = [r for r in rows if r["study"] == study]
    for name in dict.fromkeys(r[by] for r in chosen):
        mine = sorted((r for r in chosen if r[by] == name), key=lambda r: r[x])
        axis.plot([r[x] for r in mine], [r["accuracy_min"] for r in mine], marker="o", ms=3, label=name)
    axis.set(xlabel=label, ylabel="worst node, test accuracy (%)", title=title)
    if log:
        axis.set_xscale("log")
    axis.legend(frameon=False, fontsize=7)


def _saved(plt: Any, figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200)
    plt.close(figure)
    return path
