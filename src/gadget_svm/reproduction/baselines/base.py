"""The interface of a baseline: rows, labels and lambda in; a weight vector, its time and its trace out.

Every baseline solves F(w) = lam/2 |w|^2 + mean hinge, without a bias. The caller evaluates models, outside the
measured time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypedDict, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.core.rows import Shares
from gadget_svm.core.types import Floats
from gadget_svm.estimator.problem import as_csr

Evaluator = Callable[[Floats], tuple[float, float]]
"""Returns a weight vector's objective on the training problem, and its zero-one error on the test set."""

TRACE_STRIDE = 1.25
"""Points of a trace come in geometric steps: 30 of them reach from the first iteration past the 1000th."""


class Point(NamedTuple):
    """A model during training; ``seconds`` counts training only."""

    seconds: float
    iterations: int
    objective: float
    error: float


@dataclass(frozen=True)
class Fit:
    """A trained model and its cost; ``seconds`` does not count evaluation and compilation."""

    w: Floats
    seconds: float
    iterations: int
    epsilon: float  # the last value of the baseline's own stopping criterion; nan if it has none
    converged: bool  # whether it ended at its tolerance or its budget, not at a time limit
    trace: list[Point] = field(default_factory=list)


class Limits(TypedDict, total=False):
    """What a caller may ask of every fit."""

    max_seconds: float | None
    """The fit ends soon after so many seconds of training."""
    evaluate: Evaluator | None
    """Is called with the model at geometric steps; the results are the trace."""


class Baseline(Protocol):
    """A way to train a linear SVM on rows in one place: a node's shard, or everything."""

    def fit(self, X: Any, y: NDArray[Any], lam: float, *, seed: int = 0, **limits: Unpack[Limits]) -> Fit:
        """Train on the rows of X, with labels +1 and -1."""


class TrainingClock:
    """Measures the time of training, stops while a model is evaluated, and keeps the trace."""

    def __init__(self, max_seconds: float | None = None, evaluate: Evaluator | None = None) -> None:
        self.max_seconds, self.evaluate = max_seconds, evaluate
        self.trace: list[Point] = []
        self._spent, self._since = 0.0, time.perf_counter()
        self._next = 1.0

    @property
    def seconds(self) -> float:
        """Training time so far."""
        return self._spent + time.perf_counter() - self._since

    @property
    def expired(self) -> bool:
        """Whether the time limit is reached."""
        return self.max_seconds is not None and self.seconds >= self.max_seconds

    def record(self, iterations: int, w: Floats) -> None:
        """Evaluate w if the next point of the trace is due."""
        if self.evaluate is None or iterations < self._next:
            return
        self._next = max(iterations + 1, iterations * TRACE_STRIDE)
        self._spent = self.seconds
        self.trace.append(Point(self._spent, iterations, *self.evaluate(w)))
        self._since = time.perf_counter()

    def finish(self, w: Floats, iterations: int, epsilon: float, converged: bool) -> Fit:
        """Return the fit, with the last model at the end of its trace."""
        seconds = self.seconds
        if self.evaluate is not None and (not self.trace or self.trace[-1].iterations < iterations):
            self.trace.append(Point(seconds, iterations, *self.evaluate(w)))
        return Fit(w, seconds, iterations, epsilon, converged, self.trace)


def checked(X: Any, y: NDArray[Any], lam: float) -> tuple[sp.csr_matrix, Floats]:
    """Return X as float64 CSR and y as floats; refuse what no baseline can learn from."""
    labels = np.asarray(y, dtype=np.float64)
    if X.shape[0] == 0:
        raise ValueError("the shard has no rows: use fewer nodes, so that each node has rows")
    if labels.shape != (X.shape[0],):
        raise ValueError(f"{labels.size} labels for {X.shape[0]} rows: give one label per row")
    if not np.isin(labels, (-1.0, 1.0)).all():
        raise ValueError("labels must be +1 and -1: say which class is +1, load_dataset(..., positive=LABEL)")
    if not 0.0 < lam < np.inf:
        raise ValueError(f"lam must be a positive number, got {lam}")
    return as_csr(X, intercept=False), labels


def one_node(n_rows: int) -> Shares:
    """All rows at a single node."""
    return Shares(np.arange(n_rows), np.array([0, n_rows]), np.empty(0))
