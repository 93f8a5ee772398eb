"""LIBLINEAR on all rows (Fan et al. 2008), through scikit-learn: what one would run with the data in one place.

How near it came to the optimum is not its word: `optimum.certified_optimum` encloses F* by a duality gap.
"""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Floats
from gadget_svm.reproduction.baselines.base import Evaluator, Fit, Watch, checked

if TYPE_CHECKING:
    import scipy.sparse as sp


@dataclass(frozen=True)
class Liblinear:
    """LinearSVC with the hinge loss and C = 1/(lam N), to its own tolerance ``tol``, ``max_iter`` passes at most."""

    name: ClassVar[str] = "liblinear"
    tol: float = 1e-4
    max_iter: int = 10_000

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
        """Train on all of X; an iteration is a pass. It cannot be looked at on the way: the trace is its end.

        Nor can it be interrupted: under a time limit it is run anew with twice the passes until the limit has passed.
        """
        import sklearn.svm  # noqa: F401 here, so that no clock counts it

        rows, labels = _two_classes(*checked(X, y, lam))
        C = 1.0 / (lam * X.shape[0])
        passes = self.max_iter if max_seconds is None else 1
        watch = Watch(judge, max_seconds)
        while True:
            w, done = self._passes(rows, labels, C, seed, passes)
            if done < passes or passes == self.max_iter or watch.over:
                return watch.finish(w, done, np.nan, done < passes)
            passes = min(2 * passes, self.max_iter)

    def _passes(self, X: Any, y: Floats, C: float, seed: int, passes: int) -> tuple[Floats, int]:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.svm import LinearSVC

        model = LinearSVC(
            loss="hinge", C=C, fit_intercept=False, tol=self.tol, max_iter=passes, random_state=seed, dual=True
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the fit says so itself: converged
            model.fit(X, y)
        return model.coef_[0], int(model.n_iter_)


def _two_classes(X: Any, y: Floats) -> tuple[Any, Floats]:
    """LinearSVC refuses a single class. An empty row of the other one loses 1 whatever w is, and changes nothing."""
    import scipy.sparse as sp

    if (y != y[0]).any():
        return X, y
    return sp.vstack([X, sp.csr_matrix((1, X.shape[1]))], format="csr"), np.append(y, -y[0])
