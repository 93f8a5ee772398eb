"""Push-Sum until it converges, decided by nodes that know only a bound of the diameter.

The technique of Kempe, Dobra and Gehrke (2003) that the paper mentions: no node needs to know tau_mix.
"""

import numpy as np

from gadget_svm.core.block import Block
from gadget_svm.core.types import Floats
from gadget_svm.gossip.base import Gossip, Round


def until_converged(gossip: Gossip, block: Block, time: int, diameter: int, gamma: float, max_rounds: int) -> Round:
    """Run rounds until no node's estimate changed by more than a relative ``gamma`` in ``diameter`` rounds.

    In every ``diameter`` rounds the nodes flood the largest change, known to them, of the rounds before. At the end of
    these rounds all nodes know the largest change of all nodes, so they stop in the same round. There are at most
    ``max_rounds`` rounds.
    """
    length, since = max(1, diameter), block.exchanges
    change = np.full(block.k, np.inf)
    for _ in range(max(2, max_rounds // length)):
        before = _estimates(block)
        block.edge["flag"] = change.copy()
        for _ in range(length):
            yield from gossip.round(block, time, since)
        if np.all(block.edge["flag"] <= gamma):
            break
        after = _estimates(block)
        change = np.linalg.norm(after - before, axis=1) / np.maximum(np.linalg.norm(after, axis=1), 1e-300)
    del block.edge["flag"]


def _estimates(block: Block) -> Floats:
    return np.asarray(block.s / np.where(block.phi > 0, block.phi, 1.0)[:, None], dtype=np.float64)
