"""The moves of PDMM on a block's edges: local solve, push, receive, change of penalty, opening and closing of an edge.

Owns the arithmetic. Three vectors are kept consistent by every move but the solve: z of the open edges,
S_i = sum_j A_ij z_ij, and w_i = (v_i - S_i) / (n_i lam + R_i), where v_i = sum_r alpha_r y_r x_r is never formed.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.dual import DualRows, ascend
from gadget_svm.kernels.gossip import find
from gadget_svm.kernels.vectors import sq_norm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

UNITS = 10.0
"""A node wishes its edges' penalties to add up to so many times lam sum |x_r|^2."""
STRAINED, SLACK = 3.0, 1.5
"""The owner doubles rho where the larger tau is above STRAINED rho, and halves it where it is below rho / SLACK."""
CARRIED = 0.25
"""The part of its neighbours' largest tau that a node announces, if its own is less. Without it edges between nodes
of few rows starve, and a line of such nodes separates those at its ends."""
MOST_CHANGES = 20
"""An edge's penalty is changed so often at most: from then on it is plain PDMM, which converges."""


class Edges(NamedTuple):
    """Node i's ends of its edges are ptr[i]:ptr[i+1], by ascending target; everything else is per end."""

    ptr: Ints
    target: Ints
    z: Floats
    heard: Floats  # the last y, where it is damped; else empty
    rho: Floats
    open: Flags  # whether it counts in R and S
    agreed: Flags  # whether both ends have settled on one rho
    changes: Ints
    seen: Ints  # the sequence number of the newest mail; what is not newer is ignored
    strain: Floats  # tau as the other end last announced it


class Nodes(NamedTuple):
    """What a node holds beside its edges; ``curve`` is n_i lam and ``R`` the sum of its open edges' rho."""

    alive: Flags
    first: int
    w: Floats  # flat: nodes x (outputs * features)
    S: Floats
    curve: Floats
    R: Floats
    tau: Floats


@compiled
def sign(me: int, other: int) -> float:
    """A_ij = +1 if i < j else -1."""
    return 1.0 if me < other else -1.0


@compiled
def total_penalty(edges: Edges, i: int) -> float:
    """R_i, in the order of the edges."""
    total = 0.0
    for e in range(edges.ptr[i], edges.ptr[i + 1]):
        if edges.open[e]:
            total += edges.rho[e]
    return total


@compiled
def turn_to(w: Floats, S: Floats, z: Floats, y: Floats, lack: float, theta: float, A: float, kappa: float) -> None:
    """z <- (1 - theta) z + theta (y + lack w); S and w move along."""
    for q in range(len(w)):
        new = (1.0 - theta) * z[q] + theta * (y[q] + lack * w[q])
        step = A * (new - z[q])
        z[q] = new
        S[q] += step
        w[q] -= step / kappa


@compiled
def set_penalty(nodes: Nodes, edges: Edges, i: int, e: int, rho: float) -> None:
    """z_ij <- z_ij - (rho' - rho) A_ij w_i: w_i stays where it is. A y that waits to be damped is corrected alike."""
    more = rho - edges.rho[e]
    edges.rho[e] = rho
    if not edges.open[e] or more == 0.0:
        return
    A, w, S, z = sign(nodes.first + i, edges.target[e]), nodes.w[i], nodes.S[i], edges.z[e]
    nodes.R[i] = total_penalty(edges, i)
    for q in range(len(w)):
        z[q] -= more * A * w[q]
        S[q] -= more * w[q]
    if len(edges.heard):
        y = edges.heard[e]
        for q in range(len(w)):
            y[q] -= more * A * w[q]  # y += (rho' - rho) A_sender w_own


@compiled
def solve(
    lo: int, hi: int, nodes: Nodes, edges: Edges, w: Floats, dual: Floats, turn: Ints, rows: DualRows, theta: float,
    passes: int, seed: int, t: int,
) -> None:  # fmt: skip
    """Damp what was heard, then warm-started passes of dual coordinate ascent, w moving along with alpha."""
    for i in range(lo, hi):
        if not nodes.alive[i]:
            continue
        kappa = nodes.curve[i] + nodes.R[i]
        if len(edges.heard):
            for e in range(edges.ptr[i], edges.ptr[i + 1]):
                if edges.open[e]:
                    A = sign(nodes.first + i, edges.target[e])
                    turn_to(nodes.w[i], nodes.S[i], edges.z[e], edges.heard[e], 0.0, theta, A, kappa)
        for c in range(w.shape[1]):
            target = 1 if w.shape[1] == 1 else c
            ascend(w[i, c], dual[c], turn, rows, i, target, kappa, passes, 0.0, seed, nodes.first + i, t * passes)
        nodes.tau[i] = strain(nodes, edges, i)


@compiled
def strain(nodes: Nodes, edges: Edges, i: int) -> float:
    """tau_i = 2 |v_i - n_i lam w_i| / (|w_i| d_i): the penalty at which the edges pull as hard as the rows do.

    v_i - n_i lam w_i is R_i w_i + S_i. A node with next to no pull of its own may yet stand between two that pull
    hard: it announces a part of what its neighbours do.
    """
    degree, pull, carried, w, S = 0, 0.0, 0.0, nodes.w[i], nodes.S[i]
    for e in range(edges.ptr[i], edges.ptr[i + 1]):
        if edges.open[e]:
            degree += 1
            carried = max(carried, CARRIED * edges.strain[e])
    for q in range(len(w)):
        part = nodes.R[i] * w[q] + S[q]
        pull += part * part
    length = np.sqrt(sq_norm(w))
    return max(carried, 2.0 * np.sqrt(pull) / (length * degree)) if length > 0.0 and degree > 0 else 0.0


@compiled
def aim(edges: Edges, drawn: Ints) -> None:
    """A node that drew a closed edge takes its next open one; without any it is silent."""
    for i in range(len(drawn)):
        if drawn[i] < 0 or edges.open[drawn[i]]:
            continue
        first, count, at = edges.ptr[i], edges.ptr[i + 1] - edges.ptr[i], drawn[i]
        drawn[i] = -1
        for step in range(1, count):
            e = first + (at - first + step) % count
            if edges.open[e]:
                drawn[i] = e
                break


@compiled
def push(lo: int, hi: int, nodes: Nodes, edges: Edges, senders: Ints, chosen: Ints, vector: Floats) -> None:
    """Message m of node senders[m] along edge chosen[m]: y_ij = z_ij + 2 rho_ij A_ij w_i."""
    for m in range(lo, hi):
        e, i = chosen[m], senders[m]
        if e < 0:
            continue
        factor = 2.0 * edges.rho[e] * sign(nodes.first + i, edges.target[e])
        for q in range(vector.shape[1]):
            vector[m, q] = edges.z[e, q] + factor * nodes.w[i, q]


@compiled
def listen(
    lo: int, hi: int, nodes: Nodes, edges: Edges, order: Ints, start: Ints, sender: Ints, seq: Ints, vector: Floats,
    penalty: Floats, tau: Floats, theta: float, again: float, adapt: bool,
) -> None:  # fmt: skip
    """What the neighbours push; old, repeated, returned or foreign mail is ignored.

    ``again`` is theta for mail that follows on other mail of the same sender without a tick between.
    """
    for i in range(lo, hi):
        for place in range(start[i], start[i + 1]):
            m = order[place]
            e = find(edges.target, edges.ptr[i], edges.ptr[i + 1], sender[m])
            if e >= 0 and seq[m] > edges.seen[e]:
                step = theta if seq[m] > edges.seen[e] + 1 else again
                edges.seen[e] = seq[m]
                hear(nodes, edges, i, e, vector[m], penalty[m], tau[m], step, adapt)


@compiled
def hear(
    nodes: Nodes, edges: Edges, i: int, e: int, y: Floats, theirs: float, tau: float, theta: float, adapt: bool
) -> None:
    """One message. The end with the lower id owns the penalty: it meets the other's first wish halfway and adapts."""
    own = nodes.first + i < edges.target[e]
    if not edges.open[e]:
        open_edge(nodes, edges, i, e, y, theirs)
        return
    mine = edges.rho[e]
    if not own:
        set_penalty(nodes, edges, i, e, theirs)
    elif not edges.agreed[e]:
        set_penalty(nodes, edges, i, e, 0.5 * (mine + theirs))
    edges.agreed[e], edges.strain[e] = True, tau
    A = sign(nodes.first + i, edges.target[e])
    lack = (edges.rho[e] - theirs) * -A  # y += (rho' - rho) A_sender w_own
    if len(edges.heard):
        for q in range(len(y)):
            edges.heard[e, q] = y[q] + lack * nodes.w[i, q]
    else:
        turn_to(nodes.w[i], nodes.S[i], edges.z[e], y, lack, theta, A, nodes.curve[i] + nodes.R[i])
    if own and adapt and mine == theirs and edges.changes[e] < MOST_CHANGES:
        strongest = max(nodes.tau[i], tau)
        if strongest > STRAINED * mine:
            set_penalty(nodes, edges, i, e, 2.0 * mine)
            edges.changes[e] += 1
        elif strongest < mine / SLACK:
            set_penalty(nodes, edges, i, e, 0.5 * mine)
            edges.changes[e] += 1


@compiled
def open_edge(nodes: Nodes, edges: Edges, i: int, e: int, y: Floats, rho: float) -> None:
    """Count an edge, with z = y: -rho A w_survivor, which is what the survivor's first message holds."""
    A, before = sign(nodes.first + i, edges.target[e]), nodes.curve[i] + nodes.R[i]
    edges.open[e], edges.agreed[e], edges.rho[e], edges.changes[e] = True, True, rho, 0
    nodes.R[i] = total_penalty(edges, i)
    kappa = nodes.curve[i] + nodes.R[i]
    for q in range(len(y)):
        edges.z[e, q] = y[q]
        nodes.S[i, q] += A * y[q]
        nodes.w[i, q] = (before * nodes.w[i, q] - A * y[q]) / kappa
    if len(edges.heard):
        edges.heard[e] = y


@compiled
def close_edge(nodes: Nodes, edges: Edges, i: int, e: int) -> None:
    """Count an edge no longer: R_i and S_i without it, v_i as it was."""
    A, before = sign(nodes.first + i, edges.target[e]), nodes.curve[i] + nodes.R[i]
    edges.open[e] = False
    nodes.R[i] = total_penalty(edges, i)
    kappa = nodes.curve[i] + nodes.R[i]
    for q in range(nodes.w.shape[1]):
        nodes.S[i, q] -= A * edges.z[e, q]
        nodes.w[i, q] = (before * nodes.w[i, q] + A * edges.z[e, q]) / kappa if kappa > 0.0 else 0.0


@compiled
def begin(lo: int, hi: int, nodes: Nodes, edges: Edges) -> None:
    """Every edge at z = -rho A w_own, as if both ends agreed on it; from w = 0 that is z = 0."""
    for i in range(lo, hi):
        nodes.R[i] = total_penalty(edges, i)
        kappa = nodes.curve[i] + nodes.R[i]
        for e in range(edges.ptr[i], edges.ptr[i + 1]):
            A = sign(nodes.first + i, edges.target[e])
            for q in range(nodes.w.shape[1]):
                edges.z[e, q] = -edges.rho[e] * A * nodes.w[i, q]
            if len(edges.heard):
                edges.heard[e] = edges.z[e]
        for q in range(nodes.w.shape[1]):
            nodes.S[i, q] = -nodes.R[i] * nodes.w[i, q]
            nodes.w[i, q] = -nodes.S[i, q] / kappa if kappa > 0.0 else 0.0


@compiled
def wishes(lo: int, hi: int, rows: DualRows, times: Floats, ptr: Ints, lam: float, rho: Floats, curve: Floats) -> None:
    """n_i lam, and the rho a node would choose from its own rows and degree: UNITS lam sum |x_r|^2 / d_i.

    It rides in every message; the two ends of an edge differ only until the first message each way.
    """
    for i in range(lo, hi):
        length2, count = 0.0, 0.0
        for p in range(rows.start[i], rows.start[i + 1]):
            length2 += times[p] * rows.norm2[p]
            count += times[p]
        curve[i] = lam * count
        for e in range(ptr[i], ptr[i + 1]):
            rho[e] = UNITS * lam * max(length2, 1e-300) / (ptr[i + 1] - ptr[i])
