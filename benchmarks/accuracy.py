"""The paper's data sets with ten nodes: accuracy of the worst node and time, beside LIBLINEAR."""

import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from benchmarks.common import Table, publish_tables, ratio, seconds_of
from benchmarks.gaps import SETS, absent
from gadget_svm import GadgetSVC, load_dataset

METHODS = {"gadget (persistent mass)": "gadget", "auto": "auto"}


def main(quick: bool = False) -> None:
    """Train on every data set that is on this machine, with the paper's lambda and no intercept."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    table, missing = Table(
        ["data", "method", "worst node, test accuracy, %", "objective", "iterations", "learning, s", "fit, s",
         "learning, ratio to LIBLINEAR's fit", "fit, ratio to LIBLINEAR's"]
    ), list[str]()  # fmt: skip
    for name in SETS[:1] if quick else SETS:
        try:
            _measure(table, name, load_dataset(name, download=False))
        except FileNotFoundError:
            missing.append(name)
    notes = [
        "Ten nodes, random 4-regular graph, the paper's lambda, no intercept, all other settings at their defaults. "
        "The objective is that of the worst node. LIBLINEAR is scikit-learn's LinearSVC on all rows, at its defaults. "
        "Learning is all nodes together. `fit` also checks its input, deals rows, and records the history, which "
        "evaluates the models of all nodes on all rows. LIBLINEAR's time is that of `fit`. The quicker of two runs.",
        *absent(missing),
    ]
    publish_tables("accuracy", "The paper's data sets", notes, [table], None, quick)


def _measure(table: Table, name: str, d: Any) -> None:
    central = LinearSVC(loss="hinge", C=1 / (d.lam * d.X.shape[0]), fit_intercept=False, random_state=0)
    reference = min(seconds_of(central.fit, d.X, d.y)[0] for _ in range(2))
    for title, algorithm in METHODS.items():
        model = GadgetSVC(n_nodes=10, lam=d.lam, algorithm=algorithm, fit_intercept=False, random_state=0)
        runs = [(seconds_of(model.fit, d.X, d.y)[0], model.history_[-1]["seconds"]) for _ in range(2)]
        whole, took = (min(times) for times in zip(*runs, strict=True))  # the first run may load kernels
        worst = 100 * min(model.node(i).score(d.X_test, d.y_test) for i in range(10))
        objective = model.history_[-1]["worst_objective"]
        table.add(name, title, round(worst, 2), objective, model.n_iter_, took, whole, ratio(took, reference),
                  ratio(whole, reference))  # fmt: skip
    pooled = round(100 * central.score(d.X_test, d.y_test), 2)
    table.add(name, "LIBLINEAR, pooled", pooled, None, int(central.n_iter_), None, reference, None, 1.0)


if __name__ == "__main__":
    main()
