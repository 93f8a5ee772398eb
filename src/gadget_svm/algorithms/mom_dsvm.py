"""MoM-DSVM (Forero, Cano and Giannakis, JMLR 2010): every node solves an SVM of its own in the dual and broadcasts it.

Linear, without bias, on undirected graphs. Owns the algorithm and its settings; the local solver is `kernels.dual`'s.
A synchronous method: it bears messages that are lost, but has no answer to a neighbour that is gone for good, whose
last word goes on to bind the others, nor to mail that is regularly late by two exchanges, on which it may diverge.

Why it ends at the pooled optimum. The consensus problem, with C = 1 / (lam N),

    min sum_j 1/2 |v_j|^2 + J C sum_{n at j} hinge_n(v_j)    s.t.  v_j = omega_ji,  omega_ji = v_i  for i in B_j

is at consensus J times 1/2 |w|^2 + C sum hinge, so its solution is that of lam/2 |w|^2 + mean hinge. With penalty eta
and multipliers that start at zero, ADMM keeps both multipliers of a pair equal, alpha_ji = -alpha_ij, and
omega_ji = (v_j + v_i) / 2. With alpha_j = sum_i alpha_ji the step in v_j minimises

    1/2 |v|^2 + J C sum hinge_n(v) + 2 alpha_j.v + eta sum_i |v - (v_j + v_i)/2|^2,

that is U_j/2 |v|^2 + f_j.v + J C sum hinge_n(v), with U_j and f_j as in `linear_terms`. Where nothing moves any more
v_j = v_i, f_j = 2 alpha_j - (U_j - 1) v_j, and the sum over all nodes of v_j + 2 alpha_j + J C (subgradient) = 0 loses
its alphas: the optimum of the pooled problem, whatever eta is.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from gadget_svm import gossip, spectral
from gadget_svm.block import Block
from gadget_svm.gossip.protocol import arranged, post
from gadget_svm.kernels import compiled
from gadget_svm.kernels.dual import DualRows, ascend, multiplicity, primal
from gadget_svm.kernels.gossip import find
from gadget_svm.mail import Mail
from gadget_svm.network import Network

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

UNITS = 10.0
"""eta="auto" makes 2 eta |B_j|, what U_j adds to the curvature 1, so many mean squared row norms."""


@compiled
def linear_terms(
    lo: int, hi: int, alive: Flags, now: int, in_ptr: Ints, wish: Floats, heard: Floats, heard_v: Floats,
    heard_seq: Ints, heard_wish: Floats, sigma: Floats, v: Floats, f: Floats, U: Floats,
) -> None:  # fmt: skip
    """U_j = 1 + 2 sum_i eta_ij and f_j = 2 alpha_j - sum_i eta_ij (v_j + v_i), over the neighbours i of node j.

    2 alpha_j is sum_i eta_ij (sigma_j - sigma_i), as alpha_j adds eta/2 (v_j - v_i) in every iteration. Of a neighbour
    not heard since, the last v counts for every exchange missed. eta_ij is the mean of what both ends wish.
    """
    for j in range(lo, hi):
        if not alive[j]:
            continue
        U[j] = 1.0
        f[j, :] = 0.0
        for e in range(in_ptr[j], in_ptr[j + 1]):
            eta, missed = 0.5 * (wish[j] + heard_wish[e]), float(now - heard_seq[e])
            U[j] += 2.0 * eta
            for q in range(f.shape[1]):
                sigma_i = heard[e, q] + missed * heard_v[e, q]
                f[j, q] += eta * ((sigma[j, q] - sigma_i) - (v[j, q] + heard_v[e, q]))


@compiled
def solve(
    lo: int, hi: int, alive: Flags, first: int, v: Floats, f: Floats, U: Floats, dual: Floats, turn: Ints,
    rows: DualRows, passes: int, tol: float, seed: int, t: int,
) -> None:  # fmt: skip
    """lambda_j by warm-started dual coordinate ascent, and v_j = (sum lambda y x - f_j) / U_j, for every output."""
    for j in range(lo, hi):
        if not alive[j]:
            continue
        for c in range(v.shape[1]):
            target = 1 if v.shape[1] == 1 else c
            primal(v[j, c], dual[c], rows, j, target, f[j, c], U[j])
            ascend(v[j, c], dual[c], turn, rows, j, target, U[j], passes, tol, seed, first + j, t * passes)


@compiled
def listen(
    lo: int, hi: int, order: Ints, start: Ints, sender: Ints, seq: Ints, vector: Floats, weight: Floats,
    in_ptr: Ints, source: Ints, heard: Floats, heard_v: Floats, heard_seq: Ints, heard_wish: Floats,
) -> None:  # fmt: skip
    """What a neighbour's running sum gained is its v; old, repeated or returned mail is ignored."""
    for j in range(lo, hi):
        for place in range(start[j], start[j + 1]):
            m = order[place]
            e = find(source, in_ptr[j], in_ptr[j + 1], sender[m])
            if e < 0 or seq[m] <= heard_seq[e]:
                continue
            gap = float(seq[m] - heard_seq[e])
            heard_seq[e], heard_wish[e] = seq[m], weight[m]
            for q in range(heard.shape[1]):
                heard_v[e, q] = (vector[m, q] - heard[e, q]) / gap
                heard[e, q] = vector[m, q]


@dataclass(frozen=True)
class MomDsvmRun:
    """MoM-DSVM with every choice made. ``block.w`` is v, ``block.s`` its running sum, ``block.held`` f."""

    top: float  # J C, the upper bound of lambda
    eta: float | None  # None: from the rows
    passes: int
    tol: float
    average: bool = False

    def iteration(self, block: Block, t: int) -> gossip.Round:
        """Iteration t on every node of the block: solve, broadcast, listen."""
        if "dual" not in block.edge:
            self._open(block)
        edge, rows, width = block.edge, self._rows(block), block.s.shape[1]
        heard = (edge["heard"], edge["heard_v"], edge["heard_seq"], edge["heard_wish"])
        U, in_ptr = np.empty(block.k), block.links.in_ptr
        block.team.run(
            linear_terms, block.k, width, block.alive, block.exchanges - 1, in_ptr, edge["wish"], *heard,
            block.s, block.flat, block.held, U,
        )  # fmt: skip
        block.team.run(
            solve, block.k, max(width, len(rows.data) // max(block.k, 1)), block.alive, block.first, block.w,
            block.held.reshape(block.w.shape), U, edge["dual"], edge["turn"], rows, self.passes, self.tol,
            block.seed, t,
        )  # fmt: skip
        block.s += block.flat  # also of those away: their v stands still, and their neighbours count it so
        delivery = yield broadcast(block, t)
        block.note_presence(delivery)
        mail, (order, start) = delivery.mail, arranged(block, delivery.mail)
        block.team.run(
            listen, block.k, width, order, start, mail.sender, mail.seq, mail.vector, mail.weight, in_ptr,
            block.links.source, *heard,
        )  # fmt: skip
        block.iterates[block.alive] += 1

    def can_leap(self, block: Block) -> bool:  # noqa: ARG002
        """No: an iteration is long enough for Python not to matter."""
        return False

    def leap(self, block: Block, count: int) -> int:
        """Refused, see `can_leap`."""
        raise NotImplementedError("MoM-DSVM has no compiled leap: call `iteration`")

    def _open(self, block: Block) -> None:
        """lambda = 0, and neighbours of whom nothing is known but v_i(0) = 0."""
        into, width = len(block.links.source), block.s.shape[1]
        rows = DualRows.of(block.rows, self.top)
        wish = np.full(block.k, self.eta or 0.0)
        if self.eta is None:
            times, degree = multiplicity(block.rows.mass, rows.start), np.diff(block.links.indptr)
            wishes(0, block.k, rows, times, degree, UNITS, wish)
        block.edge.update(
            dual=np.zeros((block.w.shape[1], len(rows.order))), turn=np.zeros(len(rows.order), dtype=np.int64),
            upper=rows.upper, norm2=rows.norm2, wish=wish,
            heard=np.zeros((into, width)), heard_v=np.zeros((into, width)),
            heard_seq=np.full(into, block.exchanges - 1, dtype=np.int64),
            heard_wish=np.repeat(wish, np.diff(block.links.in_ptr)),
        )  # fmt: skip

    def _rows(self, block: Block) -> DualRows:
        own, edge = block.rows, block.edge
        return DualRows(
            own.indptr, own.indices, own.data, own.label, own.order, own.start, edge["upper"], edge["norm2"]
        )


@compiled
def wishes(lo: int, hi: int, rows: DualRows, times: Floats, degree: Ints, units: float, wish: Floats) -> None:
    """The eta every node would choose from its own rows and degree: 2 eta |B_j| = units * mean |x_r|^2.

    It rides in every message as its weight, and an edge takes the mean of its two ends: nobody needs to know all rows.
    """
    for j in range(lo, hi):
        length2, count = 0.0, 0.0
        for p in range(rows.start[j], rows.start[j + 1]):
            length2 += times[p] * rows.norm2[p]
            count += times[p]
        wish[j] = units * length2 / (2.0 * max(count, 1e-300) * max(degree[j], 1))


def broadcast(block: Block, t: int) -> Mail:
    """One message along every edge. Not v_j as in the paper but its running sum, from which v_j follows.

    It is as long as v_j, and a lost one is made good by the next: with v_j itself every loss would leave the sum of
    all alphas away from zero for good, and the network at another optimum.
    """
    senders = np.repeat(np.arange(block.k), np.diff(block.links.indptr))
    edges = np.where(block.alive[senders], np.arange(len(senders)), -1)
    return post(block, t, senders + block.first, edges, block.s[senders], block.edge["wish"][senders])


class MomDsvm(BaseEstimator):  # type: ignore[misc]
    """MoM-DSVM, the consensus SVM by the alternating direction method of multipliers.

    Parameters
    ----------
    eta : float or "auto"
        The penalty of disagreement between neighbours. "auto": from each edge's own rows, see `wishes`. Any positive
        number leads to the optimum, at very different speed; shards of very different content need a larger one.
    passes : int
        At most so many passes of dual coordinate ascent over a node's rows in an iteration.
    tol : float
        A node's own problem counts as solved when no margin is off by more than this. The paper solves it exactly;
        as the next iteration starts where this one ended, a rough answer leads to the same optimum, and sooner.
    """

    average = False  # the models are the last iterates

    def __init__(self, eta: float | str = "auto", passes: int = 50, tol: float = 0.1) -> None:
        self.eta = eta
        self.passes = passes
        self.tol = tol

    def weigh(self, network: Network) -> Network:
        """The network as it is: broadcasting asks for no transition matrix."""
        return network

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None  # noqa: ARG002
    ) -> MomDsvmRun:  # fmt: skip
        """The algorithm on this network, with shards of these sizes; there is no ball and loss needs no care."""
        if network.directed:
            raise ValueError(
                f"MoM-DSVM needs both ends of an edge to hear each other, and {network.name!r} is directed: "
                "use an undirected topology such as 'random-regular', or algorithm='gadget'"
            )
        spectral.check_connected(network)
        if sizes is None or not sizes.sum() > 0:
            raise ValueError(
                "MoM-DSVM bounds its dual by J / (lam N): give bind the shards' sizes, with at least one row"
            )
        if isinstance(self.passes, bool) or not hasattr(self.passes, "__index__") or self.passes < 1:
            raise ValueError(f"passes must be a whole number of at least 1, got {self.passes!r}")
        if not 0 <= self.tol < np.inf:
            raise ValueError(f"tol is a part of the margin of 1, for example 0.1; got {self.tol!r}")
        return MomDsvmRun(network.n / (lam * float(sizes.sum())), _penalty(self.eta), int(self.passes), self.tol)


def _penalty(eta: Any) -> float | None:
    if eta == "auto":
        return None
    if isinstance(eta, bool | str) or not 0 < eta < np.inf:
        raise ValueError(f"eta is a positive number or 'auto', got {eta!r}")
    return float(eta)
