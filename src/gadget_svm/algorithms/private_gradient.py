"""Private gradient descent by gossip, with noisy slopes over all rows of a node. It is differentially private per row.

In every round a node computes the mean slope of its rows at its model, adds Gaussian noise (`privacy.budget`), takes a
step, and gossips its model as GADGET does. Everything it sends is a function of noisy slopes, row counts and what it
received: no message, and no later computation on messages, reveals more than the budget allows. After the planned
rounds it releases no more slopes and only gossips.

The loss is the smoothed hinge: (1 - m)^2 / 2 for a margin m between 0 and 1, 1/2 - m below, 0 above. Its slope is
between -1 and 0, and its curvature at most 1.

    v = w(t) - w(t-1)                                 how far the node moved, gossip included
    w <- w + momentum v - eta_t (slope + noise + lam w)

v is the velocity of the gossiped models (quasi-global momentum; Lin et al. 2021), so that nodes with different rows do
not move apart. eta_t falls to 0 along half a period of a cosine. The model of a node is the mean of its iterates in the
second half of the rounds.
"""

from dataclasses import dataclass, replace

import numpy as np

from gadget_svm.algorithms.base import BaseAlgorithm, checked_count, checked_positive
from gadget_svm.algorithms.gadget import GadgetRun
from gadget_svm.algorithms.gadget_params import Gadget
from gadget_svm.core.block import Block
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.gossip import Gossip, RobustMixing, Round, estimate
from gadget_svm.kernels import add_row, compiled, dot_row, draw, side
from gadget_svm.kernels.counter_rng import NOISE
from gadget_svm.privacy import DifferentialPrivacy, Plan, secret_normals

MOMENTUM = 0.9


@compiled
def mean_slopes(lo: int, hi: int, alive: Flags, w: Floats, rows: Rows, slopes: Floats) -> None:
    """Set slopes[i] to the mean slope of the loss over the rows of node i, at its model w[i] (outputs x features).

    The slopes of a row in all outputs, times its weight, are scaled down to norm 1 at most. So every row adds at most
    its own norm. The estimator has scaled the rows themselves down to the norm ``clip``
    (`estimator.problem.clip_rows`). The mean is over the number of rows, which is public, not over their weights.
    """
    outputs = w.shape[1]
    slope = np.empty(outputs)
    for i in range(lo, hi):
        slopes[i] = 0.0
        first, last = rows.start[i], rows.start[i + 1]
        if not alive[i] or last == first:
            continue
        for p in range(first, last):
            r = rows.order[p]
            begin, end, squares = rows.indptr[r], rows.indptr[r + 1], 0.0
            for c in range(outputs):
                y = side(rows.pairs, 1 if outputs == 1 else c, rows.label[r])
                margin = y * dot_row(w[i, c], rows.indices, rows.data, begin, end)
                slope[c] = -y * rows.cost[r] * min(1.0, max(0.0, 1.0 - margin))
                squares += slope[c] * slope[c]
            size = 1.0 / (max(1.0, np.sqrt(squares)) * (last - first))
            for c in range(outputs):
                if slope[c] != 0.0:
                    add_row(slopes[i, c], slope[c] * size, rows.indices, rows.data, begin, end)


@compiled
def add_seeded_noise(
    lo: int, hi: int, first: int, deviation: Floats, released: Ints, seed: int, slopes: Floats
) -> None:
    """Add Gaussian noise of every node's deviation to its slopes; ``released`` counts the node's earlier releases."""
    outputs, features = slopes.shape[1:]
    for i in range(lo, hi):
        if deviation[i] == 0.0:
            continue
        at = released[i] * 2 * outputs * features
        for c in range(outputs):
            for j in range(features):
                u, v = draw(seed, first + i, at, NOISE), draw(seed, first + i, at + 1, NOISE)
                at += 2
                slopes[i, c, j] += deviation[i] * np.sqrt(-2.0 * np.log(1.0 - u)) * np.cos(2.0 * np.pi * v)


@dataclass(frozen=True, kw_only=True)
class PrivateGradientRun(GadgetRun):
    """Private gradient descent with every parameter resolved. ``block.steps`` counts the slopes that nodes released."""

    privacy: DifferentialPrivacy
    n_nodes: int
    n_rows: float
    step_size: float | None = None

    def plan(self, dimension: int) -> Plan:
        """Return how the budget is spent on models with ``dimension`` weights."""
        plan = self.privacy.plan(self.n_nodes, self.n_rows, dimension)
        return plan if self.step_size is None else plan._replace(step_size=self.step_size)

    def iteration(self, block: Block, t: int) -> Round:
        """Release a noisy slope, take a step, gossip, and average the iterates of the second half."""
        self.step(block, self._plan(block).rounds)
        self.protocol.load_vectors(block, self.persist)
        yield from self._push_sum(block, t)
        estimate(block)
        self.take_average(block)

    def sensitivity(self, block: Block) -> Floats:
        """Return, per node, how far its mean slope moves if one row is replaced by another one."""
        return 2.0 * self.privacy.clip / np.maximum(block.n, 1.0)

    def supports_fused(self, block: Block) -> bool:  # noqa: ARG002
        """Return False: an iteration reads all rows, so Python's overhead does not matter."""
        return False

    def step(self, block: Block, most: int) -> None:
        """Release a noisy slope and take a step, at every node that has released fewer slopes than ``most``."""
        plan, before = self._plan(block), block.flat.copy()
        previous = block.edge.get("previous", before)
        active = block.alive & (block.steps < min(most, plan.rounds))
        learning = active & (block.n > 0)
        slopes = self.noisy_slopes(block, learning, plan.noise_multiplier)
        size = 0.5 * (1.0 + np.cos(np.pi * block.steps / plan.rounds)) * plan.step_size / self.privacy.clip**2
        eta = np.where(active, size, 0.0)[:, None]
        velocity = np.where(active[:, None], MOMENTUM * (block.flat - previous), 0.0)
        block.flat[...] += velocity - eta * (slopes.reshape(block.s.shape) + self.lam * block.flat)
        block.steps += active
        block.edge["previous"] = before

    def noisy_slopes(self, block: Block, learning: Flags, noise_multiplier: float) -> Floats:
        """Return what is released of the rows in one round, and nothing else is: mean slopes with noise."""
        slopes = np.empty_like(block.w)
        work = max(1, len(block.rows.data) // max(block.k, 1))
        block.team.run(mean_slopes, block.k, work, learning, block.w, block.rows, slopes)
        deviation = np.where(learning, noise_multiplier * self.sensitivity(block), 0.0)
        if self.privacy.noise == "secret":
            for i in np.flatnonzero(learning):
                slopes[i] += deviation[i] * secret_normals(slopes[i].size).reshape(slopes[i].shape)
        else:
            block.team.run(
                add_seeded_noise, block.k, work, block.first, deviation, block.steps, block.seed, slopes
            )  # fmt: skip
        return slopes

    def _plan(self, block: Block) -> Plan:
        return block.once("privacy plan", lambda: self.plan(block.s.shape[1]))

    def take_average(self, block: Block) -> None:
        """Keep only the last iterate in the first half of the rounds, and sum the iterates in the second half."""
        last_only = block.alive & (block.steps <= self._plan(block).rounds // 2)
        summed = block.alive & ~last_only
        block.w_sum[last_only], block.iterates[last_only] = block.w[last_only], 1
        block.w_sum[summed] += block.w[summed]
        block.iterates[summed] += 1


@dataclass(repr=False, eq=False)
class PrivateGradient(BaseAlgorithm):
    """Gradient descent by gossip with differential privacy per row. "auto" chooses it if ``privacy`` is given.

    Parameters
    ----------
    privacy : DifferentialPrivacy or None
        The budget; None: that of `GadgetSVC.privacy`.
    gossip : str or Gossip, default "auto"
        How the models are averaged, as in `Gadget`. "auto" is `RobustMixing` with no liars: nodes move towards their
        neighbours' models, and a lost message does no harm. On directed graphs, and with a transition matrix that the
        user gives, it is diffusion, or running sums if messages may be lost.
    gossip_rounds : int
        Rounds of gossip after every step. One round is not stable on every graph: the velocity amplifies oscillations
        between neighbours.
    transition : "lazy", "random-walk", "metropolis", "max-degree"
        The matrix B on the graph, as in `Gadget`.
    robust : "clip", "trim" or None, default None
        Robust mixing, for networks in which some nodes lie, as in `Gadget`.
    liars : int, default 1
        With ``robust``: how many neighbours of a node may lie.
    step_size : float or None, default None
        Of the first step, for rows of norm 1. None: planned from the budget. It has no effect on privacy.

    Examples
    --------
    >>> from gadget_svm import DifferentialPrivacy, GadgetSVC
    >>> from gadget_svm.algorithms import PrivateGradient
    >>> X, y = [[-1.0], [1.0]] * 600, [0, 1] * 600
    >>> budget = DifferentialPrivacy(epsilon=2.0)
    >>> model = GadgetSVC(3, algorithm=PrivateGradient(gossip_rounds=3), privacy=budget, random_state=0).fit(X, y)
    >>> model.predict([[-2.0], [2.0]]).tolist()
    [0, 1]
    """

    privacy: DifferentialPrivacy | None = None
    gossip: str | Gossip = "auto"
    gossip_rounds: int = 2
    transition: str = "lazy"
    robust: str | None = None
    liars: int = 1
    step_size: float | None = None

    def with_privacy(self, privacy: DifferentialPrivacy) -> "PrivateGradient":
        """Return the algorithm with this budget."""
        return replace(self, privacy=privacy)

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None
    ) -> PrivateGradientRun:
        """Return the algorithm on this network, with a plan for the budget."""
        if self.privacy is None or sizes is None:
            raise ValueError("private gradient descent needs a budget: privacy=DifferentialPrivacy(epsilon=1.0)")
        rounds = checked_count(self.gossip_rounds, "gossip_rounds")
        protocol = self.gossip
        if protocol == "auto" and self.robust is None:
            plain = not network.directed and network.weights is None
            protocol = RobustMixing(liars=0) if plain else "running-sum" if lossy else "diffusion"
        gadget = Gadget(gossip=protocol, gossip_rounds=rounds, project=False, robust=self.robust, liars=self.liars)
        run = gadget.bind(network, lam, radius, lossy, sizes)
        self.privacy.check()
        step_size = None if self.step_size is None else checked_positive(self.step_size, "step_size")
        return PrivateGradientRun(
            **vars(run), privacy=self.privacy, n_nodes=network.n, n_rows=float(np.sum(sizes)), step_size=step_size
        )  # fmt: skip
