"""Centralised Pegasos (Shalev-Shwartz et al. 2007), the baseline of the paper's Section 4.

It is GADGET on a network of a single node, which has no neighbour to gossip with: the step is not implemented twice.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gadget_svm.algorithms import Gadget
from gadget_svm.core.types import Floats
from gadget_svm.estimator.fitting import Plan, fit_network
from gadget_svm.estimator.problem import Problem
from gadget_svm.reproduction.baselines.base import Fit, one_node
from gadget_svm.simulation.observers import Observer, View
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
    """Take one example a step; the answer is the mean of the iterates, or the last one.

    ``evaluate`` returns objective and error of a model; its values at geometric steps are the trace.
    """
    traces = [] if evaluate is None else [_Trace(evaluate)]
    problem = Problem(X, (y > 0).astype(np.int32), None, one_node(len(y)), [0], 1)
    schedule = Schedule(iterations, record_every=None if traces else 0)
    plan = Plan(Gadget(average=average), build("complete", 1), lam, seed, None, schedule, traces, n_jobs=1)
    fitted = fit_network(problem, plan)
    outcome, points = fitted.outcome, [point for trace in traces for point in trace.points]
    return Fit(fitted.models[0, 0], outcome.seconds, outcome.n_iter, trace=points)
