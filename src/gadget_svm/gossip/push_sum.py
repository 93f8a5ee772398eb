"""Push-Sum and Push-Vector (Algorithm 1 of the paper; Kempe, Dobra and Gehrke 2003), in both forms.

Every node holds a sum s and a weight phi and sends shares of both; s/phi goes to sum(n_i x_i) / sum(n_i).
`average_fused` has no messages and no block: a million nodes on twenty million edges need little more memory than the
graph.
"""

from dataclasses import dataclass

import numpy as np

from gadget_svm import spectral
from gadget_svm.core.block import Block
from gadget_svm.core.network import Network
from gadget_svm.core.types import Floats, Ints
from gadget_svm.gossip.base import Gossip, Round, absorb, draw_edges, make_messages
from gadget_svm.kernels import ThreadTeam, fused_averaging
from gadget_svm.kernels import gossip as kernels


@dataclass(frozen=True)
class PushSum(Gossip):
    """The randomised form: keep half, send half to one neighbour drawn with probability b_ij."""

    name = "push-sum"
    fused_in_gadget = fused_in_average = True

    def round(self, block: Block, time: int, since: int) -> Round:
        """Send one message per node (steps 4 and 5 of Algorithm 1), and sum what arrives (2 and 3)."""
        edges = draw_edges(block)
        delivery = yield make_messages(block, time, None, edges, *_halves(block, edges))
        block.note_presence(delivery)
        absorb(block, delivery.messages, since)

    def average_fused(self, network: Network, state: Floats, n_rounds: int, seed: int, team: ThreadTeam) -> Floats:
        """Return the state after ``n_rounds`` compiled rounds."""
        n, width = state.shape
        receiver, ids = np.empty(n, np.int32), np.arange(n, dtype=np.int32)
        graph, other = (network.indptr, network.indices, network.draw_table), np.empty_like(state)
        work = state.size if width > 2 else n // 5  # one number per node: threads share only the draws, which are short
        if team.size == 1 or work < team.worth_sharing:
            return fused_averaging.halving_rounds(n_rounds, *graph, seed, receiver, ids, state, other)
        for time in range(n_rounds):
            team.run(fused_averaging.draw_receivers, n, width, *graph, seed, time, state, receiver)
            if width == 2:
                fused_averaging.push_halves(receiver, state, other)
            else:
                order = kernels.order_messages(receiver, ids, ids, 0, n)
                team.run(fused_averaging.pull_halves, n, width, receiver, *order, state, other)
            state, other = other, state
        return state


@dataclass(frozen=True)
class Diffusion(Gossip):
    """The diffusion form: send a share b_ij to every neighbour. It "deterministically simulates a random walk"."""

    name = "diffusion"
    floods_flag = fused_in_average = True

    def round(self, block: Block, time: int, since: int) -> Round:
        """Send a message along every edge, with the sender's flag where there is one (see `until_converged`)."""
        links, flag = block.links, block.edge.get("flag")
        senders = np.repeat(np.arange(block.k), np.diff(links.indptr))
        edges = np.where(block.alive[senders], np.arange(len(senders)), -1)
        note = None if flag is None else flag[senders]
        delivery = yield make_messages(block, time, senders + block.first, edges, *_shares(block), note)
        block.note_presence(delivery)
        absorb(block, delivery.messages, since)

    def check(self, network: Network) -> None:
        """Raise ValueError if the network is not connected, or B is periodic."""
        spectral.check_diffusion(network)

    def rounds_to_mix(self, network: Network, gamma: float = 0.01) -> int:
        """Return how many rounds provably bring the relative error down to ``gamma``."""
        return spectral.rounds_to(network, gamma)

    def average_fused(self, network: Network, state: Floats, n_rounds: int, seed: int, team: ThreadTeam) -> Floats:  # noqa: ARG002
        """Return the state after ``n_rounds`` compiled rounds. Nothing is drawn."""
        even, other = network.is_walk, np.empty_like(state)
        in_ptr, source, share = network.by_receiver(np.zeros(network.n_edges, np.int8) if even else network.share)
        work = state.shape[1] * max(1, network.n_edges // network.n)
        for _ in range(n_rounds):
            team.run(
                fused_averaging.pull_shares, network.n, work, in_ptr, source, even,
                network.even_share if even else share, network.self_share, state, other,
            )  # fmt: skip
            state, other = other, state
        return state


# The functions below keep no reference to their arrays, so that a transport can free them after sending.


def _halves(block: Block, edges: Ints) -> tuple[Floats, Floats]:
    """Return half of the sum and of the weight of every node that sends."""
    vector, weight = np.empty_like(block.s), np.empty(block.k)
    block.team.run(kernels.halve, block.k, block.s.shape[1], edges, block.s, block.phi, vector, weight)
    return vector, weight


def _shares(block: Block) -> tuple[Floats, Floats]:
    """Return the share of every edge."""
    links, count = block.links, len(block.links.target)
    vector, weight = np.empty((count, block.s.shape[1])), np.empty(count)
    block.team.run(
        kernels.send_shares, block.k, block.s.shape[1], block.alive, links.indptr, links.share, links.keep,
        block.s, block.phi, vector, weight,
    )  # fmt: skip
    return vector, weight
