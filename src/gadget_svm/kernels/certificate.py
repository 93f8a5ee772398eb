"""The arithmetic of a certificate: what each node's rows add to the sums, and the bound that follows from all sums."""

import numpy as np

from gadget_svm.core.types import Floats, Ints
from gadget_svm.kernels.compiler import allocation_free
from gadget_svm.kernels.dual import DualRows
from gadget_svm.kernels.rows import side
from gadget_svm.kernels.vectors import add_sorted_row, dot_sorted_row

EPS = 2.0**-52


def widths(n_features: int, n_outputs: int) -> tuple[int, int, int, int]:
    """Return how many numbers each kind of message holds: hello, model, sums, bound.

    The sums are v = sum alpha y x of every output; then, for each output, the hinges h, sum alpha, and the sums of the
    absolute terms of h and of v; then the weight of the rows, the number of operations and the number of nodes. The
    bound holds the gap and the dual value of each output, the weight of the rows and the number of nodes.
    """
    D = n_features * n_outputs
    return 0, D, D + 4 * n_outputs + 3, 2 * n_outputs + 2


def own_sums(rows: DualRows, ascending: Ints, times: Floats, w: Floats, alpha: Floats, total: Floats) -> None:
    """Write the sums of every node into the lines of ``total``, see `widths`, for the candidate w, outputs x features.

    alpha is clipped to its box [0, c_r]. ``ascending`` are the places in the order in which their rows lie in memory.
    """
    add_rows(rows, ascending, times, w, np.sqrt(sq_lengths(w, len(w))), alpha, np.empty(alpha.shape), total)


@allocation_free
def add_rows(
    rows: DualRows, ascending: Ints, times: Floats, w: Floats, lengths: Floats, alpha: Floats, margins: Floats,
    total: Floats,
) -> None:  # fmt: skip
    """Do the work of `own_sums`; ``lengths`` are |w| of every output. A node's sums do not depend on the other nodes.

    All margins are computed first: reading rows in the order of memory takes half the time. Then only support vectors
    are read.
    """
    (K, F), at = w.shape, w.size
    for p in ascending:
        r = rows.order[p]
        first = rows.indptr[r]
        last = first + (rows.indptr[r + 1] - first)  # 64 bits, as in `dual`: nothing is compiled for 32
        for c in range(K):
            y = side(rows.pairs, 1 if K == 1 else c, rows.label[r])
            margins[c, p] = y * dot_sorted_row(w[c], rows.indices, rows.data, first, last)
    for i in range(len(total)):
        sums, begin, end, longest = total[i], rows.start[i], rows.start[i + 1], 0
        sums[:] = 0.0
        for p in range(begin, end):
            r, most, norm = rows.order[p], rows.upper[p], np.sqrt(rows.norm2[p])
            first = rows.indptr[r]
            last = first + (rows.indptr[r + 1] - first)
            longest = max(longest, last - first)
            for c in range(K):
                y = side(rows.pairs, 1 if K == 1 else c, rows.label[r])
                if y == 0.0:
                    continue
                short, a = 1.0 - margins[c, p], alpha[c, p]
                if not short <= 0.0:  # also if it is not a number: then there is no certificate
                    sums[at + c] += most * short
                a = most if a > most else 0.0 if a < 0.0 else a
                sums[at + K + c] += a
                sums[at + 2 * K + c] += most * (1.0 + norm * lengths[c])
                sums[at + 3 * K + c] += a * norm
                if a != 0.0:
                    add_sorted_row(sums[c * F : (c + 1) * F], a * y, rows.indices, rows.data, first, last)
            sums[at + 4 * K] += times[p]
        sums[at + 4 * K + 1], sums[at + 4 * K + 2] = end - begin + longest + 16.0, 1.0


@np.errstate(over="ignore", invalid="ignore")  # a bound that is not finite is reported as a failure
def bound(w: Floats, total: Floats, lam: float, K: int, F: int) -> Floats:
    """Return, from the sums of all nodes, the gap P(w) - D(alpha) and the dual value of every output, rounded safely.

    A sum of k terms is off by at most k eps times the sum of their magnitudes, in any order; so P is raised by that
    amount, and D is lowered by it.
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
