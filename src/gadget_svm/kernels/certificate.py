"""The arithmetic of a certificate: what each node's rows add to the sums, and the bound that follows from all sums."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.types import Floats, Ints
from gadget_svm.kernels.dual import DualRows
from gadget_svm.kernels.rows import sides

EPS = 2.0**-52
NUMBERS_PER_PART = 1 << 20
"""Numbers of the nodes that are summed at a time: more nodes if they are small."""
MAX_KEPT_MARGINS = 1 << 22
"""Up to this many margins are computed at once, and data of their rows is kept between certificates."""


def widths(n_features: int, n_outputs: int) -> tuple[int, int, int, int]:
    """Return how many numbers each kind of message holds: hello, model, sums, bound.

    Sums: v = sum alpha y x of every output; for each output the hinges h, sum alpha, and the sums of the absolute terms
    of h and v; then the rows' weight, the number of operations and of nodes. Bound: gap and dual value of each output,
    the rows' weight and the number of nodes.
    """
    D = n_features * n_outputs
    return 0, D, D + 4 * n_outputs + 3, 2 * n_outputs + 2


class OwnSums:
    """What the rows of each node add to the sums, for a candidate model; alpha is clipped to its box [0, c_r].

    Not compiled: scipy's products do the work. They add row by row, so a node's sums do not depend on the other nodes
    in its part. Margins are computed for all rows as they lie in memory, v for support vectors only.
    """

    def __init__(self, rows: DualRows, times: Floats, K: int, F: int) -> None:
        self.rows, self.times, self.K, self.F = rows, times, K, F
        self.X = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(len(rows.label), F))
        work = np.cumsum(K * (F + np.diff(rows.start))) // NUMBERS_PER_PART
        cuts = [0, *(np.flatnonzero(np.diff(work)) + 1).tolist(), len(work)]
        self._parts: list[tuple[int, int]] = [(lo, hi) for lo, hi in pairwise(cuts) if hi > lo]
        small, most = K * len(rows.label) <= MAX_KEPT_MARGINS, 2 * len(rows.order) >= len(rows.label)
        self._kept: list[_Part] = [self._part(*part) for part in self._parts] if small else []
        self._at_once = small and most

    def __call__(self, w: Floats, alpha: Floats, total: Floats) -> None:
        """Write the sums of every node into the lines of ``total``, see `widths`, for the candidate ``w``."""
        w = w.reshape(self.K, self.F)
        margins = np.asarray(self.X @ w.T) if self._at_once else None
        for number, (lo, hi) in enumerate(self._parts):
            part = self._kept[number] if self._kept else self._part(lo, hi)
            mine = np.asarray(self.X[part.row] @ w.T) if margins is None else margins[part.row]
            self._sums(part, w, mine, alpha[:, part.places].T, total[lo:hi])

    def _part(self, lo: int, hi: int) -> "_Part":
        rows, places = self.rows, slice(self.rows.start[lo], self.rows.start[hi])
        ends, row = rows.start[lo : hi + 1] - rows.start[lo], rows.order[places]
        count, longest = np.diff(ends), np.zeros(hi - lo)
        longest[count > 0] = np.maximum.reduceat(np.diff(rows.indptr)[row], ends[:-1][count > 0])
        adder = sp.csr_matrix((np.ones(len(row)), np.arange(len(row)), ends), shape=(hi - lo, len(row)))
        y, norm = sides(rows.pairs, self.K, rows.label[row]), np.sqrt(rows.norm2[places, None])
        counts = np.stack([count + longest + 16.0, np.ones(hi - lo)], axis=1)
        return _Part(places, row, np.repeat(np.arange(hi - lo), count), adder, y, norm, counts)

    def _sums(self, part: "_Part", w: Floats, margins: Floats, alpha: Floats, total: Floats) -> None:
        (K, F), most, y = w.shape, self.rows.upper[part.places, None], part.y
        a = np.clip(alpha, 0.0, most) * (y != 0.0)
        with np.errstate(over="ignore", invalid="ignore"):  # then there is no certificate
            hinge = most * np.maximum(0.0, np.abs(y) - y * margins)
            size = most * (np.abs(y) + part.norm * np.sqrt(sq_lengths(w, K)) * np.abs(y))
        v = self._pull(part, a * y, len(total)).reshape(-1, F, K)
        total[:, : K * F] = v.swapaxes(1, 2).reshape(-1, K * F)
        total[:, K * F : -2] = part.adder @ np.hstack([hinge, a, size, a * part.norm, self.times[part.places, None]])
        total[:, -2:] = part.counts

    def _pull(self, part: "_Part", factors: Floats, count: int) -> Floats:
        """Return the sum of each node's rows times their factors, by a matrix with columns of its own for each node."""
        some = np.flatnonzero(factors.any(axis=1))
        X = self.X[part.row[some]]
        kind: Any = np.int32 if count * self.F < 2**31 else np.int64
        columns = X.indices + np.repeat((part.owner[some] * self.F).astype(kind), np.diff(X.indptr))
        apart = sp.csc_matrix((X.data, columns, X.indptr), shape=(count * self.F, len(some)))
        return np.asarray(apart @ factors[some])


class _Part(NamedTuple):
    """The rows of some nodes, as `OwnSums` needs them: for every place its row and node, y and norm."""

    places: slice
    row: Ints
    owner: Ints
    adder: sp.csr_matrix  # nodes x rows
    y: Floats
    norm: Floats
    counts: Floats


@np.errstate(over="ignore", invalid="ignore")  # a bound that is not finite is reported as a failure
def bound(w: Floats, total: Floats, lam: float, K: int, F: int) -> Floats:
    """Return, from the sums of all nodes, the gap P(w) - D(alpha) and the dual value of every output, rounded safely.

    A sum of k terms is off by at most k eps times the sum of their magnitudes, in any order; so P is taken that much
    higher, and D that much lower.
    """
    v, (h, a, size, length), (N, count, n_nodes) = total[: K * F], total[K * F : -3].reshape(4, K), total[-3:]
    off = (count + F + 64.0) * EPS
    h, a = h + off * size, a * (1.0 - off)
    v = np.sqrt(sq_lengths(v, K)) * (1.0 + off) + off * length
    primal = (1.0 + off) * (0.5 * lam * sq_lengths(w, K) + h / N)
    bend = (1.0 + 4.0 * off) * v * v / (2.0 * lam * N * N)
    dual = (1.0 - 4.0 * off) * a / N - bend - 4.0 * EPS * (a / N + bend)
    return np.concatenate([primal - dual + 4.0 * EPS * (primal + np.abs(dual)), dual, [N, n_nodes]])


def sq_lengths(vectors: Floats, count: int) -> Floats:
    """Return |v|^2 of each of ``count`` vectors that lie one after another."""
    return np.asarray((vectors * vectors).reshape(count, -1).sum(axis=1))
