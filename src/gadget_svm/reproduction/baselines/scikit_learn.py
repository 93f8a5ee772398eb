"""LIBLINEAR (Fan et al. 2008) and SVM-SGD (Bottou 2007), both through scikit-learn.

`optimum.certified_optimum` tells how near LIBLINEAR comes to the optimum.
"""

import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC

from gadget_svm.core.types import Floats
from gadget_svm.reproduction.baselines.base import Fit

MAX_PASSES = 10_000


def liblinear(X: Any, y: Floats, lam: float, seed: int = 0, *, tol: float = 1e-4) -> Fit:
    """Train LinearSVC with the hinge loss and C = 1/(lam N) to its own tolerance. An iteration is a pass over rows."""
    model = LinearSVC(
        loss="hinge", C=1.0 / (lam * X.shape[0]), fit_intercept=False, tol=tol, max_iter=MAX_PASSES, random_state=seed,
        dual=True,
    )  # fmt: skip
    if (y == y[0]).all():  # LinearSVC needs two classes: an empty row loses 1 whatever w is
        X, y = sp.vstack([X, sp.csr_matrix((1, X.shape[1]))], format="csr"), np.append(y, -y[0])
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the result says whether it converged
        model.fit(X, y)
    seconds, passes = time.perf_counter() - started, int(model.n_iter_)
    return Fit(model.coef_[0], seconds, passes, converged=passes < MAX_PASSES)


def svm_sgd(X: Any, y: Floats, lam: float, seed: int = 0, *, epochs: int = 5) -> Fit:
    """Train SGDClassifier with Bottou's schedule, 1 / (lam (t0 + t)). An iteration is one row.

    It passes over the rows ``epochs`` times, each in a new order; the answer is the last iterate, as in his svmsgd.
    """
    order = np.random.RandomState(seed)  # an integer would give every pass the same order
    model = SGDClassifier(loss="hinge", alpha=lam, learning_rate="optimal", fit_intercept=False, random_state=order)
    started = time.perf_counter()
    for _ in range(epochs):
        model.partial_fit(X, y, classes=(-1.0, 1.0))  # `fit` refuses rows of one class
    return Fit(model.coef_[0], time.perf_counter() - started, epochs * X.shape[0])
