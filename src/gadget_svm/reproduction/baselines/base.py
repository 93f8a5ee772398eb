"""What a baseline is: rows, labels and lambda in, a weight vector, its time and its trace out.

Every baseline solves F(w) = lam/2 |w|^2 + mean hinge, without a bias. Judging is the caller's, and no clock counts it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Floats

if TYPE_CHECKING:
    import scipy.sparse as sp

Evaluator = Callable[[Floats], tuple[float, float]]
"""A weight vector's objective on the training problem, and its zero-one error on the test set."""

STRIDE = 1.25
"""Points of a trace come in geometric steps: 30 of them reach from the first iteration past the 1000th."""


class Point(NamedTuple):
    """A look at a model on the way; ``seconds`` are of training alone."""

    seconds: float
    iterations: int
    objective: float
    error: float


@dataclass(frozen=True)
class Fit:
    """A trained model and what it took; ``seconds`` leave out judging and compiling."""

    w: Floats
    seconds: float
    iterations: int
    epsilon: float  # the figure the baseline's own stopping rule last saw; nan where it has no such rule
    converged: bool  # whether it ended by itself, at its tolerance or its budget, and not cut short by a limit
    trace: list[Point] = field(default_factory=list)


class Baseline(Protocol):
    """A way to train a linear SVM on the rows of one place: a node's shard, or everything."""

    @property
    def name(self) -> str:
        """As the tables call it."""

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
        """The model of these rows; ``judge`` looks at it now and then on the way."""


class Watch:
    """A clock that runs while a baseline trains and stands still while the judge looks."""

    def __init__(self, judge: Evaluator | None = None, max_seconds: float | None = None) -> None:
        self.judge, self.max_seconds = judge, max_seconds
        self.trace: list[Point] = []
        self._spent, self._since = 0.0, time.perf_counter()
        self._next = 1.0

    @property
    def seconds(self) -> float:
        """Training time so far."""
        return self._spent + time.perf_counter() - self._since

    @property
    def over(self) -> bool:
        """Whether the time allowed is used up."""
        return self.max_seconds is not None and self.seconds >= self.max_seconds

    def look(self, iterations: int, w: Floats) -> None:
        """Let the judge see w, if there is one and the next point of the trace has come."""
        if self.judge is None or iterations < self._next:
            return
        self._next = max(iterations + 1, iterations * STRIDE)
        self._spent = self.seconds
        self.trace.append(Point(self._spent, iterations, *self.judge(w)))
        self._since = time.perf_counter()

    def finish(self, w: Floats, iterations: int, epsilon: float, converged: bool) -> Fit:
        """The fit as it stands, with the last model at the end of its trace."""
        seconds = self.seconds
        if self.judge is not None and (not self.trace or self.trace[-1].iterations < iterations):
            self.trace.append(Point(seconds, iterations, *self.judge(w)))
        return Fit(w, seconds, iterations, epsilon, converged, self.trace)


def checked(X: Any, y: NDArray[Any], lam: float) -> tuple["sp.csr_matrix", Floats]:
    """X as float64 CSR and y as floats; refuses what no baseline can learn from."""
    from gadget_svm.estimator.problem import as_csr

    labels = np.asarray(y, dtype=np.float64)
    if X.shape[0] == 0:
        raise ValueError("an empty shard: there are no rows to learn from; use fewer nodes, so that each has some")
    if labels.shape != (X.shape[0],):
        raise ValueError(f"{labels.size} labels for {X.shape[0]} rows: give one label a row")
    if not np.isin(labels, (-1.0, 1.0)).all():
        raise ValueError("labels must be +1 and -1: say which class is +1, load_dataset(..., positive=LABEL)")
    if not 0.0 < lam < np.inf:
        raise ValueError(f"lam must be a positive number, got {lam}")
    return as_csr(X, intercept=False), labels
