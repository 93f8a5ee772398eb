"""Shared by all benchmarks: data of the right shape, clocks, tables, figures, and where results go."""

import csv
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.network import Network
from gadget_svm.data.partition import partition_evenly
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem
from gadget_svm.kernels import ThreadTeam
from gadget_svm.report.machine import machine
from gadget_svm.simulation.engine import LocalRuntime

RESULTS = Path(__file__).parent / "results"
NOT_REACHED = "not reached"
STARTED = time.perf_counter()


def named(name: str) -> tuple[sp.csr_matrix, np.ndarray, float, str]:
    """Return a data set by name, or generated data of its shape if it is not on this machine; the text says which."""
    from gadget_svm.data import load_dataset
    from gadget_svm.data.catalog import ENTRIES

    entry = ENTRIES[name]
    try:
        d = load_dataset(name, download=False)
        return d.X, d.y, float(entry.lam or 1e-4), d.note
    except FileNotFoundError:
        shape = {"adult": (32561, 123, 14), "ccat": (13823, 47236, 76)}[name]
        X, y = generated(*shape)
        return X, y, float(entry.lam or 1e-4), f"generated data of the shape {shape[0]} x {shape[1]}, {shape[2]} a row"


def generated(rows: int, features: int, per_row: int, seed: int = 0) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return sparse rows of length one whose labels follow a random plane, with some noise."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, features, size=rows * per_row)
    data = np.full(rows * per_row, per_row**-0.5)
    X = sp.csr_matrix((data, indices.astype(np.int32), np.arange(rows + 1, dtype=np.int32) * per_row), (rows, features))
    X.sum_duplicates()
    score = X @ rng.normal(size=features) + 0.3 * rng.normal(size=rows)
    return X, np.where(score > 0, 1, -1)


def problem_of(X: Any, y: np.ndarray, nodes: int, shares: Any = None, seed: int = 0) -> Problem:
    """Return the problem of so many nodes, with rows dealt evenly unless ``shares`` are given."""
    label = (y > 0).astype(np.int32)
    shares = partition_evenly(X, label, nodes, seed) if shares is None else shares
    return Problem(X, label, None, shares, list(range(nodes)), 1)


def runtime_of(
    problem: Problem, network: Network, run: Any, seed: int = 0, threads: int | None = None, exchange: Any = None
) -> LocalRuntime:
    """Return nodes at their start, in one block, on all threads unless told."""
    return LocalRuntime(run, make_blocks(problem, network, seed, 1, ThreadTeam.of(threads)), exchange)


def seconds_of(work: Callable[..., Any], *arguments: Any) -> tuple[float, float]:
    """Return the wall and CPU seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work(*arguments)
    return time.perf_counter() - wall, time.process_time() - cpu


def quickest(run: Callable[[], tuple[float, float]], least: int = 3) -> tuple[float, float]:
    """Return wall and CPU seconds of the quickest of ``least`` runs, or of as many as fit into a second, up to 25."""
    took = [run() for _ in range(least)]
    while len(took) < 25 and sum(wall for wall, _ in took) < 1.0:
        took.append(run())
    return min(took)


def say(text: str) -> None:
    """Print a line of progress to stderr."""
    print(f"{time.perf_counter() - STARTED:6.0f} s  {text}", file=sys.stderr, flush=True)


@dataclass
class Table:
    """Columns and rows as measured; the last column is a ratio to a peer measured in the same run."""

    columns: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    name: str = ""  # of one of several tables: added to the file's name
    title: str = ""

    def add(self, *row: Any) -> None:
        """Add a row, which must be as long as the head."""
        if len(row) != len(self.columns):
            raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)} columns: {row}")
        self.rows.append(row)

    def column(self, name: str) -> list[Any]:
        """Return all entries of one column."""
        place = list(self.columns).index(name)
        return [row[place] for row in self.rows]

    def markdown(self) -> list[str]:
        """Return the lines of a Markdown table."""
        head = [f"## {self.title}", ""] if self.title else []
        body = ["| " + " | ".join(shown(cell) for cell in row) + " |" for row in self.rows]
        return [*head, "| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns), *body, ""]


def shown(value: Any) -> str:
    """Return a cell as text: three digits of a measured number, all of a count."""
    if value is None:
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int | np.integer) and not isinstance(value, bool) else str(value)


def ratio(mine: float | None, peer: float | None) -> float | None:
    """Return mine as a multiple of the peer's; None if one of them is missing."""
    return None if not mine or not peer else mine / peer


def style(axis: Any, grid: str = "both", **properties: Any) -> None:
    """Set an axis' properties, its grid, and a legend if there are labels."""
    axis.set(**properties)
    axis.grid(axis=grid, alpha=0.3)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=7)


def bars(axis: Any, names: Sequence[str], values: Sequence[float], limit: float, colours: Any, label: str) -> None:
    """Draw horizontal bars, the first on top, and a dashed line at the limit that is asked for."""
    axis.barh(names, values, color=colours)
    axis.axvline(limit, color="black", linestyle="--", linewidth=1)
    axis.tick_params(labelsize=7)
    axis.yaxis.set_inverted(True)
    style(axis, "x", xlabel=label)


def publish_tables(
    name: str, title: str, notes: Sequence[str], tables: Sequence[Table], draw: Callable[[Any], None] | None = None,
    quick: bool = False, size: tuple[float, float] = (10.0, 4.2),
) -> None:  # fmt: skip
    """Print the tables and write them as text, as CSV, and as a plot that ``draw`` makes on a matplotlib figure."""
    folder = RESULTS / "quick" if quick else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        _write_csv(folder / f"{name}{'_' + table.name if table.name else ''}.csv", table)
    lines = [*notes, ""] + [line for table in tables for line in table.markdown()]
    if draw is not None:
        lines.append(_plot(folder / f"{name}.png", title, draw, size))
    made = f"{date.today().isoformat()}, {machine()}. Made by `make {'bench-quick' if quick else 'bench'}`."
    text = "\n".join([f"# {title}", "", made, "", *lines, ""])
    (folder / f"{name}.md").write_text(text)
    print(text, flush=True)


def _write_csv(path: Path, table: Table) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*table.columns, "date", "machine"])
        writer.writerows([*row, date.today().isoformat(), machine()] for row in table.rows)


def _plot(path: Path, title: str, draw: Callable[[Any], None], size: tuple[float, float]) -> str:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "No plot: it needs matplotlib (pip install '.[paper]')."
    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    figure.savefig(path, dpi=120)
    return f"![{title}]({path.name})"
