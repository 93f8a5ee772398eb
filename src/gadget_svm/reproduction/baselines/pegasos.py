"""Centralised Pegasos (Shalev-Shwartz et al. 2007), the baseline of the paper's Section 4.

It is GADGET on a network of a single node, which has no neighbour to gossip with: the step is not implemented twice.
"""

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from gadget_svm.algorithms import Gadget
from gadget_svm.estimator.fitting import Plan, fit_network
from gadget_svm.estimator.problem import Problem
from gadget_svm.reproduction.baselines.base import Fit, Limits, Point, checked, one_node
from gadget_svm.simulation.observers import Observer, View
from gadget_svm.simulation.stopping import stopping_rule
from gadget_svm.simulation.trainer import Schedule
from gadget_svm.topologies import build


@dataclass(frozen=True)
class Pegasos:
    """``batch_size`` examples a step for ``iterations`` steps, or until w moves by at most ``epsilon`` in one.

    With ``average`` the answer is the mean of the iterates, else the last one; ``project`` keeps them in the ball.
    """

    iterations: int = 10_000
    batch_size: int = 1
    project: bool = True
    average: bool = True
    epsilon: float | None = None

    def fit(self, X: Any, y: NDArray[Any], lam: float, *, seed: int = 0, **limits: Unpack[Limits]) -> Fit:
        """Train on all of X; without ``epsilon`` a run is complete when its iterations are done."""
        rows, labels = checked(X, y, lam)
        n, evaluate = len(labels), limits.get("evaluate")
        problem = Problem(rows, (labels > 0).astype(np.int32), np.ones(n), None, one_node(n), [0], 1)
        trace: list[Point] = []

        class Trace(Observer):
            def on_record(self, record: dict[str, Any], view: View) -> None:
                if evaluate is not None:
                    trace.append(Point(record["seconds"], record["iteration"], *evaluate(view.average[0])))

        algorithm = Gadget(batch_size=self.batch_size, project=self.project, average=self.average)
        rule = None if self.epsilon is None else stopping_rule("weights", self.epsilon)
        schedule = Schedule(self.iterations, limits.get("max_seconds"), 0 if evaluate is None else None)
        plan = Plan(algorithm, build("complete", 1), lam, seed, rule, schedule, [Trace()], n_jobs=1)
        fitted = fit_network(problem, plan)
        outcome = fitted.outcome
        epsilon = outcome.movement if np.isfinite(outcome.movement) else np.nan
        done = outcome.reason == ("max_iter" if rule is None else "converged")
        return Fit(fitted.models[0, 0], outcome.seconds, outcome.n_iter, epsilon, done, trace)
