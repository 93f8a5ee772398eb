"""Microseconds a node-iteration of faithful GADGET takes: one example, one Push-Sum round, ten nodes, Adult."""

import time

import numpy as np
from sklearn.linear_model import SGDClassifier

from benchmarks.common import named, publish
from gadget_svm.algorithms import Gadget
from gadget_svm.core.messages import Delivery
from gadget_svm.data.partition import partition_evenly
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation.engine import LocalRuntime
from gadget_svm.topologies import build

NODES, ITERATIONS, REPEATS = 10, 50_000, 5
AUTHORS = 90.0  # microseconds of training a step, the authors' Java code of 2018 on a machine like this one


def main(quick: bool = False) -> None:
    """Time it, beside scikit-learn's SGD on the same rows in the same run."""
    X, y, lam, note = named("adult")
    iterations = ITERATIONS // 10 if quick else ITERATIONS
    label = (y > 0).astype(np.int32)
    shares = partition_evenly(X, label, NODES, 0)
    problem = Problem(X, label, np.ones(len(y)), None, shares, list(range(NODES)), 1)
    network = build("random-regular", NODES)
    run = Gadget().bind(network, lam, lam**-0.5)

    def fresh(exchange: object = None) -> LocalRuntime:
        return LocalRuntime(run, make_blocks(problem, network, 0, 1, ThreadTeam(1)), exchange)  # type: ignore[arg-type]

    advance_fused = best(lambda: fresh().advance(iterations), lambda: fresh().advance(2)) / (NODES * iterations)
    steps = best(lambda: fresh(Delivery).advance(iterations // 10), lambda: fresh(Delivery).advance(2))
    stepwise = steps / (NODES * iterations // 10)
    sgd = best(lambda: SGDClassifier(alpha=lam, max_iter=5, tol=None, average=True).fit(X, y)) / (5 * X.shape[0])
    rows = [
        ("GADGET, compiled leaps (what `fit` uses)", advance_fused),
        ("GADGET, mail handed over by Python each round (what faults see)", stepwise),
        ("scikit-learn SGDClassifier, averaged, one example (no gossip)", sgd),
    ]
    lines = [
        f"{note}. One thread, its own time, best of {REPEATS}.",
        "",
        "| | us per node-iteration | ratio to SGDClassifier |",
        "|---|---|---|",
    ]
    lines += [f"| {what} | {1e6 * seconds:.2f} | {seconds / sgd:.1f} |" for what, seconds in rows]
    lines += [f"| the authors' code (measured apart, November 2026) | {AUTHORS:.0f} | |"]
    publish(
        "node_iteration", "Time of a node-iteration", lines,
        {"leap_us": 1e6 * advance_fused, "stepwise_us": 1e6 * stepwise, "sgd_us": 1e6 * sgd, "authors_us": AUTHORS},
        quick,
    )  # fmt: skip


def best(work: object, warm_up: object = None) -> float:
    """The shortest of some runs, after a warm-up that compiles."""
    (warm_up or work)()  # type: ignore[operator]
    times = []
    for _ in range(REPEATS):
        started = time.process_time()  # one thread: its own time, whatever else the machine does
        work()  # type: ignore[operator]
        times.append(time.process_time() - started)
    return min(times)


if __name__ == "__main__":
    main()
