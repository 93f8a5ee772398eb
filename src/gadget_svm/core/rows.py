"""The rows of a block's nodes, as plain arrays that kernels read, and the problem on them.

The problem is F(w) = lam/2 |w|^2 + (1/N) sum_r c_r max(0, 1 - y_r <w, x_r>), one per output. If outputs are one against
the rest, each sees all rows. If they are one against one, each sees the rows of its two classes; the sum is still
divided by N. `data` reads files and partitions rows.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.types import Floats, Indices, Ints
from gadget_svm.kernels import ThreadTeam
from gadget_svm.kernels.rows import NO_PAIRS, losses


class Shares(NamedTuple):
    """Which rows a node owns: node i owns rows ``order[start[i]:start[i+1]]``, each with multiplicity ``times``.

    If ``times`` is empty, every row counts once. The copies of a row whose weight is a whole
    number may be assigned to several nodes.
    """

    order: Ints
    start: Ints
    times: Floats

    @property
    def sizes(self) -> Floats:
        """Return n_i, every node's number of rows with their multiplicity; each sum is over its own rows only."""
        if not len(self.times):
            return np.diff(self.start).astype(np.float64)
        pairs = zip(self.start[:-1], self.start[1:], strict=True)
        return np.array([np.cumsum(self.times[lo:hi])[-1] if hi > lo else 0.0 for lo, hi in pairs], dtype=np.float64)


class Rows(NamedTuple):
    """CSR rows, each with its class index, its cost, and the node that owns it.

    The features of a row are in ascending order, each once. ``mass`` is the multiplicity, cumulative within a node.
    ``pairs`` holds the two classes of every output if outputs are one against one, +1 first; else it is empty.
    If ``intercept_unit`` is positive, the last feature has the value 1 in every row, and its weight is the intercept.
    An algorithm may use the value ``intercept_unit`` in place of 1; it then holds the intercept divided by that value.
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


CHUNK, BATCH = 1 << 16, 32  # scores computed together; weight vectors evaluated together


class Scores(NamedTuple):
    """Per model: the objective (summed over outputs) and the zero-one error."""

    objective: Floats
    error: Floats


@dataclass(frozen=True)
class Objective:
    """The objective over the rows of all nodes. Observers evaluate it; nodes never see it."""

    X: sp.csr_matrix
    label: Indices
    cost: Floats
    times: Floats
    lam: float
    n_outputs: int
    team: ThreadTeam = field(default_factory=ThreadTeam)
    pairs: Indices = field(default_factory=lambda: NO_PAIRS)  # of classes, if one against one

    def __call__(self, models: Floats) -> Scores:
        """Return the scores of models (m x outputs x features); a few at a time, so that memory stays bounded."""
        per_batch = max(1, BATCH // self.n_outputs)
        parts = [self._batch(models[i : i + per_batch]) for i in range(0, len(models), per_batch)]
        return Scores(np.concatenate([p.objective for p in parts]), np.concatenate([p.error for p in parts]))

    def _batch(self, models: Floats) -> Scores:
        m, K, d = models.shape
        W = np.ascontiguousarray(models.reshape(m * K, d).T)
        rows = CHUNK // (m * K) + 1
        chunks = -(-len(self.label) // rows)
        hinge, wrong = np.zeros((chunks, m * K)), np.zeros((chunks, m))
        self.team.run(
            losses, chunks, self.X.nnz * m * K // max(chunks, 1), rows, self.X, self.label, self.cost * self.times,
            self.times, self.pairs, W, K, hinge, wrong,
        )  # fmt: skip
        total = self.times.sum()
        loss = hinge.sum(axis=0).reshape(m, K).sum(axis=1) / total
        ridge = 0.5 * self.lam * np.einsum("mkd,mkd->m", models, models)
        return Scores(ridge + loss, wrong.sum(axis=0) / total)
