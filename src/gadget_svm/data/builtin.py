"""The two data sets that come with scikit-learn, for demos and tests without a network: owns their scaling
and their fixed split."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.data.paper_datasets import TrainTest


def digits() -> TrainTest:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return _sparse(*_split(X / 16.0, y))


def breast_cancer() -> TrainTest:
    from sklearn.datasets import load_breast_cancer

    X, X_test, y, y_test = _split(*load_breast_cancer(return_X_y=True))
    largest = np.abs(X).max(axis=0)
    return _sparse(X / largest, X_test / largest, y, y_test)


def _split(X: NDArray[Any], y: NDArray[Any]) -> list[NDArray[Any]]:
    from sklearn.model_selection import train_test_split

    return list(train_test_split(X, y, test_size=0.25, stratify=y, random_state=0))


def _sparse(X: NDArray[Any], X_test: NDArray[Any], y: NDArray[Any], y_test: NDArray[Any]) -> TrainTest:
    from scipy.sparse import csr_matrix

    return TrainTest(csr_matrix(X), y, csr_matrix(X_test), y_test)
