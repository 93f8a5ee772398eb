"""Averaged SGD under GADGET's Push-Sum: between two gossips a pass of small steps, and what travels is its average.

Bottou's step size, eta_t = eta0 / (1 + lam eta0 t)^power. Owns the local pass, the choice of eta0 and its settings;
the mixing, with mass that persists, is `gadget.GadgetRun`'s.

A step costs as much as its row has non-zeros. w = size * u, so that shrinking is one product; and as
u_t = u_0 + sum_{s<=t} d_s x_s, the sum of the iterates of a pass is

    sum_t size_t u_t = C u - sum_s d_s C_{s-1} x_s,    C_s = size_1 + .. + size_s,

of which only the second part has to be kept up, again row by row (Bottou's trick for sparse averages).

All nodes take the same number of steps: Push-Sum weighs a node's step by n_i already, and n_i steps of its own would
weigh it by n_i^2. For the same reason they agree on eta0, which rides in the mail.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm import gossip
from gadget_svm.algorithms.base import BaseAlgorithm
from gadget_svm.algorithms.gadget import GadgetRun, pick
from gadget_svm.algorithms.gadget_params import Gadget
from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.gossip.base import message_order
from gadget_svm.kernels import add_row, compiled, dot_row, draw, scale, sq_norm, sq_norm_row
from gadget_svm.kernels.counter_rng import EXAMPLE
from gadget_svm.kernels.rows import side
from gadget_svm.kernels.sgd import agree, lap_keys, remember, turn

SAMPLE = 5000
"""Rows on which a node tries step sizes at most."""
LARGEST, HALVINGS = 2.0, 8
"""The sizes tried: this many times 1 / mean |x|^2, which takes a margin from 0 to 1, and so many halves of it."""
TRIAL = 1 << 40
"""The laps of trials are numbered from here, out of the way of those of learning."""
LATEST = 1 << 20
"""From this iteration on all count alike: squares of later ones would not fit into a sum of integers."""


@compiled
def lap_length(rows: Rows, i: int) -> int:
    """Steps in a pass over node i's rows: one for each, and a row of weight 3 comes up like three rows."""
    lo, hi = rows.start[i], rows.start[i + 1]
    if len(rows.mass) == 0 or hi == lo:
        return int(hi - lo)
    return max(int(hi - lo), int(np.ceil(rows.mass[hi - 1])))


@compiled
def example(rows: Rows, i: int, node: int, t: int, length: int, keys: NDArray[np.uint64], seed: int) -> int:
    """The row of step t, in the order of its pass. Fractions of weights are made good on average."""
    u = 0.5 if len(rows.mass) == 0 else draw(seed, node, ~t, EXAMPLE)
    return pick(rows, i, (turn(t % length, length, keys) + u) / length)


@compiled
def walk(
    u: Floats, past: Floats, target: int, rows: Rows, i: int, node: int, done: int, count: int, first_lap: int,
    eta0: float, power: float, lam: float, seed: int,
) -> tuple[float, float]:  # fmt: skip
    """``count`` steps from w = u: then w = size * u, and the iterates' sum is total * u - past. Returns (size, total).

    The regulariser's step is implicit, w / (1 + lam eta), so that no step size is too large for it.
    """
    size, total, length = 1.0, 0.0, lap_length(rows, i)
    keys = lap_keys(seed, node, first_lap + done // length)
    past[:] = 0.0
    for t in range(done, done + count):
        if t % length == 0:
            keys = lap_keys(seed, node, first_lap + t // length)
        r = example(rows, i, node, t, length, keys, seed)
        lo, hi = rows.indptr[r], rows.indptr[r + 1]
        y = side(rows.pairs, target, rows.label[r])
        eta = eta0 / (1.0 + lam * eta0 * t) ** power
        inside = y != 0.0 and y * size * dot_row(u, rows.indices, rows.data, lo, hi) < 1.0
        if inside:
            step = y * eta * rows.cost[r] / size
            add_row(u, step, rows.indices, rows.data, lo, hi)
            add_row(past, step * total, rows.indices, rows.data, lo, hi)
        size /= 1.0 + lam * eta
        total += size
        if size < 1e-9:
            for j in range(len(u)):
                past[j] -= total * u[j]
                u[j] *= size
            size, total = 1.0, 0.0
    return size, total


@compiled
def local_pass(
    lo: int, hi: int, alive: Flags, first: int, w: Floats, rows: Rows, steps: Ints, count: int, eta0: Floats,
    power: float, lam: float, seed: int,
) -> None:  # fmt: skip
    """Every live node that owns rows goes on from w to the average of its next ``count`` iterates, for every output."""
    past = np.empty(w.shape[2])
    for i in range(lo, hi):
        if alive[i] and rows.start[i + 1] > rows.start[i]:
            for c in range(w.shape[1]):
                u, target = w[i, c], 1 if w.shape[1] == 1 else c
                _, total = walk(u, past, target, rows, i, first + i, steps[i], count, 0, eta0[i], power, lam, seed)
                for j in range(len(u)):
                    u[j] = (total * u[j] - past[j]) / count
            steps[i] += count


@compiled
def objective(w: Floats, target: int, rows: Rows, i: int, node: int, count: int, lam: float, seed: int) -> float:
    """lam/2 |w|^2 + mean hinge over the ``count`` rows that node i tries step sizes on."""
    loss, length, keys = 0.0, lap_length(rows, i), lap_keys(seed, node, TRIAL)
    for t in range(count):
        r = example(rows, i, node, t, length, keys, seed)
        y = side(rows.pairs, target, rows.label[r])
        margin = y * dot_row(w, rows.indices, rows.data, rows.indptr[r], rows.indptr[r + 1])
        loss += rows.cost[r] * max(0.0, abs(y) - margin)
    return 0.5 * lam * sq_norm(w) + loss / count


@compiled
def try_sizes(
    lo: int, hi: int, first: int, n_outputs: int, n_features: int, rows: Rows, lam: float, seed: int, eta0: Floats
) -> None:
    """eta0 of every node as Bottou finds it: of several constant sizes the one whose first pass ends lowest.

    Every node looks at its own rows alone. One without rows, or with empty ones only, has no opinion: 0.
    """
    u, past = np.empty(n_features), np.empty(n_features)
    for i in range(lo, hi):
        length, keys, length2 = lap_length(rows, i), lap_keys(seed, first + i, TRIAL), 0.0
        eta0[i], count = 0.0, min(length, SAMPLE)
        for t in range(count):
            r = example(rows, i, first + i, t, length, keys, seed)
            length2 += sq_norm_row(rows.data, rows.indptr[r], rows.indptr[r + 1])
        if length2 == 0.0:
            continue
        lowest, size = np.inf, LARGEST * count / length2
        for _ in range(HALVINGS + 1):
            cost = 0.0
            for c in range(n_outputs):
                target = 1 if n_outputs == 1 else c
                u[:] = 0.0
                ends, _ = walk(u, past, target, rows, i, first + i, 0, count, TRIAL, size, 0.0, lam, seed)
                scale(u, ends)
                cost += objective(u, target, rows, i, first + i, count, lam, seed)
            if cost < lowest:
                lowest, eta0[i] = cost, size
            size *= 0.5


@dataclass(frozen=True, kw_only=True)
class AveragedSgdRun(GadgetRun):
    """Averaged SGD with every choice made; ``block.edge['eta0']`` holds every node's first step size."""

    eta0: float | None  # None: tried out, and agreed upon
    power: float
    recency: int

    def iteration(self, block: Block, t: int) -> gossip.Round:
        """A local pass from w to the average of its iterates, Push-Sum of that, and the average over iterations."""
        if "eta0" not in block.edge:
            self._open(block)
        width = block.s.shape[1]
        work = max(width, self.local_steps * len(block.rows.data) // max(len(block.rows.label), 1))
        block.team.run(
            local_pass, block.k, work, block.alive, block.first, block.w, block.rows, block.steps, self.local_steps,
            block.edge["eta0"], self.power, self.lam, block.seed,
        )  # fmt: skip
        self.protocol.load_vectors(block, self.persist)
        yield from self._mix(block, t)
        gossip.estimate(block)
        block.team.run(
            remember, block.k, width, block.alive, block.w, block.w_sum, block.iterates,
            min(t, LATEST) ** self.recency,
        )  # fmt: skip

    def supports_fused(self, block: Block) -> bool:  # noqa: ARG002
        """No: an iteration is long enough for Python not to matter."""
        return False

    def advance_fused(self, block: Block, count: int) -> tuple[int, int]:
        """Refused, see `supports_fused`."""
        raise NotImplementedError("averaged SGD has no compiled leap: call `iteration`")

    def _mix(self, block: Block, t: int) -> gossip.Round:
        """Push-Sum; where step sizes were tried out, each message also says its sender's."""
        if self.eta0 is not None:
            yield from self._push_sum(block, t)
            return
        rounds: Generator[MessageBatch, Delivery, None] = self._push_sum(block, t)
        messages, eta0 = next(rounds, None), block.edge["eta0"]
        while messages is not None:
            delivery = yield messages._replace(note=eta0[messages.sender - block.first])
            heard = delivery.messages
            if heard.note is not None:
                agree(0, block.k, *message_order(block, heard), heard.note, eta0)
            try:
                messages = rounds.send(delivery._replace(messages=heard._replace(note=None)))
            except StopIteration:
                messages = None

    def _open(self, block: Block) -> None:
        eta0 = np.full(block.k, self.eta0 or 0.0)
        if self.eta0 is None:
            _, outputs, features = block.w.shape
            work = HALVINGS * len(block.rows.data) // max(block.k, 1)
            block.team.run(
                try_sizes, block.k, work, block.first, outputs, features, block.rows, self.lam, block.seed, eta0
            )
        block.edge["eta0"] = eta0


class AveragedSgd(BaseAlgorithm):
    """Averaged stochastic gradient descent, with a pass of local steps between two exchanges of GADGET's Push-Sum.

    Parameters
    ----------
    eta0 : float or "auto"
        The first step size. "auto": every node tries some on its own rows, as Bottou does, and neighbours settle on the
        middle of theirs as they gossip.
    power : float
        How the step size falls: eta0 / (1 + lam eta0 t)^power. Bottou takes 1 for plain SGD and 3/4 for averaged; with
        an average that favours late iterates 1 came out ahead, and it makes nodes of different eta0 agree in the end.
    passes : float
        Local steps between gossips, as a part of the mean number of rows of a node. All nodes take equally many.
    recency : 0, 1 or 2
        The iterate of iteration t counts t**recency in the average that a node answers with: 0 is the plain mean.
    gossip : str or Gossip, default "auto"
        How the vectors are averaged, as in `Gadget`.
    gossip_rounds : int or "mix"
        Rounds of gossip in an iteration, as in `Gadget`.
    transition : "lazy", "random-walk", "metropolis", "max-degree"
        The matrix B on the graph, as in `Gadget`.
    average : bool
        Answer with the average of the iterates or with the last one.
    """

    def __init__(
        self,
        eta0: float | str = "auto",
        power: float = 1.0,
        passes: float = 1.0,
        recency: int = 2,
        gossip: "str | gossip.Gossip" = "auto",
        gossip_rounds: int | str = 1,
        transition: str = "lazy",
        average: bool = True,
    ) -> None:
        self.eta0 = eta0
        self.power = power
        self.passes = passes
        self.recency = recency
        self.gossip = gossip
        self.gossip_rounds = gossip_rounds
        self.transition = transition
        self.average = average

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None
    ) -> AveragedSgdRun:
        """The algorithm on this network; what it has in common with GADGET is checked as `Gadget` does."""
        if sizes is None:
            raise ValueError("averaged SGD takes its local steps from the mean number of rows: give bind(sizes=...)")
        if self.gossip_rounds == "diameter":
            raise ValueError("averaged SGD gossips a fixed number of rounds: use gossip_rounds=1, or 'mix'")
        if isinstance(self.recency, bool) or self.recency not in (0, 1, 2):
            raise ValueError(f"recency is 0, 1 or 2, got {self.recency!r}")
        eta0 = (
            None if isinstance(self.eta0, str) and self.eta0 == "auto" else _positive(self.eta0, "eta0", " or 'auto'")
        )
        steps = max(1, round(_positive(self.passes, "passes") * float(np.mean(sizes))))
        alike = self._alike(steps).bind(network, lam, radius, lossy, sizes)
        return AveragedSgdRun(**vars(alike), eta0=eta0, power=_positive(self.power, "power"), recency=int(self.recency))

    def with_transition_of(self, network: Network) -> Network:
        """The network under the B this algorithm asks for."""
        return self._alike(1).with_transition_of(network)

    def _alike(self, steps: int) -> Gadget:
        """GADGET with the same choices."""
        return Gadget(
            gossip=self.gossip, gossip_rounds=self.gossip_rounds, transition=self.transition, local_steps=steps,
            project=False, average=self.average,
        )  # fmt: skip


def _positive(value: Any, name: str, otherwise: str = "") -> float:
    if isinstance(value, bool | str) or not hasattr(value, "__float__") or not 0 < value < np.inf:
        raise ValueError(f"{name} is a positive number{otherwise}, got {value!r}")
    return float(value)
