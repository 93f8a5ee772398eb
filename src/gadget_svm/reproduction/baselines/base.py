"""The interface of a baseline: rows, labels and lambda in; a weight vector and its time out.

Every baseline solves F(w) = lam/2 |w|^2 + mean hinge, without a bias. The caller evaluates models, outside the
measured time.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.core.rows import Shares
from gadget_svm.core.types import Floats
from gadget_svm.estimator.problem import as_csr


@dataclass(frozen=True)
class Fit:
    """A trained model and its cost; ``seconds`` does not count evaluation and compilation."""

    w: Floats
    seconds: float
    iterations: int
    epsilon: float  # the last value of the baseline's own stopping criterion; nan if it has none
    converged: bool  # whether it ended at its tolerance or its budget, not at a time limit
    trace: list[Any] = field(default_factory=list)  # seconds, iterations, [objective], [error] of models on the way


class Baseline(Protocol):
    """A way to train a linear SVM on rows in one place: a node's shard, or everything."""

    def fit(self, X: Any, y: NDArray[Any], lam: float, *, seed: int = 0) -> Fit:
        """Train on the rows of X, with labels +1 and -1."""


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
