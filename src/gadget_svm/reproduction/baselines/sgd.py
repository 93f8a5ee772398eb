"""SVM-SGD (Bottou 2007): scikit-learn's SGDClassifier with his schedule, 1 / (lam (t0 + t))."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier

from gadget_svm.reproduction.baselines.base import Fit, checked

LARGEST_PIECE_ROWS = 2**16
"""Rows handed over together at most: shuffled rows are a copy, and memory stays bounded."""


@dataclass(frozen=True)
class SvmSgd:
    """``epochs`` passes over the rows, each in a new order; the answer is the last iterate, as in Bottou's svmsgd."""

    epochs: int = 5

    def fit(self, X: Any, y: NDArray[Any], lam: float, *, seed: int = 0) -> Fit:
        """Train on all of X; an iteration is one row seen."""
        rows, labels = checked(X, y, lam)
        model = SGDClassifier(
            loss="hinge", penalty="l2", alpha=lam, learning_rate="optimal", fit_intercept=False, shuffle=False
        )
        started, rng, n = time.perf_counter(), np.random.default_rng(seed), len(labels)
        for first in range(0, self.epochs * n, n):
            cuts = [mark - first for mark in range(0, self.epochs * n, LARGEST_PIECE_ROWS) if first < mark < first + n]
            for piece in np.split(rng.permutation(n), cuts):
                model.partial_fit(rows[piece], labels[piece], classes=(-1.0, 1.0))
        return Fit(model.coef_[0], time.perf_counter() - started, self.epochs * n, np.nan, True)
