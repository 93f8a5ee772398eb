"""Sites that learn with a privacy budget, each with a neighbour that chooses at which models they release slopes.

Owns the sites' block and what the attacker computes from their messages. All sites have the same rows, but each has its
own noise: they are repetitions of one experiment.
"""

import numpy as np
import scipy.sparse as sp

from gadget_svm.algorithms import PrivateGradient
from gadget_svm.algorithms.private_gradient import MOMENTUM, PrivateGradientRun
from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows, Shares
from gadget_svm.core.types import Floats, Indices
from gadget_svm.estimator.problem import as_csr, clip_rows
from gadget_svm.gossip import Round
from gadget_svm.gossip.base import resume
from gadget_svm.privacy import DifferentialPrivacy, epsilon_of
from gadget_svm.topologies import build


class PrivateSites:
    """Repetitions of a site that runs `PrivateGradient` with an attacker as its only neighbour.

    The attacker sees the site's messages, and replies so that the site's model becomes what the attacker chooses.

    Parameters
    ----------
    X : array or sparse matrix
        The rows, without the constant feature, which is added.
    label : array of int
        The classes of the rows, 0 and 1.
    privacy : DifferentialPrivacy
        The budget; its noise may be secret or seeded.
    copies : int, default 1
        How many repetitions; each has its own noise.
    seed : int, default 0
        The seed of seeded noise.
    lam : float, default 1e-3
        The regulariser.

    Attributes
    ----------
    slopes : array, copies x features
        The noisy mean slopes at the present models, computed from the sites' messages.
    rounds : int
        How many slopes a site releases.
    claimed_mu, claimed_epsilon : float
        The budget that the plan spends.
    """

    def __init__(
        self, X: Floats | sp.csr_matrix, label: Indices, privacy: DifferentialPrivacy, *, copies: int = 1,
        seed: int = 0, lam: float = 1e-3,
    ) -> None:  # fmt: skip
        rows = clip_rows(as_csr(X, True), privacy.clip)
        self.n_rows, self.width = rows.shape
        sizes = np.full(2, float(self.n_rows))
        algorithm = PrivateGradient(privacy, gossip_rounds=1)
        self.run: PrivateGradientRun = algorithm.bind(build("complete", 2), lam, lam**-0.5, sizes=sizes)
        order = np.tile(np.arange(self.n_rows), copies)
        shares = Shares(order, np.arange(copies + 1) * self.n_rows, np.empty(0))
        labels = np.asarray(label, dtype=np.int32)
        self.block = Block.fresh(
            _pairs(copies), Rows.of(rows, labels, np.ones(self.n_rows), shares), shares.sizes, 1, self.width,
            seed=seed, last=copies,
        )  # fmt: skip
        plan = self.run.plan(self.width)
        self.rounds, self._step_size = plan.rounds, plan.step_size / privacy.clip**2
        self.claimed_mu = np.sqrt(plan.rounds) / plan.noise_multiplier
        self.claimed_epsilon = epsilon_of(self.claimed_mu, privacy.delta)
        self.released = 0
        self._models = self._models_before = np.zeros((copies, self.width))
        self._iteration, self._sent = self._start()
        self.slopes = self._released_slopes()

    def move_to(self, models: Floats) -> Floats:
        """Move each repetition to its line of ``models``, or all to a single model; return the slopes they release."""
        if self.released == self.rounds:
            raise ValueError(f"the sites have released all {self.rounds} slopes of their budget")
        push = 2.0 * models - self._sent.vector  # the site moves to the mean of its model and the attacker's
        reply = self._sent._replace(sender=self._sent.receiver, receiver=self._sent.sender, vector=push)
        resume(self._iteration, Delivery(reply))
        self._models_before, self._models = self._models, np.broadcast_to(models, self._models.shape)
        self._iteration, self._sent = self._start()
        self.slopes = self._released_slopes()
        return self.slopes

    def _start(self) -> tuple[Round, MessageBatch]:
        iteration = self.run.iteration(self.block, self.released + 1)
        return iteration, next(iteration)

    def _released_slopes(self) -> Floats:
        """Solve the site's step for the slope: w <- w + momentum (w - w before) - eta (slope + lam w)."""
        velocity = self._models - self._models_before
        moved = self._models + MOMENTUM * velocity - self._sent.vector
        eta = 0.5 * (1.0 + np.cos(np.pi * self.released / self.rounds)) * self._step_size
        self.released += 1
        return np.asarray(moved / eta - self.run.lam * self._models)


def _pairs(count: int) -> Network:
    """Return a graph of pairs: node i, a site, and node count + i, its attacker."""
    sites, attackers = np.arange(count), np.arange(count, 2 * count)
    return Network.from_csr(np.arange(2 * count + 1), np.concatenate([attackers, sites]))
