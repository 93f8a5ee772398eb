"""LIBLINEAR on all rows (Fan et al. 2008), through scikit-learn: the usual choice with the data in one place.

How near it comes to the optimum is measured by `optimum.certified_optimum`.
"""

import warnings
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from gadget_svm.core.types import Floats
from gadget_svm.reproduction.baselines.base import Fit, Limits, TrainingClock, checked


@dataclass(frozen=True)
class Liblinear:
    """LinearSVC with the hinge loss and C = 1/(lam N), to its own tolerance ``tol``, ``max_iter`` passes at most."""

    tol: float = 1e-4
    max_iter: int = 10_000

    def fit(self, X: Any, y: NDArray[Any], lam: float, *, seed: int = 0, **limits: Unpack[Limits]) -> Fit:
        """Train on all of X; an iteration is a pass. The trace is its end, because the solver cannot be interrupted.

        Under a time limit it is therefore run again with twice the passes until the limit is reached.
        """
        rows, labels = _two_classes(*checked(X, y, lam))
        C = 1.0 / (lam * X.shape[0])
        clock = TrainingClock(**limits)
        passes = self.max_iter if clock.max_seconds is None else 1
        while True:
            model = LinearSVC(
                loss="hinge", C=C, fit_intercept=False, tol=self.tol, max_iter=passes, random_state=seed, dual=True
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the fit says whether it converged
                model.fit(rows, labels)
            done = int(model.n_iter_)
            if done < passes or passes == self.max_iter or clock.expired:
                return clock.finish(model.coef_[0], done, np.nan, done < passes)
            passes = min(2 * passes, self.max_iter)


def _two_classes(X: Any, y: Floats) -> tuple[Any, Floats]:
    """LinearSVC refuses a single class. An empty row of the other class has loss 1 for every w, and changes nothing."""
    if (y != y[0]).any():
        return X, y
    return sp.vstack([X, sp.csr_matrix((1, X.shape[1]))], format="csr"), np.append(y, -y[0])
