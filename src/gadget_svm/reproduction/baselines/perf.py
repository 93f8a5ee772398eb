"""SVM-Perf (Joachims 2006): the one-slack cutting-plane algorithm, to its own epsilon.

Owns the outer loop, his Algorithm 1 with C = 1/lam; the QP over the working set is `planes`' and its solver's.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Floats
from gadget_svm.reproduction.baselines.base import Evaluator, Fit, Watch, checked

if TYPE_CHECKING:
    import scipy.sparse as sp

    from gadget_svm.reproduction.baselines.planes import Planes, Solution


@dataclass(frozen=True)
class SvmPerf:
    """Planes are added until the newest is violated by at most ``epsilon``; then F(w) - F* <= ``epsilon``.

    A plane that carried no weight in ``patience`` solutions running is dropped, so that the QP stays small.
    """

    name: ClassVar[str] = "svm-perf"
    epsilon: float = 1e-3
    patience: int = 10
    max_iter: int = 100_000

    def fit(
        self,
        X: "sp.csr_matrix",
        y: NDArray[Any],
        lam: float,
        *,
        seed: int = 0,  # noqa: ARG002 nothing is drawn: every seed gives the same model
        max_seconds: float | None = None,
        judge: Evaluator | None = None,
    ) -> Fit:
        """Train on all of X; an iteration is one plane. On one core, as the other baselines."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        from gadget_svm.reproduction.baselines.planes import load_solver

        load_solver()  # here, so that no clock counts it
        with threadpool_limits(limits=1, user_api="blas"):  # two threads for one short product: most of it is waiting
            return self._cut(*checked(X, y, lam), lam, Watch(judge, max_seconds))

    def _cut(self, rows: "sp.csr_matrix", labels: Floats, lam: float, watch: Watch) -> Fit:
        from gadget_svm.reproduction.baselines.planes import Planes

        planes, w = Planes(rows.shape[1], self.patience), np.zeros(rows.shape[1])
        bound, iteration = 0.0, 0
        while True:
            g, b, loss = most_violated(rows, labels, w)
            epsilon = 0.5 * lam * float(w @ w) + loss - bound  # = H(w) - xi where the QP is solved exactly
            watch.look(iteration, w)
            if epsilon <= self.epsilon or iteration == self.max_iter or watch.over:
                break
            planes.add(g, b)
            solution = self._solved(planes, lam, iteration)
            w, bound = planes.combine(solution.beta) / lam, max(bound, solution.bound)
            planes.settle(solution.active)
            iteration += 1
        return watch.finish(w, iteration, epsilon, epsilon <= self.epsilon)

    def _solved(self, planes: "Planes", lam: float, iteration: int) -> "Solution":
        from gadget_svm.reproduction.baselines.planes import solve

        used = planes.used
        solution = solve(planes.gram[np.ix_(used, used)], planes.b[used], lam, min(1e-8, 1e-4 * self.epsilon))
        if not solution.value - solution.bound <= 0.1 * self.epsilon:
            raise RuntimeError(
                f"svm-perf: the QP of iteration {iteration} ({len(used)} planes, lam {lam:g}) ended as "
                f"{solution.status}, {solution.value - solution.bound:.2g} from its optimum where "
                f"{0.1 * self.epsilon:.2g} is needed: raise epsilon, or scale the rows to a length of about one"
            )
        return solution


def most_violated(X: "sp.csr_matrix", y: Floats, w: Floats) -> tuple[Floats, float, float]:
    """The plane that touches the mean hinge at w: c_i = 1 where y_i <w, x_i> < 1. Returns g, b and the mean hinge."""
    margin = y * (X @ w)
    c = margin < 1.0
    g = X.T @ (c * y / len(y))
    return g, float(c.mean()), float(np.maximum(0.0, 1.0 - margin).mean())
