"""SVM-SGD (Bottou 2007): scikit-learn's SGDClassifier with his schedule, 1 / (lam (t0 + t))."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier

from gadget_svm.core.types import Ints
from gadget_svm.reproduction.baselines.base import TRACE_STRIDE, Fit, Limits, TrainingClock, checked

LARGEST_PIECE_ROWS = 2**16
"""Rows handed over together at most: shuffled rows are a copy, and memory stays bounded."""
FIRST_PIECES_PER_EPOCH = 200
"""With a trace, the first piece is an epoch divided by this number."""


@dataclass(frozen=True)
class SvmSgd:
    """``epochs`` passes over the rows, each in a new order; the answer is the last iterate, as in Bottou's svmsgd.

    For a trace the rows are handed over in smaller pieces: w differs by rounding alone, but scikit-learn's checks take
    a millisecond or two per piece, so take ``seconds`` from a run without a trace.
    """

    epochs: int = 5

    def fit(self, X: Any, y: NDArray[Any], lam: float, *, seed: int = 0, **limits: Unpack[Limits]) -> Fit:
        """Train on all of X; an iteration is one row seen."""
        rows, labels = checked(X, y, lam)
        model = SGDClassifier(
            loss="hinge", penalty="l2", alpha=lam, learning_rate="optimal", fit_intercept=False, shuffle=False
        )
        clock, seen = TrainingClock(**limits), 0
        for piece in self._pieces(len(labels), seed, fine=clock.evaluate is not None):
            model.partial_fit(rows[piece], labels[piece], classes=(-1.0, 1.0))
            seen += len(piece)
            clock.record(seen, model.coef_[0].copy())
            if clock.expired:
                break
        return clock.finish(model.coef_[0].copy(), seen, np.nan, seen == self.epochs * len(labels))

    def _pieces(self, n: int, seed: int, fine: bool) -> Iterator[Ints]:
        """Row numbers in the order they are learned from, piece by piece."""
        total, rng = self.epochs * n, np.random.default_rng(seed)
        marks = np.concatenate([np.arange(0, total + 1, LARGEST_PIECE_ROWS), [total]])
        if fine:
            steps = np.arange(np.log(FIRST_PIECES_PER_EPOCH * self.epochs) / np.log(TRACE_STRIDE))
            marks = np.concatenate([marks, np.ceil(n / FIRST_PIECES_PER_EPOCH * TRACE_STRIDE**steps).astype(np.int64)])
        for epoch in range(self.epochs):
            cuts = np.unique(marks[(marks > epoch * n) & (marks < (epoch + 1) * n)]) - epoch * n
            yield from np.split(rng.permutation(n), cuts)
