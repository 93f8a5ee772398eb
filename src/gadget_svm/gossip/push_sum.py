"""Push-Sum and Push-Vector (Algorithm 1 of the paper; Kempe, Dobra and Gehrke 2003), in both forms.

Every node holds a sum s and a weight phi and sends shares of both; s/phi goes to sum(n_i x_i) / sum(n_i).
"""

from dataclasses import dataclass

import numpy as np

from gadget_svm.core.block import Block
from gadget_svm.core.messages import MessageBatch
from gadget_svm.core.types import Floats, Ints
from gadget_svm.gossip.base import Round, draw_edges, load_vectors, make_messages, message_order
from gadget_svm.kernels import gossip as kernels


@dataclass(frozen=True)
class PushSum:
    """The randomised form: keep half, send half to one neighbour drawn with probability b_ij."""

    loss_proof: bool = False

    def load_vectors(self, block: Block, persist: bool) -> None:
        """Let the vectors in ``block.w`` into the sums."""
        load_vectors(block, persist)

    def round(self, block: Block, time: int, since: int) -> Round:
        """One message from every node (steps 4 and 5 of Algorithm 1), and what arrives is summed (2 and 3)."""
        edges = draw_edges(block)
        delivery = yield make_messages(block, time, None, edges, *_halves(block, edges))
        block.note_presence(delivery)
        absorb(block, delivery.messages, since)


@dataclass(frozen=True)
class Diffusion:
    """The diffusion form: a share b_ij to every neighbour, "deterministically simulates a random walk"."""

    loss_proof: bool = False

    def load_vectors(self, block: Block, persist: bool) -> None:
        """Let the vectors in ``block.w`` into the sums."""
        load_vectors(block, persist)

    def round(self, block: Block, time: int, since: int) -> Round:
        """A message along every edge; ``block.edge['flag']``, where there is one, rides along (see `stopping`)."""
        links, flag = block.links, block.edge.get("flag")
        senders = np.repeat(np.arange(block.k), np.diff(links.indptr))
        edges = np.where(block.alive[senders], np.arange(len(senders)), -1)
        note = None if flag is None else flag[senders]
        delivery = yield make_messages(block, time, senders + block.first, edges, *_shares(block), note)
        block.note_presence(delivery)
        absorb(block, delivery.messages, since)


def _halves(block: Block, edges: Ints) -> tuple[Floats, Floats]:
    """Half of the sum and weight of every node that sends. No name is left here for what is sent: who sends it on a
    wire may let go of it before the answers come."""
    vector, weight = np.empty_like(block.s), np.empty(block.k)
    block.team.run(kernels.halve, block.k, block.s.shape[1], edges, block.s, block.phi, vector, weight)
    return vector, weight


def _shares(block: Block) -> tuple[Floats, Floats]:
    """The share of every edge, likewise."""
    links, count = block.links, len(block.links.target)
    vector, weight = np.empty((count, block.s.shape[1])), np.empty(count)
    block.team.run(
        kernels.send_shares, block.k, block.s.shape[1], block.alive, links.indptr, links.share, links.keep,
        block.s, block.phi, vector, weight,
    )  # fmt: skip
    return vector, weight


def absorb(block: Block, messages: MessageBatch, since: int) -> None:
    """Add what was sent to every node to what it kept, and take the largest note it heard into its flag."""
    order, start = message_order(block, messages)
    block.team.run(
        kernels.absorb, block.k, block.s.shape[1], order, start, messages.seq, since, messages.vector, messages.weight,
        block.s, block.phi,
    )  # fmt: skip
    if messages.note is not None:
        receivers = np.repeat(np.arange(block.k), np.diff(start))
        np.maximum.at(block.edge["flag"], receivers, messages.note[order])
