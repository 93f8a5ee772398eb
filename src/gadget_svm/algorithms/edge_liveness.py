"""A failure detector for PDMM's edges, on ticks: which neighbours that are away count as dead, and what follows.

Owns the decision, from the notices of a `Delivery`; `kernels.pdmm` owns the arithmetic of an edge.

An edge whose other end is away still carries its last z, and with it the pull of that node's rows, so the others stay
at the optimum of all rows. To drop it moves the optimum and disturbs both ends. So an edge is dropped late, by an
accrual rule (Hayashibara et al., 2004): every end keeps the number and the mean of its neighbour's silences that ended,
and drops the edge when the present silence is far outside that distribution. Every drop that turns out wrong, because
the neighbour returns, doubles the patience of that end. A neighbour that never returns is dropped after PATIENCE ticks
if it has no history of absences, and after LONGEST_PATIENCE at most, both counted in ticks in which the node itself is
here. Then the pull fades for FADE_TICKS before the edge is closed: at once it would throw the node far off.

A node that returns has all its edges as it left them. It learns of drops from the higher epochs of its neighbours; then
both ends approach each other in small steps (``ease``).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery
from gadget_svm.kernels import pdmm as moves

PATIENCE, LONGEST_PATIENCE = 100, 1000
"""Ticks of silence after which a neighbour counts as dead: at least, and at most."""
FAR = 12.0
"""A silence is far outside a distribution where it is this many times the mean: silences that end at random, with the
same probability in every tick, are longer with a probability of exp(-12)."""
FIRST_SILENCE = 8.0
"""Before any silence has ended, the mean is that of one of so many ticks."""
FADE_TICKS, FADE = 100, 0.05
"""The pull of a dead neighbour's edge fades by this part in each of so many ticks."""

ENDS = ("absent", "silence", "silences", "silent", "wrong")
"""What is counted for every end of an edge: for how many reasons the neighbour is away, the ticks of the present
silence, the number and the total of those that ended, and how often it came back after the edge had begun to fade."""


def note_absences(block: Block, delivery: Delivery, nodes: moves.Nodes, edges: moves.Edges) -> None:
    """Note who left and who is back; drop the edges to those that count as dead, reopen those to the returned."""
    own = block.edge
    absent, silence = own["absent"], own["silence"]
    block.note_presence(delivery)
    if not (delivery.left or delivery.joined or absent.any()):
        return
    before = absent > 0
    for node in delivery.left:
        absent[edges.target == node] += 1
    for node in delivery.joined:
        absent[edges.target == node] -= 1
    here = np.repeat(np.arange(block.k), np.diff(edges.ptr))
    _end_silences(block, delivery, nodes, edges, np.flatnonzero(before & (absent == 0)), here)
    silence[(absent > 0) & block.alive[here]] += 1
    late = silence - patience(block)
    for e in np.flatnonzero((absent > 0) & block.alive[here] & edges.open & (late >= 0)).tolist():
        if late[e] < FADE_TICKS:
            moves.fade_edge(nodes, edges, here[e], e, FADE)
        else:
            drop(nodes, edges, here[e], e)


def complete(edge: dict[str, NDArray[Any]]) -> None:
    """Add what checkpoints of earlier versions do not hold."""
    if "ease" not in edge:
        ends = len(edge["rho"])
        edge |= {name: np.zeros(ends, dtype=np.int64) for name in ENDS if name not in edge}
        edge["ease"] = np.ones(ends)
    if "intercept" not in edge:
        edge["intercept"] = np.zeros_like(edge["stir"])


def patience(block: Block) -> NDArray[np.int64]:
    """The ticks of silence after which the neighbour at each end counts as dead."""
    own = block.edge
    mean = (FIRST_SILENCE + own["silent"]) / (1 + own["silences"])
    doubled = np.maximum(PATIENCE, np.ceil(FAR * mean)) * 2.0 ** np.minimum(own["wrong"], 10)
    return np.asarray(np.minimum(doubled, LONGEST_PATIENCE), dtype=np.int64)


def _end_silences(
    block: Block, delivery: Delivery, nodes: moves.Nodes, edges: moves.Edges, ended: NDArray[np.int64],
    here: NDArray[np.int64],
) -> None:  # fmt: skip
    """Count the silences that ended. What was dropped, or had begun to fade, goes on at a higher epoch.

    A closed edge is reopened by the end that was here; where both were away, by the one with the lower number.
    """
    own = block.edge
    late = own["silence"][ended] >= patience(block)[ended]
    own["wrong"][ended[late]] += 1
    own["silences"][ended] += 1
    own["silent"][ended] += own["silence"][ended]
    own["silence"][ended] = 0
    for e in ended[late | ~edges.open[ended]].tolist():
        i, other = here[e], edges.target[e]
        me = block.first + i
        if edges.open[e]:
            edges.epoch[e], edges.ease[e] = edges.epoch[e] + 1, moves.FIRST_EASE
        elif block.alive[i] and (me not in delivery.joined or (other in delivery.joined and me < other)):
            reopen(nodes, edges, i, e)


def reopen(nodes: moves.Nodes, edges: moves.Edges, i: int, e: int) -> None:
    """Open an edge at z = -rho A w of its own, as if both ends agreed, and raise its epoch."""
    A, rho = moves.sign(nodes.first + i, edges.target[e]), edges.rho[e]
    moves.open_edge(nodes, edges, i, e, -rho * A * nodes.w[i], rho)
    edges.epoch[e] += 1


def drop(nodes: moves.Nodes, edges: moves.Edges, i: int, e: int) -> None:
    """Close an edge and raise its epoch: what was sent before must not open it again."""
    moves.close_edge(nodes, edges, i, e)
    edges.epoch[e] += 1
