"""The simulator: all nodes in this process, in one block or several, with mail handed over in memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gadget_svm.algorithms.contract import Run
from gadget_svm.block import Block
from gadget_svm.gossip import Round
from gadget_svm.mail import ENVELOPE, Delivery, Exchange, Mail

Floats = NDArray[np.float64]


@dataclass
class LocalRuntime:
    """Drives every block through each iteration in step. ``exchange`` may be wrapped by faults."""

    run: Run
    blocks: Sequence[Block]
    exchange: Exchange | None = None  # None: all mail arrives, in the same round
    t: int = 0
    messages: int = 0
    nbytes: int = 0

    def advance(self, count: int) -> None:
        """``count`` iterations, in compiled leaps where nothing can happen in between."""
        block = self.blocks[0]
        if self._leaps():
            sent = self.run.leap(block, count)
            self._count(sent, sent * (ENVELOPE + 8 * (block.s.shape[1] + 1)))
            self.t += count
            return
        for _ in range(count):
            self.t += 1
            self._iterate()

    def rehearse(self) -> None:
        """Compile every kernel an iteration needs, on a block without nodes, so that no clock counts it."""
        nobody = self.blocks[0].without_nodes()
        LocalRuntime(self.run, [nobody], None if self._leaps() else Delivery).advance(1)

    def _leaps(self) -> bool:
        return self.exchange is None and len(self.blocks) == 1 and self.run.can_leap(self.blocks[0])

    def _iterate(self) -> None:
        exchange = self.exchange or Delivery
        parties = [self.run.iteration(block, self.t) for block in self.blocks]
        outgoing: list[Mail | None] = [next(party, None) for party in parties]
        while batches := [mail for mail in outgoing if mail is not None]:
            mail = Mail.merge(batches)
            self._count(mail.n_messages, mail.nbytes)
            delivery = exchange(mail)
            outgoing = [
                None if mine is None else _send(party, delivery) for party, mine in zip(parties, outgoing, strict=True)
            ]

    def _count(self, messages: int, nbytes: int) -> None:
        self.messages += messages
        self.nbytes += nbytes

    def models(self) -> Floats:
        """Every node's model, nodes x outputs x features."""
        parts = [block.models(self.run.average) for block in self.blocks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def weights(self) -> Floats:
        """Every node's last iterate, nodes x outputs x features."""
        return self.blocks[0].w if len(self.blocks) == 1 else np.concatenate([block.w for block in self.blocks])

    def sizes(self) -> Floats:
        """n_i of every node."""
        return np.concatenate([block.n for block in self.blocks])

    def voices(self) -> Floats:
        """n_i of the nodes that are here, 0 for those that are away: who counts in the network's average."""
        here = np.concatenate([block.alive for block in self.blocks])
        return self.sizes() * here if here.any() else self.sizes()

    def close(self) -> None:
        """Let the blocks' threads go."""
        for block in self.blocks:
            block.team.close()


def distances(models: Floats, others: Floats) -> Floats:
    """How far each model is from its other (or all from one), a few thousand at a time so that memory stays bounded."""
    out = np.empty(len(models))
    stride = max(1, 2**20 // max(1, models[0].size))
    for i in range(0, len(models), stride):
        apart = models[i : i + stride] - (others[i : i + stride] if others.ndim == models.ndim else others)
        out[i : i + stride] = np.sqrt(np.einsum("mkd,mkd->m", apart, apart))
    return out


def _send(party: Round, delivery: Delivery) -> Mail | None:
    try:
        return party.send(delivery)
    except StopIteration:
        return None
