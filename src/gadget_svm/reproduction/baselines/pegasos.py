"""Centralised Pegasos (Shalev-Shwartz et al. 2007), and the authors' own program, which is a variant of it.

Pegasos, the baseline of the paper's Section 4, is GADGET on a network of a single node, which has no neighbour to
gossip with: the step is not implemented twice.

`authors_program` behaves like the 2018 version of the authors' program, which made the printed tables. In that program
gossip never reaches the model that trains and predicts, so a node is a local Pegasos run that ends early. GADGET as in
Algorithm 2 is in `gadget_svm.algorithms`.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gadget_svm.algorithms import Gadget
from gadget_svm.core.types import Floats
from gadget_svm.estimator.fitting import Plan, fit_network
from gadget_svm.estimator.problem import Problem
from gadget_svm.kernels.sgd import published_steps
from gadget_svm.reproduction.baselines.base import Fit, one_node
from gadget_svm.simulation.runtime import Observer, View
from gadget_svm.simulation.trainer import Schedule
from gadget_svm.topologies import build


class _Trace(Observer):
    """Objective and error of the model at every record, as ``evaluate`` returns them."""

    def __init__(self, evaluate: Callable[[Floats], tuple[list[float], list[float]]]) -> None:
        self.evaluate = evaluate
        self.points: list[Any] = []

    def on_record(self, record: dict[str, Any], view: View) -> None:
        self.points.append([record["seconds"], record["iteration"], *self.evaluate(view.average)])


def pegasos(
    X: Any, y: Floats, lam: float, seed: int = 0, *, iterations: int = 10_000, average: bool = True,
    evaluate: Callable[[Floats], tuple[list[float], list[float]]] | None = None,
) -> Fit:  # fmt: skip
    """Train with one example per step. The model is the mean of the iterates, or the last iterate.

    ``evaluate`` returns objective and error of a model; its values at geometric steps are the trace.
    """
    traces = [] if evaluate is None else [_Trace(evaluate)]
    problem = Problem(X, (y > 0).astype(np.int32), None, one_node(len(y)), [0], 1)
    schedule = Schedule(iterations, record_every=None if traces else 0)
    plan = Plan(Gadget(average=average), build("complete", 1), lam, seed, None, schedule, traces, n_jobs=1)
    fitted = fit_network(problem, plan)
    outcome, points = fitted.outcome, [point for trace in traces for point in trace.points]
    return Fit(fitted.models[0, 0], outcome.seconds, outcome.n_iter, trace=points)


EPSILON, PATIENCE = 1e-3, 10
"""The program stops when its "objective" changes by at most EPSILON in PATIENCE steps in a row."""


def authors_program(X: Any, y: Floats, lam: float, seed: int = 0, *, max_iter: int = 1_000_000) -> Fit:
    """Train as a node trains on its shard: Pegasos with step 1/(lam (t + 2)). The model is the last iterate.

    Its "objective" is lam/2 |w|^2 plus one if the current row's margin is below one. It has no hinge loss and no mean.
    """
    w = np.zeros(X.shape[1])
    problem = (w, X.indptr, X.indices, X.data, y.astype(np.float64), lam, EPSILON, PATIENCE, seed)
    published_steps(0, *problem)  # compiles, and takes no step
    started = time.perf_counter()
    t, quiet, change = published_steps(max_iter, *problem)
    return Fit(w, time.perf_counter() - started, t, change, quiet >= PATIENCE)
