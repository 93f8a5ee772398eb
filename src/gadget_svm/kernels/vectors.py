"""Row primitives: a dense weight vector against one sparse row, norms and scalings."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.prefetch import LINE, hint

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
ONE, TWO, THREE, FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
"""Of a type that compiled code knows not to count from the end, and need not check."""


@compiled
def dot_row(w: Floats, indices: Ints, data: Floats, lo: int, hi: int) -> float:
    """<w, x> for the sparse row stored in lo:hi."""
    total = 0.0
    for p in range(lo, hi):
        total += w[indices[p]] * data[p]
    return total


@compiled
def dot_row_abreast(w: Floats, indices: Ints, data: Floats, lo: int, hi: int) -> float:
    """`dot_row` in four running sums of fixed order, that need not wait for each other: the same bits every time."""
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
def add_row(w: Floats, factor: float, indices: Ints, data: Floats, lo: int, hi: int) -> None:
    """w += factor * x for the sparse row stored in lo:hi."""
    p, end = np.uint64(lo), np.uint64(hi)
    while p < end:
        w[indices[p]] += factor * data[p]
        p += ONE


@compiled
def ask_for_sparse_row(indices: Ints, data: Floats, lo: int, hi: int) -> None:
    """Have the sparse row stored in lo:hi brought near."""
    for p in range(lo, hi, LINE):
        hint(data, (p,))
    for p in range(lo, hi, 2 * LINE):
        hint(indices, (p,))


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
    """The sum of factors[i] * vectors[i], one after another: always the same bits, which BLAS does not promise."""
    row = sp.csr_matrix((factors, np.arange(len(factors)), [0, len(factors)]), shape=(1, len(factors)))
    total: Floats = np.asarray(row @ vectors)[0]
    return total


@compiled
def sq_norm(w: Floats) -> float:
    """|w|^2, in eight running sums of fixed order: as fast as a free reordering, but always the same bits."""
    a = b = c = d = e = f = g = h = 0.0
    whole = len(w) - len(w) % 8
    for j in range(0, whole, 8):
        a += w[j] * w[j]
        b += w[j + 1] * w[j + 1]
        c += w[j + 2] * w[j + 2]
        d += w[j + 3] * w[j + 3]
        e += w[j + 4] * w[j + 4]
        f += w[j + 5] * w[j + 5]
        g += w[j + 6] * w[j + 6]
        h += w[j + 7] * w[j + 7]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for j in range(whole, len(w)):
        total += w[j] * w[j]
    return total
