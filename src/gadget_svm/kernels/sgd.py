"""What stochastic gradient descent needs beside the step: an order of passes without memory, and a weighted average."""

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.counter_rng import EXAMPLE, draw, mix_bits

_ROUNDS = 3
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


@compiled
def lap_keys(seed: int, node: int, lap: int) -> NDArray[np.uint64]:
    """What makes the order of one pass: numbers that depend on (seed, node, lap) alone."""
    key = np.uint64(draw(seed, node, lap, EXAMPLE) * 9007199254740992.0)
    keys = np.empty(2 * _ROUNDS, dtype=np.uint64)
    for k in range(2 * _ROUNDS):
        key = mix_bits(key + _GOLDEN)
        keys[k] = key
    return keys


@compiled
def turn(place: int, count: int, keys: NDArray[np.uint64]) -> int:
    """Who has the turn at this place of a pass over 0..count: a permutation made of `lap_keys`, never stored.

    Every move is one-to-one on the numbers below a power of two, and what falls at or beyond ``count`` is moved again
    until it does not, so the whole is one-to-one on 0..count.
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
def remember(lo: int, hi: int, alive: Flags, w: Floats, w_sum: Floats, iterates: Ints, weight: int) -> None:
    """Add every live node's vector, counted ``weight`` times, to the sum of its iterates."""
    for i in range(lo, hi):
        if alive[i]:
            iterates[i] += weight
            for c in range(w.shape[1]):
                for j in range(w.shape[2]):
                    w_sum[i, c, j] += weight * w[i, c, j]


@compiled
def agree(lo: int, hi: int, order: Ints, start: Ints, said: Floats, eta0: Floats) -> None:
    """Every node goes to the middle, in ratio, of its own step size and each one it hears; 0 has no opinion.

    No sum is conserved and none need be: lost, late or repeated mail only changes on which size between the smallest
    and the largest the nodes agree.
    """
    for i in range(lo, hi):
        for p in range(start[i], start[i + 1]):
            heard = said[order[p]]
            if heard > 0.0:
                eta0[i] = np.sqrt(eta0[i] * heard) if eta0[i] > 0.0 else heard
