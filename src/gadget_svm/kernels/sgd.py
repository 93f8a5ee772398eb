"""Parts of stochastic gradient descent: the order of a pass, averages of step sizes, the steps of the authors' program.

The order of a pass is shuffled; it is computed place by place and never stored. The step of averaged SGD is in
`algorithms.averaged_sgd`.
"""

import numpy as np

from gadget_svm.core.types import Floats, Indices, Ints, Words
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.counter_rng import EXAMPLE, GOLDEN, draw, mix_bits
from gadget_svm.kernels.vectors import add_row, dot_row, scale, sq_norm

_ROUNDS = 3
_ONE = np.uint64(1)


@compiled
def permutation_keys(seed: int, node: int, pass_number: int) -> Words:
    """Return the keys of one pass's order. They depend on (seed, node, pass_number) alone."""
    key = np.uint64(draw(seed, node, pass_number, EXAMPLE) * 9007199254740992.0)
    keys = np.empty(2 * _ROUNDS, dtype=np.uint64)
    for k in range(2 * _ROUNDS):
        key = mix_bits(key + GOLDEN)
        keys[k] = key
    return keys


@compiled
def permute(place: int, count: int, keys: Words) -> int:
    """Return where a permutation of the numbers below ``count`` puts ``place``. `permutation_keys` returns the keys.

    Each round is one-to-one on the numbers below a power of two, and a result of at least ``count`` is permuted again,
    so all rounds together are one-to-one on the numbers below ``count``. The permutation is never stored.
    """
    bits = 1
    while (1 << bits) < count:
        bits += 1
    mask, shift = np.uint64((1 << bits) - 1), np.uint64((bits + 1) // 2)
    x = np.uint64(place)
    while True:
        for k in range(_ROUNDS):
            x = ((x ^ keys[2 * k]) * (keys[2 * k + 1] | _ONE)) & mask
            x ^= x >> shift
        if x < np.uint64(count):
            return int(x)


@compiled
def average_step_sizes(lo: int, hi: int, order: Ints, start: Ints, received: Floats, eta0: Floats) -> None:
    """Replace every node's step size by the geometric mean of it and a received one, for each that arrives.

    A step size of 0 means that a node has none yet. No sum has to be conserved: lost, late or repeated messages only
    change the common step size, which stays between the smallest and the largest one.
    """
    for i in range(lo, hi):
        for p in range(start[i], start[i + 1]):
            other = received[order[p]]
            if other > 0.0:
                eta0[i] = np.sqrt(eta0[i] * other) if eta0[i] > 0.0 else other


@compiled
def published_steps(
    count: int, w: Floats, indptr: Indices, indices: Indices, data: Floats, y: Floats, lam: float, tol: float,
    quiet_steps: int, seed: int,
) -> tuple[int, int, float]:  # fmt: skip
    """Do up to ``count`` steps of the authors' program from w = 0. Its stopping rule is ``quiet >= quiet_steps``.

    ``quiet`` counts the last steps in a row in which the program's "objective" changed by at most ``tol``. Returns the
    number of steps, ``quiet``, and the last change of the "objective". w is changed in place.
    """
    t, quiet, before, change = 0, 0, 0.0, np.inf
    while t < count and quiet < quiet_steps:
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
    return t, quiet, change
