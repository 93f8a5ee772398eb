"""Parts of stochastic gradient descent: shuffled passes without memory, weighted averages.

The step is in `algorithms.averaged_sgd`."""

import numpy as np

from gadget_svm.core.types import Floats, Ints, Words
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.counter_rng import EXAMPLE, draw, mix_bits

_ROUNDS = 3
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


@compiled
def permutation_keys(seed: int, node: int, pass_number: int) -> Words:
    """Return the keys of the order of one pass, which depend on (seed, node, pass_number) alone."""
    key = np.uint64(draw(seed, node, pass_number, EXAMPLE) * 9007199254740992.0)
    keys = np.empty(2 * _ROUNDS, dtype=np.uint64)
    for k in range(2 * _ROUNDS):
        key = mix_bits(key + _GOLDEN)
        keys[k] = key
    return keys


@compiled
def permute(place: int, count: int, keys: Words) -> int:
    """Return the image of ``place`` under a permutation of 0..count given by `permutation_keys`, which is never stored.

    Each round is one-to-one on the numbers below a power of two, and a result of at least ``count`` is permuted again,
    so all rounds together are one-to-one on 0..count.
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
    """Replace every node's step size by the geometric mean with each one it receives; 0 means none yet.

    No sum has to be conserved: lost, late or repeated messages only change the common size, between the smallest and
    the largest.
    """
    for i in range(lo, hi):
        for p in range(start[i], start[i + 1]):
            other = received[order[p]]
            if other > 0.0:
                eta0[i] = np.sqrt(eta0[i] * other) if eta0[i] > 0.0 else other
