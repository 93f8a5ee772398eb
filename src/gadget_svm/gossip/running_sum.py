"""Push-Sum over links that lose messages: the sender keeps a running sum per edge and sends that, not a difference.

The next message on an edge makes up for a lost one; a repeated or older one is ignored. The state of an edge is two
vectors.

**Epochs.** The mass of a lost node cannot be recovered. A node that loses a neighbour starts a new epoch,
and every node that receives a message of this epoch joins: it sets its mass back to n_i at its current vector, and its
running sums to zero. No vector changes, the total mass belongs to the live nodes, and messages of older
epochs are ignored.
"""

from dataclasses import dataclass

import numpy as np

from gadget_svm.core.block import Block, Links
from gadget_svm.core.messages import MessageBatch
from gadget_svm.core.types import Ints
from gadget_svm.gossip.base import Gossip, Round, draw_edges, make_messages, message_order
from gadget_svm.kernels import gossip as kernels


@dataclass(frozen=True)
class RunningSum(Gossip):
    """Keep half, add half to the drawn edge's running sum sigma_ij, send sigma_ij."""

    name = "running-sum"
    loss_proof = True
    conserves_mass = restartable = False  # a part of the mass is in sigma_ij, until the next message on that edge

    def round(self, block: Block, time: int, since: int) -> Round:  # noqa: ARG002 - running sums are never out of date
        """Send one running sum per node, and add what is new in those that arrive."""
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
            epochs = edge["epoch"][messages.sender - block.first]
            messages = messages._replace(seq=messages.seq + (epochs << kernels.EPOCH_SHIFT))
        delivery = yield messages
        block.note_presence(delivery)
        messages, (order, start) = delivery.messages, message_order(block, delivery.messages)
        _join_epoch(block, messages)
        block.team.run(
            kernels.absorb_running, block.k, block.s.shape[1], order, start, messages.sender, messages.seq,
            messages.vector, messages.weight, block.links.in_ptr, block.links.source, edge["seen"], edge["seen_phi"],
            edge["seen_seq"], block.s, block.phi,
        )  # fmt: skip

    def set_neighbours(self, block: Block, neighbours: Ints) -> None:
        """Change the neighbours of a block of one node. If a former neighbour is missing, start a new epoch."""
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
            _start_epoch(block, 0, int(block.edge["epoch"][0]) + 1)

    def reset_edge(self, block: Block, other: int) -> None:
        """Start a new epoch: the neighbour restarted, and what it held is lost."""
        if "sigma" in block.edge and other in block.links.target:
            _start_epoch(block, 0, int(block.edge["epoch"][0]) + 1)

    def supersede(self, block: Block, epoch: int) -> None:
        """Take the place of a node that was in ``epoch`` and handed its mass to others: start a higher epoch."""
        if "sigma" not in block.edge:
            _open_edges(block)
        _start_epoch(block, 0, max(epoch, int(block.edge["epoch"][0])) + 1)


_SUMS = ("sigma", "sigma_phi", "seen", "seen_phi", "seen_seq")


def _join_epoch(block: Block, messages: MessageBatch) -> None:
    """Move every node to the highest epoch in the messages to it."""
    own, epochs = block.edge["epoch"], messages.seq >> kernels.EPOCH_SHIFT
    if not epochs.any():
        return
    for m in np.flatnonzero((messages.receiver >= block.first) & (messages.receiver < block.first + block.k)).tolist():
        i = int(messages.receiver[m]) - block.first
        if epochs[m] > own[i]:
            _start_epoch(block, i, int(epochs[m]))


def _start_epoch(block: Block, i: int, epoch: int) -> None:
    """Give node i the mass of its own rows at its current vector, and clear its running sums."""
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
