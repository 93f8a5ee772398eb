"""SVM-SGD (Bottou 2007): scikit-learn's SGDClassifier with his schedule, 1 / (lam (t0 + t)). No step stands here."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Ints
from gadget_svm.reproduction.baselines.base import STRIDE, Evaluator, Fit, Watch, checked

if TYPE_CHECKING:
    import scipy.sparse as sp

LARGEST = 2**16
"""Rows handed over together at most: shuffled rows are a copy, and memory stays bounded."""
FIRST = 200
"""The first piece is this part of an epoch, where pieces are small at all."""


@dataclass(frozen=True)
class SvmSgd:
    """``epochs`` passes over the rows, each in a new order; the answer is the last iterate, as in Bottou's svmsgd.

    For a judge the rows are handed over in smaller pieces: w differs by rounding alone, but scikit-learn's checks take
    a millisecond or two a piece, so take ``seconds`` from a run that nobody judges.
    """

    name: ClassVar[str] = "svm-sgd"
    epochs: int = 5

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
        """Train on all of X; an iteration is one row seen."""
        from sklearn.linear_model import SGDClassifier

        rows, labels = checked(X, y, lam)
        model = SGDClassifier(
            loss="hinge", penalty="l2", alpha=lam, learning_rate="optimal", fit_intercept=False, shuffle=False
        )
        watch, seen = Watch(judge, max_seconds), 0
        for piece in self._pieces(len(labels), seed, fine=judge is not None):
            model.partial_fit(rows[piece], labels[piece], classes=(-1.0, 1.0))
            seen += len(piece)
            watch.look(seen, model.coef_[0].copy())
            if watch.over:
                break
        return watch.finish(model.coef_[0].copy(), seen, np.nan, seen == self.epochs * len(labels))

    def _pieces(self, n: int, seed: int, fine: bool) -> Iterator[Ints]:
        """Row numbers in the order they are learned from, piece by piece."""
        total, rng = self.epochs * n, np.random.default_rng(seed)
        marks = np.concatenate([np.arange(0, total + 1, LARGEST), [total]])
        if fine:
            steps = np.arange(np.log(FIRST * self.epochs) / np.log(STRIDE))
            marks = np.concatenate([marks, np.ceil(n / FIRST * STRIDE**steps).astype(np.int64)])
        for epoch in range(self.epochs):
            cuts = np.unique(marks[(marks > epoch * n) & (marks < (epoch + 1) * n)]) - epoch * n
            yield from np.split(rng.permutation(n), cuts)
