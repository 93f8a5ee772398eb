"""Averaging in compiled rounds, for networks of any size on which no message is lost or late and no node is away.

The results are bit for bit those of the protocols' own rounds. There are no messages and there is no block: a million
nodes on a graph of twenty million edges need little more memory than the graph.
"""

import numpy as np

from gadget_svm.core.network import Network
from gadget_svm.core.types import Floats
from gadget_svm.kernels import ThreadTeam
from gadget_svm.kernels import fused_averaging as kernels


def push_sum(network: Network, state: Floats, n_rounds: int, seed: int, team: ThreadTeam) -> Floats:
    """Return the state (sums, and weights in the last column) after rounds of the randomised form."""
    n, width = state.shape
    receiver, start, sender = np.empty(n, np.int32), np.empty(n + 1, np.int32), np.empty(n, np.int32)
    graph, other = (network.indptr, network.indices, network.draw_table), np.empty_like(state)
    work = state.size if width > 2 else n // 5  # one number per node: threads share only the draws, which are fast
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


def diffusion(network: Network, state: Floats, n_rounds: int, team: ThreadTeam) -> Floats:
    """Return the state after rounds of the diffusion form."""
    n, width = state.shape
    even = network.is_walk
    in_ptr, source, edge = kernels.incoming_edges(network.indptr, network.indices, 0, n, not even)
    share, other = network.even_share if even else network.share[edge], np.empty_like(state)
    work = width * max(1, network.n_edges // n)
    for _ in range(n_rounds):
        team.run(kernels.pull_shares, n, work, in_ptr, source, even, share, network.self_share, state, other)
        state, other = other, state
    return state
