"""Pairwise averaging: two neighbours meet and both go on with the middle. What the authors' code calls Push-Sum.

Unweighted, so shards of unequal size are averaged as if they were equal. One round is two exchanges:
some nodes call one neighbour each, and those that did not call answer one of their callers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.block import Block
from gadget_svm.core.messages import MessageBatch
from gadget_svm.core.types import Ints
from gadget_svm.gossip.base import Round, draw_edges, message_order
from gadget_svm.kernels import gossip as kernels
from gadget_svm.kernels.counter_rng import ROLE, uniform


@dataclass(frozen=True)
class Pairwise:
    """Who calls and who answers is a coin of every node's own, so no node is in two pairs at once."""

    loss_proof: bool = False

    def load_vectors(self, block: Block, persist: bool) -> None:  # noqa: ARG002 - the mean has no mass to persist
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
        taken = _one_each(block, delivery.messages, since, ~calls & block.alive)
        hosts = np.flatnonzero(taken >= 0)
        answers = _letters(block, time, hosts, delivery.messages.sender[taken[hosts]])
        _average_with(block, taken, delivery.messages)
        delivery = yield answers
        block.note_presence(delivery)
        _take_back(block, delivery.messages)
        _average_with(block, _one_each(block, delivery.messages, since, calls & block.alive), delivery.messages)


def _letters(block: Block, time: int, nodes: Ints, to: Ints) -> MessageBatch:
    seq = np.full(len(nodes), block.exchanges, dtype=np.int64)
    block.exchanges += 1
    return MessageBatch(
        time, nodes + block.first, to, seq, block.s[nodes], np.empty((len(nodes), 0))
    )  # no weight is sent


def _one_each(block: Block, messages: MessageBatch, since: int, willing: NDArray[np.bool_]) -> Ints:
    """For every willing node one message to it, drawn from those of this round; -1 where there is none."""
    order, start = message_order(block, messages)
    since = max(since, block.exchanges - 1)
    return kernels.pick_message(block.first, order, start, messages.seq, since, willing, block.seed, block.exchanges)


def _take_back(block: Block, messages: MessageBatch) -> None:
    """A host whose answer came back goes on with what it said there: what it had before."""
    mine = (messages.sender >= block.first) & (messages.sender < block.first + block.k)
    returned = mine & (messages.sender == messages.receiver) & (messages.seq == block.exchanges - 1)
    block.s[messages.sender[returned] - block.first] = messages.vector[returned]


def _average_with(block: Block, partner: Ints, messages: MessageBatch) -> None:
    block.team.run(kernels.average_with, block.k, block.s.shape[1], partner, messages.vector, block.s)
