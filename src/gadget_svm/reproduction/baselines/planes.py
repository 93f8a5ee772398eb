"""The working set of the cutting-plane method: its planes, their Gram matrix, and the small QP over them.

A plane (g, b) says that the mean hinge is at least b - <w, g>, for every w. This module uses no rows and no labels.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.core.types import Floats, Ints


class Planes:
    """Planes in slots; a slot is free again when its plane had no weight in ``patience`` solutions in a row."""

    def __init__(self, n_features: int, patience: int) -> None:
        self.g = np.empty((16, n_features))
        self.b = np.empty(16)
        self.gram = np.empty((16, 16))
        self.idle = np.full(16, -1)  # solutions since the plane last mattered; -1: the slot is free
        self.patience = patience

    @property
    def used(self) -> Ints:
        """The slots that hold a plane."""
        return np.flatnonzero(self.idle >= 0)

    def add(self, g: Floats, b: float) -> None:
        """Add a plane to the working set."""
        if (self.idle >= 0).all():
            self._grow()
        slot = int(np.argmin(self.idle))
        self.g[slot], self.b[slot], self.idle[slot] = g, b, 0
        used = self.used
        last = used[-1] + 1  # a view of the slots so far: fancy indexing would copy every plane
        products = self.g[:last] @ g
        self.gram[slot, used] = self.gram[used, slot] = products[used]

    def drop_idle(self, active: NDArray[np.bool_]) -> None:
        """Note which planes were active, and drop those that have not been for ``patience`` solutions."""
        used = self.used
        self.idle[used] = np.where(active, 0, self.idle[used] + 1)
        self.idle[self.idle > self.patience] = -1

    def combine(self, beta: Floats) -> Floats:
        """Return the sum of beta_j g_j."""
        full = np.zeros(self.used[-1] + 1)
        full[self.used] = beta
        return np.asarray(full @ self.g[: len(full)])

    def _grow(self) -> None:
        size = len(self.b)
        self.g = np.concatenate([self.g, np.zeros_like(self.g)])
        self.b = np.concatenate([self.b, np.zeros(size)])
        self.gram = np.pad(self.gram, (0, size))
        self.idle = np.concatenate([self.idle, np.full(size, -1)])


class Solution(NamedTuple):
    """Weights of the planes and two values of F that enclose the QP's optimum; ``bound`` is also below F*."""

    beta: Floats
    active: NDArray[np.bool_]
    bound: float
    value: float
    status: str


def solve(gram: Floats, b: Floats, lam: float, tolerance: float) -> Solution:
    """Maximise <b, beta> - beta' G beta / (2 lam) over beta >= 0, sum beta <= 1: Joachims' dual times lam = 1/C.

    In these units C, which is up to 1e5, does not appear in the constraints. ``bound`` and ``value`` are computed from
    a beta made exactly feasible, so they hold for any accuracy of the solver.
    """
    clarabel = load_solver()
    m = len(b)
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    P = sp.csc_matrix(np.triu(gram / lam))
    A = sp.csc_matrix(np.vstack([-np.eye(m), np.ones((1, m))]))
    limits, cones = np.append(np.zeros(m), 1.0), [clarabel.NonnegativeConeT(m + 1)]
    answer = clarabel.DefaultSolver(P, -b, A, limits, cones, settings).solve()
    beta = np.maximum(np.nan_to_num(np.asarray(answer.x)), 0.0)
    beta /= max(1.0, beta.sum())
    pull = gram @ beta / lam  # <w, g_j> of every plane
    ridge, xi = 0.5 * float(beta @ pull), max(0.0, float((b - pull).max()))
    active = beta > xi - (b - pull)  # of weight and slack one is zero; an interior-point solver leaves both above it
    return Solution(beta, active, float(b @ beta) - ridge, ridge + xi, str(answer.status))


def load_solver() -> Any:
    """Return the QP solver's module; if it is missing, the error says what to install."""
    try:
        return import_module("clarabel")
    except ImportError as missing:
        raise ImportError("svm-perf needs a QP solver, clarabel: pip install 'gadget-svm[paper]'") from missing
