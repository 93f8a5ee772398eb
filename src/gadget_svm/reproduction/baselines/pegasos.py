"""Centralised Pegasos (Shalev-Shwartz et al. 2007), the baseline of the paper's Section 4.

It is GADGET on a network of a single node, which has no neighbour to gossip with: the step is not implemented twice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.algorithms import Gadget
from gadget_svm.core.types import Floats
from gadget_svm.estimator.fitting import Plan, fit_network
from gadget_svm.estimator.problem import Problem
from gadget_svm.reproduction.baselines.base import Fit, checked, one_node
from gadget_svm.simulation.observers import Observer, View
from gadget_svm.simulation.trainer import Schedule
from gadget_svm.topologies import build


@dataclass(frozen=True)
class Pegasos:
    """One example a step for ``iterations`` steps; the answer is the mean of the iterates, or the last one.

    ``evaluate`` returns objective and error of a model; its values at geometric steps are the trace.
    """

    iterations: int = 10_000
    average: bool = True
    evaluate: Callable[[Floats], tuple[float, float]] | None = None

    def fit(self, X: Any, y: NDArray[Any], lam: float, *, seed: int = 0) -> Fit:
        """Train on all of X."""
        rows, labels = checked(X, y, lam)
        n, evaluate, trace = len(labels), self.evaluate, list[Any]()

        class Trace(Observer):
            def on_record(self, record: dict[str, Any], view: View) -> None:
                if evaluate is not None:
                    objective, error = evaluate(view.average[0])
                    trace.append([record["seconds"], record["iteration"], [objective], [error]])

        problem = Problem(rows, (labels > 0).astype(np.int32), np.ones(n), None, one_node(n), [0], 1)
        schedule = Schedule(self.iterations, record_every=0 if evaluate is None else None)
        plan = Plan(Gadget(average=self.average), build("complete", 1), lam, seed, None, schedule, [Trace()], n_jobs=1)
        fitted = fit_network(problem, plan)
        return Fit(fitted.models[0, 0], fitted.outcome.seconds, fitted.outcome.n_iter, np.nan, True, trace)
