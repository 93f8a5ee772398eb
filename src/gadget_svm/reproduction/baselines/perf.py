"""SVM-Perf (Joachims 2006): the one-slack cutting-plane algorithm, his Algorithm 1 with C = 1/lam, to its own epsilon.

A plane (g, b) says that the mean hinge is at least b - <w, g>, for every w. The working set of planes is kept small,
and clarabel solves the QP over it.
"""

import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from gadget_svm.core.extras import require
from gadget_svm.core.types import Flags, Floats
from gadget_svm.reproduction.baselines.base import Fit


def svm_perf(
    X: Any, y: Floats, lam: float, seed: int = 0, *,  # noqa: ARG001 nothing is drawn
    epsilon: float = 1e-3, patience: int = 10, max_seconds: float = np.inf,
) -> Fit:  # fmt: skip
    """Add planes until the newest is violated by at most ``epsilon``; then F(w) - F* <= ``epsilon``.

    A plane without weight in ``patience`` solutions in a row is dropped, so that the QP stays small. The fit ends soon
    after ``max_seconds``. An iteration is one plane.
    """
    load_solver()  # before the time is measured
    planes, b, gram = list[Floats](), np.empty(0), np.empty((0, 0))
    idle = np.empty(0, dtype=np.int64)  # for each plane, the number of solutions since it last mattered
    w: Floats = np.zeros(X.shape[1])
    bound, iteration, started = 0.0, 0, time.perf_counter()
    with threadpool_limits(limits=1, user_api="blas"):  # two threads for one short product mostly wait
        while True:
            plane, offset, loss = most_violated(X, y, w)
            violation = 0.5 * lam * float(w @ w) + loss - bound  # = H(w) - xi where the QP is solved exactly
            seconds = time.perf_counter() - started
            if violation <= epsilon or seconds >= max_seconds:
                return Fit(w, seconds, iteration, violation, violation <= epsilon)
            planes, b, idle, gram = [*planes, plane], np.append(b, offset), np.append(idle, 0), np.pad(gram, (0, 1))
            gram[-1] = gram[:, -1] = [plane @ other for other in planes]
            solution = solve(gram, b, lam, epsilon)
            w = np.asarray(sum(map(np.multiply, solution.beta, planes))) / lam
            bound = max(bound, solution.bound)
            idle = np.where(solution.active, 0, idle + 1)
            kept = np.flatnonzero(idle <= patience)
            planes, b, idle, gram = [planes[j] for j in kept], b[kept], idle[kept], gram[np.ix_(kept, kept)]
            iteration += 1


def most_violated(X: sp.csr_matrix, y: Floats, w: Floats) -> tuple[Floats, float, float]:
    """Return the plane g, b that touches the mean hinge at w (c_i = 1 where y_i <w, x_i> < 1), and the mean hinge."""
    margin = y * (X @ w)
    c = margin < 1.0
    g = X.T @ (c * y / len(y))
    return g, float(c.mean()), float(np.maximum(0.0, 1.0 - margin).mean())


class Solution(NamedTuple):
    """Weights of the planes, which of them matter, and a lower bound of the QP's optimum and so of F*."""

    beta: Floats
    active: Flags
    bound: float


def solve(gram: Floats, b: Floats, lam: float, epsilon: float) -> Solution:
    """Maximise <b, beta> - beta' G beta / (2 lam) over beta >= 0, sum beta <= 1: Joachims' dual times lam = 1/C.

    In these units C, which is up to 1e5, does not appear in the constraints. The bounds are computed from a beta made
    exactly feasible, so they hold even if the solver is not accurate.
    """
    clarabel = load_solver()
    m = len(b)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = min(1e-8, 1e-4 * epsilon)
    P = sp.csc_matrix(np.triu(gram / lam))
    A = sp.csc_matrix(np.vstack([-np.eye(m), np.ones((1, m))]))
    limits, cones = np.append(np.zeros(m), 1.0), [clarabel.NonnegativeConeT(m + 1)]
    answer = clarabel.DefaultSolver(P, -b, A, limits, cones, settings).solve()
    beta = np.maximum(np.nan_to_num(np.asarray(answer.x)), 0.0)
    beta /= max(1.0, beta.sum())
    pull = gram @ beta / lam  # <w, g_j> of every plane
    ridge, xi = 0.5 * float(beta @ pull), max(0.0, float((b - pull).max()))
    gap = 2 * ridge + xi - float(b @ beta)
    if not gap <= 0.1 * epsilon:
        raise RuntimeError(
            f"svm-perf: the QP of {m} planes with lam {lam:g} ended as {answer.status}, {gap:.2g} from its optimum "
            f"where {0.1 * epsilon:.2g} is needed: raise epsilon, or scale the rows to a length of about one"
        )
    # At the optimum, the weight or the slack of a plane is zero. An interior-point solver leaves both above zero.
    active = beta > xi - (b - pull)
    return Solution(beta, active, float(b @ beta) - ridge)


def load_solver() -> Any:
    """Return the module of the QP solver. If it is missing, the error says what to install."""
    return require("clarabel", "SVM-Perf needs the QP solver", "paper")
