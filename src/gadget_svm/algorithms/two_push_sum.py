"""The older GADGET of Hensel and Dutta, to which the paper refers: two Push-Sum calls in every iteration.

One call averages the models n_i w_i, the other the loss vectors n_i L_i. Each call starts with new masses, so an
iteration sends twice as many messages as one of GADGET. Owns the local part and the order of the calls.
"""

from dataclasses import dataclass

import numpy as np

from gadget_svm.algorithms.base import BaseAlgorithm
from gadget_svm.algorithms.gadget import GadgetRun, pick
from gadget_svm.algorithms.gadget_params import Gadget
from gadget_svm.core.block import Block
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.gossip import Gossip, Round, estimate, resolve
from gadget_svm.kernels import EXAMPLE, add_row, compiled, dot_row, draw, side


@compiled
def loss_vectors(
    lo: int, hi: int, alive: Flags, first: int, w: Floats, L: Floats, rows: Rows, steps: Ints, batch: int, seed: int
) -> None:
    """Set L_i = y x of an example of node i if y<w_i, x> < 1, else 0 (the mean over a batch), for every output."""
    for i in range(lo, hi):
        L[i, :, :] = 0.0
        if not alive[i] or rows.start[i + 1] == rows.start[i]:
            continue
        steps[i] += 1
        for b in range(batch):
            r = pick(rows, i, draw(seed, first + i, steps[i] * batch + b, EXAMPLE))
            at, end = rows.indptr[r], rows.indptr[r + 1]
            for c in range(w.shape[1]):
                y = side(rows.pairs, 1 if w.shape[1] == 1 else c, rows.label[r])
                if y != 0.0 and y * dot_row(w[i, c], rows.indices, rows.data, at, end) < 1.0:
                    add_row(L[i, c], y * rows.cost[r] / batch, rows.indices, rows.data, at, end)


@dataclass(frozen=True)
class TwoPushSumRun(GadgetRun):
    """The older GADGET of Hensel and Dutta with every parameter resolved.

    While one call averages the models, ``block.held`` keeps the loss vectors; in the other call it keeps the models.
    """

    def iteration(self, block: Block, t: int) -> Round:
        """Compute w_i(t+1) = projection of (1 - lam alpha) PS(n_i w_i) + alpha PS(n_i L_i)."""
        width, flat, other = block.s.shape[1], block.flat, block.held
        block.team.run(
            loss_vectors, block.k, width, block.alive, block.first, block.w, other.reshape(block.w.shape), block.rows,
            block.steps, self.batch_size, block.seed,
        )  # fmt: skip
        yield from self._mean(block, t)  # averages the models
        active = block.alive.copy()
        means = flat[active]
        flat[active], other[active] = other[active], means
        yield from self._mean(block, t)  # averages the loss vectors
        steps = np.maximum(block.steps[active], 1)[:, None]  # a node without rows has no steps of its own
        flat[active] = (1.0 - 1.0 / steps) * other[active] + 1.0 / (self.lam * steps) * flat[active]
        self._project_and_average(block)

    def supports_fused(self, block: Block) -> bool:  # noqa: ARG002
        """Return False: `advance_fused` computes GADGET's steps, not these."""
        return False

    def _mean(self, block: Block, t: int) -> Round:
        """Average the vectors in ``block.w`` by Push-Sum, which starts with new masses."""
        away = ~block.alive
        block.s[away], block.phi[away] = 0.0, 0.0  # a node that returns must not bring the sums of the other call
        self.protocol.load_vectors(block, persist=False)
        yield from self._push_sum(block, t)
        estimate(block)


@dataclass(repr=False, eq=False)
class TwoPushSum(BaseAlgorithm):
    """The older GADGET of Hensel and Dutta, with one Push-Sum call for the models and one for the loss vectors.

    Parameters
    ----------
    gossip : "push-sum", "diffusion", or a Gossip
        How the vectors are averaged.
    gossip_rounds : int, "mix" or "diameter"
        Rounds of each of the two calls, as in `Gadget`.
    gamma : float
        The relative error that Push-Sum must reach.
    transition : "lazy", "random-walk", "metropolis", "max-degree"
        The matrix B on the graph, as in `Gadget`.
    batch_size : int
        Examples in a step.
    project : bool
        Whether the new vector is projected into the ball.
    average : bool
        True: a model is the average of the iterates. False: it is the last iterate.

    Examples
    --------
    >>> from gadget_svm import GadgetSVC
    >>> from gadget_svm.algorithms import TwoPushSum
    >>> model = GadgetSVC(3, algorithm=TwoPushSum(), max_iter=50, stopping=None, random_state=0)
    >>> model.fit([[-1.0], [1.0]] * 6, [0, 1] * 6).predict([[-2.0], [2.0]]).tolist()
    [0, 1]
    """

    gossip: str | Gossip = "push-sum"
    gossip_rounds: int | str = "mix"
    gamma: float = 0.01
    transition: str = "lazy"
    batch_size: int = 1
    project: bool = True
    average: bool = True

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None
    ) -> TwoPushSumRun:
        """Return the algorithm on this network, with every parameter checked as in `Gadget`."""
        protocol = resolve(self.gossip)
        if not (protocol.restartable and protocol.conserves_mass):
            raise ValueError(
                f"gadget-2ps restarts its mass in every call, and gossip={protocol.name!r} cannot do that: "
                "use gossip='push-sum' or 'diffusion'"
            )
        gadget = Gadget(
            gossip=self.gossip, gossip_rounds=self.gossip_rounds, mass="restarted", gamma=self.gamma,
            batch_size=self.batch_size, project="mixed" if self.project else False, average=self.average,
        )  # fmt: skip
        return TwoPushSumRun(**vars(gadget.bind(network, lam, radius, lossy, sizes)))

    def iterations_per_pass(self, rows: int) -> int:
        """Return how many iterations draw as many examples as there are rows."""
        return max(1, -(-rows // self.batch_size))
