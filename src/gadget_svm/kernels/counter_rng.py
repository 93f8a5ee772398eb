"""Random draws without state: each is a pure function of (seed, node, time, purpose).

So draws do not change if nodes are grouped differently or moved between machines.
"""

import numpy as np

from gadget_svm.core.types import Floats, Ints, Words
from gadget_svm.kernels.compiler import compiled

# The purposes of draws, each with a number of its own.
EXAMPLE, NEIGHBOUR, ROLE, ANSWER, LOSS, DELAY, CHURN, BOUNCE, WAKE, NOISE, LIAR = range(11)

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 1.0 / 9007199254740992.0  # 2**-53
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@compiled
def mix_bits(z: np.uint64) -> np.uint64:
    """Apply SplitMix64's finaliser (Steele, Lea and Flood 2014): every bit of z affects every bit of the result."""
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


def mix_all(z: Words) -> Words:
    """Apply `mix_bits` to every entry, in place: otherwise numpy spends most of the time on new memory."""
    room = np.empty_like(z)
    for shift, factor in ((_S30, _M1), (_S27, _M2)):
        z ^= np.right_shift(z, shift, out=room)
        z *= factor
    z ^= np.right_shift(z, _S31, out=room)
    return z


@compiled
def draw(seed: int, node: int, time: int, purpose: int) -> float:
    """Return a number uniform on [0, 1), the same for the same arguments on every machine."""
    z = mix_bits(np.uint64(seed) + GOLDEN * np.uint64(purpose + 1))
    z = mix_bits(z + GOLDEN * np.uint64(node + 1))
    z = mix_bits(z + GOLDEN * np.uint64(time + 1))
    return np.float64(z >> _S11) * _TO_UNIT


@compiled
def uniform(seed: int, nodes: Ints, times: Ints, purpose: int) -> Floats:
    """Return one `draw` per pair of (node, time)."""
    out = np.empty(len(nodes))
    for i in range(len(nodes)):
        out[i] = draw(seed, nodes[i], times[i], purpose)
    return out
