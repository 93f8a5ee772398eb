"""Centralised Pegasos (Shalev-Shwartz et al. 2007), the baseline of the paper's Section 4.

It is GADGET on a network of one node, where there is nobody to gossip with: no second copy of the step stands here.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gadget_svm.reproduction.baselines.base import Evaluator, Fit, Point, checked

if TYPE_CHECKING:
    import scipy.sparse as sp

    from gadget_svm.core.network import Network
    from gadget_svm.estimator.problem import Problem


@dataclass(frozen=True)
class Pegasos:
    """``batch_size`` examples a step for ``iterations`` steps, or until w moves by at most ``epsilon`` in one.

    ``average`` answers with the mean of the iterates, otherwise with the last; ``project`` keeps them in the ball.
    """

    name: ClassVar[str] = "pegasos"
    iterations: int = 10_000
    batch_size: int = 1
    project: bool = True
    average: bool = True
    epsilon: float | None = None

    def fit(
        self,
        X: "sp.csr_matrix",
        y: NDArray[Any],
        lam: float,
        *,
        seed: int = 0,
        max_seconds: float | None = None,
        judge: Evaluator | None = None,
    ) -> Fit:
        """Train on all of X; without ``epsilon`` a run is complete when its iterations are done."""
        from gadget_svm.algorithms import Gadget
        from gadget_svm.estimator.fitting import Plan, fit_network
        from gadget_svm.simulation.observers import Observer, View
        from gadget_svm.simulation.stopping import stopping_rule
        from gadget_svm.simulation.trainer import Schedule

        trace: list[Point] = []

        class Trace(Observer):
            def on_record(self, record: dict[str, Any], view: View) -> None:
                if judge is not None:
                    trace.append(Point(record["seconds"], record["iteration"], *judge(view.average[0])))

        algorithm = Gadget(batch_size=self.batch_size, project=self.project, average=self.average)
        rule = None if self.epsilon is None else stopping_rule("weights", self.epsilon)
        schedule = Schedule(self.iterations, max_seconds, 0 if judge is None else None)
        fitted = fit_network(
            _problem(X, y, lam), Plan(algorithm, _alone(), lam, seed, rule, schedule, [Trace()], n_jobs=1)
        )
        outcome = fitted.outcome
        epsilon = outcome.movement if np.isfinite(outcome.movement) else np.nan
        done = outcome.reason == ("max_iter" if rule is None else "converged")
        return Fit(fitted.models[0, 0], outcome.seconds, outcome.n_iter, epsilon, done, trace)


def _problem(X: Any, y: NDArray[Any], lam: float) -> "Problem":
    """All rows in the hands of one node."""
    from gadget_svm.core.rows import Shares
    from gadget_svm.estimator.problem import Problem

    rows, labels = checked(X, y, lam)
    n = len(labels)
    shares = Shares(np.arange(n), np.array([0, n]), np.empty(0))
    return Problem(rows, (labels > 0).astype(np.int32), np.ones(n), None, shares, [0], 1)


def _alone() -> "Network":
    from gadget_svm.topologies import build

    return build("complete", 1)
