"""Averaging by gossip, without any learning: the protocols on plain numbers or vectors, in this process."""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from gadget_svm import spectral
from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery, Exchange
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows, Shares
from gadget_svm.core.types import Floats
from gadget_svm.gossip.base import Gossip
from gadget_svm.gossip.fused_averaging import FUSED
from gadget_svm.gossip.pairwise import Pairwise
from gadget_svm.gossip.push_sum import Diffusion
from gadget_svm.kernels import ThreadTeam


def averaging_block(
    network: Network, values: Floats, weights: Floats, seed: int = 0, team: ThreadTeam | None = None
) -> Block:
    """A block that holds vectors to average and no rows."""
    none = Rows.of(
        sp.csr_matrix((0, values.shape[1])), np.empty(0, np.int32), np.empty(0),
        Shares(np.empty(0, np.int64), np.zeros(network.n + 1, np.int64), np.empty(0)),
    )  # fmt: skip
    block = Block.fresh(network, none, weights, 1, values.shape[1], seed=seed, team=team)
    block.w[:, 0, :] = values
    return block


def rounds(gossip: Gossip, block: Block, exchange: Exchange = Delivery) -> Iterator[Block]:
    """The block with its sums set up, then after each round of gossip, without end."""
    gossip.load_vectors(block, persist=True)
    yield block
    time = 0
    while True:
        time += 1
        party = gossip.round(block, time, since=0)
        messages = next(party)
        while True:
            try:
                messages = party.send(exchange(messages))
            except StopIteration:
                break
        yield block


def average(
    values: ArrayLike,
    network: Network,
    gossip: Gossip,
    n_rounds: int | str,
    *,
    weights: ArrayLike | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
) -> Floats:
    """What every node believes the (weighted) average of ``values`` to be, after ``n_rounds`` rounds.

    ``values`` is one number per node (Push-Sum) or one vector per node (Push-Vector). ``n_rounds`` is a number, or
    "mix": as many as bring Push-Sum within one per cent, computed from B. ``n_jobs`` are threads, as in
    `GadgetSVC`; the result does not depend on it.
    """
    if not isinstance(network, Network) or isinstance(gossip, type) or not hasattr(gossip, "round"):
        raise TypeError("average(values, build_network('ring', n), PushSum(), n_rounds): a network and a protocol")
    start = np.asarray(values, dtype=np.float64)
    if start.ndim == 0 or len(start) != network.n:
        raise ValueError(f"{start.size} values for {network.n} nodes: give one number or one row per node")
    if not np.isfinite(start).all():
        raise ValueError("values must be finite: one NaN or infinity would spread to every node")
    mass = np.ones(network.n) if weights is None else np.asarray(weights, dtype=np.float64)
    if mass.shape != (network.n,) or not (mass >= 0).all() or not 0 < mass.sum() < np.inf:
        raise ValueError(f"weights must be {network.n} numbers, none negative and not all zero")
    if weights is not None and isinstance(gossip, Pairwise):
        raise ValueError("pairwise averaging knows no weights: use Push-Sum, or leave weights out")
    apply_undamped = _in_compiled_rounds if type(gossip) in FUSED else _by_mail
    team = ThreadTeam.of(n_jobs)
    try:
        believed = apply_undamped(
            start.reshape(network.n, -1), mass, network, gossip, _rounds(n_rounds, network, gossip), seed, team
        )
    finally:
        team.close()
    return believed.reshape(start.shape)


def _in_compiled_rounds(
    values: Floats, mass: Floats, network: Network, gossip: Gossip, count: int, seed: int, team: ThreadTeam
) -> Floats:
    state = np.empty((network.n, values.shape[1] + 1))
    np.multiply(values, mass[:, None], out=state[:, :-1])
    state[:, -1] = mass
    state = FUSED[type(gossip)](network, state, count, seed, team)
    return _estimates(state[:, :-1], state[:, -1])


def _by_mail(
    values: Floats, mass: Floats, network: Network, gossip: Gossip, count: int, seed: int, team: ThreadTeam
) -> Floats:
    block = averaging_block(network, values, mass, seed, team)
    running = rounds(gossip, block)
    for _ in range(count + 1):
        next(running)
    return _estimates(block.s, block.phi)


def _estimates(s: Floats, phi: Floats) -> Floats:
    return np.asarray(s / np.where(phi > 0, phi, np.nan)[:, None], dtype=np.float64)


def _rounds(n_rounds: int | str, network: Network, gossip: Gossip) -> int:
    if n_rounds == "mix":
        needed = spectral.rounds_to if isinstance(gossip, Diffusion) else spectral.randomised_rounds
        return needed(network)
    if isinstance(n_rounds, str) or not hasattr(n_rounds, "__index__") or n_rounds < 0:
        raise ValueError(f"n_rounds is a number of rounds, or 'mix'; got {n_rounds!r}")
    return int(n_rounds)
