"""The rows of a block's nodes, as plain arrays that kernels read. `data` reads files and partitions rows."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.types import Floats, Indices, Ints

NO_PAIRS = np.empty((0, 2), dtype=np.int32)


class Shares(NamedTuple):
    """Which rows a node owns: node i owns rows ``order[start[i]:start[i+1]]``, each with multiplicity ``times``.

    An empty ``times`` means once each. A row of integer weight may be assigned to several nodes, a part to each.
    """

    order: Ints
    start: Ints
    times: Floats

    @property
    def sizes(self) -> Floats:
        """n_i, the rows of every node with their multiplicity; each sum is over the node's own rows only."""
        if not len(self.times):
            return np.diff(self.start).astype(np.float64)
        pairs = zip(self.start[:-1], self.start[1:], strict=True)
        return np.array([np.cumsum(self.times[lo:hi])[-1] if hi > lo else 0.0 for lo, hi in pairs], dtype=np.float64)


class Rows(NamedTuple):
    """CSR rows with their class index and cost, and which node owns them.

    The features of a row are in ascending order, each once. ``mass`` is the multiplicity, cumulative within a node.
    ``pairs`` holds the two classes of every output if outputs are one against one, +1 first; else it is empty.
    If ``intercept_unit`` is positive, the last entry of every row is the 1 of the last feature, whose weight is the
    intercept. An algorithm may hold that weight in units in which the feature is ``intercept_unit``.
    """

    indptr: Indices
    indices: Indices
    data: Floats
    label: Indices
    cost: Floats
    order: Ints
    start: Ints
    mass: Floats
    pairs: Indices = NO_PAIRS
    intercept_unit: float = 0.0

    @classmethod
    def of(
        cls, X: sp.csr_matrix, label: Indices, cost: Floats, shares: Shares,
        pairs: Indices = NO_PAIRS, intercept_unit: float = 0.0,
    ) -> "Rows":  # fmt: skip
        """Return the rows of X, assigned by ``shares``. X is not copied."""
        mass = np.empty(len(shares.times))
        if len(mass):
            for lo, hi in zip(shares.start[:-1], shares.start[1:], strict=True):
                mass[lo:hi] = np.cumsum(shares.times[lo:hi])
        return cls(X.indptr, X.indices, X.data, label, cost, shares.order, shares.start, mass, pairs, intercept_unit)

    def matrix(self, width: int | None = None) -> sp.csr_matrix:
        """Return the rows of all nodes as a scipy matrix, without a copy; the width is that of the widest row."""
        width = int(self.indices.max(initial=-1)) + 1 if width is None else width
        return sp.csr_matrix((self.data, self.indices, self.indptr), shape=(len(self.label), width))

    def of_nodes(self, first: int, last: int) -> "Rows":
        """Return the rows of the nodes first:last; the CSR arrays are shared, not copied."""
        lo, hi = self.start[first], self.start[last]
        return self._replace(order=self.order[lo:hi], start=self.start[first : last + 1] - lo, mass=self.mass[lo:hi])
