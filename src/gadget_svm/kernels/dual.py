"""Dual coordinate ascent for the hinge loss on one node's rows, warm-started (Hsieh et al. 2008).

Owns the local problem  min over w of  kappa/2 |w|^2 + S.w + sum_r c_r max(0, 1 - y_r x_r.w)  and nothing of where S
and kappa come from. Its solution is w = (sum_r alpha_r y_r x_r - S) / kappa with 0 <= alpha_r <= c_r.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.core.types import Floats, Ints
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.counter_rng import EXAMPLE, draw
from gadget_svm.kernels.rows import side
from gadget_svm.kernels.vectors import add_row, add_sorted_row, ask_for_sparse_row, dot_row, dot_sorted_row

LONG = 32
"""Entries of a row, on average, from which on it does not pay to lay a node's rows side by side."""
AHEAD = 2
"""Rows between asking memory for one and taking it."""
NEVER = 255
"""The rest of a row that the output does not see: it does not end."""
NO_PAIRS = np.empty((0, 2), dtype=np.int32)


class DualRows(NamedTuple):
    """CSR rows and who owns them: node i owns the places start[i]:start[i+1], place p holds row ``order[p]``.

    ``upper[p]`` is c_r with the row's multiplicity in it, ``norm2[p]`` is |x_r|^2. ``pairs`` are those of `side`.
    If ``constant`` is positive, the last entry of every row, that of the intercept, has this value instead of its own.
    """

    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    data: Floats
    label: NDArray[np.int32]
    order: Ints
    start: Ints
    upper: Floats
    norm2: Floats
    pairs: NDArray[np.int32] = NO_PAIRS
    constant: float = 0.0

    @classmethod
    def of(cls, rows: Any, top: float) -> "DualRows":
        """The rows of a block (see `gadget_svm.core.rows.Rows`), each bounded by top * its cost * its multiplicity."""
        norm2 = sq_norms(rows)[rows.order] if len(rows.order) else np.empty(0)
        upper = top * rows.cost[rows.order] * multiplicity(rows.mass, rows.start)
        return cls(rows.indptr, rows.indices, rows.data, rows.label, rows.order, rows.start, upper, norm2, rows.pairs)

    def with_constant(self, constant: float) -> "DualRows":
        """The same with another value than 1 as the last entry of every row."""
        return self._replace(norm2=np.maximum(self.norm2 - 1.0, 0.0) + constant**2, constant=constant)

    def unseen(self) -> NDArray[np.bool_]:
        """Outputs x places: the rows that an output does not see, as they are of neither class of its pair."""
        label = self.label[self.order]
        return np.asarray((self.pairs[:, :1] != label) & (self.pairs[:, 1:] != label))

    def grouped(self) -> "DualRows":
        """Short rows in the order of their places: a copy that a pass reads from cache, if a shard fits there.

        Long ones fill lines of cache by themselves, wherever they lie, and stay.
        """
        here = np.arange(len(self.order), dtype=np.int64)
        too_many = np.diff(self.indptr)[self.order].sum() > np.iinfo(self.indptr.dtype).max  # rows of several nodes
        if len(self.data) >= LONG * len(self.label) or too_many or np.array_equal(self.order, here):
            return self._replace(indices=unsigned(self.indices))
        X = as_matrix(self, self.data)[self.order]
        label = self.label[self.order]
        return self._replace(indptr=X.indptr, indices=unsigned(X.indices), data=X.data, label=label, order=here)


def dual_rows(block: Any) -> DualRows:
    """A block's rows, each bounded by its cost and multiplicity; made once."""
    if "dual_rows" not in block.scratch:
        block.scratch["dual_rows"] = DualRows.of(block.rows, 1.0)
    made: DualRows = block.scratch["dual_rows"]
    return made


def unsigned(indices: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, of which compiled code knows that none counts from the end, and need not check."""
    return indices.view(np.dtype(f"u{indices.dtype.itemsize}"))


def multiplicity(mass: Floats, start: Ints) -> Floats:
    """How often each place counts, from the mass that is cumulative within a node; empty: once each."""
    if not len(mass):
        return np.ones(start[-1])
    times = np.diff(mass, prepend=0.0)
    owned = start[:-1][np.diff(start) > 0]
    times[owned] = mass[owned]
    return times


def sq_norms(rows: Any) -> Floats:
    """|x_r|^2 of every row, added up one by one: it does not depend on what other rows there are."""
    squares = as_matrix(rows, rows.data * rows.data)
    return np.asarray(squares @ np.ones(squares.shape[1]))


def as_matrix(rows: Any, data: Floats) -> sp.csr_matrix:
    """Rows with these numbers as their entries, as scipy has them."""
    n_features = int(rows.indices.max(initial=0)) + 1
    return sp.csr_matrix((data, rows.indices, rows.indptr), shape=(len(rows.label), n_features))


@compiled
def primal(w: Floats, alpha: Floats, rows: DualRows, i: int, target: int, S: Floats, kappa: float) -> None:
    """w = (sum_r alpha_r y_r x_r - S) / kappa over the rows of node i."""
    for j in range(len(w)):
        w[j] = -S[j] / kappa
    for p in range(rows.start[i], rows.start[i + 1]):
        if alpha[p] > 0.0:
            r = rows.order[p]
            y = side(rows.pairs, target, rows.label[r])
            add_row(w, alpha[p] * y / kappa, rows.indices, rows.data, rows.indptr[r], rows.indptr[r + 1])


@compiled
def shuffle(turn: Ints, lo: int, hi: int, seed: int, node: int, clock: int) -> None:
    """The places lo:hi into turn[lo:hi], mixed."""
    for p in range(lo, hi):
        turn[p] = p
    mix(turn, lo, hi, seed, node, clock)


@compiled
def mix(turn: Ints, lo: int, hi: int, seed: int, node: int, clock: int) -> None:
    """What stands in turn[lo:hi] in an order that depends on (seed, node, clock) alone."""
    for p in range(hi - 1, lo, -1):
        q = lo + int(draw(seed, node, (clock << 32) + p - lo, EXAMPLE) * (p - lo + 1))
        turn[p], turn[q] = turn[q], turn[p]


@compiled
def dual_pass(
    w: Floats, alpha: Floats, turn: Ints, rows: DualRows, lo: int, hi: int, target: int, kappa: float
) -> float:
    """alpha_r <- clip[0, c_r](alpha_r + (1 - y_r x_r.w) kappa / |x_r|^2) in the order of ``turn``; w moves along.

    Returns the largest violation met: how far a margin is on the wrong side of 1 for its alpha, 0 at the optimum.
    """
    worst = 0.0
    for place in range(lo, hi):
        p = turn[place]
        r, most = rows.order[p], rows.upper[p]
        if rows.norm2[p] == 0.0:
            alpha[p] = most  # an empty row's loss is 1 whatever w is
            continue
        first, last = rows.indptr[r], rows.indptr[r + 1]
        y = side(rows.pairs, target, rows.label[r])
        short = 1.0 - y * dot_row(w, rows.indices, rows.data, first, last)
        if (alpha[p] <= 0.0 and short <= 0.0) or (alpha[p] >= most and short >= 0.0):
            continue
        worst = max(worst, abs(short))
        moved = min(max(alpha[p] + short * kappa / rows.norm2[p], 0.0), most)
        add_row(w, (moved - alpha[p]) * y / kappa, rows.indices, rows.data, first, last)
        alpha[p] = moved
    return worst


@compiled
def waking(turn: Ints, rest: NDArray[np.uint8], lo: int, hi: int, seed: int, node: int, clock: int) -> int:
    """The places of lo:hi that do not rest into turn[lo:end], shuffled; a pass less to rest for the others. ``end``.

    A rest of NEVER does not end.
    """
    end = lo
    for p in range(lo, hi):
        if rest[p] == 0:
            turn[end] = p
            end += 1
    mine = rest[lo:hi]
    for p in range(len(mine)):  # a loop of its own: many rows are counted down at once
        if mine[p] != 0 and mine[p] != NEVER:
            mine[p] -= 1
    mix(turn, lo, end, seed, node, clock)
    return end


@compiled
def rested_pass(
    w: Floats, alpha: Floats, rest: NDArray[np.uint8], turn: Ints, rows: DualRows, lo: int, hi: int, target: int,
    kappa: float, ratio: float, wide: float, longest: float,
) -> float:  # fmt: skip
    """`dual_pass` that sends rows to rest: one at a bound, where it belongs, by a wide margin.

    It rests for a pass per ``wide`` that its margin is on the right side of 1, ``longest`` at most. So no row is ever
    forgotten, any alpha stays feasible, and the optimum is the same; most rows of real data rest most of the time.
    With a constant, kappa / ``ratio`` stands in the place of kappa for its weight.
    Returns by how much margins were off, on average, where an alpha had to move; 0 if none had.
    """
    off, count, wide, constant, end = 0.0, 0, max(wide, 1e-12), rows.constant, len(w) - 1
    skipped, more = 1 if constant > 0.0 else 0, constant * constant * (ratio - 1.0)
    for place in range(lo, hi):
        p = turn[place]
        if place + AHEAD < hi:
            soon = rows.order[turn[place + AHEAD]]
            ask_for_sparse_row(rows.indices, rows.data, rows.indptr[soon], rows.indptr[soon + 1])
        r, most = rows.order[p], rows.upper[p]
        if rows.norm2[p] == 0.0:
            alpha[p] = most  # an empty row's loss is 1 whatever w is
            continue
        first, last = rows.indptr[r], rows.indptr[r + 1] - skipped
        y = side(rows.pairs, target, rows.label[r])
        short = 1.0 - y * (dot_sorted_row(w, rows.indices, rows.data, first, last) + constant * w[end])
        if (alpha[p] <= 0.0 and short <= 0.0) or (alpha[p] >= most and short >= 0.0):
            rest[p] = int(min(abs(short) / wide, longest))
            continue
        off += abs(short)
        count += 1
        moved = min(max(alpha[p] + short * kappa / (rows.norm2[p] + more), 0.0), most)
        factor = (moved - alpha[p]) * y / kappa
        add_sorted_row(w, factor, rows.indices, rows.data, first, last)
        w[end] += factor * constant * ratio
        alpha[p] = moved
    return off / count if count > 0 else 0.0


@compiled
def ascend(
    w: Floats, alpha: Floats, turn: Ints, rows: DualRows, i: int, target: int, kappa: float, passes: int, tol: float,
    seed: int, node: int, clock: int,
) -> int:  # fmt: skip
    """Passes over the rows of node i until no margin is off by more than ``tol``, ``passes`` at most; how many.

    ``w`` must be `primal` of ``alpha``. Passes are shuffled by the clocks ``clock`` to ``clock + passes``.
    """
    lo, hi = rows.start[i], rows.start[i + 1]
    for done in range(passes):
        shuffle(turn, lo, hi, seed, node, clock + done)
        if dual_pass(w, alpha, turn, rows, lo, hi, target, kappa) <= tol:
            return done + 1
    return passes
