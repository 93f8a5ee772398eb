"""How many rounds Push-Sum runs: until nothing moves, told by nodes that know only a bound of the diameter.

The technique of Kempe, Dobra and Gehrke (2003) that the paper mentions: no node needs to know tau_mix.
"""

import numpy as np

from gadget_svm.core.block import Block
from gadget_svm.gossip.base import Gossip, Round


def until_converged(gossip: Gossip, block: Block, time: int, diameter: int, gamma: float, most: int) -> Round:
    """Rounds in epochs of ``diameter``, until no node's estimate moved by more than gamma of itself in an epoch.

    In each epoch every node floods the largest movement it knows of the epoch before; after ``diameter`` rounds
    all know the largest of all, so all stop in the same round. At most ``most`` rounds.
    """
    length, since = max(1, diameter), block.exchanges
    moved = np.full(block.k, np.inf)
    for _ in range(max(2, most // length)):
        before = _estimates(block)
        block.edge["flag"] = moved.copy()
        for _ in range(length):
            yield from gossip.round(block, time, since)
        if np.all(block.edge["flag"] <= gamma):
            break
        after = _estimates(block)
        moved = np.linalg.norm(after - before, axis=1) / np.maximum(np.linalg.norm(after, axis=1), 1e-300)
    del block.edge["flag"]


def _estimates(block: Block) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return block.s / np.where(block.phi > 0, block.phi, 1.0)[:, None]
