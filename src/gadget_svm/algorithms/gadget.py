"""GADGET SVM: Algorithm 2 of Dutta and Nataraj, steps lettered as they print it.

Steps (a)-(f) are `descend`, on one node; (g) and (h) are `GadgetRun.iteration`, on all nodes of a block. The parameters
are those of `gadget_params.Gadget`. Lines that are not in the paper say so.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gadget_svm.algorithms.base import BaseRun
from gadget_svm.core.block import Block
from gadget_svm.core.messages import message_bytes
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.gossip.base import Gossip, Round, estimate, until_converged
from gadget_svm.kernels import EXAMPLE, add_row, compiled, dot_row, draw, scale, side, sq_norm, sq_norm_row
from gadget_svm.kernels import gossip as kernels

UNLIMITED = 2**62
"""A window longer than any run: all examples count."""


class LocalSteps(NamedTuple):
    """The parameters of the local steps, which are the same for all nodes."""

    n_steps: int
    batch: int
    implicit: bool
    lam: float
    radius: float
    seed: int
    window: int


@compiled
def descend(w: Floats, target: int, rows: Rows, i: int, node: int, done: int, local: LocalSteps) -> None:
    """Repeat the steps (a)-(f) of node i ``local.n_steps`` times; the weight vector is ``size * w`` meanwhile."""
    n_steps, batch, implicit, lam, radius, seed, window = local
    size, norm2 = 1.0, sq_norm(w) if radius < np.inf else 0.0
    chosen, push = np.empty(batch, dtype=np.int64), np.empty(batch)
    for t in range(done + 1, done + n_steps + 1):
        for b in range(batch):
            r = pick(rows, i, draw(seed, node, t * batch + b, EXAMPLE))  # (a) draw a local instance
            lo, hi = rows.indptr[r], rows.indptr[r + 1]
            y = side(rows.pairs, target, rows.label[r])
            inside = y * size * dot_row(w, rows.indices, rows.data, lo, hi) < 1.0  # (b) is it in M_i^+ ?
            chosen[b], push[b] = r, y * rows.cost[r] / batch if inside else 0.0  # (c) L_i = y x, else 0
        age = min(t, window)  # not in the paper: all examples count there
        alpha = 1.0 / (lam * age)  # (d)
        size *= 1.0 - 1.0 / age  # (e) w <- (1 - lam alpha) w ...
        if size < 1e-9:
            scale(w, size)
            size, norm2 = 1.0, norm2 * size * size
        for b in range(batch):
            if push[b] != 0.0:
                lo, hi = rows.indptr[chosen[b]], rows.indptr[chosen[b] + 1]
                across, length2 = dot_row(w, rows.indices, rows.data, lo, hi), sq_norm_row(rows.data, lo, hi)
                step = alpha * push[b] / size  # (e) ... + alpha L_i
                if implicit:  # not in the paper: the step ends where y<w,x> = 1
                    most = max(0.0, 1.0 / size - np.sign(push[b]) * across) / max(length2, 1e-300)
                    step = max(-most, min(most, step))
                norm2 += step * (2.0 * across + step * length2)
                add_row(w, step, rows.indices, rows.data, lo, hi)
        if size * np.sqrt(max(norm2, 0.0)) > radius:
            size = radius / np.sqrt(norm2)  # (f) back into the ball
    scale(w, size)


@compiled
def local_steps(
    lo: int, hi: int, alive: Flags, first: int, w: Floats, rows: Rows, steps: Ints, local: LocalSteps
) -> None:
    """Run `descend` on every live node that owns rows, for every output; all outputs use the same rows.

    If an output does not see the drawn row (y = 0, one against one), its weights only shrink.
    """
    for i in range(lo, hi):
        if alive[i] and rows.start[i + 1] > rows.start[i]:
            for c in range(w.shape[1]):
                target = 1 if w.shape[1] == 1 else c
                descend(w[i, c], target, rows, i, first + i, steps[i], local)
            steps[i] += local.n_steps


@compiled
def pick(rows: Rows, i: int, u: float) -> int:
    """Return the row of node i that u in [0, 1) selects: uniformly, or by weight if rows have weights."""
    lo, hi = rows.start[i], rows.start[i + 1]
    if len(rows.mass) == 0:
        return int(rows.order[lo + int(u * (hi - lo))])
    place = lo + int(np.searchsorted(rows.mass[lo:hi], u * rows.mass[hi - 1], side="right"))
    return int(rows.order[min(place, hi - 1)])


@compiled
def project_and_average(
    lo: int, hi: int, alive: Flags, w: Floats, w_sum: Floats, iterates: Ints, radius: float, average: bool, most: int
) -> None:
    """Project every output's vector into the ball (h) and add it to the sum of iterates.

    If the sum holds ``most`` iterates it is scaled down first: the weight of older iterates falls exponentially.
    """
    for i in range(lo, hi):
        if not alive[i]:
            continue
        full = iterates[i] >= most
        keep = (most - 1) / iterates[i] if full else 1.0
        for c in range(w.shape[1]):
            norm = np.sqrt(sq_norm(w[i, c])) if radius < np.inf else 0.0
            if norm > radius:
                scale(w[i, c], radius / norm)  # (h)
            if average:
                for j in range(w.shape[2]):
                    w_sum[i, c, j] = keep * w_sum[i, c, j] + w[i, c, j]
        iterates[i] = most if full else iterates[i] + 1


@compiled
def fused_iterations(
    count: int, exchanges: int, rounds: int, persist: bool, local: LocalSteps, radius: float, average: bool, most: int,
    alive: Flags, n: Floats, indptr: Ints, target: Ints, table: Floats, rows: Rows, w: Floats, flat: Floats,
    s: Floats, phi: Floats, held: Floats, w_sum: Floats, iterates: Ints, steps: Ints,
) -> int:  # fmt: skip
    """Run ``count`` iterations of all nodes, with randomised Push-Sum; return how many messages were sent.

    It is for blocks so small that Python would take most of the time. It calls the same kernels in the same order as
    `GadgetRun.iteration`, for the case that no message is lost or delayed. A test compares both, bit for bit.
    """
    k, sent = len(n), 0
    vector, weight, senders, seq = np.empty_like(s), np.empty(k), np.arange(k), np.zeros(k, dtype=np.int64)
    receivers = np.empty(k, dtype=np.int64)
    for _ in range(count):
        local_steps(0, k, alive, 0, w, rows, steps, local)  # (a)-(f)
        kernels.load_vectors(0, k, alive, n, flat, s, phi, held, persist)
        for _ in range(rounds):  # (g)
            edges = kernels.draw_edges(alive, 0, indptr, table, local.seed, exchanges)
            exchanges += 1
            kernels.halve(0, k, edges, s, phi, vector, weight)
            for i in range(k):
                receivers[i] = target[edges[i]] if edges[i] >= 0 else -1
                sent += edges[i] >= 0
            order, start = kernels.order_messages(receivers, senders, seq, 0, k)
            kernels.absorb(0, k, order, start, seq, 0, vector, weight, s, phi)
        kernels.estimate(0, k, alive, s, phi, flat)
        project_and_average(0, k, alive, w, w_sum, iterates, radius, average, most)  # (h)
    return sent


@dataclass(frozen=True)
class GadgetRun(BaseRun):
    """Algorithm 2 with every parameter resolved."""

    lam: float
    inner_radius: float  # (f) projects into the ball of this radius; if it is infinite, nothing is projected
    outer_radius: float  # the same for (h)
    protocol: Gossip
    rounds: int
    persist: bool
    batch_size: int
    local_steps: int
    implicit: bool
    average: bool
    until_converged: tuple[int, float] | None = None  # (diameter, gamma): Push-Sum until no estimate changes
    window: int = UNLIMITED  # local steps after which the step size stays, and older iterates fade

    @property
    def max_iterates(self) -> int:
        """The most iterates that the average holds."""
        return max(1, self.window // self.local_steps)

    @property
    def gossip_name(self) -> str:
        """The name of the gossip protocol."""
        return self.protocol.name

    @property
    def refuses_faults(self) -> str:
        """Why a run with `until_converged` cannot be combined with faults; empty if this run can."""
        if self.until_converged is None:
            return ""
        return (
            "gossip_rounds='diameter' requires that every flag arrives in its round, so it cannot be combined with "
            "faults or with a time-varying graph: use a fixed number or 'mix'"
        )

    @property
    def loses_mass(self) -> bool:
        """Whether a lost message takes a part of the gossip protocol's mass with it."""
        return self.protocol.conserves_mass

    def iteration(self, block: Block, t: int) -> Round:
        """Do iteration t of Algorithm 2 on every node of the block: yield messages, receive deliveries."""
        block.team.run(
            local_steps, block.k, block.s.shape[1], block.alive, block.first, block.w, block.rows, block.steps,
            self._local(block),
        )  # (a)-(f)  # fmt: skip
        self.protocol.load_vectors(block, self.persist)  # (g) w-hat <- PS(B, w-tilde)
        yield from self._push_sum(block, t)  # (g)
        estimate(block)  # (g)
        self._project_and_average(block)  # (h)

    def advance_fused(self, block: Block, count: int) -> tuple[int, int]:
        """Run ``count`` iterations of a block of all nodes, with the same bits; return the messages and bytes sent."""
        links = block.links
        sent = fused_iterations(
            count, block.exchanges, self.rounds, self.persist, self._local(block), self.outer_radius, self.average,
            self.max_iterates, block.alive, block.n, links.indptr, links.target, links.table, block.rows, block.w,
            block.flat, block.s, block.phi, block.held, block.w_sum, block.iterates, block.steps,
        )  # fmt: skip
        block.exchanges += count * self.rounds
        return sent, sent * message_bytes(block.s.shape[1], 1)

    def _local(self, block: Block) -> LocalSteps:
        return LocalSteps(
            self.local_steps, self.batch_size, self.implicit, self.lam, self.inner_radius, block.seed, self.window
        )

    def _project_and_average(self, block: Block) -> None:
        block.team.run(
            project_and_average, block.k, block.s.shape[1], block.alive, block.w, block.w_sum, block.iterates,
            self.outer_radius, self.average, self.max_iterates,
        )  # fmt: skip

    def supports_fused(self, block: Block) -> bool:
        """Return True if `advance_fused` can do the protocol's rounds, and the block is too small for threads."""
        small = block.team.size == 1 or block.s.size < block.team.worth_sharing
        return small and self.protocol.fused_in_gadget and self.until_converged is None

    def set_neighbours(self, block: Block, neighbours: Ints) -> None:
        """Change the neighbours of a block of one node; only some gossip protocols support it."""
        self.protocol.set_neighbours(block, neighbours)

    def reset_edge(self, block: Block, other: int) -> None:
        """Note that a neighbour restarted."""
        self.protocol.reset_edge(block, other)

    def _push_sum(self, block: Block, t: int) -> Round:
        if self.until_converged is not None:
            diameter, gamma = self.until_converged
            yield from until_converged(self.protocol, block, t, diameter, gamma, self.rounds)
            return
        since = 0 if self.persist else block.exchanges
        for _ in range(self.rounds):
            yield from self.protocol.round(block, t, since)
