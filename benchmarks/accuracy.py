"""The paper's data sets with ten nodes: what the worst node classifies and how long it takes, beside LIBLINEAR."""

import time
import warnings
from collections.abc import Callable
from typing import Any

from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from benchmarks.common import publish
from gadget_svm import GadgetSVC, load_dataset

SETS = ("adult", "reuters", "ccat", "usps", "mnist")
METHODS = {"gadget, as the paper prints it": "gadget", "auto": "auto"}


def main(quick: bool = False) -> None:
    """Train on every data set that is on this machine, with the paper's lambda and no intercept."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    lines = [
        "Ten nodes, random 4-regular graph, the paper's lambda, no intercept, all other settings at their defaults.",
        "The objective is that of the worst node. LIBLINEAR is scikit-learn's LinearSVC on all rows, at its defaults.",
        "Learning is all nodes together. `fit` has also the checks of its input, dealing rows, and the history, for",
        "which the models of all nodes are tried on all rows. LIBLINEAR's time is that of `fit`. The quicker of two.",
        "",
        "| data | method | worst node, test accuracy | objective | iterations | learning, s | `fit`, s "
        "| `fit`, ratio to LIBLINEAR's | learning, ratio to LIBLINEAR's `fit` |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    figures = {}
    for name in SETS[:1] if quick else SETS:
        try:
            d = load_dataset(name, download=False)
        except FileNotFoundError:
            lines.append(f"| {name} | not on this machine | | | | | | | |")
            continue
        central = LinearSVC(loss="hinge", C=1 / (d.lam * d.X.shape[0]), fit_intercept=False, random_state=0)
        reference = min(_seconds(lambda central=central, d=d: central.fit(d.X, d.y)) for _ in range(2))
        accuracy = central.score(d.X_test, d.y_test)
        for title, algorithm in METHODS.items():
            model = GadgetSVC(n_nodes=10, lam=d.lam, algorithm=algorithm, fit_intercept=False, random_state=0)
            runs = [
                (_seconds(lambda model=model, d=d: model.fit(d.X, d.y)), model.history_[-1]["seconds"])
                for _ in range(2)
            ]  # the first may load kernels
            whole, took = (min(times) for times in zip(*runs, strict=True))
            worst, last = min(model.node(i).score(d.X_test, d.y_test) for i in range(10)), model.history_[-1]
            lines.append(
                f"| {name} | {title} | {100 * worst:.2f} % | {last['worst_objective']:.4f} | {model.n_iter_} "
                f"| {took:.2f} | {whole:.2f} | {whole / reference:.1f} | {took / reference:.1f} |"
            )
            figures[f"{name} {algorithm}"] = {"worst_accuracy": worst, **last}
        lines.append(
            f"| {name} | LIBLINEAR, pooled | {100 * accuracy:.2f} % | | {central.n_iter_} | | {reference:.2f} | 1 | |"
        )
    publish("accuracy", "The paper's data sets", lines, figures, quick)


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
