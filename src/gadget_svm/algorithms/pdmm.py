"""PDMM, the primal-dual method of multipliers, by gossip: in each tick a node pushes a vector to a random neighbour.

Linear, without bias, on undirected graphs. Owns the algorithm and its parameters; `kernels.pdmm` owns the arithmetic.

Node i's objective is f_i(w) = n_i lam/2 |w|^2 + sum over its rows of c_r hinge. So the optimum of any connected set of
nodes is the SVM of its rows, and no node needs the number of all rows or nodes. With A_ij = +1 if i < j else -1, one
rho_ij per edge, R_i = sum_j rho_ij, S_i = sum_j A_ij z_ij and v_i = sum_r alpha_r y_r x_r, a tick is

    w_i     = (v_i - S_i) / (n_i lam + R_i)                                          (a)
    alpha_r <- clip[0, c_r](alpha_r + (1 - y_r x_r.w_i) (n_i lam + R_i) / |x_r|^2)   (b)  one pass, w_i moves along
    push      y_ij = z_ij + 2 rho_ij A_ij w_i                                        (c)
    receive   z_ji <- (1 - theta) z_ji + theta y_ij, and w_j with it                 (d)

At a fixed point, z_ji = z_ij + 2 rho A_ij w_i and its mirror image give w_i = w_j. As
A_ij z_ij + rho w_i = -(A_ji z_ji + rho w_j), the sum over all nodes of n_i lam w_i - v_i is zero: the pooled optimum,
for any z at the start. So a lost message does no harm: the next one holds the same information.

**An edge is open at both ends or at neither.** An edge that is open at only one end would keep the network away from
the optimum. So the high bits of a message's number are its edge's epoch. The node that drops or reopens an edge raises
the epoch. The other end adopts the higher epoch, and both ends then approach each other in small steps. A message of a
lower epoch is ignored; if the edge is closed here, it is also answered. So an edge dropped by one end alone is repaired
when the other end sends. A Delivery says which nodes are away; `edge_liveness` decides which of them count as dead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import ClassVar

import numpy as np

from gadget_svm.algorithms import base, edge_liveness
from gadget_svm.core.block import Block, Links
from gadget_svm.core.messages import MessageBatch, message_bytes
from gadget_svm.core.network import Network
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.gossip import Round, make_messages, message_order
from gadget_svm.kernels import pdmm as kernels
from gadget_svm.kernels import pdmm_fused as fused
from gadget_svm.kernels.dual import SKIP_ALWAYS, DualRows, dual_rows, multiplicity
from gadget_svm.kernels.gossip import EPOCH_SHIFT

REPEAT_THETA = 0.8
"""theta if a neighbour pushes in two successive ticks: it has hardly received an answer in between. If every tick
brings messages from all neighbours, as at the hub of a star, a single pass is too inexact for theta = 1: w
oscillates."""
ALL_THETA, ALL_PASSES = 0.85, 2
"""theta and passes if a node pushes to all neighbours in every tick. One pass is too inexact for a theta near 1, and a
third pass gains nothing."""
MIN_SHARED_NODES, MIN_SHARED_NUMBERS = 64, 1_000_000
"""Threads share a tick if it has at least this many nodes, or touches this many numbers. Few nodes cannot be divided
evenly, and threads would wait."""
ROWS_PER_ACTIVE_ROW = 8
"""The ratio of all rows to those that a tick works on: most rows are skipped."""
MAX_CALL_NUMBERS = 50_000_000
"""How many numbers a compiled call touches before it returns to the interpreter, which may have received Ctrl-C."""
MAX_CLOSED_EDGES = 8
"""A peer keeps the epochs of at most this many dropped edges."""
INITIAL_VIOLATION = 0.25
"""The assumed mean |1 - margin|, before a pass has measured it."""
LONE_PASSES = 16
"""Passes of a node without neighbours. Its iterations cost no messages, so it can make more passes in each."""
PROXIMAL_FACTOR = 0.1
"""The largest penalty of a single node's proximal term, as a multiple of the mean |x_r|^2: with it, a step moves an
alpha by about a tenth of its box, for every lam and number of rows."""
SAME_DIRECTION, PROXIMAL_DECAY, LEAST_PROXIMAL = 0.5, 0.7, 0.01
"""If the cosine of two successive steps of w is above SAME_DIRECTION, the penalty holds w back, and is multiplied by
PROXIMAL_DECAY. If the steps are opposed, the passes are too inexact for this penalty, and it is doubled. It never falls
below LEAST_PROXIMAL times the largest penalty."""
_PER_END = (*kernels.Edges._fields[2:], "dropped_at", *edge_liveness.PER_END)
"""What ``block.edge`` keeps for every end of an edge."""
_EDGE_ARRAYS, _NODE_ARRAYS = itemgetter(*kernels.Edges._fields[2:]), itemgetter(*kernels.Nodes._fields[3:])


@dataclass(frozen=True)
class PdmmRun(base.BaseRun):
    """PDMM with every parameter resolved. ``block.edge`` holds alpha and the state of all ends of edges."""

    lam: float
    rho: float | None  # None: from the rows, and adaptive
    passes: int
    to_all: bool  # push to all neighbours every tick, not to one
    theta: float
    theta_repeat: float  # theta for a message right after another one of the same sender
    single: bool = False  # the network has one node, and no edges
    average: bool = False

    certifiable: ClassVar[bool] = True

    @property
    def gossip_name(self) -> str:
        """How messages travel."""
        return "broadcast" if self.to_all else "push"

    def weights(self, block: Block) -> Floats:
        """Return every node's last iterate, nodes x outputs x features."""
        if block.rows.intercept_unit in (0.0, 1.0) or "dual" not in block.edge:
            return block.w
        w = block.w.copy()
        w[..., -1] *= block.rows.intercept_unit
        return w

    def iteration(self, block: Block, t: int) -> Round:
        """Do tick t on every node of the block: solve (a, b), push (c), receive (d)."""
        self._start(block)
        self._solve(block)  # (a, b)
        delivery = yield self._push(block, t)  # (c)
        self._receive(block, delivery.messages, self._steps)  # (d)
        edge_liveness.update(block, delivery, _nodes(block), _edges(block))
        block.iterates[block.alive] += 1

    def _solve(self, block: Block) -> None:
        nodes, local = _nodes(block), self._local(block)
        block.team.run(kernels.solve, block.k, _work(block), nodes, _edges(block), local, block.exchanges)
        if self.single:
            _move_proximal_centre(block, nodes)

    def _push(self, block: Block, t: int) -> MessageBatch:
        pushed, edges, senders = self._message_arrays(block), _edges(block), np.arange(block.k)
        block.team.run(
            kernels.push, block.k, block.s.shape[1], _nodes(block), edges, self.to_all, block.seed, block.exchanges,
            pushed,
        )  # fmt: skip
        if self.to_all:
            senders = np.repeat(senders, np.diff(edges.ptr))
        messages = make_messages(
            block, t, senders + block.first, pushed.edge, pushed.vector, pushed.rho, pushed.tau
        )  # fmt: skip
        return messages._replace(seq=messages.seq + (edges.epoch[pushed.edge[pushed.edge >= 0]] << EPOCH_SHIFT))

    def _local(self, block: Block) -> kernels.LocalProblems:
        own, perm = block.edge, block.once("perm", lambda: np.zeros(len(block.rows.order), dtype=np.int64))
        return kernels.LocalProblems(block.w, own["dual"], own["skip"], perm, _rows(block), self.passes, block.seed)

    @property
    def _steps(self) -> kernels.Steps:
        return kernels.Steps(self.theta, self.theta_repeat, self.rho is None)

    def _receive(self, block: Block, messages: MessageBatch, steps: kernels.Steps) -> None:
        tau = messages.weight if messages.note is None else messages.note
        block.team.run(
            kernels.receive, block.k, block.s.shape[1], _nodes(block), _edges(block), *message_order(block, messages),
            messages.sender, messages.seq, messages.vector, messages.weight, tau, steps,
        )  # fmt: skip

    def apply_undamped(self, block: Block, messages: MessageBatch) -> None:
        """Apply messages with theta = 1. They are the last messages of nodes that leave."""
        self._receive(block, messages, self._steps._replace(theta=1.0, theta_repeat=1.0))

    def supports_fused(self, block: Block) -> bool:
        """Return True if no node is away or idle, and no edge was ever dropped."""
        return bool(block.alive.all()) and not block.edge.get("epoch", np.zeros(0)).any()

    def advance_fused(self, block: Block, count: int) -> tuple[int, int]:
        """Advance a block that holds all nodes by ``count`` ticks, without building and sorting messages."""
        self._start(block)
        block.iterates += count
        if self.single:
            for _ in range(count):
                self._solve(block)
                block.exchanges += 1
            return 0, 0
        nodes, edges, ends = _nodes(block), _edges(block), len(block.links.target)
        reverse = block.once("reverse", lambda: fused.reverse_edges(edges.ptr, edges.target))
        state = nodes, edges, self._local(block), reverse, self._steps
        kernel: Callable[..., None] = fused.broadcast_ticks if self.to_all else fused.push_ticks
        room = (np.empty(ends), np.empty((ends, 5))) if self.to_all else (self._message_arrays(block),)
        work = _work(block)
        width, most = work if self._is_shared(block) else 0, max(1, MAX_CALL_NUMBERS // max(block.k * work, 1))
        for done in range(0, count, most):
            some = min(most, count - done)
            block.team.run_in_rounds(kernel, block.k, width, *state, block.exchanges, *room, some)
            block.exchanges += some
        sent = count * (ends if self.to_all else int((np.diff(edges.ptr) > 0).sum()))
        return sent, sent * message_bytes(block.s.shape[1], 2)

    def _is_shared(self, block: Block) -> bool:
        """Return whether a tick is large enough to share among threads."""
        vectors = block.s.shape[1] * (1 + (len(block.links.target) if self.to_all else block.k) / max(block.k, 1))
        rows = len(block.rows.data) / max(block.k, 1) / ROWS_PER_ACTIVE_ROW
        return block.k >= MIN_SHARED_NODES or block.k * max(vectors, rows) >= MIN_SHARED_NUMBERS

    def _message_arrays(self, block: Block) -> kernels.PushMessages:
        count = len(block.links.target) if self.to_all else block.k
        return kernels.PushMessages(
            np.full(count, -1, dtype=np.int64), np.empty((count, block.s.shape[1])), np.zeros(count), np.zeros(count)
        )

    def _start(self, block: Block) -> None:
        """Create the state once: alpha = 0, and every end of an edge with its own initial penalty and the node's w."""
        if "dual" in block.edge:
            return
        links, rows, ends, per_output = block.links, _rows(block), len(block.links.target), block.w.shape[:2]
        rho, n_lam = kernels.initial_penalties(rows, multiplicity(block.rows.mass, rows.start), links.indptr, self.lam)
        if self.rho is not None:
            rho[:] = self.rho
        block.edge.update(
            {name: np.zeros(ends, dtype=np.int64) for name in _PER_END},
            dual=np.zeros((per_output[1], len(rows.order))),
            skip=np.zeros((per_output[1], len(rows.order)), dtype=np.uint8), n_lam=n_lam, R=np.zeros(block.k),
            tau=np.zeros(block.k), violation=np.full(per_output, INITIAL_VIOLATION),
            last_intercept=np.zeros(per_output),
            z=np.zeros((ends, block.s.shape[1])), rho=rho, neighbour_tau=np.zeros(ends), damping=np.ones(ends),
            open=np.ones(ends, dtype=np.bool_), reply_due=np.zeros(ends, dtype=np.bool_),
            agreed=np.full(ends, self.rho is not None),
            last_seq=np.full(ends, block.exchanges - 2, dtype=np.int64),
        )  # fmt: skip
        if block.rows.intercept_unit:
            block.w[..., -1] /= block.rows.intercept_unit
        if len(rows.pairs):
            block.edge["skip"][rows.unseen()] = SKIP_ALWAYS
        before = block.flat.copy()
        kernels.initialise(_nodes(block), _edges(block))
        if self.single:  # w = (v + R centre) / (n lam + R), and v is 0 here
            times = multiplicity(block.rows.mass, rows.start)
            R = np.array([PROXIMAL_FACTOR * float(rows.norm2 @ times) / max(float(times.sum()), 1e-300)])
            block.edge.update(proximal_centre=before, proximal_step=np.zeros_like(before), proximal_limit=R)
            block.edge["R"][:] = R
            block.flat[:] = before * (R / (n_lam + R))[:, None] if R.any() else 0.0

    def drop(self, block: Block, node: int, other: int) -> None:
        """Make ``node`` treat ``other`` as dead, even if it is not."""
        i, edges = node - block.first, _edges(block)
        mine = np.arange(edges.ptr[i], edges.ptr[i + 1])
        for e in mine[(edges.target[mine] == other) & edges.open[mine]].tolist():
            edge_liveness.drop(_nodes(block), edges, i, e)

    def set_neighbours(self, block: Block, neighbours: Ints) -> None:
        """Replace the neighbours of a block of one node. Edges to former ones are dropped, but their epochs kept."""
        before = block.links.target
        if "dual" not in block.edge:
            block.links = Links.alone(neighbours.astype(np.int32))
            return
        block.links = links = Links.alone(np.union1d(before, neighbours).astype(np.int32))
        new, rows = ~np.isin(links.target, before), _rows(block)
        times = multiplicity(block.rows.mass, rows.start)
        rho, block.edge["n_lam"][:] = kernels.initial_penalties(rows, times, links.indptr, self.lam)
        for name in _PER_END:
            old = block.edge[name]
            block.edge[name] = np.zeros((len(new), *old.shape[1:]), dtype=old.dtype)
            block.edge[name][~new] = old
        block.edge["rho"][new] = rho[new] if self.rho is None else self.rho
        block.edge["last_seq"][new] = -2
        nodes, edges, wanted = _nodes(block), _edges(block), np.isin(links.target, neighbours)
        for e in np.flatnonzero(edges.open & ~wanted).tolist():
            edge_liveness.drop(nodes, edges, 0, e)
            block.edge["dropped_at"][e] = block.exchanges
        for e in np.flatnonzero(wanted & ~edges.open).tolist():
            edge_liveness.reopen(nodes, edges, 0, e)
            edges.epoch[e] -= new[e]  # both ends start at epoch 0
            edges.agreed[e] = self.rho is not None or not new[e]
            edges.damping[e] = 1.0 if new[e] else edges.damping[e]
        self._forget_closed_edges(block)

    def initial_penalty(self, block: Block) -> float:
        """Return the penalty that the rows of a block of one node propose for all its edges together."""
        rows = _rows(block)
        times = multiplicity(block.rows.mass, rows.start)
        proposed, _ = kernels.initial_penalties(rows, times, np.array([0, 1]), self.lam)
        return float(proposed[0]) if self.rho is None else self.rho

    def reset_edge(self, block: Block, other: int) -> None:
        """Note that a neighbour restarted and counts its messages from zero: accept any number of its epoch."""
        if "dual" in block.edge:
            same = block.links.target == other
            block.edge["last_seq"][same] = (block.edge["epoch"][same] << EPOCH_SHIFT) - 2

    def _forget_closed_edges(self, block: Block) -> None:
        """Delete edges that were dropped long ago. If the other end ever sends again, its message carries the epoch."""
        closed = np.flatnonzero(~block.edge["open"])
        order = np.argsort(block.edge["dropped_at"][closed], kind="stable")
        oldest = closed[order][: max(0, len(closed) - MAX_CLOSED_EDGES)]
        if len(oldest):
            for name in _PER_END:
                block.edge[name] = np.delete(block.edge[name], oldest, axis=0)
            block.links = Links.alone(np.delete(block.links.target, oldest))

    def counted(self, block: Block) -> Flags:
        """Return which ends are open. The rows of the neighbours at open edges influence the models."""
        return block.edge.get("open", np.ones(len(block.links.target), dtype=np.bool_))

    def duals(self, block: Block) -> Floats:
        """Return alpha of every output and row, with 0 <= alpha_r <= c_r."""
        dual = block.edge.get("dual")
        return np.zeros((block.w.shape[1], len(block.rows.order))) if dual is None else dual


def _work(block: Block) -> int:
    """Return how many numbers a node touches in a tick."""
    return int(max(block.s.shape[1], len(block.rows.data) // max(block.k, 1)))


def _edges(block: Block) -> kernels.Edges:
    return kernels.Edges(block.links.indptr, block.links.target, *_EDGE_ARRAYS(block.edge))


def _nodes(block: Block) -> kernels.Nodes:
    return kernels.Nodes(block.alive, block.first, block.flat, *_NODE_ARRAYS(block.edge))


def _rows(block: Block) -> DualRows:
    """Return the block's rows, grouped by node, with their bounds; make them if the block has none yet."""
    unit = block.rows.intercept_unit
    return block.once("rows", lambda: (dual_rows(block).with_constant(unit) if unit else dual_rows(block)).grouped())


def _move_proximal_centre(block: Block, nodes: kernels.Nodes) -> None:
    """Move the centre of the proximal point method to w: a single node solves f(w) + R/2 |w - centre|^2.

    For nodes with neighbours, the edges do this. Without it, dual coordinate ascent is slow on features of unequal
    size. w = (v + R centre) / (n lam + R) holds before and after.
    """
    centre, last, R = block.edge["proximal_centre"], block.edge["proximal_step"], nodes.R.copy()
    step = nodes.w - centre
    along, length = (step * last).sum(), np.sqrt((step * step).sum() * (last * last).sum())
    factor = PROXIMAL_DECAY if along > SAME_DIRECTION * length else 2.0 if along < 0.0 else 1.0
    most = block.edge["proximal_limit"]
    nodes.R[:] = np.clip(factor * R, LEAST_PROXIMAL * most, most)
    centre[:], last[:] = nodes.w, step
    nodes.w[:] += (R / (nodes.n_lam + nodes.R))[:, None] * step


@dataclass(repr=False, eq=False)
class Pdmm(base.BaseAlgorithm):
    """The primal-dual method of multipliers by gossip push: every node reaches the optimum of the pooled rows.

    Parameters
    ----------
    penalty : float or "auto", default "auto"
        rho, the penalty of disagreement on every edge. "auto": each end proposes a value, which it
        computes from its own rows, and the edge starts with the mean of the two. Then the node with the lower number
        doubles or halves the penalty, as the tension between the ends requires.
    passes : int or None, default None
        Passes of dual coordinate ascent over a node's rows in a tick. None: 1 if the node pushes to one neighbour, 2 if
        it pushes to all, 16 if it has none.
    neighbours : 1 or "all", default 1
        1: push to one neighbour per tick, in a random order that visits each in turn. "all": push to all neighbours in
        every tick.
    theta : float or None, default None
        The step towards what a neighbour pushed, above 0 and at most 1. None: 1 if nodes push to one neighbour (0.8 if
        the same neighbour also pushed in the tick before), 0.85 if they push to all.

    Examples
    --------
    >>> from gadget_svm import GadgetSVC, Pdmm
    >>> model = GadgetSVC(3, algorithm=Pdmm(passes=2), random_state=0).fit([[-1.0], [1.0]] * 6, [0, 1] * 6)
    >>> model.predict([[-2.0], [2.0]]).tolist()
    [0, 1]
    """

    average = False  # the models are the last iterates
    certifies = True  # runs keep dual variables
    omits_unused_columns = True  # features that occur in no row change no bit

    penalty: float | str = "auto"
    passes: int | None = None
    neighbours: int | str = 1
    theta: float | None = None

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None  # noqa: ARG002
    ) -> PdmmRun:  # fmt: skip
        """Return the algorithm on this network; ``radius``, ``lossy`` and ``sizes`` make no difference."""
        base.check_undirected(network, "PDMM")
        if isinstance(self.neighbours, bool) or self.neighbours not in (1, "all"):
            raise ValueError(f"neighbours is 1 or 'all', got {self.neighbours!r}")
        to_all = self.neighbours == "all"
        default = LONE_PASSES if network.n == 1 else ALL_PASSES if to_all else 1
        passes = base.checked_count(default if self.passes is None else self.passes, "passes")
        theta = base.checked_positive((ALL_THETA if to_all else 1.0) if self.theta is None else self.theta, "theta")
        if theta > 1:
            raise ValueError(f"theta is a number above 0 and at most 1, got {self.theta!r}")
        theta_repeat = REPEAT_THETA if self.theta is None and not to_all else theta
        rho = base.positive_or_auto(self.penalty, "penalty")
        return PdmmRun(lam, rho, passes, to_all, theta, theta_repeat, network.n == 1)
