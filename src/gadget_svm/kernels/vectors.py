"""Row primitives: a dense weight vector against one sparse row, norms and scalings."""

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.types import Floats, Indices
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.prefetch import DOUBLES_PER_LINE, prefetch

ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN = (np.uint64(number) for number in range(1, 8))
"""Unsigned, so that compiled code need not check for indices from the end."""


@compiled
def dot_row(w: Floats, indices: Indices, data: Floats, lo: int, hi: int) -> float:
    """<w, x> for the sparse row stored in lo:hi."""
    total = 0.0
    for p in range(lo, hi):
        total += w[indices[p]] * data[p]
    return total


@compiled
def dot_sorted_row(w: Floats, indices: Indices, data: Floats, lo: int, hi: int) -> float:
    """`dot_row` for a row whose features are in ascending order, each once: faster, above all if none is missing.

    Several running sums in a fixed order: the processor computes them in parallel, and the bits are the same every
    time.
    """
    if hi > lo and indices[hi - 1] - indices[lo] == hi - lo - 1:
        return dot_run(w, data, int(indices[lo]), lo, hi - lo)
    a = b = c = d = 0.0
    p, end = np.uint64(lo), np.uint64(hi)
    while p + FOUR <= end:
        a += w[indices[p]] * data[p]
        b += w[indices[p + ONE]] * data[p + ONE]
        c += w[indices[p + TWO]] * data[p + TWO]
        d += w[indices[p + THREE]] * data[p + THREE]
        p += FOUR
    while p < end:
        a += w[indices[p]] * data[p]
        p += ONE
    return (a + b) + (c + d)


@compiled
def dot_run(w: Floats, data: Floats, first: int, lo: int, count: int) -> float:
    """The dot product of w[first:first+count] and data[lo:lo+count]."""
    a = b = c = d = e = f = g = h = 0.0
    whole = count - count % 8
    for j in range(0, whole, 8):
        p, q = np.uint64(first + j), np.uint64(lo + j)
        a += w[p] * data[q]
        b += w[p + ONE] * data[q + ONE]
        c += w[p + TWO] * data[q + TWO]
        d += w[p + THREE] * data[q + THREE]
        e += w[p + FOUR] * data[q + FOUR]
        f += w[p + FIVE] * data[q + FIVE]
        g += w[p + SIX] * data[q + SIX]
        h += w[p + SEVEN] * data[q + SEVEN]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for j in range(whole, count):
        total += w[first + j] * data[lo + j]
    return total


@compiled
def add_sorted_row(w: Floats, factor: float, indices: Indices, data: Floats, lo: int, hi: int) -> None:
    """`add_row` for a row whose features are in ascending order, each once; the same bits."""
    if hi > lo and indices[hi - 1] - indices[lo] == hi - lo - 1:
        first = np.uint64(indices[lo])
        for j in range(np.uint64(hi - lo)):
            w[first + j] += factor * data[np.uint64(lo) + j]
    else:
        add_row(w, factor, indices, data, lo, hi)


@compiled
def add_row(w: Floats, factor: float, indices: Indices, data: Floats, lo: int, hi: int) -> None:
    """w += factor * x for the sparse row stored in lo:hi."""
    p, end = np.uint64(lo), np.uint64(hi)
    while p < end:
        w[indices[p]] += factor * data[p]
        p += ONE


@compiled
def prefetch_sparse_row(indices: Indices, data: Floats, lo: int, hi: int) -> None:
    """Prefetch the sparse row stored in lo:hi."""
    for p in range(lo, hi, DOUBLES_PER_LINE):
        prefetch(data, (p,))
    for p in range(lo, hi, 2 * DOUBLES_PER_LINE):
        prefetch(indices, (p,))


@compiled
def sq_norm_row(data: Floats, lo: int, hi: int) -> float:
    """|x|^2 of the sparse row stored in lo:hi."""
    total = 0.0
    for p in range(lo, hi):
        total += data[p] * data[p]
    return total


@compiled
def scale(w: Floats, factor: float) -> None:
    """w *= factor."""
    for j in range(len(w)):
        w[j] *= factor


def weighted_sum(factors: Floats, vectors: Floats) -> Floats:
    """Return the sum of factors[i] * vectors[i], added in order: the same bits every time, unlike BLAS."""
    row = sp.csr_matrix((factors, np.arange(len(factors)), [0, len(factors)]), shape=(1, len(factors)))
    total: Floats = np.asarray(row @ vectors)[0]
    return total


@compiled
def sq_norm(w: Floats) -> float:
    """|w|^2, in several running sums of fixed order: as fast as in any order, and the same bits every time."""
    return dot_run(w, w, 0, 0, len(w))
