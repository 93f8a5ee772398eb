"""Averaging in compiled rounds, for networks of any size on which nothing is lost, late or away.

The bits are those of the protocols' own rounds; a test holds them together. There is no mail here and no block: a
million nodes on a graph of twenty million edges need little more memory than the graph.
"""

from collections.abc import Callable

import numpy as np

from gadget_svm.core.network import Network
from gadget_svm.core.types import Floats
from gadget_svm.gossip.push_sum import Diffusion, PushSum
from gadget_svm.kernels import ThreadTeam
from gadget_svm.kernels import fused_averaging as kernels

FusedAveraging = Callable[[Network, Floats, int, int, ThreadTeam], Floats]
"""(network, state, rounds, seed, team) -> state: sums, and weights in the last column."""


def push_sum(network: Network, state: Floats, n_rounds: int, seed: int, team: ThreadTeam) -> Floats:
    """The randomised form: half to one neighbour a round."""
    n, width = state.shape
    receiver, start, sender = np.empty(n, np.int32), np.empty(n + 1, np.int32), np.empty(n, np.int32)
    graph, other = (network.indptr, network.indices, network.draw_table), np.empty_like(state)
    work = state.size if width > 2 else n // 5  # one number a node: only the draws are shared, and they are short
    if team.size == 1 or work < team.worth_sharing:
        return kernels.halving_rounds(n_rounds, *graph, seed, 0, receiver, start, sender, state, other)[0]
    for time in range(n_rounds):
        team.run(kernels.draw_receivers, n, width, *graph, seed, time, state, receiver)
        if width == 2:
            kernels.push_halves(receiver, state, other)
        else:
            kernels.sort_by_receiver(receiver, start, sender)
            team.run(kernels.pull_halves, n, width, receiver, start, sender, state, other)
        state, other = other, state
    return state


def diffusion(network: Network, state: Floats, n_rounds: int, seed: int, team: ThreadTeam) -> Floats:  # noqa: ARG001
    """The diffusion form: a share to every neighbour; nothing is drawn."""
    n, width = state.shape
    even = network.is_walk
    in_ptr, source, edge = kernels.incoming_edges(network.indptr, network.indices, 0, n, not even)
    share, other = network.each if even else network.share[edge], np.empty_like(state)
    work = width * max(1, network.n_edges // n)
    for _ in range(n_rounds):
        team.run(kernels.pull_shares, n, work, in_ptr, source, even, share, network.self_share, state, other)
        state, other = other, state
    return state


FUSED: dict[type, FusedAveraging] = {PushSum: push_sum, Diffusion: diffusion}
