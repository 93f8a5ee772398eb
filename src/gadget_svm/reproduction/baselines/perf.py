"""SVM-Perf (Joachims 2006): the one-slack cutting-plane algorithm, to its own epsilon.

Owns the outer loop, his Algorithm 1 with C = 1/lam; `planes` solves the QP over the working set.
"""

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from gadget_svm.core.types import Floats
from gadget_svm.reproduction.baselines import planes as qp
from gadget_svm.reproduction.baselines.base import Fit, Limits, TrainingClock, checked


@dataclass(frozen=True)
class SvmPerf:
    """Planes are added until the newest is violated by at most ``epsilon``; then F(w) - F* <= ``epsilon``.

    A plane without weight in ``patience`` solutions in a row is dropped, so that the QP stays small.
    """

    epsilon: float = 1e-3
    patience: int = 10
    max_iter: int = 100_000

    def fit(
        self,
        X: Any,
        y: NDArray[Any],
        lam: float,
        *,
        seed: int = 0,  # noqa: ARG002 nothing is drawn: every seed gives the same model
        **limits: Unpack[Limits],
    ) -> Fit:
        """Train on all of X; an iteration is one plane. On one core, as the other baselines."""
        qp.load_solver()  # before the clock starts
        with threadpool_limits(limits=1, user_api="blas"):  # two threads for one short product mostly wait
            return self._cut(*checked(X, y, lam), lam, TrainingClock(**limits))

    def _cut(self, rows: sp.csr_matrix, labels: Floats, lam: float, clock: TrainingClock) -> Fit:
        planes, w = qp.Planes(rows.shape[1], self.patience), np.zeros(rows.shape[1])
        bound, iteration = 0.0, 0
        while True:
            g, b, loss = most_violated(rows, labels, w)
            epsilon = 0.5 * lam * float(w @ w) + loss - bound  # = H(w) - xi where the QP is solved exactly
            clock.record(iteration, w)
            if epsilon <= self.epsilon or iteration == self.max_iter or clock.expired:
                break
            planes.add(g, b)
            solution = self._solved(planes, lam, iteration)
            w, bound = planes.combine(solution.beta) / lam, max(bound, solution.bound)
            planes.drop_idle(solution.active)
            iteration += 1
        return clock.finish(w, iteration, epsilon, epsilon <= self.epsilon)

    def _solved(self, planes: qp.Planes, lam: float, iteration: int) -> qp.Solution:
        used = planes.used
        solution = qp.solve(planes.gram[np.ix_(used, used)], planes.b[used], lam, min(1e-8, 1e-4 * self.epsilon))
        if not solution.value - solution.bound <= 0.1 * self.epsilon:
            raise RuntimeError(
                f"svm-perf: the QP of iteration {iteration} ({len(used)} planes, lam {lam:g}) ended as "
                f"{solution.status}, {solution.value - solution.bound:.2g} from its optimum where "
                f"{0.1 * self.epsilon:.2g} is needed: raise epsilon, or scale the rows to a length of about one"
            )
        return solution


def most_violated(X: sp.csr_matrix, y: Floats, w: Floats) -> tuple[Floats, float, float]:
    """Return the plane g, b that touches the mean hinge at w (c_i = 1 where y_i <w, x_i> < 1), and the mean hinge."""
    margin = y * (X @ w)
    c = margin < 1.0
    g = X.T @ (c * y / len(y))
    return g, float(c.mean()), float(np.maximum(0.0, 1.0 - margin).mean())
