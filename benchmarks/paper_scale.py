"""The paper's scale: generated rows of the shapes of CCAT and Webspam, time to 1 % and peak memory beside LinearSVC.

Every measurement runs in a process of its own that reads the rows from disk.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.common import NOT_REACHED, Table, bars, publish_tables, ratio, say
from benchmarks.fresh import in_fresh_process
from benchmarks.gaps import NODES, Task, percent, timed, watched
from benchmarks.peers import LINEAR, best_settings, clocked
from gadget_svm import GadgetSVC
from gadget_svm.algorithms import Pdmm
from gadget_svm.reproduction.baselines.optimum import certified_optimum

SHAPES = {"CCAT": (781_265, 47_236, 76, 1e-4), "Webspam": (234_500, 254, 85, 1e-5)}
"""Rows, features, non-zeros a row and lambda. The paper gives no density for Webspam: 85 is that of a real sample."""
TARGET = 1e-2
NEIGHBOURS: dict[str, Any] = {"pdmm, one neighbour": 1, "pdmm, all neighbours": "all"}
COLUMNS = [
    "shape", "method", "setting", f"wall to {percent(TARGET)}, s", "CPU, s", "peak memory, MiB", "CSR data, MiB",
    "whole fit, s", "memory, ratio to the data", "whole fit, ratio to LinearSVC", "time, ratio to LinearSVC",
]  # fmt: skip


def main(quick: bool = False) -> None:
    """Both shapes; a part of the rows of the first for a quick look."""
    table, notes = Table(COLUMNS), []
    for name, (rows, features, per_row, lam) in list(SHAPES.items())[: 1 if quick else None]:
        with tempfile.TemporaryDirectory() as folder:
            rows = rows // 200 if quick else rows
            say(f"paper_scale: generating {name}, {rows:,} x {features:,}")
            save_rows(Path(folder), *zipf_rows(rows, features, per_row))
            notes.append(_measure(table, name, folder, lam, quick))
    publish_tables(
        "paper_scale", "The paper's scale", [
            f"Generated rows: features drawn by Zipf's law, a sparse true model, 5 % of labels turned. {NODES} nodes, "
            "random 4-regular graph, no bias. The gap is above the best dual bound, which is never above F*. Memory is "
            "the peak above the imports in a process that reads the rows and trains, rows included. The clock is on "
            "while the nodes learn, each from rows that it has. The whole `fit` of the estimator is that and checking "
            "the input and dealing it to the nodes; LinearSVC's time is that of its `fit`. The quicker of two runs.",
            "", *notes,
        ], [table], lambda figure: _draw(figure, table), quick,
    )  # fmt: skip


def _measure(table: Table, name: str, folder: str, lam: float, quick: bool) -> str:
    where: dict[str, Any] = {"folder": folder, "lam": lam}
    say(f"paper_scale: {name}, dual bound")
    best = in_fresh_process("benchmarks.paper_scale:certify", **where, seconds=5 if quick else 240)
    csr, bound = best["csr"], best["bound"]
    say(f"paper_scale: {name}, LinearSVC")
    central = in_fresh_process("benchmarks.paper_scale:linear", **where, bound=bound, repeats=2)
    peak = in_fresh_process("benchmarks.paper_scale:linear_memory", **where, place=central["place"])["used"]
    wall = central["wall"]
    table.add(name, LINEAR.name, central["setting"], wall, central["cpu"], peak / 2**20, csr / 2**20, wall,
              peak / csr, ratio(wall, wall), ratio(wall, wall))  # fmt: skip
    for method, neighbours in list(NEIGHBOURS.items())[1 if quick else 0 :]:
        say(f"paper_scale: {name}, {method}")
        got = in_fresh_process("benchmarks.paper_scale:gossip", **where, bound=bound, neighbours=neighbours)
        peak = in_fresh_process(
            "benchmarks.paper_scale:gossip_memory", **where, neighbours=neighbours, ticks=got["ticks"] or 20
        )["used"]
        table.add(name, method, got["setting"], got["wall"], got["cpu"], peak / 2**20, csr / 2**20, got["fit"],
                  peak / csr, ratio(got["fit"], wall), ratio(got["wall"], wall))  # fmt: skip
    return (
        f"- {name}: {best['rows']:,} x {best['features']:,}, {best['nnz']:,} non-zeros, lambda {lam:g}; F* is at least "
        f"{bound:.6g} and at most {percent(best['objective'] / bound - 1)} more."
    )


def zipf_rows(rows: int, features: int, per_row: int, seed: int = 0) -> tuple[sp.csr_matrix, np.ndarray]:
    """Rows of length one with exactly so many distinct features, drawn by Zipf's law, rarer ones heavier.

    One draw in each of ``per_row`` equal parts of the law's distribution: they come out sorted, and where two fall on
    one feature the second goes on to the next. Some neighbouring features are pairs of which rows of one class rather
    have the first and rows of the other the second: the true model. In the end 5 % of the labels are turned.
    """
    rng = np.random.default_rng(seed)
    wide = features > 1000
    chance = 1.0 / np.arange(1, features + 1) ** (1.0 if wide else 0.3)
    law, weight = np.cumsum(chance / chance.sum()), np.log(1 + chance.sum() / chance)
    telling = np.repeat(rng.random(-(-features // 2)) < 0.2, 2)[:features]
    telling[features - features % 2 :] = False
    indices, data = np.empty((rows, per_row), np.int32), np.empty((rows, per_row))
    label, step, swayed = rng.choice([-1, 1], rows), np.arange(per_row), 0.85 if wide else 0.3
    for first in range(0, rows, 20_000):
        part = slice(first, min(first + 20_000, rows))
        drawn = np.searchsorted(law, (step + rng.random((part.stop - first, per_row))) / per_row)
        sway = telling[drawn] & (rng.random(drawn.shape) < swayed)
        drawn = np.where(sway, drawn // 2 * 2 + (label[part, None] > 0), drawn)
        drawn = np.minimum(np.maximum.accumulate(drawn - step, axis=1), features - per_row) + step
        value = weight[drawn] * (0.5 + rng.random(drawn.shape))
        indices[part], data[part] = drawn, value / np.linalg.norm(value, axis=1)[:, None]
    indptr = np.arange(0, rows * per_row + 1, per_row, dtype=np.int32)
    label = np.where(rng.random(rows) < 0.05, -label, label)
    return sp.csr_matrix((data.ravel(), indices.ravel(), indptr), shape=(rows, features)), label


def save_rows(folder: Path, X: sp.csr_matrix, y: np.ndarray) -> None:
    """Write rows to disk, for other processes."""
    for name in ("data", "indices", "indptr"):
        np.save(folder / f"{name}.npy", getattr(X, name))
    np.save(folder / "y.npy", y)
    np.save(folder / "shape.npy", X.shape)


def load_rows(folder: str) -> tuple[sp.csr_matrix, np.ndarray]:
    """Read what `save_rows` wrote."""
    data, indices, indptr, y, shape = (
        np.load(Path(folder) / f"{name}.npy") for name in ("data", "indices", "indptr", "y", "shape")
    )
    return sp.csr_matrix((data, indices, indptr), shape=tuple(shape)), y


def certify(folder: str, lam: float, seconds: float) -> dict[str, Any]:
    """The best dual bound within the time."""
    X, y = load_rows(folder)
    found = certified_optimum(X, y, lam, 1e-4, max_seconds=seconds)
    return {
        "bound": found.bound, "objective": found.objective, "csr": X.data.nbytes + X.indices.nbytes + X.indptr.nbytes,
        "rows": X.shape[0], "features": X.shape[1], "nnz": int(X.nnz),
    }  # fmt: skip


def linear(folder: str, lam: float, bound: float, repeats: int) -> dict[str, Any]:
    """LinearSVC's quickest setting to the target."""
    task = Task("", *load_rows(folder), lam, bound)
    found = best_settings(
        LINEAR, task.X, task.y, lam, lambda w: float(task.gaps(w[None])[0]), [TARGET], 300.0, repeats
    ).get(TARGET)
    if found is None:
        return {"setting": NOT_REACHED, "wall": None, "cpu": None, "place": [0, 0]}
    tries = [(i, j) for i, chain in enumerate(LINEAR.chains()) for j, one in enumerate(chain)
             if one.setting == found.setting]  # fmt: skip
    return {"setting": found.setting, "wall": found.wall, "cpu": found.cpu, "place": tries[0]}


def linear_memory(folder: str, lam: float, place: list[int]) -> dict[str, Any]:
    """That setting alone."""
    chain, one = place
    clocked(list(LINEAR.chains())[chain][one].solve, *load_rows(folder), lam)
    return {}


def gossip(folder: str, lam: float, bound: float, neighbours: Any) -> dict[str, Any]:
    """PDMM's ticks to the target, and a run of as many by the clock."""
    task = Task("", *load_rows(folder), lam, bound)
    curve = watched(task, Pdmm(neighbours=neighbours), TARGET, 2000, 600)
    place = curve.first(TARGET)
    if place is None:
        words = f"{NOT_REACHED} in {curve.ticks[-1]} ticks ({percent(min(curve.gaps))})"
        return {"ticks": None, "setting": words, "wall": None, "cpu": None, "fit": None}
    ticks = curve.ticks[place]
    wall, cpu = timed(task, Pdmm(neighbours=neighbours), ticks, repeats=2)
    fit = min(_fitted(task.X, task.y, lam, neighbours, ticks) for _ in range(2))
    return {"ticks": ticks, "setting": f"{ticks} ticks", "wall": wall, "cpu": cpu, "fit": fit}


def gossip_memory(folder: str, lam: float, neighbours: Any, ticks: int) -> dict[str, Any]:
    """The same by the estimator, as a user would."""
    _fitted(*load_rows(folder), lam, neighbours, ticks)
    return {}


def _fitted(X: sp.csr_matrix, y: np.ndarray, lam: float, neighbours: Any, ticks: int) -> float:
    """Seconds of the estimator's whole fit."""
    model = GadgetSVC(
        n_nodes=NODES, lam=lam, algorithm=Pdmm(neighbours=neighbours), fit_intercept=False, stopping=None,
        max_iter=ticks, record_every=0, random_state=0,
    )  # fmt: skip
    started = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - started


def _draw(figure: Any, table: Table) -> None:
    names = [f"{row[0]}\n{row[1]}" for row in table.rows]
    colours = ["grey" if row[1] == LINEAR.name else "tab:blue" for row in table.rows]
    for axis, column, limit in zip(
        figure.subplots(1, 2, sharey=True),
        ("time, ratio to LinearSVC", "memory, ratio to the data"),
        (2, 2.5),
        strict=True,
    ):
        bars(axis, names, [value or 0 for value in table.column(column)], limit, colours, column)


if __name__ == "__main__":
    main()
