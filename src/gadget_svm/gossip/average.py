"""The gossip protocols by name, and `average`, which averages numbers or vectors in this process without learning.

To add a protocol, add a file to this folder and a line to the table.
"""

from collections.abc import Callable, Iterator
from itertools import count, islice

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery, Exchange, MessageBatch
from gadget_svm.core.network import Network
from gadget_svm.core.registry import Registry
from gadget_svm.core.rows import Rows, Shares
from gadget_svm.core.types import Floats
from gadget_svm.gossip.base import Gossip, resume
from gadget_svm.gossip.pairwise import Pairwise
from gadget_svm.gossip.push_sum import Diffusion, PushSum
from gadget_svm.gossip.running_sum import RunningSum
from gadget_svm.kernels import ThreadTeam

PROTOCOLS: Registry[Callable[[], Gossip]] = Registry(
    "gadget_svm.gossip", {"push-sum": PushSum, "diffusion": Diffusion, "pairwise": Pairwise, "running-sum": RunningSum}
)


def resolve(gossip: object) -> Gossip:
    """Return the protocol of this name, or the protocol itself if it is given as an object."""
    found: Gossip = PROTOCOLS.resolve("gossip protocol", gossip, Gossip, "PushSum()")
    return found


def averaging_block(
    network: Network, values: Floats, weights: Floats, seed: int = 0, team: ThreadTeam | None = None
) -> Block:
    """Return a block that holds vectors to average, and no rows."""
    none = Rows.of(
        sp.csr_matrix((0, values.shape[1])), np.empty(0, np.int32), np.empty(0),
        Shares(np.empty(0, np.int64), np.zeros(network.n + 1, np.int64), np.empty(0)),
    )  # fmt: skip
    block = Block.fresh(network, none, weights, 1, values.shape[1], seed=seed, team=team)
    block.w[:, 0, :] = values
    return block


def rounds(gossip: Gossip, block: Block, exchange: Exchange = Delivery) -> Iterator[Block]:
    """Yield the block once its vectors are loaded, and again after each round of gossip, without end."""
    gossip.load_vectors(block, persist=True)
    yield block
    for time in count(1):
        generator = gossip.round(block, time, since=0)
        messages: MessageBatch | None = next(generator)
        while messages is not None:
            messages = resume(generator, exchange(messages))
        yield block


def average(
    values: ArrayLike, network: Network, gossip: Gossip | str, n_rounds: int | str, *,
    weights: ArrayLike | None = None, seed: int = 0, n_jobs: int | None = None,
) -> Floats:  # fmt: skip
    """Return every node's estimate of the (weighted) average of ``values`` after some rounds of gossip.

    Parameters
    ----------
    values : array-like, one row per node
        One number per node (Push-Sum) or one vector per node (Push-Vector).
    network : Network
        The nodes and their edges, see `build_network`.
    gossip : Gossip or str
        The protocol, or its name.
    n_rounds : int or "mix"
        How many rounds. "mix": as many as bring the error of Push-Sum down to one per cent, computed from B.
    weights : array-like or None, default None
        The weight of each node; None weighs all the same.
    seed : int, default 0
        Decides which neighbours the nodes draw.
    n_jobs : int or None, default None
        Threads, as in `GadgetSVC`. The result does not depend on it.

    Returns
    -------
    ndarray
        The estimates, in the shape of ``values``; NaN at a node without mass.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit the network or the protocol.

    Examples
    --------
    >>> from gadget_svm import average, build_network
    >>> average([1.0, 2.0, 3.0, 6.0], build_network("ring", 4), "push-sum", 200).round(6)
    array([3., 3., 3., 3.])
    """
    if not isinstance(network, Network):
        raise TypeError("network must be a Network: average(values, build_network('ring', n), 'push-sum', n_rounds)")
    if network.schedule is not None:
        raise ValueError("average() uses all edges at all times: give it a graph that does not vary, or use GadgetSVC")
    gossip = resolve(gossip)
    start = np.asarray(values, dtype=np.float64)
    if start.ndim == 0 or len(start) != network.n:
        raise ValueError(f"{start.size} values for {network.n} nodes: give one number or one row per node")
    if not np.isfinite(start).all():
        raise ValueError("values must be finite: one NaN or infinity would spread to every node")
    mass = np.ones(network.n) if weights is None else np.asarray(weights, dtype=np.float64)
    if mass.shape != (network.n,) or not (mass >= 0).all() or not 0 < mass.sum() < np.inf:
        raise ValueError(f"weights must be {network.n} numbers, none negative and not all zero")
    if weights is not None and not gossip.weighted:
        raise ValueError(f"gossip={gossip.name!r} weighs all nodes the same: use 'push-sum', or leave weights out")
    n_rounds, vectors = _n_rounds(n_rounds, network, gossip), start.reshape(network.n, -1)
    team = ThreadTeam.of(n_jobs)
    try:
        if gossip.fused_in_average:
            sums = np.column_stack([vectors * mass[:, None], mass])
            state = gossip.average_fused(network, sums, n_rounds, seed, team)
            s, phi = state[:, :-1], state[:, -1]
        else:
            block = averaging_block(network, vectors, mass, seed, team)
            s, phi = next((b.s, b.phi) for b in islice(rounds(gossip, block), n_rounds, None))
    finally:
        team.close()
    estimates = s / np.where(phi > 0, phi, np.nan)[:, None]
    return np.asarray(estimates, dtype=np.float64).reshape(start.shape)


def _n_rounds(n_rounds: int | str, network: Network, gossip: Gossip) -> int:
    if n_rounds == "mix":
        return gossip.rounds_to_mix(network)
    if isinstance(n_rounds, str) or not hasattr(n_rounds, "__index__") or n_rounds < 0:
        raise ValueError(f"n_rounds is a number of rounds, or 'mix'; got {n_rounds!r}")
    return int(n_rounds)
