"""MoM-DSVM (Forero, Cano and Giannakis, JMLR 2010): every node solves an SVM of its own in the dual and broadcasts it.

Linear, without bias, on undirected graphs. Owns the algorithm and its parameters; `kernels.mom_dsvm` owns the
arithmetic. Not in the paper: eta="auto" adapts during the run; this does not change the multipliers.
The method is synchronous. It tolerates lost messages. It does not tolerate a neighbour that never returns: the last v
of that neighbour continues to bind the others. If messages are regularly late by two exchanges, it may diverge.

Why it converges to the pooled optimum. The consensus problem of J nodes, with C = 1 / (lam N) and B_j the neighbours of
node j,

    min sum_j 1/2 |v_j|^2 + J C sum_{n at j} hinge_n(v_j)    s.t.  v_j = omega_ji,  omega_ji = v_i  for i in B_j

is at consensus J times 1/2 |w|^2 + C sum hinge, so it has the same solution as lam/2 |w|^2 + mean hinge. With penalty
eta and multipliers that start at zero, ADMM keeps both multipliers of a pair equal, alpha_ji = -alpha_ij, and
omega_ji = (v_j + v_i) / 2. With alpha_j = sum_i alpha_ji the step in v_j minimises

    1/2 |v|^2 + J C sum hinge_n(v) + 2 alpha_j.v + eta sum_i |v - (v_j + v_i)/2|^2,

that is U_j/2 |v|^2 + f_j.v + J C sum hinge_n(v), with U_j and f_j as in `linear_terms`. At a fixed point
v_j = v_i, f_j = 2 alpha_j - (U_j - 1) v_j, and in the sum over all nodes of v_j + 2 alpha_j + J C (subgradient) = 0 the
alphas cancel: the optimum of the pooled problem, for any eta.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gadget_svm.algorithms.base import BaseAlgorithm, BaseRun, check_undirected, checked_count, positive_or_auto
from gadget_svm.core.block import Block
from gadget_svm.core.network import Network
from gadget_svm.core.types import Flags, Floats
from gadget_svm.gossip import Round, make_messages, message_order
from gadget_svm.kernels import mom_dsvm as kernels
from gadget_svm.kernels.dual import DualRows, dual_rows, multiplicity, primal

INITIAL_CURVATURE = 10.0
"""eta="auto" starts so that 2 eta |B_j|, which U_j adds to the curvature 1, is this multiple of the mean |x_r|^2."""
ADAPT_INTERVAL, LAST_ADAPTATION = 4, 1024
"""Iterations between adaptations of eta, and the iteration of the last one. After that the method is plain ADMM, which
converges."""


@dataclass(frozen=True)
class MomDsvmRun(BaseRun):
    """MoM-DSVM with every parameter resolved. ``block.w`` holds v, ``block.held`` f, and ``block.edge`` the rest."""

    upper: float  # J C, the upper bound of lambda
    eta: float | None  # None: from the rows, and adaptive
    passes: int
    tol: float
    average: bool = False

    certifiable: ClassVar[bool] = True

    def iteration(self, block: Block, t: int) -> Round:
        """Do iteration t on every node of the block: solve, broadcast, receive.

        Nodes send the running sum of eta v_j, from which v_j follows. (In the paper they send v_j.) The sum is as long
        as v_j, and the next message replaces a lost one. If nodes sent v_j, then after a loss the sum of all alphas
        would not be zero, and the network would go to another optimum.
        """
        if "dual" not in block.edge:
            self._start(block, t)
        edge, rows, width, k = block.edge, _rows(block, self.upper), block.s.shape[1], block.k
        U, f, senders = np.empty(k), block.held, np.repeat(np.arange(k), np.diff(block.links.indptr))
        ends = kernels.Ends(
            block.links.indptr, block.links.target, *(edge[name] for name in kernels.Ends._fields[2:])
        )  # fmt: skip
        block.team.run(
            kernels.linear_terms, k, width, block.alive, block.exchanges - 1, ends, edge["proposal"], block.flat, f, U
        )
        block.team.run(
            kernels.solve, k, max(width, len(rows.data) // max(k, 1)), block.alive, block.first, block.w,
            f.reshape(block.w.shape), U, edge["dual"], edge["perm"], edge["path_limit"], edge["path"], rows,
            self.passes, self.tol, block.seed, t,
        )  # fmt: skip
        ends.sent[:] += ends.eta[:, None] * block.flat[senders]  # also for nodes that are away: neighbours do the same
        age = t - int(edge["before"][0])
        if self.eta is None and age % ADAPT_INTERVAL == 0 and age <= LAST_ADAPTATION:
            block.team.run(kernels.adapt_eta, k, width, block.alive, ends, block.flat, f, U, edge["proposal"])
        edges = np.where(block.alive[senders], np.arange(len(senders)), -1)
        delivery = yield make_messages(
            block, t, senders + block.first, edges, ends.sent.copy(), ends.eta.copy(), edge["proposal"][senders]
        )
        block.note_presence(delivery)
        messages = delivery.messages
        proposal = messages.weight if messages.note is None else messages.note
        block.team.run(
            kernels.receive, k, width, *message_order(block, messages), messages.sender, messages.seq, messages.vector,
            messages.weight, proposal, ends,
        )  # fmt: skip
        block.iterates[block.alive] += 1

    def _start(self, block: Block, t: int) -> None:
        """Create the state: lambda = 0 at this node, and v_i(0) = 0 for every neighbour i."""
        links, width, outputs = block.links, block.s.shape[1], block.w.shape[1]
        rows, count, degree = _rows(block, self.upper), len(block.links.target), np.diff(links.indptr)
        proposal = np.full(block.k, self.eta or 0.0)
        if self.eta is None:
            times, owner = multiplicity(block.rows.mass, rows.start), np.repeat(np.arange(block.k), np.diff(rows.start))
            length2, n = np.bincount(owner, times * rows.norm2, block.k), np.bincount(owner, times, block.k)
            proposal = INITIAL_CURVATURE * length2 / (2.0 * np.maximum(n, 1e-300) * np.maximum(degree, 1))
        block.edge.update(
            dual=np.zeros((outputs, len(rows.order))), perm=np.zeros(len(rows.order), dtype=np.int64),
            path_limit=np.zeros((outputs, len(rows.order))), path=np.zeros((outputs, block.k)),
            proposal=proposal, before=np.array([t - 1]), eta=np.zeros(count), sent=np.zeros((count, width)),
            received=np.zeros((count, width)), received_v=np.zeros((count, width)), received_eta=np.zeros(count),
            received_seq=np.full(count, block.exchanges - 1, dtype=np.int64),
            received_proposal=np.repeat(proposal, degree),
        )  # fmt: skip
        if len(rows.pairs):
            block.edge["path_limit"][rows.unseen()] = np.inf  # never visited

    def counted(self, block: Block) -> Flags:
        """Return False for every end: a certificate leaves out nodes that are away."""
        return np.zeros(len(block.links.target), dtype=np.bool_)

    def duals(self, block: Block) -> Floats:
        """Return alpha = lambda / (J C) of every output and row, with 0 <= alpha_r <= c_r."""
        dual = block.edge.get("dual")
        return np.zeros((block.w.shape[1], len(block.rows.order))) if dual is None else dual / self.upper


def _rows(block: Block, upper: float) -> DualRows:
    return block.once("mom_dsvm_rows", lambda: DualRows.of(block.rows, upper))


def lower_bound(blocks: Sequence[Block], lam: float) -> Floats:
    """Return, for every output, the value of the pooled dual at all nodes' lambdas. F is never below it.

    With a_r = lambda_r / (J C) it is (1/N) sum a_r - lam/2 |w|^2, where w = sum a_r y_r x_r / (lam N) is the sum of
    lambda_r y_r x_r over J. Observers can compute it; no node knows it.
    """
    outputs, features = blocks[0].w.shape[1:]
    value = np.zeros(outputs)
    n_nodes = sum(block.k for block in blocks)
    for c in range(outputs):
        w, part, total = np.zeros(features), np.zeros(features), 0.0
        for block in blocks:
            alpha = block.edge["dual"][c]
            for j in range(block.k):
                primal(part, alpha, dual_rows(block), j, 1 if outputs == 1 else c, np.zeros(features), 1.0)
                w += part / n_nodes
            total += float(alpha.sum()) / n_nodes
        value[c] = lam * (total - 0.5 * float(w @ w))
    return value


@dataclass(repr=False, eq=False)
class MomDsvm(BaseAlgorithm):
    """MoM-DSVM, the consensus SVM by the alternating direction method of multipliers.

    Parameters
    ----------
    eta : float or "auto", default "auto"
        The penalty of disagreement between neighbours. "auto": the mean of what the two ends of an edge propose, at
        first from their own rows, then from the pull of these rows (`adapt_eta`). Any positive number leads to the
        optimum, but the speed depends much on it. Shards of very different content need a larger number, nearly
        separable rows need a smaller one.
    passes : int, default 50
        The largest number of passes of dual coordinate ascent over a node's rows in an iteration.
    tol : float, default 0.1
        A node's own problem counts as solved if no margin is off by more than this. The paper solves it exactly. As the
        next iteration starts where this one ended, a rough solution leads to the same optimum in less time.

    Examples
    --------
    >>> from gadget_svm import GadgetSVC
    >>> from gadget_svm.algorithms import MomDsvm
    >>> model = GadgetSVC(3, algorithm=MomDsvm(eta=1.0), random_state=0).fit([[-1.0], [1.0]] * 6, [0, 1] * 6)
    >>> model.predict([[-2.0], [2.0]]).tolist()
    [0, 1]
    """

    average = False  # the models are the last iterates
    certifies = True  # runs keep dual variables

    eta: float | str = "auto"
    passes: int = 50
    tol: float = 0.1

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None  # noqa: ARG002
    ) -> MomDsvmRun:  # fmt: skip
        """Return the algorithm on this network, for shards of these sizes; ``radius`` and ``lossy`` are not used."""
        check_undirected(network, "MoM-DSVM")
        if sizes is None or not sizes.sum() > 0:
            raise ValueError(
                "MoM-DSVM needs the number of rows to bound its dual variables: pass sizes to bind(), the number of "
                "rows of each node, with at least one row in all"
            )
        if not 0 <= self.tol < np.inf:
            raise ValueError(f"tol is a part of the margin of 1, for example 0.1; got {self.tol!r}")
        upper, passes = network.n / (lam * float(sizes.sum())), checked_count(self.passes, "passes")
        return MomDsvmRun(upper, positive_or_auto(self.eta, "eta"), passes, self.tol)
