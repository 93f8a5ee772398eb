"""Many ticks of PDMM in one compiled call, for blocks that hold all nodes, with all edges open and no lost messages.

Owns the order in which several threads work; `pdmm` does the arithmetic. The bits are the same as with messages.
Threads share the nodes to solve. If every node pushes to all neighbours, threads share the features to receive: the
update of one feature does not depend on the others, so a thread updates both ends of an edge at once, without any
message.
"""

import numpy as np

from gadget_svm.core.types import Floats, Ints
from gadget_svm.kernels import pdmm
from gadget_svm.kernels.compiler import allocation_free, compiled
from gadget_svm.kernels.pdmm import Edges, LocalProblems, Nodes, PushMessages, Steps
from gadget_svm.kernels.threads import BarrierGroup, wait_at_barrier

CHUNK_NUMBERS = 8192
"""How many numbers of all nodes' w a chunk of features holds: they, and the messages made from them, stay in a near
cache."""
MIN_CHUNK, MAX_CHUNK = 16, 512
"""The least and the most features in a chunk that stays in the cache."""
LARGE_CHUNK = 2048
"""Features in a chunk if there are too many nodes for MIN_CHUNK. Nothing stays in the cache then, and many short pieces
of rows, which lie far apart in memory, would take even longer to read."""


def reverse_edges(ptr: Ints, target: Ints) -> Ints:
    """Return the number of the other end of every edge, for a block that holds all nodes."""
    reverse = np.empty(len(target), dtype=np.int64)
    reverse[np.lexsort((pdmm.segments(ptr), target))] = np.arange(len(target))
    return reverse


@allocation_free
def push_ticks(
    lo: int, hi: int, group: BarrierGroup, nodes: Nodes, edges: Edges, local: LocalProblems, reverse: Ints,
    steps: Steps, clock: int, messages: PushMessages, count: int,
) -> None:  # fmt: skip
    """Do ``count`` ticks with one neighbour each: all nodes solve and push, then all receive, by ascending sender."""
    for step in range(count):
        for i in range(lo, hi):
            pdmm.solve(i, i + 1, nodes, edges, local, clock + step)
            pdmm.push(i, i + 1, nodes, edges, False, local.seed, clock + step, messages)
        wait_at_barrier(group, 2 * step + 1)
        for i in range(lo, hi):
            for e in range(edges.ptr[i], edges.ptr[i + 1]):
                m = edges.target[e]
                if messages.edge[m] == reverse[e]:
                    y, rho, tau = messages.vector[m], messages.rho[m], messages.tau[m]
                    pdmm.receive_message(nodes, edges, i, e, clock + step, y, rho, tau, steps)
        wait_at_barrier(group, 2 * step + 2)


@compiled
def broadcast_ticks(
    lo: int, hi: int, group: BarrierGroup, nodes: Nodes, edges: Edges, local: LocalProblems, reverse: Ints,
    steps: Steps, clock: int, rho_sent: Floats, updates: Floats, count: int,
) -> None:  # fmt: skip
    """Do ``count`` ticks with all neighbours: all nodes solve, update penalties, and receive.

    ``rho_sent`` is the rho of each end when it sends; ``updates`` holds what `update_edge` needs of each end.
    """
    width = nodes.w.shape[1]
    begin, end = width * group.number // group.size, width * (group.number + 1) // group.size
    near = CHUNK_NUMBERS // max(len(nodes.w), 1)
    chunk = min(MAX_CHUNK, near) if near >= MIN_CHUNK else LARGE_CHUNK
    before = np.empty((len(nodes.w), chunk))
    for step in range(count):
        pdmm.solve(lo, hi, nodes, edges, local, clock + step)
        for e in range(edges.ptr[lo], edges.ptr[hi]):  # one by one: numba takes a second to compile a slice's errors
            rho_sent[e] = edges.rho[e]
        wait_at_barrier(group, 3 * step + 1)
        for i in range(lo, hi):
            for e in range(edges.ptr[i], edges.ptr[i + 1]):
                adopted, mismatch, kappa, adapted = pdmm.update_penalty(
                    nodes, edges, i, e, rho_sent[reverse[e]], nodes.tau[edges.target[e]], steps.adapt
                )
                theta = steps.theta if clock + step > edges.last_seq[e] + 1 else steps.theta_repeat
                updates[e, 0], updates[e, 1], updates[e, 2] = adopted, mismatch, theta
                updates[e, 3], updates[e, 4] = kappa, adapted
                edges.last_seq[e] = clock + step
        wait_at_barrier(group, 3 * step + 2)
        for first in range(begin, end, chunk):
            receive_features(first, min(first + chunk, end), nodes, edges, reverse, rho_sent, updates, before)
        wait_at_barrier(group, 3 * step + 3)


@allocation_free
def receive_features(
    first: int, last: int, nodes: Nodes, edges: Edges, reverse: Ints, rho_sent: Floats, updates: Floats, before: Floats
) -> None:
    """Apply what all nodes send to all neighbours about the features first:last; ``before`` is room for their w.

    Edges are taken by their lower end, in order, so every node receives from its neighbours in ascending order. One
    loop is `update_edge` at both ends: node i's end e, and the other end m of node j.
    """
    for i in range(len(nodes.w)):
        for q in range(last - first):
            before[i, q] = nodes.w[i, first + q]
    for i in range(len(nodes.w)):
        for e in range(edges.ptr[i], edges.ptr[i + 1]):
            j, m = edges.target[e], reverse[e]
            if j < i:
                continue
            A, B = pdmm.edge_sign(i, j), pdmm.edge_sign(j, i)
            w_i, z_i, old_i, pull_i = nodes.w[i, first:last], edges.z[e, first:last], before[i], 2.0 * A * rho_sent[e]
            w_j, z_j, old_j, pull_j = nodes.w[j, first:last], edges.z[m, first:last], before[j], 2.0 * B * rho_sent[m]
            rise_i, mismatch_i, theta_i, step_i = updates[e, 0] * A, updates[e, 1], updates[e, 2], A / updates[e, 3]
            rise_j, mismatch_j, theta_j, step_j = updates[m, 0] * B, updates[m, 1], updates[m, 2], B / updates[m, 3]
            for q in range(len(w_i)):
                y_i, y_j = z_i[q] + pull_i * old_i[q], z_j[q] + pull_j * old_j[q]
                z_i[q], w_i[q] = pdmm.updated(z_i[q], w_i[q], y_j, rise_i, mismatch_i, theta_i, step_i)
                z_j[q], w_j[q] = pdmm.updated(z_j[q], w_j[q], y_i, rise_j, mismatch_j, theta_j, step_j)
            pdmm.raise_penalty(w_i, z_i, updates[e, 4] * A)
            pdmm.raise_penalty(w_j, z_j, updates[m, 4] * B)
