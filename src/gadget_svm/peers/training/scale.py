"""A scale of the features: from sums over rows to a scale, from a scale to scaled rows, and back to plain weights.

Features are divided by their scale. With deviations and an intercept, features whose mean is larger than their
deviation are also shifted by the mean: otherwise all rows would point nearly the same way, and so would every vector
that is made of them. At least half of the values of such a feature are not zero, so the rows of all sites together stay
about as sparse as they were. Those of one site may not: see `Scale.filling`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.core.types import Floats
from gadget_svm.peers.wire.messages import SiteStatistics

CONSTANT = 1e-11
"""A deviation of this part of the mean or less is rounding: the feature is constant."""
TINY = 1e-100
"""Features are not divided by less: weights of unscaled features would not be finite."""
ZEROS_PER_PIECE = 4_000_000
"""Zeros that are stored at a time."""


class ScalingError(ValueError):
    """Statistics that do not fit together, and the fix."""


class Scale(NamedTuple):
    """For every feature, x becomes (x - shift) / divisor."""

    divisor: Floats
    shift: Floats

    @classmethod
    def none(cls, features: int) -> "Scale":
        """Return the scale that changes nothing."""
        return cls(np.ones(features), np.zeros(features))

    @property
    def is_plain(self) -> bool:
        """Whether it changes nothing."""
        return bool((self.divisor == 1.0).all() and not self.shift.any())

    def apply(self, X: sp.csr_matrix) -> sp.csr_matrix:
        """Return scaled rows. Zeros of shifted features are stored; everything else stays as sparse as it was."""
        moved = _with_zeros(X, np.flatnonzero(self.shift))
        data = (moved.data - self.shift[moved.indices]) / self.divisor[moved.indices]
        return sp.csr_matrix((data, moved.indices, moved.indptr), shape=X.shape)

    def filling(self, rows: int, stored: NDArray[np.int64]) -> int:
        """Return how many zeros `apply` would store, for a site with these rows and stored values per feature."""
        return int((rows - stored)[self.shift != 0.0].sum())

    def undo(self, coef: Floats, intercept: Floats) -> tuple[Floats, Floats]:
        """Return weights (outputs x features) of scaled features as weights of plain features."""
        plain = coef / self.divisor
        return plain, intercept - plain @ self.shift


def stored_values(X: sp.csr_matrix) -> NDArray[np.int64]:
    """Return the number of stored values of every feature."""
    return np.bincount(X.indices, minlength=X.shape[1]).astype(np.int64, copy=False)


def _with_zeros(X: sp.csr_matrix, columns: NDArray[np.intp]) -> sp.csr_matrix:
    """Return the rows with a stored value in every row of these columns."""
    lacking = columns[stored_values(X)[columns] < X.shape[0]]
    if not len(lacking):
        return X
    step = max(1, ZEROS_PER_PIECE // len(lacking))
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


def statistics(kind: str, name: str, X: sp.csr_matrix) -> SiteStatistics:
    """Return what a site says about its features: sums and squared distances from the mean, or the largest values."""
    rows = X.shape[0]
    if kind == "max-abs":
        largest = np.asarray(abs(X).max(axis=0).todense(), dtype=np.float64).ravel()
        return SiteStatistics(name, float(rows), largest=largest)
    total, absent = _by_column(X, X.data), rows - stored_values(X)
    with np.errstate(over="ignore", invalid="ignore"):  # the result shows what is too large
        mean = total / rows
        apart = X.data - mean[X.indices]
        drift = _by_column(X, apart) - absent * mean  # zero except for the rounding of the mean
        spread = _by_column(X, apart * apart) + absent * mean * mean - drift * drift / rows
    return SiteStatistics(name, float(rows), sum=total, spread=np.maximum(spread, 0.0))


def _by_column(X: sp.csr_matrix, data: Floats) -> Floats:
    found = np.bincount(X.indices, data, minlength=X.shape[1])  # integers if there is no value
    return found.astype(np.float64, copy=False)


def common_scale(kind: str, entries: Iterable[SiteStatistics], shifts: bool = True) -> Scale:
    """Return the scale of sites' statistics, in the order given; ``shifts`` tells whether there is an intercept.

    A constant feature is not divided, or by its mean if it is shifted: a site that joins later with another value of it
    then has no huge one.
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
