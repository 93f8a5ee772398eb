"""Generated rows for simulated peers, and the optimum of any set of shards."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.svm import LinearSVC

from gadget_svm.core.types import Floats
from gadget_svm.peers.world.scenario import DataPlan

CLASSES = (-1.0, 1.0)
SOLVER_TOLERANCE, SOLVER_ITERATIONS = 1e-8, 200_000


@dataclass(frozen=True)
class Shard:
    """The rows of one peer; labels are 0 and 1."""

    X: sp.csr_matrix
    label: NDArray[np.int32]


def generate(names: Collection[str], plan: DataPlan, seed: int) -> dict[str, Shard]:
    """Return rows whose labels follow a random plane, with noise; the peers' means differ by ``skew``."""
    rng = np.random.default_rng([seed, 1])
    d = int(rng.integers(plan.features[0], plan.features[1] + 1))
    plane, offset = rng.normal(size=d), 0.5 * rng.normal()
    shards = {}
    for name in names:
        n = int(rng.integers(plan.rows[0], plan.rows[1] + 1))
        X = (rng.normal(size=(n, d)) + plan.skew * rng.normal(size=d)) / np.sqrt(d)
        score = X @ plane + offset * 0.3 + plan.noise * rng.normal(size=n)
        shards[name] = Shard(sp.csr_matrix(X), (score > 0).astype(np.int32))
    return shards


@dataclass
class Optima:
    """The objective lam/2 |w|^2 + mean hinge over the rows of some peers, and its least value, computed once a set."""

    shards: Mapping[str, Shard]
    lam: float
    intercept: bool
    _known: dict[frozenset[str], float] = field(default_factory=dict)
    _pooled: dict[frozenset[str], tuple[Floats, Floats]] = field(default_factory=dict)

    def objective(self, model: Floats, names: Collection[str]) -> float:
        """Return the objective of a model of one output, with the intercept last."""
        X, sign = self._rows(frozenset(names))
        w = np.asarray(model, dtype=np.float64).ravel()
        return float(0.5 * self.lam * (w @ w) + np.maximum(0.0, 1.0 - sign * (X @ w)).mean())

    def least(self, names: Collection[str]) -> float:
        """Return the optimum, from above, to about 1e-6."""
        key = frozenset(names)
        if key not in self._known:
            self._known[key] = self.objective(self._solve(key), key)
        return self._known[key]

    def excess(self, model: Floats, names: Collection[str]) -> float:
        """Return by how much, relative to the optimum, the objective of a model is above it."""
        least = self.least(names)
        return (self.objective(model, names) - least) / least

    def _solve(self, key: frozenset[str]) -> Floats:
        X, sign = self._rows(key)
        if len(np.unique(sign)) < 2:  # liblinear wants two classes: a row of zeros changes no solution
            X, sign = np.vstack([X, np.zeros(X.shape[1])]), np.append(sign, -sign[0])
        C = 1.0 / (self.lam * len(self._rows(key)[1]))
        solver = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=SOLVER_TOLERANCE, max_iter=SOLVER_ITERATIONS)
        solver.set_params(random_state=0)
        return np.asarray(solver.fit(X, sign).coef_.ravel(), dtype=np.float64)

    def _rows(self, key: frozenset[str]) -> tuple[Floats, Floats]:
        if key not in self._pooled:
            parts = [self.shards[name] for name in sorted(key)]
            X = np.vstack([part.X.toarray() for part in parts])
            if self.intercept:
                X = np.hstack([X, np.ones((len(X), 1))])
            label = np.concatenate([part.label for part in parts])
            self._pooled[key] = X, np.where(label == 1, 1.0, -1.0)
        return self._pooled[key]
