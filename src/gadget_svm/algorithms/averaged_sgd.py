"""Averaged SGD with GADGET's Push-Sum: nodes make a pass of small local steps, then send the average of the iterates.

Bottou's step size, eta_t = eta0 / (1 + lam eta0 t)^power. Owns the local pass, the choice of eta0 and the parameters;
`gadget.GadgetRun` owns the averaging, with persistent mass.

The cost of a step is proportional to the non-zeros of its row. w is stored as size * u, so that scaling w is one
product. Since u_t = u_0 + sum_{s<=t} d_s x_s, the sum of the iterates of a pass is

    sum_t size_t u_t = C u - sum_s d_s C_{s-1} x_s,    C_s = size_1 + .. + size_s,

A step updates only the second part, again row by row (Bottou's method for sparse averages).

All nodes take the same number of steps: Push-Sum already weighs a node's step by n_i, so n_i steps would weigh it by
n_i^2. For the same reason nodes agree on eta0, which their messages carry.
"""

from dataclasses import dataclass

import numpy as np

from gadget_svm.algorithms.base import BaseAlgorithm, checked_positive, positive_or_auto
from gadget_svm.algorithms.gadget import GadgetRun, pick
from gadget_svm.algorithms.gadget_params import Gadget
from gadget_svm.core.block import Block
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Flags, Floats, Ints, Words
from gadget_svm.gossip import Gossip, Round, estimate, message_order, resume
from gadget_svm.kernels import EXAMPLE, add_row, compiled, dot_row, draw, scale, side, sq_norm, sq_norm_row
from gadget_svm.kernels.sgd import average_step_sizes, permutation_keys, permute

TUNING_ROWS = 5000
"""The most rows on which a node tries step sizes."""
MAX_SIZE, HALVINGS = 2.0, 8
"""A node tries the step size MAX_SIZE / mean |x|^2, and HALVINGS more sizes, each half of the one before. The size 1 /
|x|^2 takes a margin from 0 to 1."""
TUNING_PASS = 1 << 40
"""The number of the pass that tunes; passes of learning have lower numbers."""
LAST_WEIGHTED_ITERATION = 1 << 20
"""All later iterations have the same weight as this one. Otherwise the sum of squares would not fit into an integer."""


@compiled
def pass_length(rows: Rows, i: int) -> int:
    """Return the steps in a pass over node i's rows: one per row, and three for a row of weight 3."""
    lo, hi = rows.start[i], rows.start[i + 1]
    if len(rows.mass) == 0 or hi == lo:
        return int(hi - lo)
    return max(int(hi - lo), int(np.ceil(rows.mass[hi - 1])))


@compiled
def example(rows: Rows, i: int, node: int, t: int, length: int, keys: Words, seed: int) -> int:
    """Return the row of step t, in the order of its pass.

    A pass takes each row in proportion to its weight; if weights are not whole numbers, only on average.
    """
    u = 0.5 if len(rows.mass) == 0 else draw(seed, node, ~t, EXAMPLE)
    return pick(rows, i, (permute(t % length, length, keys) + u) / length)


@compiled
def run_sgd(
    u: Floats, offset: Floats, target: int, rows: Rows, i: int, node: int, done: int, count: int, first_pass: int,
    eta0: float, power: float, lam: float, seed: int,
) -> tuple[float, float]:  # fmt: skip
    """Take ``count`` steps from w = u. Return (size, total): w = size u, and the iterates sum to total u - offset.

    The regulariser's step is implicit, w / (1 + lam eta), so that no step size is too large for it.
    """
    size, total, length = 1.0, 0.0, pass_length(rows, i)
    keys = permutation_keys(seed, node, first_pass + done // length)
    offset[:] = 0.0
    for t in range(done, done + count):
        if t % length == 0:
            keys = permutation_keys(seed, node, first_pass + t // length)
        r = example(rows, i, node, t, length, keys, seed)
        lo, hi = rows.indptr[r], rows.indptr[r + 1]
        y = side(rows.pairs, target, rows.label[r])
        eta = eta0 / (1.0 + lam * eta0 * t) ** power
        inside = y != 0.0 and y * size * dot_row(u, rows.indices, rows.data, lo, hi) < 1.0
        if inside:
            step = y * eta * rows.cost[r] / size
            add_row(u, step, rows.indices, rows.data, lo, hi)
            add_row(offset, step * total, rows.indices, rows.data, lo, hi)
        size /= 1.0 + lam * eta
        total += size
        if size < 1e-9:
            for j in range(len(u)):
                offset[j] -= total * u[j]
                u[j] *= size
            size, total = 1.0, 0.0
    return size, total


@compiled
def local_pass(
    lo: int, hi: int, alive: Flags, first: int, w: Floats, rows: Rows, steps: Ints, count: int, eta0: Floats,
    power: float, lam: float, seed: int,
) -> None:  # fmt: skip
    """Replace w by the average of the next ``count`` iterates, for every output, on live nodes that own rows."""
    offset = np.empty(w.shape[2])
    for i in range(lo, hi):
        if alive[i] and rows.start[i + 1] > rows.start[i]:
            for c in range(w.shape[1]):
                u, target = w[i, c], 1 if w.shape[1] == 1 else c
                _, total = run_sgd(u, offset, target, rows, i, first + i, steps[i], count, 0, eta0[i], power, lam, seed)
                for j in range(len(u)):
                    u[j] = (total * u[j] - offset[j]) / count
            steps[i] += count


@compiled
def objective(w: Floats, target: int, rows: Rows, i: int, node: int, count: int, lam: float, seed: int) -> float:
    """Return lam/2 |w|^2 + mean hinge over the ``count`` rows on which node i tries step sizes."""
    loss, length, keys = 0.0, pass_length(rows, i), permutation_keys(seed, node, TUNING_PASS)
    for t in range(count):
        r = example(rows, i, node, t, length, keys, seed)
        y = side(rows.pairs, target, rows.label[r])
        margin = y * dot_row(w, rows.indices, rows.data, rows.indptr[r], rows.indptr[r + 1])
        loss += rows.cost[r] * max(0.0, abs(y) - margin)
    return 0.5 * lam * sq_norm(w) + loss / count


@compiled
def tune_eta0(
    lo: int, hi: int, first: int, n_outputs: int, n_features: int, rows: Rows, lam: float, seed: int, eta0: Floats
) -> None:
    """Set eta0 of every node by Bottou's rule: the constant step size with the lowest objective after the first pass.

    Every node uses its own rows. A node without rows, or with only empty rows, gets eta0 = 0.
    """
    u, offset = np.empty(n_features), np.empty(n_features)
    for i in range(lo, hi):
        length, keys, length2 = pass_length(rows, i), permutation_keys(seed, first + i, TUNING_PASS), 0.0
        eta0[i], count = 0.0, min(length, TUNING_ROWS)
        for t in range(count):
            r = example(rows, i, first + i, t, length, keys, seed)
            length2 += sq_norm_row(rows.data, rows.indptr[r], rows.indptr[r + 1])
        if length2 == 0.0:
            continue
        lowest, size = np.inf, MAX_SIZE * count / length2
        for _ in range(HALVINGS + 1):
            cost = 0.0
            for c in range(n_outputs):
                target = 1 if n_outputs == 1 else c
                u[:] = 0.0
                ends, _ = run_sgd(u, offset, target, rows, i, first + i, 0, count, TUNING_PASS, size, 0.0, lam, seed)
                scale(u, ends)
                cost += objective(u, target, rows, i, first + i, count, lam, seed)
            if cost < lowest:
                lowest, eta0[i] = cost, size
            size *= 0.5


@dataclass(frozen=True, kw_only=True)
class AveragedSgdRun(GadgetRun):
    """Averaged SGD with every parameter resolved; ``block.edge['eta0']`` holds every node's first step size."""

    eta0: float | None  # None: each node tunes it, then neighbours agree
    power: float
    recency: int

    def iteration(self, block: Block, t: int) -> Round:
        """Do a local pass, run Push-Sum on the average of its iterates, and update the average over iterations."""
        if "eta0" not in block.edge:
            self._start(block)
        width = block.s.shape[1]
        work = max(width, self.local_steps * len(block.rows.data) // max(len(block.rows.label), 1))
        block.team.run(
            local_pass, block.k, work, block.alive, block.first, block.w, block.rows, block.steps, self.local_steps,
            block.edge["eta0"], self.power, self.lam, block.seed,
        )  # fmt: skip
        self.protocol.load_vectors(block, self.persist)
        yield from self._mix(block, t)
        estimate(block)
        weight = min(t, LAST_WEIGHTED_ITERATION) ** self.recency
        block.iterates[block.alive] += weight
        block.w_sum[block.alive] += weight * block.w[block.alive]

    def supports_fused(self, block: Block) -> bool:  # noqa: ARG002
        """Return False: an iteration takes so long that Python's overhead does not matter."""
        return False

    def _mix(self, block: Block, t: int) -> Round:
        """Run Push-Sum; if step sizes were tuned, each message also carries the sender's step size."""
        if self.eta0 is not None:
            yield from self._push_sum(block, t)
            return
        rounds = self._push_sum(block, t)
        messages, eta0 = next(rounds, None), block.edge["eta0"]
        while messages is not None:
            delivery = yield messages._replace(note=eta0[messages.sender - block.first])
            received = delivery.messages
            if received.note is not None:
                average_step_sizes(0, block.k, *message_order(block, received), received.note, eta0)
            messages = resume(rounds, delivery._replace(messages=received._replace(note=None)))

    def _start(self, block: Block) -> None:
        eta0 = np.full(block.k, self.eta0 or 0.0)
        if self.eta0 is None:
            _, outputs, features = block.w.shape
            work = HALVINGS * len(block.rows.data) // max(block.k, 1)
            block.team.run(
                tune_eta0, block.k, work, block.first, outputs, features, block.rows, self.lam, block.seed, eta0
            )
        block.edge["eta0"] = eta0


@dataclass(repr=False, eq=False)
class AveragedSgd(BaseAlgorithm):
    """Averaged stochastic gradient descent, with a pass of local steps between two exchanges of GADGET's Push-Sum.

    Parameters
    ----------
    eta0 : float or "auto"
        The first step size. "auto": every node tries several on its own rows, as Bottou does. With each message, the
        receiver moves to the geometric mean of its own and the sender's step size.
    power : float
        How the step size falls: eta0 / (1 + lam eta0 t)^power. Bottou takes 1 for plain SGD and 3/4 for averaged SGD.
        If the average favours late iterates, 1 is better, and then nodes with different eta0 have nearly the same step
        size in the end.
    passes : float
        The number of local steps between exchanges, divided by the mean number of rows per node. All nodes take equally
        many steps.
    recency : 0, 1 or 2
        The weight of iteration t in a node's average is t**recency: 0 is the plain mean.
    gossip : str or Gossip, default "auto"
        How the vectors are averaged, as in `Gadget`.
    gossip_rounds : int or "mix"
        Rounds of gossip in an iteration, as in `Gadget`.
    transition : "lazy", "random-walk", "metropolis", "max-degree"
        The matrix B on the graph, as in `Gadget`.
    average : bool
        True: a model is the average of the iterates. False: it is the last iterate.

    Examples
    --------
    >>> from gadget_svm import GadgetSVC
    >>> from gadget_svm.algorithms import AveragedSgd
    >>> model = GadgetSVC(3, algorithm=AveragedSgd(), random_state=0).fit([[-1.0], [1.0]] * 6, [0, 1] * 6)
    >>> model.predict([[-2.0], [2.0]]).tolist()
    [0, 1]
    """

    eta0: float | str = "auto"
    power: float = 1.0
    passes: float = 1.0
    recency: int = 2
    gossip: str | Gossip = "auto"
    gossip_rounds: int | str = 1
    transition: str = "lazy"
    average: bool = True

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None
    ) -> AveragedSgdRun:
        """Return the algorithm on this network; the parameters of GADGET are checked as in `Gadget`."""
        if sizes is None:
            raise ValueError("averaged SGD takes as many local steps as nodes have rows: call bind with sizes")
        if self.gossip_rounds == "diameter":
            raise ValueError("averaged SGD gossips a fixed number of rounds: use gossip_rounds=1, or 'mix'")
        if isinstance(self.recency, bool) or self.recency not in (0, 1, 2):
            raise ValueError(f"recency is 0, 1 or 2, got {self.recency!r}")
        eta0 = positive_or_auto(self.eta0, "eta0")
        steps = max(1, round(checked_positive(self.passes, "passes") * float(np.mean(sizes))))
        power = checked_positive(self.power, "power")
        gadget = Gadget(
            gossip=self.gossip, gossip_rounds=self.gossip_rounds, local_steps=steps, project=False, average=self.average
        )
        run = gadget.bind(network, lam, radius, lossy, sizes)
        return AveragedSgdRun(**vars(run), eta0=eta0, power=power, recency=int(self.recency))
