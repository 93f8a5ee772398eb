"""Kernels of the baselines: dual coordinate ascent on the rows of one place, and the step of the authors' program.

They take one weight vector and plain CSR arrays, and know of no nodes, no gossip and no clock.
"""

import numpy as np
from numpy.typing import NDArray

from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.draws import EXAMPLE, draw
from gadget_svm.kernels.vectors import add_row, dot_row, scale, sq_norm

Floats = NDArray[np.float64]
Indices = NDArray[np.int32]


@compiled
def ascend(
    order: NDArray[np.int64], indptr: Indices, indices: Indices, data: Floats, y: Floats, length2: Floats,
    unit: float, beta: Floats, w: Floats, busy: NDArray[np.bool_],
) -> float:  # fmt: skip
    """One pass of dual coordinate ascent (Hsieh et al. 2008) over the rows in ``order``: each to its optimum.

    ``beta`` is in [0, 1] and w = sum beta_r y_r x_r / unit, where unit = lam N. ``busy`` tells the rows that moved
    or lie between the bounds. Returns by how much the worst of them missed its margin before it moved.
    """
    worst = 0.0
    for r in order:
        lo, hi = indptr[r], indptr[r + 1]
        short = 1.0 - y[r] * dot_row(w, indices, data, lo, hi)
        goal = beta[r] + short * unit / length2[r] if length2[r] > 0.0 else 1.0
        goal = min(1.0, max(0.0, goal))
        busy[r] = goal != beta[r] or 0.0 < goal < 1.0
        if goal != beta[r]:
            worst = max(worst, abs(short))
            add_row(w, (goal - beta[r]) * y[r] / unit, indices, data, lo, hi)
            beta[r] = goal
    return worst


@compiled
def published_steps(
    count: int, t: int, quiet: int, before: float, w: Floats, indptr: Indices, indices: Indices, data: Floats,
    y: Floats, lam: float, tol: float, patience: int, seed: int,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Up to ``count`` steps of the authors' program from step t on; ends where its rule fires, ``quiet >= patience``.

    Returns t, quiet, the last "objective", and its last change. w is changed in place.
    """
    change = np.inf
    goal = t + count
    while t < goal and quiet < patience:
        r = int(draw(seed, 0, t, EXAMPLE) * len(y))
        lo, hi = indptr[r], indptr[r + 1]
        short = y[r] * dot_row(w, indices, data, lo, hi) < 1.0
        scale(w, 1.0 - 1.0 / (t + 2.0))
        if short:
            add_row(w, y[r] / (lam * (t + 2.0)), indices, data, lo, hi)
        norm2 = sq_norm(w)
        value = 0.5 * lam * norm2 + (1.0 if short else 0.0)  # of this one row, and not its hinge
        if lam * norm2 > 1.0:  # after the value is taken: at the ball's edge it would be still from the first steps on
            scale(w, 1.0 / np.sqrt(lam * norm2))
        change = abs(value - before)
        quiet = quiet + 1 if change <= tol else 0
        before = value
        t += 1
    return t, quiet, before, change
