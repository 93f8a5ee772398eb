"""The first fit of a process, with compiled kernels on disk; and of a fresh installation, which has none."""

import os
import tempfile
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.common import Table, publish_tables, ratio
from benchmarks.fresh import in_fresh_process
from gadget_svm import GadgetSVC, load_dataset

PROCESSES = 5
ROWS = {"digits": "as `load_dataset` gives them", "digits, raw": "as scikit-learn gives them"}
STEPS = {
    "fit": "first default fit", "again": "the same again", "partial_fit": "first partial_fit",
    "fault": "first fit with faults='churn'",
}  # fmt: skip
METHODS = {"GadgetSVC()": "gossip", "LinearSVC(loss='hinge')": "central"}


def main(quick: bool = False) -> None:
    """Each in processes of its own, of which the quickest counts and the slowest is told."""
    table = Table(["rows", "method", "first fit, s", "the slowest, s", "second fit, s", "ratio to LinearSVC"])
    in_fresh_process("benchmarks.first_fit:timed", rows="digits", method="gossip")  # which leaves kernels on disk
    for rows in list(ROWS)[: 1 if quick else None]:
        measured: dict[str, list[dict[str, Any]]] = {
            method: [
                in_fresh_process("benchmarks.first_fit:timed", rows=rows, method=method)
                for _ in range(2 if quick else PROCESSES)
            ]
            for method in METHODS.values()
        }
        central = min(run["first"] for run in measured["central"])
        for name, method in METHODS.items():
            first = [run["first"] for run in measured[method]]
            second = min(run["second"] for run in measured[method])
            table.add(rows, name, min(first), max(first), second, ratio(min(first), central))
    notes = [
        f"A fresh process a run, {2 if quick else PROCESSES} runs; the clock begins after the imports and the loading "
        "of the rows: " + "; ".join(f"{rows} {how}" for rows, how in ROWS.items()) + ". Ten classes, all settings at "
        "their defaults, so ten nodes, and ten classifiers that stop when they are certified.",
    ]
    empty = Table(["after an empty cache", "CPU s of the whole process", "of which imports and data"])
    with tempfile.TemporaryDirectory() as folder:
        for step, name in enumerate(STEPS):
            took = in_fresh_process("benchmarks.first_fit:compiling", folder=folder, step=name)
            empty.add(f"{step + 1}. {STEPS[name]}", took["total"], took["imports"])
    notes.append(
        "The second table: one process after another with one cache directory, empty at first, on digits. What an "
        "earlier process has compiled is not compiled again."
    )
    publish_tables("first_fit", "The first fit of a process", notes, [table, empty], None, quick)


def compiling(folder: str, step: str) -> dict[str, Any]:
    """CPU seconds since the start of this process, after the imports and in all."""
    os.environ["NUMBA_CACHE_DIR"] = folder  # read when the first kernel is called
    warnings.simplefilter("ignore")
    data, model = load_dataset("digits"), GadgetSVC(random_state=0)
    imports = time.process_time()
    if step == "partial_fit":
        model.partial_fit(data.X, data.y, classes=np.unique(data.y))
    else:
        model.set_params(faults="churn" if step == "fault" else None).fit(data.X, data.y)
    return {"total": time.process_time(), "imports": imports}


def timed(rows: str, method: str) -> dict[str, Any]:
    """Seconds of the first and of the second fit."""
    from sklearn.datasets import load_digits
    from sklearn.svm import LinearSVC

    warnings.simplefilter("ignore")  # of what has not converged: it is as it comes
    if rows == "digits":
        data = load_dataset("digits")
        X, y = data.X, data.y
    else:
        X, y = load_digits(return_X_y=True)
    seconds = []
    for _ in range(2):
        model = GadgetSVC(random_state=0) if method == "gossip" else LinearSVC(loss="hinge", random_state=0)
        started = time.perf_counter()
        model.fit(X, y)
        seconds.append(time.perf_counter() - started)
    return {"first": seconds[0], "second": seconds[1]}


if __name__ == "__main__":
    main()
