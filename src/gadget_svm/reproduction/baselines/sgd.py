"""SVM-SGD (Bottou 2007): scikit-learn's SGDClassifier with his schedule, 1 / (lam (t0 + t))."""

import time
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier

from gadget_svm.core.types import Floats
from gadget_svm.reproduction.baselines.base import Fit


def svm_sgd(X: Any, y: Floats, lam: float, seed: int = 0, *, epochs: int = 5) -> Fit:
    """Pass over the rows ``epochs`` times, each in a new order; the answer is the last iterate, as in his svmsgd.

    An iteration is one row.
    """
    order = np.random.RandomState(seed)  # an integer would give every pass the same order
    model = SGDClassifier(loss="hinge", alpha=lam, learning_rate="optimal", fit_intercept=False, random_state=order)
    started = time.perf_counter()
    for _ in range(epochs):
        model.partial_fit(X, y, classes=(-1.0, 1.0))  # `fit` refuses rows of one class
    return Fit(model.coef_[0], time.perf_counter() - started, epochs * X.shape[0])
