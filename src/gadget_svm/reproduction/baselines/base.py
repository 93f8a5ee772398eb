"""The interface of a baseline: it takes rows, labels, lambda and a seed, and returns a weight vector and its time.

Every baseline solves F(w) = lam/2 |w|^2 + mean hinge, without a bias. The caller evaluates models, outside the
measured time.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gadget_svm.core.rows import Shares
from gadget_svm.core.types import Floats


@dataclass(frozen=True)
class Fit:
    """A trained model and its cost; ``seconds`` does not count evaluation and compilation."""

    w: Floats
    seconds: float
    iterations: int
    epsilon: float = np.nan  # the last value of the baseline's own stopping criterion, if it has one
    converged: bool = True  # whether it ended at its tolerance or its budget, not at a time limit
    trace: list[Any] = field(default_factory=list)  # [seconds, iteration, [objective], [error]] of models on the way


def one_node(n_rows: int) -> Shares:
    """Assign all rows to a single node."""
    return Shares(np.arange(n_rows), np.array([0, n_rows]), np.empty(0))
