"""PDMM by gossip push: the primal-dual method of multipliers, one vector one way to a random neighbour per tick.

Linear, without bias, on undirected graphs. Owns the algorithm and its settings; `kernels.pdmm` owns the arithmetic.

Node i's objective is f_i(w) = n_i lam/2 |w|^2 + sum over its rows of c_r hinge, so that any connected set of nodes has
as its optimum the SVM of its rows: neither the number of rows nor of nodes is needed. With A_ij = +1 if i < j else -1,
one rho_ij an edge, R_i = sum_j rho_ij, S_i = sum_j A_ij z_ij and v_i = sum_r alpha_r y_r x_r, a tick is

    w_i     = (v_i - S_i) / (n_i lam + R_i)                                          (a)
    alpha_r <- clip[0, c_r](alpha_r + (1 - y_r x_r.w_i) (n_i lam + R_i) / |x_r|^2)   (b)  one pass, w_i moves along
    push      y_ij = z_ij + 2 rho_ij A_ij w_i                                        (c)
    receive   z_ji <- (1 - theta) z_ji + theta y_ij, and w_j with it                 (d)

Where nothing moves, z_ji = z_ij + 2 rho A_ij w_i and its mirror image give w_i = w_j, and as
A_ij z_ij + rho w_i = -(A_ji z_ji + rho w_j) the sum over all nodes of n_i lam w_i - v_i is zero: the pooled optimum,
whatever z was at the start. So nothing is lost with a message: the next one holds all there is to say.

**An edge counts at both ends or at neither**: one that counts at one end only leaves the network off the optimum for
good. So every message is numbered by its edge's epoch first. Who drops an edge or reopens it raises the epoch. A higher
one is adopted, and both ends then approach each other in small steps. Mail of a lower one is ignored, and if the edge
is closed here answered with one's own. So an edge dropped by one end alone heals as soon as the other end speaks. A
Delivery says which nodes are away; `absence` decides which of them count as dead.
"""

import numbers
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gadget_svm import gossip, spectral
from gadget_svm.algorithms import edge_liveness
from gadget_svm.algorithms.base import BaseAlgorithm, BaseRun
from gadget_svm.core.block import Block, Links
from gadget_svm.core.messages import MessageBatch, message_bytes
from gadget_svm.core.network import Network
from gadget_svm.core.types import Floats, Ints
from gadget_svm.gossip.base import make_messages, message_order
from gadget_svm.kernels import pdmm as moves
from gadget_svm.kernels import pdmm_fused as leaps
from gadget_svm.kernels.dual import NEVER, DualRows, dual_rows, multiplicity
from gadget_svm.kernels.gossip import EPOCH_SHIFT

AGAIN = 0.8
"""theta where a neighbour pushes in two ticks running: it has hardly heard an answer in between. Where every tick
brings mail from all sides, as at the hub of a star, a single pass is too inexact for theta = 1, and w never settles."""
ALL_THETA, ALL_PASSES = 0.85, 2
"""With all neighbours in every tick: one pass is too inexact for a theta near 1, a third gains nothing."""
FEW_NODES, WORTH_SHARING = 64, 1_000_000
"""Few nodes are shared unevenly among threads, which then wait for each other. So many numbers a tick are worth it."""
SELDOM = 8
"""Most rows rest: so many times as many as a tick works on."""
LONGEST_CALL = 50_000_000
"""Numbers to touch before going back to the interpreter, which may have been told to stop."""
_ENDS = (
    "z", "rho", "strain", "open", "due", "agreed", "seen", "changes", "epoch", "since", "ease", *edge_liveness.ENDS,
)  # fmt: skip
"""What is kept for every end of an edge."""
FORMER = 8
"""Dropped edges whose epoch a peer remembers."""
STIR = 0.25
"""By how much margins are taken to be off before a pass has shown it."""
PROXIMAL_UNITS = 0.1
"""The penalty of a single node's proximal term, as a multiple of the mean |x_r|^2: one step then moves an alpha by
about a tenth of its box, whatever lam and the number of rows are."""


@dataclass(frozen=True)
class PdmmRun(BaseRun):
    """PDMM with every choice made. ``block.edge`` holds alpha and the ends of all edges."""

    lam: float
    rho: float | None  # None: from the rows, and adapting
    passes: int
    everyone: bool  # push to all neighbours every tick, not to one
    theta: float
    again: float  # theta for mail right after other mail of the same sender
    average: bool = False
    certifiable: ClassVar[bool] = True
    lone: bool = False  # the network has one node, which has no edges

    def weights(self, block: Block) -> Floats:
        """Every node's last iterate, nodes x outputs x features."""
        if block.rows.intercept_unit in (0.0, 1.0) or "dual" not in block.edge:
            return block.w
        w = block.w.copy()
        w[..., -1] *= block.rows.intercept_unit
        return w

    def iteration(self, block: Block, t: int) -> gossip.Round:
        """Tick t on every node of the block: solve (a, b), push (c), receive (d)."""
        self._open(block)
        nodes, edges = _nodes(block), _edges(block)
        self._solve(block, nodes, edges)
        delivery = yield self._push(block, t, nodes, edges)
        self._listen(block, delivery.messages, nodes, edges, self.theta, self.again)
        edge_liveness.note_absences(block, delivery, nodes, edges)
        block.iterates[block.alive] += 1

    def _solve(self, block: Block, nodes: moves.Nodes, edges: moves.Edges) -> None:
        rows = _rows(block)  # first: a restored block has no scratch arrays yet, and this makes them
        block.team.run(
            moves.solve, block.k, _work(block), nodes, edges, block.w, block.edge["dual"], block.edge["rest"],
            block.scratch["turn"], rows, self.passes, block.seed, block.exchanges,
        )  # fmt: skip
        if self.lone:
            _move_anchor(block, nodes)

    def apply_undamped(self, block: Block, messages: MessageBatch) -> None:
        """Take in letters all the way, whatever theta is: those after which none will come."""
        self._listen(block, messages, _nodes(block), _edges(block), 1.0, 1.0)

    def _listen(
        self, block: Block, messages: MessageBatch, nodes: moves.Nodes, edges: moves.Edges, theta: float, again: float
    ) -> None:
        order, start = message_order(block, messages)
        note = messages.weight if messages.note is None else messages.note
        block.team.run(
            moves.listen, block.k, block.s.shape[1], nodes, edges, order, start, messages.sender, messages.seq,
            messages.vector,
            messages.weight, note, theta, again, self.rho is None,
        )  # fmt: skip

    @property
    def gossip_name(self) -> str:
        """How messages travel."""
        return "broadcast" if self.everyone else "push"

    def supports_fused(self, block: Block) -> bool:
        """Whether no node is away or idle and no edge was ever dropped."""
        return bool(block.alive.all()) and not block.edge.get("epoch", np.zeros(0)).any()

    def advance_fused(self, block: Block, count: int) -> tuple[int, int]:
        """Ticks of a block that holds all nodes, without mail being made up, sorted and looked through."""
        self._open(block)
        if self.lone:
            return self._leap_alone(block, count)
        nodes, edges, rows = _nodes(block), _edges(block), _rows(block)
        solving = (block.w, block.edge["dual"], block.edge["rest"], block.scratch["turn"], rows, self.passes)
        hearing = (_back(block), self.theta, self.again, self.rho is None)
        ends = len(edges.target)
        said: tuple[Any, ...] = (np.empty(ends), np.empty((ends, 5))) if self.everyone else (self._letters(block),)
        width = _work(block) if self._shares(block) else 0
        most, done = max(1, LONGEST_CALL // max(block.k * _work(block), 1)), 0
        while done < count:
            some = min(most, count - done)
            block.team.run_in_rounds(
                leaps.broadcasts if self.everyone else leaps.pushes, block.k, width, nodes, edges, *solving,
                block.seed, *hearing, block.exchanges, *said, some,
            )  # fmt: skip
            block.exchanges += some
            done += some
        block.iterates += count
        sent = count * (ends if self.everyone else int((np.diff(edges.ptr) > 0).sum()))
        return sent, sent * message_bytes(block.s.shape[1], 2)

    def _shares(self, block: Block) -> bool:
        """Whether a tick is worth sharing among threads."""
        vectors = block.s.shape[1] * (1 + (len(block.links.target) if self.everyone else block.k) / max(block.k, 1))
        rows = len(block.rows.data) / max(block.k, 1) / SELDOM
        return block.k >= FEW_NODES or block.k * max(vectors, rows) >= WORTH_SHARING

    def _leap_alone(self, block: Block, count: int) -> tuple[int, int]:
        """Ticks of a network of one node, which sends nothing."""
        for _ in range(count):
            self._solve(block, _nodes(block), _edges(block))
            block.exchanges += 1
        block.iterates += count
        return 0, 0

    def _letters(self, block: Block) -> moves.PushMessages:
        count = len(block.links.target) if self.everyone else block.k
        return moves.PushMessages(
            np.full(count, -1, dtype=np.int64), np.empty((count, block.s.shape[1])), np.zeros(count), np.zeros(count)
        )

    def _push(self, block: Block, t: int, nodes: moves.Nodes, edges: moves.Edges) -> MessageBatch:
        letters, width = self._letters(block), block.s.shape[1]
        block.team.run(
            moves.push, block.k, width, nodes, edges, self.everyone, block.seed, block.exchanges, letters
        )  # fmt: skip
        senders = np.arange(block.k)
        if self.everyone:
            senders = np.repeat(senders, np.diff(edges.ptr))
        messages = make_messages(
            block, t, senders + block.first, letters.along, letters.vector, letters.rho, letters.tau
        )  # fmt: skip
        return messages._replace(seq=messages.seq + (edges.epoch[letters.along[letters.along >= 0]] << EPOCH_SHIFT))

    def _open(self, block: Block) -> None:
        """Begin, unless that was done: alpha = 0; every edge at its end's wish for a penalty and at the node's w."""
        if "dual" in block.edge:
            edge_liveness.complete(block.edge)
            return
        links, rows, ends = block.links, _rows(block), len(block.links.target)
        rho, curve = moves.wishes(rows, multiplicity(block.rows.mass, rows.start), links.indptr, self.lam)
        if self.rho is not None:
            rho[:] = self.rho
        counts = {name: np.zeros(ends, dtype=np.int64) for name in ("changes", "epoch", "since", *edge_liveness.ENDS)}
        block.edge.update(
            dual=np.zeros((block.w.shape[1], len(rows.order))),
            rest=np.zeros((block.w.shape[1], len(rows.order)), dtype=np.uint8), curve=curve, R=np.zeros(block.k),
            tau=np.zeros(block.k), stir=np.full(block.w.shape[:2], STIR), intercept=np.zeros(block.w.shape[:2]),
            z=np.zeros((ends, block.s.shape[1])), rho=rho,
            strain=np.zeros(ends), open=np.ones(ends, dtype=np.bool_), due=np.zeros(ends, dtype=np.bool_),
            agreed=np.full(ends, self.rho is not None), seen=np.full(ends, block.exchanges - 2, dtype=np.int64),
            ease=np.ones(ends), **counts,
        )  # fmt: skip
        if block.rows.intercept_unit:
            block.w[..., -1] /= block.rows.intercept_unit
        if len(rows.pairs):
            block.edge["rest"][rows.unseen()] = NEVER
        before = block.flat.copy()
        moves.begin(_nodes(block), _edges(block))
        if self.lone:  # w = (v + R anchor) / (n lam + R), and v is 0 here
            times = multiplicity(block.rows.mass, rows.start)
            R = np.array([PROXIMAL_UNITS * float(rows.norm2 @ times) / max(float(times.sum()), 1e-300)])
            block.edge["anchor"], block.edge["R"][:] = before, R
            block.flat[:] = before * (R / (curve + R))[:, None] if R.any() else 0.0

    def drop(self, block: Block, node: int, other: int) -> None:
        """``node`` takes ``other`` for dead, whether or not it is: what a failure detector of its own would tell it."""
        i, edges = node - block.first, _edges(block)
        mine = np.arange(edges.ptr[i], edges.ptr[i + 1])
        for e in mine[(edges.target[mine] == other) & edges.open[mine]].tolist():
            edge_liveness.drop(_nodes(block), edges, i, e)

    def set_neighbours(self, block: Block, neighbours: Ints) -> None:
        """Other neighbours for a block of one node. Edges to those of before are dropped, and their epochs kept."""
        before, links = block.links.target, Links.alone(np.union1d(block.links.target, neighbours).astype(np.int32))
        if "dual" not in block.edge:
            block.links = Links.alone(neighbours.astype(np.int32))
            return
        edge_liveness.complete(block.edge)
        block.links, new = links, ~np.isin(links.target, before)
        rows = _rows(block)
        times = multiplicity(block.rows.mass, rows.start)
        wish, block.edge["curve"][:] = moves.wishes(rows, times, links.indptr, self.lam)
        for name in _ENDS:
            old = block.edge[name]
            block.edge[name] = np.zeros((len(new), *old.shape[1:]), dtype=old.dtype)
            block.edge[name][~new] = old
        block.edge["rho"][new] = wish[new] if self.rho is None else self.rho
        block.edge["seen"][new] = -2
        nodes, edges, wanted = _nodes(block), _edges(block), np.isin(links.target, neighbours)
        for e in np.flatnonzero(edges.open & ~wanted).tolist():
            edge_liveness.drop(nodes, edges, 0, e)
            block.edge["since"][e] = block.exchanges
        for e in np.flatnonzero(wanted & ~edges.open).tolist():
            edge_liveness.reopen(nodes, edges, 0, e)
            edges.epoch[e] -= new[e]  # both ends begin at epoch 0
            edges.agreed[e] = self.rho is not None or not new[e]
            edges.ease[e] = 1.0 if new[e] else edges.ease[e]
        self._forget(block)

    def reset_edge(self, block: Block, other: int) -> None:
        """A neighbour was started anew and counts from the beginning; what it says of its edge replaces what was."""
        if "dual" in block.edge:
            same = block.links.target == other
            block.edge["seen"][same] = (block.edge["epoch"][same] << EPOCH_SHIFT) - 2

    def _forget(self, block: Block) -> None:
        """Let go of edges dropped long ago: their epoch is found again when the other end speaks, if it ever does."""
        closed = np.flatnonzero(~block.edge["open"])
        oldest = closed[np.argsort(block.edge["since"][closed], kind="stable")][: max(0, len(closed) - FORMER)]
        if len(oldest):
            for name in _ENDS:
                block.edge[name] = np.delete(block.edge[name], oldest, axis=0)
            block.links = Links.alone(np.delete(block.links.target, oldest))

    def counted(self, block: Block) -> NDArray[np.bool_]:
        """Which ends are not closed: their neighbours' rows pull at the models."""
        return block.edge.get("open", np.ones(len(block.links.target), dtype=np.bool_))

    def duals(self, block: Block) -> Floats:
        """alpha of every output and row, with 0 <= alpha_r <= c_r: what a certificate is made of."""
        dual = block.edge.get("dual")
        return np.zeros((block.w.shape[1], len(block.rows.order))) if dual is None else dual


def _work(block: Block) -> int:
    """The numbers a node touches in a tick."""
    return int(max(block.s.shape[1], len(block.rows.data) // max(block.k, 1)))


def _edges(block: Block) -> moves.Edges:
    own = block.edge
    return moves.Edges(
        block.links.indptr, block.links.target, own["z"], own["rho"], own["open"], own["due"], own["agreed"],
        own["changes"], own["epoch"], own["seen"], own["strain"], own["ease"],
    )  # fmt: skip


def _nodes(block: Block) -> moves.Nodes:
    own = block.edge
    return moves.Nodes(
        block.alive, block.first, block.flat, own["curve"], own["R"], own["tau"], own["stir"], own["intercept"]
    )


def _rows(block: Block) -> DualRows:
    """The block's rows, node after node, with their bounds; a copy is made once."""
    if "rows" not in block.scratch:
        unit, rows = block.rows.intercept_unit, dual_rows(block)
        rows = rows.with_constant(unit) if unit else rows
        block.scratch["rows"] = rows.grouped()
        block.scratch["turn"] = np.zeros(len(block.rows.order), dtype=np.int64)
    made: DualRows = block.scratch["rows"]
    return made


def _back(block: Block) -> Ints:
    """The other end of every edge, where all ends are here."""
    if "back" not in block.scratch:
        block.scratch["back"] = leaps.turned(block.links.indptr, block.links.target)
    back: Ints = block.scratch["back"]
    return back


def _move_anchor(block: Block, nodes: moves.Nodes) -> None:
    """The proximal point method: a lone node solves f(w) + R/2 |w - anchor|^2, then moves the anchor to w.

    This is what edges do for other nodes: without it dual coordinate ascent is slow on features of unequal size.
    w = (v + R anchor) / (n lam + R) holds before and after.
    """
    before, anchor = nodes.w.copy(), block.edge["anchor"]
    nodes.w[:] += (nodes.R / (nodes.curve + nodes.R))[:, None] * (before - anchor)
    anchor[:] = before


class Pdmm(BaseAlgorithm):
    """The primal-dual method of multipliers over gossip push: every node at the optimum of the pooled rows.

    Parameters
    ----------
    penalty : float or "auto"
        rho, the penalty of disagreement on every edge. "auto": each end wishes one from its own rows, the edge starts
        at their mean, and the end with the lower number doubles or halves it as the two ends strain
        against it.
    passes : int or None
        Passes of dual coordinate ascent over a node's rows in a tick. None: one with one neighbour, two with all.
    neighbours : 1 or "all"
        Push to one neighbour a tick, in a random order that comes to each in turn, or to every one.
    theta : float or None
        How far to go towards what a neighbour pushed. None: with one neighbour 1, or 0.8 if the same one pushed in the
        tick before; with all 0.85.
    """

    average = False  # the models are the last iterates
    certifies = True
    omits_unused_columns = True  # features that occur nowhere make no difference, to the last bit

    def __init__(
        self,
        penalty: float | str = "auto",
        passes: int | None = None,
        neighbours: int | str = 1,
        theta: float | None = None,
    ) -> None:
        self.penalty = penalty
        self.passes = passes
        self.neighbours = neighbours
        self.theta = theta

    def with_transition_of(self, network: Network) -> Network:
        """The network as it is: neighbours take turns, whatever a transition matrix says."""
        return network

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None  # noqa: ARG002
    ) -> PdmmRun:  # fmt: skip
        """The algorithm on this network; there is no ball, loss needs no care, and nobody needs the shards' sizes."""
        if network.directed:
            raise ValueError(
                f"PDMM needs both ends of an edge to hear each other, and {network.name!r} is directed: "
                "use an undirected topology such as 'random-regular', or algorithm='gadget'"
            )
        network.refuse_matrix("PDMM")
        spectral.check_connected(network)
        everyone = self.neighbours == "all"
        passes = (ALL_PASSES if everyone else 1) if self.passes is None else self.passes
        if isinstance(passes, bool) or not hasattr(passes, "__index__") or passes < 1:
            raise ValueError(f"passes must be a whole number of at least 1, got {self.passes!r}")
        if isinstance(self.neighbours, bool) or self.neighbours not in (1, "all"):
            raise ValueError(f"neighbours is 1 or 'all', got {self.neighbours!r}")
        theta = (ALL_THETA if everyone else 1.0) if self.theta is None else self.theta
        if not _is_number(theta) or not 0 < theta <= 1:
            raise ValueError(f"theta is a number above 0 and at most 1, got {self.theta!r}")
        again = AGAIN if self.theta is None and not everyone else theta
        return PdmmRun(
            lam, _penalty(self.penalty), int(passes), everyone, float(theta), float(again), lone=network.n == 1
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _penalty(penalty: Any) -> float | None:
    if isinstance(penalty, str) and penalty == "auto":
        return None
    if not _is_number(penalty) or not 0 < penalty < np.inf:
        raise ValueError(f"penalty is a positive number or 'auto', got {penalty!r}")
    return float(penalty)
