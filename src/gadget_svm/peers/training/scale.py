"""What features are divided by, and shifted by: from sums over rows to a scale, and from that to scaled rows and back.

Features are divided. With deviations and an intercept, those whose mean is larger than their deviation are also shifted
by it: else all rows would point nearly the same way, and so would every vector that is made of them. Of such a feature
half the values or more are not zero (if a share p is, the mean's square is at most 1/p - 1 times the variance), so that
the rows of all sites, taken together, stay about as sparse as they were. One site's may not: see `Scale.filling`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.peers.messages import Entry

Floats = NDArray[np.float64]
CONSTANT = 1e-11
"""A deviation of so little of the mean is rounding: the feature never varies."""
TINY = 1e-100
"""Features are not divided by less: weights for the unscaled ones might be no numbers."""
PIECE = 4_000_000
"""Zeros that are written out at a time."""


class ScalingError(ValueError):
    """Statistics that do not go together, and what to do about it."""


class Scale(NamedTuple):
    """Of every feature: x becomes (x - shift) / divisor."""

    divisor: Floats
    shift: Floats

    @classmethod
    def none(cls, features: int) -> "Scale":
        """Features as they are."""
        return cls(np.ones(features), np.zeros(features))

    def apply(self, X: sp.csr_matrix) -> sp.csr_matrix:
        """Scaled rows: what was zero and is shifted is written out, all else is as sparse as it was."""
        moved = _written_out(X, np.flatnonzero(self.shift))
        data = (moved.data - self.shift[moved.indices]) / self.divisor[moved.indices]
        return sp.csr_matrix((data, moved.indices, moved.indptr), shape=X.shape)

    def filling(self, rows: int, stored: NDArray[np.int64]) -> int:
        """How many zeros of a site would be written out that has so many rows, and so many values of every feature."""
        return int((rows - stored)[self.shift != 0.0].sum())

    def undo(self, coef: Floats, intercept: Floats) -> tuple[Floats, Floats]:
        """Weights (outputs x features) of scaled features as those of unscaled ones."""
        plain = coef / self.divisor
        return plain, intercept - plain @ self.shift


def values_of(X: sp.csr_matrix) -> NDArray[np.int64]:
    """How many are stored of every feature."""
    return np.bincount(X.indices, minlength=X.shape[1]).astype(np.int64, copy=False)


def _written_out(X: sp.csr_matrix, columns: NDArray[np.intp]) -> sp.csr_matrix:
    """With a value of every row in these columns, be it a zero."""
    lacking = columns[values_of(X)[columns] < X.shape[0]]
    if not len(lacking):
        return X
    step = max(1, PIECE // len(lacking))
    pieces = [_filled(X[start : start + step], lacking) for start in range(0, X.shape[0], step)]
    return pieces[0] if len(pieces) == 1 else sp.vstack(pieces, format="csr")


def _filled(X: sp.csr_matrix, columns: NDArray[np.intp]) -> sp.csr_matrix:
    ones = sp.csr_matrix((np.ones(X.nnz, dtype=np.int8), X.indices, X.indptr), shape=X.shape)
    row, place = np.nonzero(ones[:, columns].toarray() == 0)
    entries = X.tocoo()
    rows, at = np.concatenate([entries.row, row]), np.concatenate([entries.col, columns[place]])
    whole = sp.csr_matrix((np.concatenate([entries.data, np.zeros(len(row))]), (rows, at)), shape=X.shape)
    whole.sort_indices()
    return whole


def statistics(kind: str, name: str, X: sp.csr_matrix) -> Entry:
    """What one site says about its features: sums and squared distances from their mean, or the largest of each."""
    rows = X.shape[0]
    if kind == "max-abs":
        return Entry(name, float(rows), largest=np.asarray(abs(X).max(axis=0).todense(), dtype=np.float64).ravel())
    total, absent = _by_column(X, X.data), rows - values_of(X)
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is seen by the result
        mean = total / rows
        apart = X.data - mean[X.indices]
        drift = _by_column(X, apart) - absent * mean  # zero, but for the rounding of the mean
        spread = _by_column(X, apart * apart) + absent * mean * mean - drift * drift / rows
    return Entry(name, float(rows), sum=total, spread=np.maximum(spread, 0.0))


def _by_column(X: sp.csr_matrix, data: Floats) -> Floats:
    return np.bincount(X.indices, data, minlength=X.shape[1]).astype(np.float64, copy=False)  # of no entry: integers


def common_scale(kind: str, entries: Iterable[Entry], shifts: bool = True) -> Scale:
    """From sites' statistics in the order given. A feature that never varies is not divided, or if it is shifted then
    by its mean, so that one who comes later with another value has no monstrous one.

    ``shifts``: whether there is an intercept to make up for it.
    """
    known = list(entries)
    if not known:
        raise ScalingError("no site's statistics are known")
    if kind == "max-abs":
        largest = np.array([entry.largest for entry in known]).max(axis=0)
        return Scale(np.where(largest > TINY, largest, 1.0), np.zeros(len(largest)))
    rows = np.array([entry.rows for entry in known])[:, None]
    total, spread = np.array([entry.sum for entry in known]), np.array([entry.spread for entry in known])
    mean = total.sum(axis=0) / rows.sum()
    between = rows * (total / rows - mean) ** 2
    deviation = np.sqrt((spread + between).sum(axis=0) / rows.sum())
    deviation[deviation <= np.maximum(CONSTANT * np.abs(mean), TINY)] = 0.0
    shift = np.where((np.abs(mean) > np.maximum(deviation, TINY)) & shifts, mean, 0.0)
    unvarying = np.where(shift != 0.0, np.abs(shift), 1.0)
    return Scale(np.where(deviation > 0.0, deviation, unvarying), shift)
