"""Push-Sum over links that lose: the sender keeps a running sum per edge and sends that, never a difference.

A lost message is made good by the next on its edge; a repeated or older one is ignored. Costs two vectors an edge.

**Epochs.** What a node that vanished held of the others' mass cannot be had back. So one who misses a neighbour begins
a new epoch: every node that hears of it sets its mass back to n_i at the vector it has, and all running sums to zero.
Nobody's vector moves, the mass is that of those who are here, and messages of older epochs are ignored.
"""

from dataclasses import dataclass

import numpy as np

from gadget_svm.core.block import Block, Links
from gadget_svm.core.messages import MessageBatch
from gadget_svm.core.types import Ints
from gadget_svm.gossip.base import Round, draw_edges, load_vectors, make_messages, message_order
from gadget_svm.kernels import gossip as kernels


@dataclass(frozen=True)
class RunningSum:
    """Keep half, add half to the drawn edge's running sum sigma_ij, send sigma_ij."""

    loss_proof: bool = True

    def load_vectors(self, block: Block, persist: bool) -> None:
        """Let the vectors in ``block.w`` into the sums."""
        if not persist:
            raise ValueError(
                "running sums carry mass from one iteration to the next: they cannot restart. "
                "Use a fixed gossip_rounds with persist=True, or gossip='push-sum'"
            )
        load_vectors(block, persist)

    def round(self, block: Block, time: int, since: int) -> Round:  # noqa: ARG002
        """One running sum from every node; ``since`` is not needed, every message says all there is to say."""
        if "sigma" not in block.edge:
            _open_edges(block)
        edge, edges = block.edge, draw_edges(block)
        vector, weight = np.empty_like(block.s), np.empty(block.k)
        block.team.run(
            kernels.halve_running, block.k, block.s.shape[1], edges, block.s, block.phi, edge["sigma"],
            edge["sigma_phi"], vector, weight,
        )  # fmt: skip
        messages = make_messages(block, time, None, edges, vector, weight)
        if edge["epoch"].any():
            messages = messages._replace(
                seq=messages.seq + (edge["epoch"][messages.sender - block.first] << kernels.EPOCH_SHIFT)
            )
        delivery = yield messages
        block.note_presence(delivery)
        messages, (order, start) = delivery.messages, message_order(block, delivery.messages)
        _keep_up(block, delivery.messages)
        block.team.run(
            kernels.absorb_running, block.k, block.s.shape[1], order, start, messages.sender, messages.seq,
            messages.vector,
            messages.weight, block.links.in_ptr, block.links.source, edge["seen"], edge["seen_phi"], edge["seen_seq"],
            block.s, block.phi,
        )  # fmt: skip

    def set_neighbours(self, block: Block, neighbours: Ints) -> None:
        """Other neighbours for a block of one node; where one is missing, a new epoch."""
        before, kept = block.links.target, np.isin(block.links.target, neighbours)
        block.links = Links.alone(neighbours.astype(np.int32))
        if "sigma" not in block.edge:
            return
        old = {name: block.edge[name][kept] for name in _SUMS}
        _open_edges(block)
        at = np.searchsorted(neighbours, before[kept])
        for name in _SUMS:
            block.edge[name][at] = old[name]
        if not kept.all():
            _rebase(block, 0, int(block.edge["epoch"][0]) + 1)

    def reset_edge(self, block: Block, other: int) -> None:
        """A neighbour that begins anew took what it held with it: a new epoch."""
        if "sigma" in block.edge and other in block.links.target:
            _rebase(block, 0, int(block.edge["epoch"][0]) + 1)

    def supersede(self, block: Block, epoch: int) -> None:
        """Take the place of a node that knew of this epoch, and whose mass is with the others: a new one above it."""
        if "sigma" not in block.edge:
            _open_edges(block)
        _rebase(block, 0, max(epoch, int(block.edge["epoch"][0])) + 1)


_SUMS = ("sigma", "sigma_phi", "seen", "seen_phi", "seen_seq")


def _keep_up(block: Block, messages: MessageBatch) -> None:
    """Take over the highest epoch heard of."""
    own, heard = block.edge["epoch"], messages.seq >> kernels.EPOCH_SHIFT
    if not heard.any():
        return
    for m in np.flatnonzero((messages.receiver >= block.first) & (messages.receiver < block.first + block.k)).tolist():
        i = int(messages.receiver[m]) - block.first
        if heard[m] > own[i]:
            _rebase(block, i, int(heard[m]))


def _rebase(block: Block, i: int, epoch: int) -> None:
    """Node i stays where it is, with the mass of its own rows; nothing is under way to it or from it."""
    block.phi[i], block.held[i], block.edge["epoch"][i] = block.n[i], 0.0, epoch
    np.multiply(block.flat[i], block.n[i], out=block.s[i])
    out = slice(block.links.indptr[i], block.links.indptr[i + 1])
    into = slice(block.links.in_ptr[i], block.links.in_ptr[i + 1])
    for name, ends in (("sigma", out), ("sigma_phi", out), ("seen", into), ("seen_phi", into)):
        block.edge[name][ends] = 0.0
    block.edge["seen_seq"][into] = (epoch << kernels.EPOCH_SHIFT) - 1


def _open_edges(block: Block) -> None:
    width, out, into = block.s.shape[1], len(block.links.target), len(block.links.source)
    block.edge.setdefault("epoch", np.zeros(block.k, dtype=np.int64))
    block.edge.update(
        sigma=np.zeros((out, width)),
        sigma_phi=np.zeros(out),
        seen=np.zeros((into, width)),
        seen_phi=np.zeros(into),
        seen_seq=np.full(into, (int(block.edge["epoch"].max(initial=0)) << kernels.EPOCH_SHIFT) - 1, dtype=np.int64),
    )
