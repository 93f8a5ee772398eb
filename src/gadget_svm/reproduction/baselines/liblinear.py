"""LIBLINEAR on all rows (Fan et al. 2008), through scikit-learn: the usual choice with the data in one place.

How near it comes to the optimum is measured by `optimum.certified_optimum`.
"""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from gadget_svm.reproduction.baselines.base import Fit, checked


@dataclass(frozen=True)
class Liblinear:
    """LinearSVC with the hinge loss and C = 1/(lam N), to its own tolerance ``tol``, ``max_iter`` passes at most."""

    tol: float = 1e-4
    max_iter: int = 10_000

    def fit(self, X: Any, y: NDArray[Any], lam: float, *, seed: int = 0) -> Fit:
        """Train on all of X; an iteration is a pass."""
        rows, labels = checked(X, y, lam)
        if (labels == labels[0]).all():  # LinearSVC needs two classes: an empty row loses 1 whatever w is
            rows = sp.vstack([rows, sp.csr_matrix((1, rows.shape[1]))], format="csr")
            labels = np.append(labels, -labels[0])
        model = LinearSVC(
            loss="hinge", C=1.0 / (lam * X.shape[0]), fit_intercept=False, tol=self.tol, max_iter=self.max_iter,
            random_state=seed, dual=True,
        )  # fmt: skip
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the fit says whether it converged
            model.fit(rows, labels)
        done = int(model.n_iter_)
        return Fit(model.coef_[0], time.perf_counter() - started, done, np.nan, done < self.max_iter)
