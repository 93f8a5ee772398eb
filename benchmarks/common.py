"""What every benchmark needs: data of the right shape, tables, and where results go."""

import csv
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gadget_svm.report.machine import machine

RESULTS = Path(__file__).parent / "results"
ABSENT = "not reached"
BEGUN = time.perf_counter()


def named(name: str) -> tuple[sp.csr_matrix, np.ndarray, float, str]:
    """A data set by name, or generated data of its shape where it is not on this machine; the last says which."""
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
    """Sparse rows of length one whose labels follow a random plane, with some noise."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, features, size=rows * per_row)
    data = np.full(rows * per_row, per_row**-0.5)
    X = sp.csr_matrix((data, indices.astype(np.int32), np.arange(rows + 1, dtype=np.int32) * per_row), (rows, features))
    X.sum_duplicates()
    score = X @ rng.normal(size=features) + 0.3 * rng.normal(size=rows)
    return X, np.where(score > 0, 1, -1)


def quickest(run: Callable[[], tuple[float, float]], least: int = 3) -> tuple[float, float]:
    """Wall and CPU seconds of the quickest run: of ``least`` ones, and of as many as fit into a second, up to 25."""
    took = [run() for _ in range(least)]
    while len(took) < 25 and sum(wall for wall, _ in took) < 1.0:
        took.append(run())
    return min(took)


def say(words: str) -> None:
    """A line of progress, beside the results."""
    print(f"{time.perf_counter() - BEGUN:6.0f} s  {words}", file=sys.stderr, flush=True)


@dataclass
class Table:
    """Columns and rows as measured; the last column is a ratio to a peer measured in the same run."""

    columns: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    name: str = ""  # where a benchmark has several: added to the file's name
    title: str = ""

    def add(self, *row: Any) -> None:
        """One more row, which must be as long as the head."""
        if len(row) != len(self.columns):
            raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)} columns: {row}")
        self.rows.append(row)

    def column(self, name: str) -> list[Any]:
        """All entries of one column."""
        place = list(self.columns).index(name)
        return [row[place] for row in self.rows]

    def markdown(self) -> list[str]:
        """As lines of a document."""
        head = [f"## {self.title}", ""] if self.title else []
        body = ["| " + " | ".join(shown(cell) for cell in row) + " |" for row in self.rows]
        return [*head, "| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns), *body, ""]


def shown(value: Any) -> str:
    """A cell as people read it: three digits of a number that was measured, all of a count."""
    if value is None:
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int | np.integer) and not isinstance(value, bool) else str(value)


def ratio(mine: float | None, peer: float | None) -> float | None:
    """Mine as a multiple of the peer's; nothing where one of them is missing."""
    return None if not mine or not peer else mine / peer


def publish(name: str, title: str, lines: list[str], figures: dict[str, Any], quick: bool = False) -> None:
    """Print the result, and keep it with machine and date."""
    folder = _folder(quick)
    (folder / f"{name}.json").write_text(
        json.dumps({"date": date.today().isoformat(), "machine": machine(), **figures}, indent=1) + "\n"
    )
    _write(folder / f"{name}.md", title, lines, quick)


def publish_tables(
    name: str, title: str, notes: Sequence[str], tables: Sequence[Table], draw: Callable[[Any], None] | None = None,
    quick: bool = False, size: tuple[float, float] = (10.0, 4.2),
) -> None:  # fmt: skip
    """Print the tables and keep them as text, as CSV, and as a plot that ``draw`` makes on a figure of matplotlib's."""
    folder = _folder(quick)
    for table in tables:
        _write_csv(folder / f"{name}{'_' + table.name if table.name else ''}.csv", table)
    lines = [*notes, ""] + [line for table in tables for line in table.markdown()]
    if draw is not None:
        lines.append(_plot(folder / f"{name}.png", title, draw, size))
    _write(folder / f"{name}.md", title, lines, quick)


def _folder(quick: bool) -> Path:
    folder = RESULTS / "quick" if quick else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(path: Path, title: str, lines: list[str], quick: bool) -> None:
    made = "make bench-quick" if quick else "make bench"
    text = "\n".join([f"# {title}", "", f"{date.today().isoformat()}, {machine()}. Made by `{made}`.", "", *lines, ""])
    path.write_text(text)
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
        return "No plot: it takes matplotlib (pip install '.[paper]')."
    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    figure.savefig(path, dpi=120)
    return f"![{title}]({path.name})"
