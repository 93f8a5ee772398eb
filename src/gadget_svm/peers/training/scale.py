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
from sklearn.utils.sparsefuncs import mean_variance_axis

from gadget_svm.core.types import Floats
from gadget_svm.peers.wire.messages import SiteStatistics

CONSTANT = 1e-11
"""A deviation of this part of the mean or less is rounding: the feature is constant."""
TINY = 1e-100
"""Features are not divided by less: weights of unscaled features would not be finite."""


class ScalingError(ValueError):
    """Statistics that do not fit together, and the fix."""


class Scale(NamedTuple):
    """For every feature, x becomes (x - shift) / divisor."""

    divisor: Floats
    shift: Floats

    def apply(self, X: sp.csr_matrix) -> sp.csr_matrix:
        """Return scaled rows. Shifted features get a value in every row; everything else stays as sparse as it was."""
        if (self.divisor == 1.0).all() and not self.shift.any():
            return X
        n, moved = X.shape[0], np.flatnonzero(self.shift)
        shifts = np.tile(-self.shift[moved], n), np.tile(moved, n), np.arange(n + 1) * len(moved)
        shifted = (X + sp.csr_matrix(shifts, shape=X.shape)) if len(moved) else X
        return sp.csr_matrix((shifted.data / self.divisor[shifted.indices], shifted.indices, shifted.indptr), X.shape)

    def filling(self, rows: int, stored: NDArray[np.int64]) -> int:
        """Return how many zeros `apply` would store, for a site with these rows and stored values per feature."""
        return int((rows - stored)[self.shift != 0.0].sum())

    def undo(self, coef: Floats, intercept: Floats) -> tuple[Floats, Floats]:
        """Return weights (outputs x features) of scaled features as weights of plain features."""
        plain = coef / self.divisor
        return plain, intercept - plain @ self.shift


def statistics(kind: str, name: str, X: sp.csr_matrix) -> SiteStatistics:
    """Return what a site says about its features: sums and squared distances from the mean, or the largest values."""
    rows = X.shape[0]
    if kind == "max-abs":
        largest = np.asarray(abs(X).max(axis=0).todense(), dtype=np.float64).ravel()
        return SiteStatistics(name, float(rows), largest=largest)
    mean, variance = mean_variance_axis(X.astype(np.float64, copy=False), axis=0)
    return SiteStatistics(name, float(rows), sum=mean * rows, spread=np.maximum(variance * rows, 0.0))


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
