"""Pairwise averaging: two neighbours exchange vectors, and both continue with the mean.

The authors' code calls it Push-Sum.

It is unweighted: shards of unequal size are averaged as if they were equal. A round is two exchanges: some nodes send a
request to one neighbour, and each of the others answers one of the requests it receives.
"""

from dataclasses import dataclass

import numpy as np

from gadget_svm.core.block import Block
from gadget_svm.core.messages import MessageBatch
from gadget_svm.core.types import Flags, Ints
from gadget_svm.gossip.base import Gossip, Round, draw_edges, message_order
from gadget_svm.kernels import gossip as kernels
from gadget_svm.kernels.counter_rng import ROLE, uniform


@dataclass(frozen=True)
class Pairwise(Gossip):
    """Each node draws for itself whether it requests or answers, so no node is in two pairs at once."""

    name = "pairwise"
    conserves_mass = weighted = False

    def load_vectors(self, block: Block, persist: bool) -> None:  # noqa: ARG002 - there is no mass to persist
        """Use the vectors themselves as sums, all of weight one."""
        block.phi[:] = 1.0
        block.s[block.alive] = block.flat[block.alive]

    def round(self, block: Block, time: int, since: int) -> Round:
        """Request, answer, average.

        A request without an answer changes nothing, and an answer that comes back is undone. Only an answer that is
        lost or late changes one of the two nodes without the other, and so the mean.
        """
        ids, clock = np.arange(block.first, block.first + block.k), np.full(block.k, block.exchanges)
        requests = (uniform(block.seed, ids, clock, ROLE) < 0.5) & block.alive
        edges = np.where(requests, draw_edges(block), -1)
        nodes = np.flatnonzero(edges >= 0)
        delivery = yield _messages(block, time, nodes, block.links.target[edges[nodes]].astype(np.int64))
        block.note_presence(delivery)
        chosen = _choose_message(block, delivery.messages, since, ~requests & block.alive)
        nodes = np.flatnonzero(chosen >= 0)
        answers = _messages(block, time, nodes, delivery.messages.sender[chosen[nodes]])
        _average_with(block, chosen, delivery.messages)
        delivery = yield answers
        block.note_presence(delivery)
        _undo_returned(block, delivery.messages)
        _average_with(
            block, _choose_message(block, delivery.messages, since, requests & block.alive), delivery.messages
        )


def _messages(block: Block, time: int, nodes: Ints, receivers: Ints) -> MessageBatch:
    seq = np.full(len(nodes), block.exchanges, dtype=np.int64)
    block.exchanges += 1
    no_weight = np.empty((len(nodes), 0))
    return MessageBatch(time, nodes + block.first, receivers, seq, block.s[nodes], no_weight)


def _choose_message(block: Block, messages: MessageBatch, since: int, nodes: Flags) -> Ints:
    """For each node, draw one of the messages sent to it in this round; -1 if there is none."""
    order, start = message_order(block, messages)
    since = max(since, block.exchanges - 1)
    return kernels.pick_message(block.first, order, start, messages.seq, since, nodes, block.seed, block.exchanges)


def _undo_returned(block: Block, messages: MessageBatch) -> None:
    """If an answer came back, restore the vector in it, which its sender had before averaging."""
    own = (messages.sender >= block.first) & (messages.sender < block.first + block.k)
    returned = own & (messages.sender == messages.receiver) & (messages.seq == block.exchanges - 1)
    block.s[messages.sender[returned] - block.first] = messages.vector[returned]


def _average_with(block: Block, partner: Ints, messages: MessageBatch) -> None:
    """Set every node's vector to the mean of it and the chosen message ``partner``; -1: no message."""
    paired = partner >= 0
    block.s[paired] = 0.5 * (block.s[paired] + messages.vector[partner[paired]])
