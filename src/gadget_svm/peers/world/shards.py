"""Generated rows for simulated peers, and the optimum of any set of shards, on any scale of the features."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.svm import LinearSVC

from gadget_svm.core.types import Floats
from gadget_svm.peers.training.scale import Scale
from gadget_svm.peers.world.randomness import generator, whole_within
from gadget_svm.peers.world.scenario import DataPlan

TWO_CLASSES = (-1.0, 1.0)
SOLVER_TOLERANCE, SOLVER_ITERATIONS = 1e-8, 200_000


@dataclass(frozen=True)
class Shard:
    """The rows of one peer; labels are 0, 1, ..."""

    X: sp.csr_matrix
    label: NDArray[np.int32]


def draw_classes(plan: DataPlan, seed: int) -> tuple[float, ...]:
    """Return the names of the classes."""
    count = whole_within(generator(seed, "classes"), plan.classes)
    return TWO_CLASSES if count == 2 else tuple(map(float, range(count)))


def generate(names: Collection[str], plan: DataPlan, seed: int) -> dict[str, Shard]:
    """Return rows whose labels follow random planes, with noise; the peers' means differ by ``skew``."""
    rng, outputs = np.random.default_rng([seed, 1]), len(draw_classes(plan, seed))
    d = int(rng.integers(plan.features[0], plan.features[1] + 1))
    planes = rng.normal(size=d) if outputs == 2 else rng.normal(size=(d, outputs))
    offset, unit, shift = 0.5 * rng.normal(), *_units(d, plan.units, seed)
    shards = {}
    for name in names:
        n = int(rng.integers(plan.rows[0], plan.rows[1] + 1))
        X = (rng.normal(size=(n, d)) + plan.skew * rng.normal(size=d)) / np.sqrt(d)
        score = X @ planes + offset * 0.3 + plan.noise * rng.normal(size=n if outputs == 2 else (n, outputs))
        label = score > 0 if outputs == 2 else score.argmax(axis=1)
        shards[name] = Shard(sp.csr_matrix((X + shift) * unit), label.astype(np.int32))
    return shards


def _units(d: int, powers: float, seed: int) -> tuple[Floats, Floats]:
    if not powers:
        return np.ones(d), np.zeros(d)
    rng = np.random.default_rng([seed, 2])
    return 10.0 ** rng.uniform(-0.5 * powers, 0.5 * powers, d), 3.0 * rng.normal(size=d)


@dataclass
class Optima:
    """The objective lam/2 |w|^2 + mean hinge over the rows of some peers, and its least value, computed once a set.

    It is a sum over the outputs, as that of a model. Models are of scaled features; without a scale, of plain ones.
    """

    shards: Mapping[str, Shard]
    lam: float
    intercept: bool
    outputs: int = 1
    _known: dict[tuple[frozenset[str], bytes], float] = field(default_factory=dict)
    _pooled: dict[tuple[frozenset[str], bytes], tuple[Floats, Floats]] = field(default_factory=dict)

    def objective(self, model: Floats, names: Collection[str], scale: Scale | None = None) -> float:
        """Return the objective of a model, with the intercept last."""
        X, signs = self._rows(frozenset(names), scale)
        w = np.asarray(model, dtype=np.float64).reshape(self.outputs, -1)
        return float(0.5 * self.lam * (w * w).sum() + np.maximum(0.0, 1.0 - signs * (X @ w.T)).sum() / len(X))

    def least(self, names: Collection[str], scale: Scale | None = None) -> float:
        """Return the optimum, from above, to about 1e-6."""
        key = frozenset(names), _key(scale)
        if key not in self._known:
            self._known[key] = self.objective(self._solve(key[0], scale), key[0], scale)
        return self._known[key]

    def excess(self, model: Floats, names: Collection[str], scale: Scale | None = None) -> float:
        """Return by how much, relative to the optimum, the objective of a model is above it."""
        least = self.least(names, scale)
        return (self.objective(model, names, scale) - least) / least

    def _solve(self, names: frozenset[str], scale: Scale | None = None) -> Floats:
        X, signs = self._rows(names, scale)
        C = 1.0 / (self.lam * len(X))
        return np.array([_fitted(X, sign, C) for sign in signs.T])

    def _rows(self, names: frozenset[str], scale: Scale | None) -> tuple[Floats, Floats]:
        """Return the rows of some peers, and their signs, rows x outputs."""
        key = names, _key(scale)
        if key not in self._pooled:
            parts = [self.shards[name] for name in sorted(names)]
            X = np.vstack([(part.X if scale is None else scale.apply(part.X)).toarray() for part in parts])
            if self.intercept:
                X = np.hstack([X, np.ones((len(X), 1))])
            label = np.concatenate([part.label for part in parts])
            own = [1] if self.outputs == 1 else range(self.outputs)  # which class is +1 for each output
            self._pooled[key] = X, np.where(label[:, None] == np.array(own), 1.0, -1.0)
        return self._pooled[key]


def _key(scale: Scale | None) -> bytes:
    plain = scale is None or ((scale.divisor == 1.0).all() and not scale.shift.any())
    return b"" if scale is None or plain else scale.divisor.tobytes() + scale.shift.tobytes()


def _fitted(X: Floats, sign: Floats, C: float) -> Floats:
    if len(np.unique(sign)) < 2:  # liblinear wants two classes: a row of zeros changes no solution
        X, sign = np.vstack([X, np.zeros(X.shape[1])]), np.append(sign, -sign[0])
    solver = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=SOLVER_TOLERANCE, max_iter=SOLVER_ITERATIONS)
    solver.set_params(random_state=0)
    return np.asarray(solver.fit(X, sign).coef_.ravel(), dtype=np.float64)
