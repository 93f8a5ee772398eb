"""One against the rest and one against one: test accuracy, bound, CPU time and bytes, beside LinearSVC."""

import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks.common import Table, publish_tables, ratio, seconds_of
from gadget_svm import GadgetSVC

COLUMNS = [
    "data",
    "method",
    "test accuracy, %",
    "all outputs 'rest', %",
    "bound, %",
    "MB sent",
    "CPU s",
    "ratio to ovr",
]


def main(quick: bool = False) -> None:
    """Every set with both, at three values of lam."""
    warnings.simplefilter("ignore")  # of "rest", which the table shows
    table = Table(COLUMNS)
    for name, X, y in _sets(quick):
        train, test, y_train, y_test = train_test_split(X, y, random_state=0)
        scaler = StandardScaler().fit(train)
        train, test = scaler.transform(train), scaler.transform(test)
        for kind in ("ovr", "ovo"):  # compiled before the clock is read
            GadgetSVC(multi_class=kind, max_iter=2, random_state=0).fit(train, y_train)
        for lam in (1e-2,) if quick else (1e-4, 1e-3, 1e-2):
            base = None
            for kind in ("ovr", "ovo"):
                model = GadgetSVC(lam=lam, multi_class=kind, record_every=0, random_state=0)
                cpu = seconds_of(model.fit, train, y_train)[1]
                base = base or cpu
                rest = (
                    f"{100 * np.mean((model.decision_function(train) <= 0).all(axis=1)):.0f}" if kind == "ovr" else "-"
                )
                bound, sent = 100 * model.gap_bound_, model.history_[-1]["bytes"] / 1e6
                right = 100 * model.score(test, y_test)
                table.add(name, f"{kind}, lam {lam:g}", round(right, 1), rest, bound, sent, cpu, ratio(cpu, base))
        central = LinearSVC()
        cpu = seconds_of(central.fit, train, y_train)[1]
        table.add(name, "LinearSVC()", round(100 * central.score(test, y_test), 1), "-", "-", "-", cpu, "-")
    notes = [
        "Ten nodes, a random 4-regular graph, features scaled, a quarter of the rows for testing. The overlapping sets "
        "are `make_classification(5000, 40, n_informative=20, n_classes=...)`. CPU time of one whole fit.",
    ]
    publish_tables("multi_class", "One against the rest, one against one", notes, [table], None, quick)


def _sets(quick: bool) -> list[tuple[str, Any, Any]]:
    cases = [(10, 0)] if quick else [(10, 0), (10, 1), (4, 0), (3, 0)]
    sets = [
        (f"{k} overlapping classes, seed {seed}",
         *make_classification(5000, 40, n_informative=20, n_classes=k, random_state=seed))
        for k, seed in cases
    ]  # fmt: skip
    return sets if quick else [*sets, ("digits", *load_digits(return_X_y=True))]


if __name__ == "__main__":
    main()
