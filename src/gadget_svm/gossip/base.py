"""What every gossip protocol offers, and the few steps they share. Refuses to know why anything is averaged."""

from collections.abc import Generator
from typing import Protocol

import numpy as np

from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.types import Floats, Ints
from gadget_svm.kernels import gossip as kernels

Round = Generator[MessageBatch, Delivery, None]
"""One round of gossip: yields what the block sends, is sent what reaches it. May do so more than once."""


class Gossip(Protocol):
    """A way to average vectors over the network. All its state lives in the block."""

    @property
    def loss_proof(self) -> bool:
        """Whether lost messages do no lasting harm."""

    def load_vectors(self, block: Block, persist: bool) -> None:
        """Let the vectors in ``block.w`` into the sums."""

    def round(self, block: Block, time: int, since: int) -> Round:
        """Send, and absorb what arrives; mail sequenced before ``since`` is stale."""


def load_vectors(block: Block, persist: bool) -> None:
    """s += n (w - s/phi): a step with mass that persists, s = n w with mass that starts anew."""
    block.team.run(
        kernels.load_vectors,
        block.k,
        block.s.shape[1],
        block.alive,
        block.n,
        block.flat,
        block.s,
        block.phi,
        block.held,
        persist,
    )


def estimate(block: Block) -> None:
    """w = s/phi at every node that has mass."""
    block.team.run(kernels.estimate, block.k, block.s.shape[1], block.alive, block.s, block.phi, block.flat)


def draw_edges(block: Block) -> Ints:
    """The out-edge every node draws for its next message."""
    links = block.links
    return kernels.draw_edges(block.alive, block.first, links.indptr, links.table, block.seed, block.exchanges)


def make_messages(
    block: Block,
    time: int,
    senders: Ints | None,
    edges: Ints,
    vector: Floats,
    weight: Floats,
    note: Floats | None = None,
) -> MessageBatch:
    """Mail along ``edges`` (one per row of ``vector``; -1 sends nothing), numbered by the block's exchanges."""
    if senders is None:
        senders = np.arange(block.first, block.first + block.k, dtype=np.int64)
    seq = np.full(len(edges), block.exchanges, dtype=np.int64)
    block.exchanges += 1
    receivers = block.links.target[edges].astype(np.int64) if len(block.links.target) else edges
    messages = MessageBatch(time, senders, receivers, seq, vector, weight, note)
    return messages if len(edges) == 0 or edges.min() >= 0 else messages.select(edges >= 0)


def message_order(block: Block, messages: MessageBatch) -> tuple[Ints, Ints]:
    """The block's part of the mail in the fixed order of absorption."""
    return kernels.order_messages(messages.receiver, messages.sender, messages.seq, block.first, block.k)
