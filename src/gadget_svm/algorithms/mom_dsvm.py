"""MoM-DSVM (Forero, Cano and Giannakis, JMLR 2010): every node solves an SVM of its own in the dual and broadcasts it.

Linear, without bias, on undirected graphs. Owns the algorithm and its settings; `kernels.mom_dsvm` owns the
arithmetic. Not in the paper: eta="auto" adapts, with the multipliers kept.
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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gadget_svm import gossip, spectral
from gadget_svm.algorithms.base import BaseAlgorithm, BaseRun
from gadget_svm.core.block import Block
from gadget_svm.core.messages import MessageBatch
from gadget_svm.core.network import Network
from gadget_svm.core.types import Floats
from gadget_svm.gossip.base import make_messages, message_order
from gadget_svm.kernels import mom_dsvm as moves
from gadget_svm.kernels.dual import DualRows, multiplicity, primal

EVERY, LAST_CHANGE = 4, 1024
"""In every fourth iteration up to this one: from then on it is plain ADMM, which converges."""


@dataclass(frozen=True)
class MomDsvmRun(BaseRun):
    """MoM-DSVM with every choice made. ``block.w`` is v, ``block.held`` f, and ``block.edge`` all else."""

    top: float  # J C, the upper bound of lambda
    eta: float | None  # None: from the rows, and adapting
    passes: int
    tol: float
    average: bool = False
    certifiable: ClassVar[bool] = True

    def iteration(self, block: Block, t: int) -> gossip.Round:
        """Iteration t on every node of the block: solve, broadcast, listen."""
        if "dual" not in block.edge:
            self._open(block, t)
        edge, ends, rows, width = block.edge, _ends(block), _rows(block), block.s.shape[1]
        U, f = np.empty(block.k), block.held
        block.team.run(
            moves.linear_terms, block.k, width, block.alive, block.exchanges - 1, ends, edge["wish"], block.flat, f, U
        )
        block.team.run(
            moves.solve, block.k, max(width, len(rows.data) // max(block.k, 1)), block.alive, block.first, block.w,
            f.reshape(block.w.shape), U, edge["dual"], edge["turn"], edge["reach"], edge["gone"], rows,
            self.passes, self.tol, block.seed, t,
        )  # fmt: skip
        block.team.run(moves.add_up, block.k, width, ends, block.flat)
        age = t - int(edge["before"][0])
        if self.eta is None and age % EVERY == 0 and age <= LAST_CHANGE:
            block.team.run(moves.strain, block.k, width, block.alive, ends, block.flat, f, U, edge["wish"])
        delivery = yield broadcast(block, t, ends)
        block.note_presence(delivery)
        messages, (order, start) = delivery.messages, message_order(block, delivery.messages)
        wish = messages.weight if messages.note is None else messages.note
        block.team.run(
            moves.listen,
            block.k,
            width,
            order,
            start,
            messages.sender,
            messages.seq,
            messages.vector,
            messages.weight,
            wish,
            ends,
        )
        block.iterates[block.alive] += 1

    def _open(self, block: Block, t: int) -> None:
        """lambda = 0, and neighbours of whom nothing is known but v_i(0) = 0."""
        links, width, outputs = block.links, block.s.shape[1], block.w.shape[1]
        rows, count, degree = DualRows.of(block.rows, self.top), len(block.links.target), np.diff(links.indptr)
        wish = np.full(block.k, self.eta or 0.0)
        if self.eta is None:
            moves.wishes(0, block.k, rows, multiplicity(block.rows.mass, rows.start), degree, moves.UNITS, wish)
        block.edge.update(
            dual=np.zeros((outputs, len(rows.order))), turn=np.zeros(len(rows.order), dtype=np.int64),
            reach=np.zeros((outputs, len(rows.order))), gone=np.zeros((outputs, block.k)),
            upper=rows.upper, norm2=rows.norm2, wish=wish, before=np.array([t - 1]),
            eta=np.zeros(count), sent=np.zeros((count, width)), heard=np.zeros((count, width)),
            heard_v=np.zeros((count, width)), heard_eta=np.zeros(count),
            heard_seq=np.full(count, block.exchanges - 1, dtype=np.int64), heard_wish=np.repeat(wish, degree),
        )  # fmt: skip
        if len(rows.pairs):
            block.edge["reach"][rows.unseen()] = np.inf  # never looked at

    def counted(self, block: Block) -> NDArray[np.bool_]:
        """None: nodes that are away are left out of a certificate at once."""
        return np.zeros(len(block.links.target), dtype=np.bool_)

    def duals(self, block: Block) -> Floats:
        """alpha = lambda / (J C) of every output and row, with 0 <= alpha_r <= c_r: what a certificate is made of."""
        dual = block.edge.get("dual")
        return np.zeros((block.w.shape[1], len(block.rows.order))) if dual is None else dual / self.top


def _ends(block: Block) -> moves.Ends:
    own = block.edge
    return moves.Ends(
        block.links.indptr, block.links.target, own["eta"], own["sent"], own["heard"], own["heard_v"],
        own["heard_eta"], own["heard_seq"], own["heard_wish"],
    )  # fmt: skip


def _rows(block: Block) -> DualRows:
    own, edge = block.rows, block.edge
    return DualRows(
        own.indptr, own.indices, own.data, own.label, own.order, own.start, edge["upper"], edge["norm2"], own.pairs
    )


def broadcast(block: Block, t: int, ends: moves.Ends) -> MessageBatch:
    """One message along every edge. Not v_j as in the paper but the running sum of eta v_j, from which v_j follows.

    It is as long as v_j, and a lost one is made good by the next: with v_j itself every loss would leave the sum of
    all alphas away from zero for good, and the network at another optimum.
    """
    senders = np.repeat(np.arange(block.k), np.diff(ends.ptr))
    edges = np.where(block.alive[senders], np.arange(len(senders)), -1)
    wish = block.edge["wish"][senders]
    return make_messages(block, t, senders + block.first, edges, ends.sent.copy(), ends.eta.copy(), wish)


def lower_bound(blocks: Sequence[Block], lam: float) -> Floats:
    """The value of the pooled dual at the lambdas of all nodes together, for every output: no w has an F below it.

    With a_r = lambda_r / (J C) it is (1/N) sum a_r - lam/2 |w|^2, where w = sum a_r y_r x_r / (lam N) is the sum of
    lambda_r y_r x_r over J. For those who measure: no node knows it.
    """
    outputs, features = blocks[0].w.shape[1:]
    value = np.zeros(outputs)
    n_nodes = sum(block.k for block in blocks)
    for c in range(outputs):
        w, part, most = np.zeros(features), np.zeros(features), 0.0
        for block in blocks:
            alpha, rows = block.edge["dual"][c], _rows(block)
            for j in range(block.k):
                primal(part, alpha, rows, j, 1 if outputs == 1 else c, np.zeros(features), 1.0)
                w += part / n_nodes
            most += float(alpha.sum()) / n_nodes
        value[c] = lam * (most - 0.5 * float(w @ w))
    return value


class MomDsvm(BaseAlgorithm):
    """MoM-DSVM, the consensus SVM by the alternating direction method of multipliers.

    Parameters
    ----------
    eta : float or "auto"
        The penalty of disagreement between neighbours. "auto": what the two ends of an edge wish, at first from their
        own rows, then by how hard these pull. Any positive number leads to the optimum, at very
        different speed; shards of very different content need a larger one, nearly separable rows a smaller one.
    passes : int
        At most so many passes of dual coordinate ascent over a node's rows in an iteration.
    tol : float
        A node's own problem counts as solved when no margin is off by more than this. The paper solves it exactly;
        as the next iteration starts where this one ended, a rough answer leads to the same optimum, and sooner.
    """

    average = False  # the models are the last iterates
    certifies = True

    def __init__(self, eta: float | str = "auto", passes: int = 50, tol: float = 0.1) -> None:
        self.eta = eta
        self.passes = passes
        self.tol = tol

    def with_transition_of(self, network: Network) -> Network:
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
        network.refuse_matrix("MoM-DSVM")
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
