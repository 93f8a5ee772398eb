"""Push-Sum over links that lose: the sender keeps a running sum per edge and sends that, never a difference.

A lost message is made good by the next on its edge; a repeated or older one is ignored. Costs two vectors an edge.
"""

from dataclasses import dataclass

import numpy as np

from gadget_svm.block import Block
from gadget_svm.gossip.protocol import Round, arranged, draw_edges, post, take_in
from gadget_svm.kernels import gossip as moves


@dataclass(frozen=True)
class RunningSum:
    """Keep half, add half to the drawn edge's running sum sigma_ij, send sigma_ij."""

    loss_proof: bool = True

    def take_in(self, block: Block, persist: bool) -> None:
        """Let the vectors in ``block.w`` into the sums."""
        if not persist:
            raise ValueError(
                "running sums carry mass from one iteration to the next: they cannot restart. "
                "Use a fixed gossip_rounds with persist=True, or gossip='push-sum'"
            )
        take_in(block, persist)

    def round(self, block: Block, time: int, since: int) -> Round:  # noqa: ARG002
        """One running sum from every node; ``since`` is not needed, every message says all there is to say."""
        if "sigma" not in block.edge:
            _open_edges(block)
        edge, edges = block.edge, draw_edges(block)
        vector, weight = np.empty_like(block.s), np.empty(block.k)
        block.team.run(
            moves.halve_running, block.k, block.s.shape[1], edges, block.s, block.phi, edge["sigma"], edge["sigma_phi"],
            vector, weight,
        )  # fmt: skip
        delivery = yield post(block, time, None, edges, vector, weight)
        block.note_presence(delivery)
        mail, (order, start) = delivery.mail, arranged(block, delivery.mail)
        block.team.run(
            moves.absorb_running, block.k, block.s.shape[1], order, start, mail.sender, mail.seq, mail.vector,
            mail.weight, block.links.in_ptr, block.links.source, edge["seen"], edge["seen_phi"], edge["seen_seq"],
            block.s, block.phi,
        )  # fmt: skip


def _open_edges(block: Block) -> None:
    width, out, into = block.s.shape[1], len(block.links.target), len(block.links.source)
    block.edge.update(
        sigma=np.zeros((out, width)),
        sigma_phi=np.zeros(out),
        seen=np.zeros((into, width)),
        seen_phi=np.zeros(into),
        seen_seq=np.full(into, -1, dtype=np.int64),
    )
