"""The certified optimum F*: dual coordinate ascent until a duality gap encloses it. Used as a reference."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Array, Floats
from gadget_svm.estimator.problem import as_csr
from gadget_svm.kernels.dual import DualRows, dual_pass
from gadget_svm.reproduction.baselines.base import one_node

PASSES = 30
"""Passes over the undecided rows between two passes over all rows."""


@dataclass(frozen=True)
class Optimum:
    """The best w found, with ``bound`` <= F* <= ``objective`` = F(w)."""

    w: Floats
    objective: float
    bound: float
    seconds: float

    @property
    def gap(self) -> float:
        """How far F(w) can be above F*, relative to F*."""
        return (self.objective - self.bound) / self.bound if self.bound > 0 else np.inf


def certified_optimum(
    X: Any, y: Array, lam: float, gap: float = 1e-4, *, seed: int = 0, max_seconds: float = np.inf
) -> Optimum:
    """Return w with F(w) <= (1 + gap) F*, proven by a dual feasible point.

    Parameters
    ----------
    X : sparse matrix
        The rows.
    y : array
        Labels, +1 and -1.
    lam : float
        The weight of the regulariser.
    gap : float, default 1e-4
        The relative duality gap to reach.
    seed : int, default 0
        Decides the order of the rows.
    max_seconds : float, optional
        A time limit. If it ends the computation, the gap may be wider.

    Examples
    --------
    >>> from gadget_svm import load_dataset
    >>> data = load_dataset("breast-cancer")
    >>> best = certified_optimum(data.X, data.y, lam=0.01)
    >>> best.bound <= best.objective <= (1 + 1e-4) * best.bound
    True
    """
    rows, labels = as_csr(X, intercept=False), np.asarray(y, dtype=np.float64)
    n = len(labels)
    kappa, rng = lam * n, np.random.default_rng(seed)
    dual = DualRows.of(Rows.of(rows, (labels > 0).astype(np.int32), np.ones(n), one_node(n)), 1.0)
    alpha, best_w = np.zeros(n), np.zeros(rows.shape[1])
    objective, bound = np.inf, 0.0  # no F is negative
    dual_pass(best_w.copy(), alpha, rng.permutation(0), dual, 0, 0, 1, kappa)  # compiles, and does nothing else
    started = time.perf_counter()
    while True:
        w = rows.T @ (alpha * labels) / kappa  # computed again: thousands of small steps would drift
        margin = labels * (rows @ w)
        ridge = 0.5 * lam * float(w @ w)
        bound = max(bound, float(alpha.mean()) - ridge)
        value = ridge + float(np.maximum(0.0, 1.0 - margin).mean())
        if value <= objective:
            objective, best_w = value, w.copy()
        seconds = time.perf_counter() - started
        if objective - bound <= gap * bound or seconds >= max_seconds:
            return Optimum(best_w, objective, bound, seconds)
        undecided = np.flatnonzero(((alpha > 0.0) | (margin < 1.0)) & ((alpha < 1.0) | (margin > 1.0)))
        for order in (np.arange(n), *[undecided] * PASSES):
            dual_pass(w, alpha, rng.permutation(order), dual, 0, len(order), 1, kappa)
