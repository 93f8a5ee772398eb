"""Dual coordinate ascent for the hinge loss on one node's rows, warm-started (Hsieh et al. 2008).

Owns the local problem  min over w of  kappa/2 |w|^2 + S.w + sum_r c_r max(0, 1 - y_r x_r.w)  ; other modules choose S
and kappa. Its solution is w = (sum_r alpha_r y_r x_r - S) / kappa with 0 <= alpha_r <= c_r.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.types import Bytes, Flags, Floats, Indices, Ints
from gadget_svm.kernels.compiler import allocation_free, compiled
from gadget_svm.kernels.counter_rng import EXAMPLE, draw
from gadget_svm.kernels.rows import NO_PAIRS, side
from gadget_svm.kernels.vectors import add_row, add_sorted_row, dot_row, dot_sorted_row, prefetch_sparse_row

LONG_ROW_ENTRIES = 32
"""If rows have at least this many entries on average, grouping a node's rows saves no time."""
PREFETCH_ROWS = 2
"""How many rows before its use a row is prefetched."""
SKIP_ALWAYS = 255
"""The skip count of a row that the output does not see: it is not counted down."""


class DualRows(NamedTuple):
    """CSR rows and their owners: node i owns the places start[i]:start[i+1], and place p holds row ``order[p]``.

    ``upper[p]`` is c_r times the row's multiplicity, ``norm2[p]`` is |x_r|^2. `side` explains ``pairs``.
    If ``constant`` is positive, it replaces the last entry of every row, which belongs to the intercept.
    """

    indptr: Indices
    indices: Indices
    data: Floats
    label: Indices
    order: Ints
    start: Ints
    upper: Floats
    norm2: Floats
    pairs: Indices = NO_PAIRS
    constant: float = 0.0

    @classmethod
    def of(cls, rows: Any, top: float) -> "DualRows":
        """Return the rows of a block (`core.rows.Rows`), each bounded by top * its cost * its multiplicity."""
        norm2 = sq_norms(rows)[rows.order] if len(rows.order) else np.empty(0)
        upper = top * rows.cost[rows.order] * multiplicity(rows.mass, rows.start)
        return cls(rows.indptr, rows.indices, rows.data, rows.label, rows.order, rows.start, upper, norm2, rows.pairs)

    def with_constant(self, constant: float) -> "DualRows":
        """Return the rows with this value as the last entry of every row."""
        return self._replace(norm2=np.maximum(self.norm2 - 1.0, 0.0) + constant**2, constant=constant)

    def unseen(self) -> Flags:
        """Return, outputs x places, which rows an output does not see because they are in neither of its classes."""
        label = self.label[self.order]
        return np.asarray((self.pairs[:, :1] != label) & (self.pairs[:, 1:] != label))

    def grouped(self) -> "DualRows":
        """Return short rows copied into the order of their places, so that a pass over a node reads a near cache.

        Long rows fill cache lines by themselves wherever they lie, and are not copied.
        """
        here = np.arange(len(self.order), dtype=np.int64)
        too_many = np.diff(self.indptr)[self.order].sum() > np.iinfo(self.indptr.dtype).max  # rows of several nodes
        if len(self.data) >= LONG_ROW_ENTRIES * len(self.label) or too_many or np.array_equal(self.order, here):
            return self.unsigned()
        X = as_matrix(self, self.data)[self.order]
        label = self.label[self.order]
        return self._replace(indptr=X.indptr, indices=X.indices, data=X.data, label=label, order=here).unsigned()

    def unsigned(self) -> "DualRows":
        """Return the rows with indices of an unsigned type: compiled code then does not check for negative ones."""
        return self._replace(indices=self.indices.view(np.dtype(f"u{self.indices.dtype.itemsize}")))


def dual_rows(block: Any) -> DualRows:
    """Return a block's rows, each bounded by its cost and multiplicity. The block keeps them for the next call."""
    made: DualRows = block.once("dual_rows", lambda: DualRows.of(block.rows, 1.0))
    return made


def multiplicity(mass: Floats, start: Ints) -> Floats:
    """Return how often each place counts, from ``mass``, which is cumulative within a node; if it is empty, once."""
    if not len(mass):
        return np.ones(start[-1])
    times = np.diff(mass, prepend=0.0)
    owned = start[:-1][np.diff(start) > 0]
    times[owned] = mass[owned]
    return times


def sq_norms(rows: Any) -> Floats:
    """Return |x_r|^2 of every row, added entry by entry, so that it does not depend on the other rows."""
    squares = as_matrix(rows, rows.data * rows.data)
    return np.asarray(squares @ np.ones(squares.shape[1]))


def as_matrix(rows: Any, data: Floats) -> sp.csr_matrix:
    """Return the rows with these entries as a scipy matrix."""
    n_features = int(rows.indices.max(initial=0)) + 1
    return sp.csr_matrix((data, rows.indices, rows.indptr), shape=(len(rows.label), n_features))


@allocation_free
def primal(w: Floats, alpha: Floats, rows: DualRows, i: int, target: int, S: Floats, kappa: float) -> None:
    """Set w = (sum_r alpha_r y_r x_r - S) / kappa, over the rows of node i."""
    for j in range(len(w)):
        w[j] = -S[j] / kappa
    for p in range(rows.start[i], rows.start[i + 1]):
        if alpha[p] > 0.0:
            r = rows.order[p]
            y = side(rows.pairs, target, rows.label[r])
            add_row(w, alpha[p] * y / kappa, rows.indices, rows.data, rows.indptr[r], rows.indptr[r + 1])


@allocation_free
def shuffle(perm: Ints, lo: int, hi: int, seed: int, node: int, clock: int) -> None:
    """Shuffle perm[lo:hi], by (seed, node, clock) alone."""
    for p in range(hi - 1, lo, -1):
        q = lo + int(draw(seed, node, (clock << 32) + p - lo, EXAMPLE) * (p - lo + 1))
        perm[p], perm[q] = perm[q], perm[p]


@compiled
def dual_pass(
    w: Floats, alpha: Floats, perm: Ints, rows: DualRows, lo: int, hi: int, target: int, kappa: float
) -> float:
    """alpha_r <- clip[0, c_r](alpha_r + (1 - y_r x_r.w) kappa / |x_r|^2) in the order of ``perm``; update w.

    Returns the largest violation: how far a margin is on the wrong side of 1 for its alpha, 0 at the optimum.
    """
    worst, _ = path_pass(w, alpha, perm, np.empty(len(alpha)), np.inf, rows, lo, hi, target, kappa)
    return worst


@allocation_free
def path_pass(
    w: Floats, alpha: Floats, perm: Ints, path_limit: Floats, path: float, rows: DualRows, lo: int, hi: int,
    target: int, kappa: float,
) -> tuple[float, float]:  # fmt: skip
    """Do a `dual_pass` without the rows whose alpha cannot change; return the largest violation found, and ``path``.

    ``path`` is the length of the path of w so far. If an alpha is at its bound and the margin of its row differs from 1
    by m, alpha stays there until w has moved m / |x_r| further, to the length ``path_limit``. If 1 row in 50 is a
    support vector, most rows are left out. With an infinite ``path`` no row is left out.
    """
    worst = 0.0
    for place in range(lo, hi):
        p = perm[place]
        if path < path_limit[p]:
            continue
        r, upper, norm2 = rows.order[p], rows.upper[p], rows.norm2[p]
        if norm2 == 0.0:
            alpha[p], path_limit[p] = upper, np.inf  # an empty row's loss is 1 whatever w is
            continue
        first, last = rows.indptr[r], rows.indptr[r + 1]
        y = side(rows.pairs, target, rows.label[r])
        slack = 1.0 - y * dot_row(w, rows.indices, rows.data, first, last)
        if (alpha[p] <= 0.0 and slack <= 0.0) or (alpha[p] >= upper and slack >= 0.0):
            path_limit[p] = path + abs(slack) / np.sqrt(norm2)
            continue
        worst = max(worst, abs(slack))
        moved = min(max(alpha[p] + slack * kappa / norm2, 0.0), upper)
        add_row(w, (moved - alpha[p]) * y / kappa, rows.indices, rows.data, first, last)
        path += abs(moved - alpha[p]) * np.sqrt(norm2) / kappa
        alpha[p] = moved
    return worst, path


@allocation_free
def active_rows(perm: Ints, skip: Bytes, lo: int, hi: int, seed: int, node: int, clock: int) -> int:
    """Write the places of lo:hi that are not skipped to perm[lo:end], shuffled; count down the rest; return end."""
    end = lo
    for p in range(lo, hi):
        if skip[p] == 0:
            perm[end] = p
            end += 1
    mine = skip[lo:hi]
    for p in range(len(mine)):  # a loop of its own, which the compiler vectorises
        if mine[p] != 0 and mine[p] != SKIP_ALWAYS:
            mine[p] -= 1
    shuffle(perm, lo, end, seed, node, clock)
    return end


@allocation_free
def shrinking_pass(
    w: Floats, alpha: Floats, skip: Bytes, perm: Ints, rows: DualRows, lo: int, hi: int, target: int, kappa: float,
    ratio: float, unit: float, most: float,
) -> float:  # fmt: skip
    """Do a `dual_pass` with shrinking: skip a row for some passes if it is at its bound with a margin far on the right
    side.

    It is skipped for one pass per ``unit`` that its margin is on the right side of 1, for at most ``most`` passes. So
    every row returns, alpha stays feasible, and the optimum is the same. Most rows of real data are skipped most of the
    time. If rows have a constant feature, kappa / ``ratio`` replaces kappa for its weight. Returns the mean |1 -
    margin| where an alpha moved; 0 if none moved.
    """
    total, count, unit, constant, end = 0.0, 0, max(unit, 1e-12), rows.constant, len(w) - 1
    without, more = 1 if constant > 0.0 else 0, constant * constant * (ratio - 1.0)
    for place in range(lo, hi):
        p = perm[place]
        if place + PREFETCH_ROWS < hi:
            soon = rows.order[perm[place + PREFETCH_ROWS]]
            prefetch_sparse_row(rows.indices, rows.data, rows.indptr[soon], rows.indptr[soon + 1])
        r, upper = rows.order[p], rows.upper[p]
        if rows.norm2[p] == 0.0:
            alpha[p] = upper  # an empty row's loss is 1 whatever w is
            continue
        first, last = rows.indptr[r], rows.indptr[r + 1] - without
        y = side(rows.pairs, target, rows.label[r])
        slack = 1.0 - y * (dot_sorted_row(w, rows.indices, rows.data, first, last) + constant * w[end])
        if (alpha[p] <= 0.0 and slack <= 0.0) or (alpha[p] >= upper and slack >= 0.0):
            skip[p] = int(min(abs(slack) / unit, most))
            continue
        total += abs(slack)
        count += 1
        moved = min(max(alpha[p] + slack * kappa / (rows.norm2[p] + more), 0.0), upper)
        factor = (moved - alpha[p]) * y / kappa
        add_sorted_row(w, factor, rows.indices, rows.data, first, last)
        w[end] += factor * constant * ratio
        alpha[p] = moved
    return total / count if count > 0 else 0.0
