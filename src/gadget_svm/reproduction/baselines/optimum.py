"""The optimum F*, honestly: dual coordinate ascent until a duality gap encloses it. A yardstick, not a competitor."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Floats, Ints
from gadget_svm.reproduction.baselines.base import Watch, checked

if TYPE_CHECKING:
    import scipy.sparse as sp

    from gadget_svm.kernels.dual import DualRows

PASSES = 30
"""Passes over the rows still in question between two looks at all of them."""


@dataclass(frozen=True)
class Optimum:
    """``bound`` <= F* <= ``objective`` = F(w)."""

    w: Floats
    objective: float
    bound: float
    seconds: float
    rounds: int

    @property
    def gap(self) -> float:
        """How far F(w) can be above F*, as a part of F*."""
        return (self.objective - self.bound) / self.bound if self.bound > 0 else np.inf


def certified_optimum(
    X: "sp.csr_matrix",
    y: NDArray[Any],
    lam: float,
    gap: float = 1e-4,
    *,
    seed: int = 0,
    max_seconds: float | None = None,
) -> Optimum:
    """w with F(w) <= (1 + gap) F*, proven by a dual feasible point; a time limit may leave the gap wider."""
    rows, labels = checked(X, y, lam)
    n = len(labels)
    dual, rng = _dual_rows(rows, labels), np.random.default_rng(seed)
    alpha, best_w = np.zeros(n), np.zeros(rows.shape[1])
    objective, bound, rounds = 1.0, 0.0, 0  # F(0) = 1, and no F is negative
    _ascend(best_w.copy(), alpha, rng.permutation(0), dual, lam * n)  # compiles, and does nothing else
    watch = Watch(max_seconds=max_seconds)
    while objective - bound > gap * bound and not (rounds and watch.over):
        w = rows.T @ (alpha * labels) / (lam * n)  # afresh: thousands of small steps would drift
        margin = labels * (rows @ w)
        ridge = 0.5 * lam * float(w @ w)
        bound = max(bound, float(alpha.mean()) - ridge)
        value = ridge + float(np.maximum(0.0, 1.0 - margin).mean())
        if value <= objective:
            objective, best_w = value, w.copy()
        settled = ((alpha <= 0.0) & (margin >= 1.0)) | ((alpha >= 1.0) & (margin <= 1.0))
        _ascend(w, alpha, rng.permutation(n), dual, lam * n)
        for _ in range(PASSES):
            _ascend(w, alpha, rng.permutation(np.flatnonzero(~settled)), dual, lam * n)
        rounds += 1
    return Optimum(best_w, objective, bound, watch.seconds, rounds)


def _dual_rows(X: "sp.csr_matrix", y: Floats) -> "DualRows":
    """All rows in the hands of one node, each alpha between 0 and 1."""
    from gadget_svm.core.rows import Rows, Shares
    from gadget_svm.kernels.dual import DualRows

    n = len(y)
    shares = Shares(np.arange(n), np.array([0, n]), np.empty(0))
    return DualRows.of(Rows.of(X, (y > 0).astype(np.int32), np.ones(n), shares), 1.0)


def _ascend(w: Floats, alpha: Floats, turn: Ints, dual: "DualRows", kappa: float) -> None:
    from gadget_svm.kernels.dual import dual_pass

    dual_pass(w, alpha, turn, dual, 0, len(turn), 1, kappa)
