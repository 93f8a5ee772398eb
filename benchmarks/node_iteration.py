"""Microseconds per node-iteration of GADGET (persistent mass): one example, one exchange, ten nodes, Adult."""

from collections.abc import Callable
from typing import Any

from sklearn.linear_model import SGDClassifier

from benchmarks.common import Table, named, problem_of, publish_tables, ratio, runtime_of, seconds_of
from gadget_svm.algorithms import Gadget
from gadget_svm.core.messages import Delivery
from gadget_svm.simulation.engine import LocalRuntime
from gadget_svm.topologies import build

NODES, ITERATIONS, REPEATS = 10, 50_000, 5
AUTHORS_US = 90.0
"""A training step of the authors' Java code of 2018, on a machine like this one, in microseconds."""


def main(quick: bool = False) -> None:
    """Time it, beside scikit-learn's SGD on the same rows in the same run."""
    X, y, lam, note = named("adult")
    iterations = ITERATIONS // 10 if quick else ITERATIONS
    problem, network = problem_of(X, y, NODES), build("random-regular", NODES)
    run = Gadget().bind(network, lam, lam**-0.5)

    def fresh(exchange: Any = None) -> LocalRuntime:
        return runtime_of(problem, network, run, threads=1, exchange=exchange)

    fused = best(lambda: fresh().advance(iterations), lambda: fresh().advance(2)) / (NODES * iterations)
    steps = best(lambda: fresh(Delivery).advance(iterations // 10), lambda: fresh(Delivery).advance(2))
    stepwise = steps / (NODES * iterations // 10)
    sgd = best(lambda: SGDClassifier(alpha=lam, max_iter=5, tol=None, average=True).fit(X, y)) / (5 * X.shape[0])
    table = Table(["method", "us per node-iteration", "ratio to SGDClassifier"])
    for what, seconds in {
        "GADGET, fused iterations (the default of `fit`)": fused,
        "GADGET, messages handed over by Python in each round (with faults)": stepwise,
        "scikit-learn SGDClassifier, averaged, one example (no gossip)": sgd,
    }.items():
        table.add(what, 1e6 * seconds, ratio(seconds, sgd))
    table.add("the authors' code (measured apart, November 2026)", AUTHORS_US, None)
    notes = [f"{note}. One thread, its CPU time, best of {REPEATS}."]
    publish_tables("node_iteration", "Time of a node-iteration", notes, [table], None, quick)


def best(work: Callable[[], Any], warm_up: Callable[[], Any] | None = None) -> float:
    """Return the least CPU seconds of some runs, after a warm-up that compiles."""
    (warm_up or work)()
    return min(seconds_of(work)[1] for _ in range(REPEATS))


if __name__ == "__main__":
    main()
