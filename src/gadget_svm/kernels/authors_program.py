"""The step of the authors' own program on one node's rows. Without gossip, which changes no model there."""

import numpy as np

from gadget_svm.core.types import Floats, Indices
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.counter_rng import EXAMPLE, draw
from gadget_svm.kernels.vectors import add_row, dot_row, scale, sq_norm


@compiled
def published_steps(
    count: int, t: int, quiet: int, before: float, w: Floats, indptr: Indices, indices: Indices, data: Floats,
    y: Floats, lam: float, tol: float, quiet_steps: int, seed: int,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Up to ``count`` steps of the authors' program from step t on; stop if its rule fires, ``quiet >= quiet_steps``.

    Returns t, quiet, the last "objective", and its last change. w is changed in place.
    """
    change = np.inf
    goal = t + count
    while t < goal and quiet < quiet_steps:
        r = int(draw(seed, 0, t, EXAMPLE) * len(y))
        lo, hi = indptr[r], indptr[r + 1]
        short = y[r] * dot_row(w, indices, data, lo, hi) < 1.0
        scale(w, 1.0 - 1.0 / (t + 2.0))
        if short:
            add_row(w, y[r] / (lam * (t + 2.0)), indices, data, lo, hi)
        norm2 = sq_norm(w)
        value = 0.5 * lam * norm2 + (1.0 if short else 0.0)  # counts this row only, and not its hinge
        if lam * norm2 > 1.0:  # after the value: at the ball's edge it would not change from the first steps on
            scale(w, 1.0 / np.sqrt(lam * norm2))
        change = abs(value - before)
        quiet = quiet + 1 if change <= tol else 0
        before = value
        t += 1
    return t, quiet, before, change
