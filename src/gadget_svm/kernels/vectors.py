"""Row primitives: a dense weight vector against one sparse row, norms and scalings."""

import numpy as np
from numpy.typing import NDArray

from gadget_svm.kernels.compiler import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


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
    p = lo
    while p + 4 <= hi:
        a += w[indices[p]] * data[p]
        b += w[indices[p + 1]] * data[p + 1]
        c += w[indices[p + 2]] * data[p + 2]
        d += w[indices[p + 3]] * data[p + 3]
        p += 4
    while p < hi:
        a += w[indices[p]] * data[p]
        p += 1
    return (a + b) + (c + d)


@compiled
def add_row(w: Floats, factor: float, indices: Ints, data: Floats, lo: int, hi: int) -> None:
    """w += factor * x for the sparse row stored in lo:hi."""
    for p in range(lo, hi):
        w[indices[p]] += factor * data[p]


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


@compiled
def add_scaled(total: Floats, factors: Floats, vectors: Floats) -> None:
    """total += factors[i] * vectors[i], one after another: always the same bits, which BLAS does not promise."""
    for i in range(len(factors)):
        for j in range(len(total)):
            total[j] += factors[i] * vectors[i, j]


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
