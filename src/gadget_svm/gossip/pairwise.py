"""Pairwise averaging: two neighbours meet and both go on with the middle. What the authors' code calls Push-Sum.

Unweighted, so shards of unequal size are averaged as if they were equal. One round is two exchanges:
some nodes call one neighbour each, and those that did not call answer one of their callers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gadget_svm.block import Block
from gadget_svm.gossip.protocol import Round, arranged, draw_edges
from gadget_svm.kernels import gossip as moves
from gadget_svm.kernels.draws import ROLE, uniform
from gadget_svm.mail import Mail

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Pairwise:
    """Who calls and who answers is a coin of every node's own, so no node is in two pairs at once."""

    loss_proof: bool = False

    def take_in(self, block: Block, persist: bool) -> None:  # noqa: ARG002 - the mean has no mass to persist
        """The sums are the vectors themselves, all of weight one."""
        block.phi[:] = 1.0
        block.s[block.alive] = block.flat[block.alive]

    def round(self, block: Block, time: int, since: int) -> Round:
        """Call, answer, meet. A call nobody takes up leaves its caller as it was, an answer that comes back its host.

        Only an answer that is lost or late moves one of the two without the other, and so the mean.
        """
        ids, clock = np.arange(block.first, block.first + block.k), np.full(block.k, block.exchanges)
        calls = (uniform(block.seed, ids, clock, ROLE) < 0.5) & block.alive
        edges = np.where(calls, draw_edges(block), -1)
        callers = np.flatnonzero(edges >= 0)
        calling = _letters(block, time, callers, block.links.target[edges[callers]].astype(np.int64))
        delivery = yield calling
        block.note_presence(delivery)
        taken = _one_each(block, delivery.mail, since, ~calls & block.alive)
        hosts = np.flatnonzero(taken >= 0)
        answers = _letters(block, time, hosts, delivery.mail.sender[taken[hosts]])
        _meet(block, taken, delivery.mail)
        delivery = yield answers
        block.note_presence(delivery)
        _take_back(block, delivery.mail)
        _meet(block, _one_each(block, delivery.mail, since, calls & block.alive), delivery.mail)


def _letters(block: Block, time: int, nodes: Ints, to: Ints) -> Mail:
    seq = np.full(len(nodes), block.exchanges, dtype=np.int64)
    block.exchanges += 1
    return Mail(time, nodes + block.first, to, seq, block.s[nodes], np.empty((len(nodes), 0)))  # no weight is sent


def _one_each(block: Block, mail: Mail, since: int, willing: NDArray[np.bool_]) -> Ints:
    """For every willing node one message to it, drawn from those of this round; -1 where there is none."""
    order, start = arranged(block, mail)
    since = max(since, block.exchanges - 1)
    return moves.pick_one(block.first, order, start, mail.seq, since, willing, block.seed, block.exchanges)


def _take_back(block: Block, mail: Mail) -> None:
    """A host whose answer came back goes on with what it said there: what it had before."""
    mine = (mail.sender >= block.first) & (mail.sender < block.first + block.k)
    returned = mine & (mail.sender == mail.receiver) & (mail.seq == block.exchanges - 1)
    block.s[mail.sender[returned] - block.first] = mail.vector[returned]


def _meet(block: Block, partner: Ints, mail: Mail) -> None:
    block.team.run(moves.meet, block.k, block.s.shape[1], partner, mail.vector, block.s)
