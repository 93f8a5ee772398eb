"""PDMM by gossip push: the primal-dual method of multipliers, one vector one way to a random neighbour per tick.

Linear, without bias, on undirected graphs. Owns the algorithm and its settings; `kernels.pdmm` owns the arithmetic.

Node i's objective is f_i(w) = n_i lam/2 |w|^2 + sum over its rows of c_r hinge, so that any connected set of nodes has
as its optimum the SVM of its rows: neither the number of rows nor of nodes is needed. With A_ij = +1 if i < j else -1,
one rho_ij an edge, R_i = sum_j rho_ij, S_i = sum_j A_ij z_ij and v_i = sum_r alpha_r y_r x_r, a tick is

    w_i     = (v_i - S_i) / (n_i lam + R_i)                                          (a)
    alpha_r <- clip[0, c_r](alpha_r + (1 - y_r x_r.w_i) (n_i lam + R_i) / |x_r|^2)   (b)  one pass, w_i moves along
    push      y_ij = z_ij + 2 rho_ij A_ij w_i                                        (c)
    receive   z_ji <- (1 - theta) z_ji + theta y_ij                                  (d)

Where nothing moves, z_ji = z_ij + 2 rho A_ij w_i and its mirror image give w_i = w_j, and as
A_ij z_ij + rho w_i = -(A_ji z_ji + rho w_j) the sum over all nodes of n_i lam w_i - v_i is zero: the pooled optimum,
whatever z was at the start. So nothing is lost with a message: the next one holds all there is to say.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from gadget_svm import gossip, spectral
from gadget_svm.block import Block
from gadget_svm.gossip.protocol import arranged, draw_edges, post
from gadget_svm.kernels import pdmm as moves
from gadget_svm.kernels.dual import DualRows, multiplicity
from gadget_svm.mail import Delivery, Mail
from gadget_svm.network import Network

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

AGAIN = 0.8
"""theta where a neighbour pushes in two ticks running: it has hardly heard an answer in between. Where every tick
brings mail from all sides, as at the hub of a star, a single pass is too inexact for theta = 1, and w never settles."""
PATIENCE = 10
"""Exchanges for which an edge is kept although one of its ends is away: short absences change nothing."""


@dataclass(frozen=True)
class PdmmRun:
    """PDMM with every choice made. ``block.s`` is S, ``block.edge`` holds alpha and the ends of all edges."""

    lam: float
    rho: float | None  # None: from the rows, and adapting
    passes: int
    everyone: bool  # push to all neighbours every tick, not to one
    theta: float
    again: float  # theta for mail right after other mail of the same sender
    average: bool = False

    def iteration(self, block: Block, t: int) -> gossip.Round:
        """Tick t on every node of the block: solve (a, b), push (c), receive (d)."""
        if "dual" not in block.edge:
            self._open(block)
        nodes, edges, rows, width = _nodes(block), _edges(block), _rows(block), block.s.shape[1]
        block.team.run(
            moves.solve, block.k, max(width, len(rows.data) // max(block.k, 1)), nodes, edges, block.w,
            block.edge["dual"], block.edge["turn"], rows, self.theta, self.passes, block.seed, t,
        )  # fmt: skip
        delivery = yield self._push(block, t, nodes, edges)
        mail, (order, start) = delivery.mail, arranged(block, delivery.mail)
        note = mail.weight if mail.note is None else mail.note
        block.team.run(
            moves.listen, block.k, width, nodes, edges, order, start, mail.sender, mail.seq, mail.vector, mail.weight,
            note, self.theta, self.again, self.rho is None,
        )  # fmt: skip
        _presence(block, delivery, nodes, edges)
        block.iterates[block.alive] += 1

    def can_leap(self, block: Block) -> bool:  # noqa: ARG002
        """No: a tick is long enough for Python not to matter."""
        return False

    def leap(self, block: Block, count: int) -> int:
        """Refused, see `can_leap`."""
        raise NotImplementedError("PDMM has no compiled leap: call `iteration`")

    def _push(self, block: Block, t: int, nodes: moves.Nodes, edges: moves.Edges) -> Mail:
        if self.everyone:
            senders = np.repeat(np.arange(block.k), np.diff(edges.ptr))
            chosen = np.where(block.alive[senders] & edges.open, np.arange(len(senders)), -1)
        else:
            senders, chosen = np.arange(block.k), draw_edges(block)
            moves.aim(edges, chosen)
        vector = np.empty((len(chosen), block.s.shape[1]))
        block.team.run(moves.push, len(chosen), vector.shape[1], nodes, edges, senders, chosen, vector)
        rho = edges.rho[chosen] if len(edges.rho) else np.zeros(len(chosen))
        return post(block, t, senders + block.first, chosen, vector, rho, nodes.tau[senders])

    def _open(self, block: Block) -> None:
        """alpha = 0; every edge at its end's wish for a penalty and at the node's own w."""
        links, rows, ends = block.links, DualRows.of(block.rows, 1.0), len(block.links.target)
        rho, curve = np.zeros(ends), np.zeros(block.k)
        moves.wishes(0, block.k, rows, multiplicity(block.rows.mass, rows.start), links.indptr, self.lam, rho, curve)
        if self.rho is not None:
            rho[:] = self.rho
        block.edge.update(
            dual=np.zeros((block.w.shape[1], len(rows.order))), turn=np.zeros(len(rows.order), dtype=np.int64),
            upper=rows.upper, norm2=rows.norm2, curve=curve, R=np.zeros(block.k), tau=np.zeros(block.k),
            z=np.zeros((ends, block.s.shape[1])),
            heard=np.zeros((ends if self.theta < 1 else 0, block.s.shape[1])),
            rho=rho, open=np.ones(ends, dtype=np.bool_), agreed=np.full(ends, self.rho is not None),
            changes=np.zeros(ends, dtype=np.int64), seen=np.full(ends, block.exchanges - 2, dtype=np.int64),
            strain=np.zeros(ends), absent=np.zeros(ends, dtype=np.int64),
            since=np.zeros(ends, dtype=np.int64),
        )  # fmt: skip
        moves.begin(0, block.k, _nodes(block), _edges(block))


def _edges(block: Block) -> moves.Edges:
    own = block.edge
    return moves.Edges(
        block.links.indptr, block.links.target, own["z"], own["heard"], own["rho"], own["open"], own["agreed"],
        own["changes"], own["seen"], own["strain"],
    )  # fmt: skip


def _nodes(block: Block) -> moves.Nodes:
    own = block.edge
    return moves.Nodes(block.alive, block.first, block.flat, block.s, own["curve"], own["R"], own["tau"])


def _rows(block: Block) -> DualRows:
    own, edge = block.rows, block.edge
    return DualRows(own.indptr, own.indices, own.data, own.label, own.order, own.start, edge["upper"], edge["norm2"])


def _presence(block: Block, delivery: Delivery, nodes: moves.Nodes, edges: moves.Edges) -> None:
    """Take down who left and who came back; drop edges whose other end is gone for long, reopen those of the returned.

    Both ends learn of an absence at the same exchange and so drop an edge together. The end that stayed reopens it
    with z = -rho A w of its own, and the one that was away when it hears from there; if both were, the owner stayed.
    """
    away = block.edge["absent"]
    if not (delivery.left or delivery.joined or away.any()) and block.alive.all():
        return
    here = np.repeat(np.arange(block.k), np.diff(edges.ptr))
    before = (away > 0) | ~block.alive[here]
    block.note_presence(delivery)
    for node in delivery.left:
        away[edges.target == node] += 1
    for node in delivery.joined:
        away[edges.target == node] -= 1
    broken = (away > 0) | ~block.alive[here]
    since = block.edge["since"]
    since[broken & ~before] = block.exchanges
    for e in np.flatnonzero(broken & edges.open & (block.exchanges - since >= PATIENCE)).tolist():
        moves.close_edge(nodes, edges, here[e], e)
        edges.seen[e] = block.exchanges - 1  # what was sent before must not open it again
    for e in np.flatnonzero(before & ~broken & ~edges.open).tolist():
        i, other = here[e], edges.target[e]
        me = block.first + i
        if me not in delivery.joined or (other in delivery.joined and me < other):
            moves.open_edge(nodes, edges, i, e, -edges.rho[e] * moves.sign(me, other) * nodes.w[i], edges.rho[e])


class Pdmm(BaseEstimator):  # type: ignore[misc]
    """The primal-dual method of multipliers over gossip push: every node at the optimum of the pooled rows.

    Parameters
    ----------
    penalty : float or "auto"
        rho, the penalty of disagreement on every edge. "auto": each end wishes one from its own rows, the edge starts
        at their mean, and the end with the lower number doubles or halves it as the two ends strain
        against it.
    passes : int
        Passes of dual coordinate ascent over a node's rows in a tick.
    neighbours : 1 or "all"
        Push to one random neighbour a tick, or to every one.
    theta : float or None
        How far to go towards what a neighbour pushed. None: with one neighbour 1, or 0.8 if the same one pushed in the
        tick before; with all 0.7, for a single pass is too inexact for 1. Below 1 the last push of every neighbour is
        kept and approached tick by tick.
    """

    average = False  # the models are the last iterates

    def __init__(
        self, penalty: float | str = "auto", passes: int = 1, neighbours: int | str = 1, theta: float | None = None
    ) -> None:
        self.penalty = penalty
        self.passes = passes
        self.neighbours = neighbours
        self.theta = theta

    def weigh(self, network: Network) -> Network:
        """The network as it is: a neighbour is drawn by its transition matrix, whichever that is."""
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
        spectral.check_connected(network)
        if isinstance(self.passes, bool) or not hasattr(self.passes, "__index__") or self.passes < 1:
            raise ValueError(f"passes must be a whole number of at least 1, got {self.passes!r}")
        if isinstance(self.neighbours, bool) or self.neighbours not in (1, "all"):
            raise ValueError(f"neighbours is 1 or 'all', got {self.neighbours!r}")
        everyone = self.neighbours == "all"
        theta = (0.7 if everyone else 1.0) if self.theta is None else self.theta
        if not 0 < theta <= 1:
            raise ValueError(f"theta is above 0 and at most 1, got {self.theta!r}")
        again = AGAIN if self.theta is None and not everyone else theta
        return PdmmRun(lam, _penalty(self.penalty), int(self.passes), everyone, float(theta), float(again))


def _penalty(penalty: Any) -> float | None:
    if penalty == "auto":
        return None
    if isinstance(penalty, bool | str) or not 0 < penalty < np.inf:
        raise ValueError(f"penalty is a positive number or 'auto', got {penalty!r}")
    return float(penalty)
