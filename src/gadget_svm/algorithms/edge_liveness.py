"""A failure detector for PDMM's edges, with ticks as its clock. It decides which absent neighbours count as dead.

Owns the decision, from what a `Delivery` says; `kernels.pdmm` owns the arithmetic of an edge.

While a neighbour is away, the edge to it keeps its last z, and with z the pull of that neighbour's rows. So the other
nodes stay at the optimum of all rows. Dropping the edge moves the optimum and disturbs both ends. So an edge is dropped
late, by an accrual rule (Hayashibara et al., 2004): every end keeps the number and the mean length of its neighbour's
past silences, and drops the edge when the current silence is far outside that distribution. Each drop that turns out
wrong, because the neighbour returns, doubles the timeout of that end. A neighbour that never returns is dropped after
MIN_TIMEOUT_TICKS if it was never away before, and after MAX_TIMEOUT_TICKS at most. Only ticks in which the node itself
is live count. After the timeout the pull fades for FADE_TICKS before the edge is closed: a sudden drop would move the
node far away.

A node that returns has all its edges as it left them. It learns of drops from the higher epochs of its neighbours; then
both ends approach each other in small steps (``damping``).
"""

import numpy as np

from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery
from gadget_svm.core.types import Ints
from gadget_svm.kernels import pdmm as kernels

MIN_TIMEOUT_TICKS, MAX_TIMEOUT_TICKS = 100, 1000
"""The least and the most ticks of silence after which a neighbour counts as dead."""
TIMEOUT_PER_MEAN = 12.0
"""The timeout, as a multiple of the mean silence. If a silence ends with the same probability in every tick, it is
longer than the timeout with a probability of exp(-12)."""
PRIOR_SILENCE_TICKS = 8.0
"""A new edge starts with the mean of one silence of this length."""
FADE_TICKS, FADE_RATE = 100, 0.05
"""For FADE_TICKS ticks, each tick reduces the pull of a dead neighbour's edge by the share FADE_RATE."""

PER_END = ("absent", "silence", "n_silences", "total_silence", "wrong_drops")
"""Per end of an edge: for how many reasons the neighbour is away, the ticks of its current silence, the number and the
total of the silences that ended, and how often it came back after the edge had begun to fade."""


def update(block: Block, delivery: Delivery, nodes: kernels.Nodes, edges: kernels.Edges) -> None:
    """Note which nodes left or returned; fade and drop edges to dead nodes, reopen edges to nodes that returned."""
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
    owner = np.repeat(np.arange(block.k), np.diff(edges.ptr))
    _end_silences(block, delivery, nodes, edges, np.flatnonzero(before & (absent == 0)), owner)
    waiting = (absent > 0) & block.alive[owner]
    silence[waiting] += 1
    late = silence - timeout_ticks(block)
    for e in np.flatnonzero(waiting & edges.open & (late >= 0)).tolist():
        if late[e] < FADE_TICKS:
            kernels.fade_edge(nodes, edges, owner[e], e, FADE_RATE)
        else:
            drop(nodes, edges, owner[e], e)


def timeout_ticks(block: Block) -> Ints:
    """Return the ticks of silence after which the neighbour at each end counts as dead."""
    own = block.edge
    mean = (PRIOR_SILENCE_TICKS + own["total_silence"]) / (1 + own["n_silences"])
    ticks = np.maximum(MIN_TIMEOUT_TICKS, np.ceil(TIMEOUT_PER_MEAN * mean))
    return np.asarray(np.minimum(ticks * 2.0 ** np.minimum(own["wrong_drops"], 10), MAX_TIMEOUT_TICKS), dtype=np.int64)


def _end_silences(
    block: Block, delivery: Delivery, nodes: kernels.Nodes, edges: kernels.Edges, ended: Ints, owner: Ints
) -> None:
    """Count the silences that ended, and raise the epoch of edges that were dropped or had begun to fade.

    A closed edge is reopened by the end that was live; if both were away, by the one with the lower number.
    """
    own = block.edge
    late = own["silence"][ended] >= timeout_ticks(block)[ended]
    own["wrong_drops"][ended[late]] += 1
    own["n_silences"][ended] += 1
    own["total_silence"][ended] += own["silence"][ended]
    own["silence"][ended] = 0
    for e in ended[late | ~edges.open[ended]].tolist():
        i, other = owner[e], edges.target[e]
        node = block.first + i
        if edges.open[e]:
            edges.epoch[e], edges.damping[e] = edges.epoch[e] + 1, kernels.REOPENED_DAMPING
        elif block.alive[i] and (node not in delivery.joined or (other in delivery.joined and node < other)):
            reopen(nodes, edges, i, e)


def reopen(nodes: kernels.Nodes, edges: kernels.Edges, i: int, e: int) -> None:
    """Open an edge with z = -rho A w, where w is node i's, as if both ends agreed, and raise its epoch."""
    A, rho = kernels.edge_sign(nodes.first + i, edges.target[e]), edges.rho[e]
    kernels.open_edge(nodes, edges, i, e, -rho * A * nodes.w[i], rho)
    edges.epoch[e] += 1


def drop(nodes: kernels.Nodes, edges: kernels.Edges, i: int, e: int) -> None:
    """Close an edge and raise its epoch, so that messages sent before do not open it again."""
    kernels.close_edge(nodes, edges, i, e)
    edges.epoch[e] += 1
