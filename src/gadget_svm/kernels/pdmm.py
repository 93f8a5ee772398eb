"""The kernels of PDMM on a block's edges: local solve, push, receive, penalties, opening and closing of an edge.
Many ticks in one call are in `pdmm_fused`.

Every kernel keeps two vectors consistent: z of the open edges, and w_i = (v_i - S_i) / (n_i lam + R_i), where S_i =
sum_j A_ij z_ij and v_i = sum_r alpha_r y_r x_r. Neither S nor v is formed. A kernel reads only what it changes: on wide
data, these vectors take more time than the rows.

The intercept is the weight of a constant feature that every row has. All rows pull it the same way, so it needs a
larger penalty than features that few rows have. It is stored in units in which that feature has the value u
(`Rows.intercept_unit`) and not 1, so the penalty of an edge is 1 / u^2 times as strong for it. Its regulariser is n_i
lam u^2 in these units, and `solve` uses that. Between two solves all kernels use n_i lam, as for the other weights. The
next solve corrects this, with the intercept that it kept from the last solve.
"""

import math
from typing import NamedTuple

import numpy as np

from gadget_svm.core.types import Bytes, Flags, Floats, Ints
from gadget_svm.kernels.compiler import allocation_free, compiled
from gadget_svm.kernels.counter_rng import NEIGHBOUR, draw
from gadget_svm.kernels.dual import SKIP_ALWAYS, DualRows, active_rows, shrinking_pass
from gadget_svm.kernels.gossip import EPOCH_SHIFT, find

INITIAL_PENALTY = 14.0
"""The initial penalties of a node's edges add up to this multiple of lam sum |x_r|^2."""
RAISE_RATIO, LOWER_RATIO = 2.0, 2.0
"""The owner doubles rho if the larger tau is above RAISE_RATIO rho, and halves rho if that tau is below rho /
LOWER_RATIO."""
MAX_PER_SQUARE, MAX_PER_N_LAM, MIN_PER_N_LAM = 1.0, 1e4, 0.05
"""The initial sum is at most INITIAL_PENALTY times the larger of MAX_PER_SQUARE sum |x_r|^2 and MAX_PER_N_LAM n_i lam,
and at least MIN_PER_N_LAM n_i lam. Only lam > 1 with rows longer than 100, or rows shorter than 0.06, reach a bound."""
FORWARDED_TAU = 0.1
"""A node announces at least this part of its neighbours' largest tau. Without it the penalty of edges between nodes
with few rows goes to zero, and a line of such nodes separates the nodes at its ends."""
MAX_SKIPPED_PASSES = 30.0
"""A row is skipped for one pass per ``violation`` that its margin is on the right side of 1, and for at most this many
passes."""
TAU_INTERVAL_TICKS = 4
"""A node computes tau once in this many ticks: it has to read all its edges, and a change has an effect after a few
ticks."""
TAU_CHUNK = 4096
"""Numbers of w per chunk in `tension`, so that the chunk stays in a near cache while all edges are added."""
MAX_PENALTY_CHANGES = 20
"""The largest number of changes of an edge's penalty. After them the method is plain PDMM, which converges."""
REOPENED_DAMPING, DAMPING_GROWTH = 0.05, 1.1
"""The factor of theta on an edge that was reopened, and its growth with each message, up to 1. The pull of the other
end then returns in small parts, so that the nodes around it can follow."""


class Edges(NamedTuple):
    """Node i's ends of its edges are ptr[i]:ptr[i+1], by ascending target; the other arrays have an entry per end."""

    ptr: Ints
    target: Ints
    z: Floats
    rho: Floats
    open: Flags  # whether it counts in R and S
    reply_due: Flags  # closed here, but the other end still sends: answer with the current epoch
    agreed: Flags  # whether both ends have the same rho
    n_changes: Ints  # of rho
    epoch: Ints  # how often the edge was dropped or reopened, by either end
    last_seq: Ints  # of the newest message; others that are not newer are ignored
    neighbour_tau: Floats  # as last announced
    damping: Floats  # a factor of theta, below 1 for a while after the edge was reopened


class Nodes(NamedTuple):
    """The state of a node besides its edges."""

    alive: Flags
    first: int
    w: Floats  # flat: nodes x (outputs * features)
    n_lam: Floats  # n_i lam
    R: Floats  # the sum of rho over open edges
    tau: Floats
    violation: Floats  # nodes x outputs: mean |1 - margin| where an alpha moved, in a tick's first pass
    last_intercept: Floats  # nodes x outputs: after the last solve


class LocalProblems(NamedTuple):
    """The local problem of every node: its w and alpha for every output, its rows, and how it passes over them."""

    w: Floats  # nodes x outputs x features
    dual: Floats  # outputs x rows
    skip: Bytes  # for how many passes a row is skipped, outputs x rows
    perm: Ints  # room for the order of the rows
    rows: DualRows
    passes: int  # of dual coordinate ascent in a tick
    seed: int


class Steps(NamedTuple):
    """How far a message moves an edge."""

    theta: float
    theta_repeat: float  # if the same sender also sent in the tick before
    adapt: bool  # whether penalties adapt


class PushMessages(NamedTuple):
    """Messages: the sender's edge (-1: none), the vector y, and the penalty and tau that travel with it."""

    edge: Ints
    vector: Floats
    rho: Floats
    tau: Floats


@compiled
def edge_sign(node: int, other: int) -> float:
    """A_ij = +1 if i < j else -1."""
    return 1.0 if node < other else -1.0


@allocation_free
def open_edges(edges: Edges, i: int) -> tuple[float, int]:
    """R_i, added in the order of the edges, and how many edges are open."""
    total, count = 0.0, 0
    for e in range(edges.ptr[i], edges.ptr[i + 1]):
        if edges.open[e]:
            total += edges.rho[e]
            count += 1
    return total, count


@allocation_free
def updated(
    z: float, w: float, y: float, rise: float, mismatch: float, theta: float, per_kappa: float
) -> tuple[float, float]:
    """Return one feature's z and w after `update_edge`."""
    before = z - rise * w
    after = (1.0 - theta) * before + theta * (y + mismatch * w)
    return after, w - (after - before) * per_kappa


@allocation_free
def update_edge(
    w: Floats, z: Floats, y: Floats, adopted: float, mismatch: float, theta: float, A: float, kappa: float,
    adapted: float,
) -> None:  # fmt: skip
    """Set z <- (1 - theta) z + theta (y + mismatch w), and change w with it.

    rho rises by ``adopted`` before this step, and by ``adapted`` after it. Each rise subtracts (rise) A w from z, and
    leaves w unchanged.
    """
    rise, per_kappa = adopted * A, A / kappa
    for q in range(len(w)):
        z[q], w[q] = updated(z[q], w[q], y[q], rise, mismatch, theta, per_kappa)
    raise_penalty(w, z, adapted * A)


@allocation_free
def raise_penalty(w: Floats, z: Floats, rise: float) -> None:
    """z <- z - rise w."""
    if rise != 0.0:
        for q in range(len(w)):
            z[q] -= rise * w[q]


@allocation_free
def set_penalty(nodes: Nodes, edges: Edges, i: int, e: int, rho: float) -> float:
    """Change the rho of an open edge and return its rise. `update_edge` changes z accordingly."""
    rise = float(rho - edges.rho[e])
    if rise != 0.0:
        edges.rho[e] = rho
        nodes.R[i], _ = open_edges(edges, i)
    return rise


@allocation_free
def solve(lo: int, hi: int, nodes: Nodes, edges: Edges, local: LocalProblems, clock: int) -> None:
    """Do warm-started passes of dual coordinate ascent on every node; update w with alpha."""
    w, dual, skip, perm, rows, passes, seed = local
    for i in range(lo, hi):
        if not nodes.alive[i]:
            continue
        kappa, begin, end = nodes.n_lam[i] + nodes.R[i], rows.start[i], rows.start[i + 1]
        most, place = min(MAX_SKIPPED_PASSES * passes, SKIP_ALWAYS - 1.0), w.shape[2] - 1
        ratio = intercept_ratio(nodes.n_lam[i], nodes.R[i], rows.constant)
        for c in range(w.shape[1]):
            target = 1 if w.shape[1] == 1 else c
            if rows.constant > 0.0:
                w[i, c, place] = ratio * w[i, c, place] - (ratio - 1.0) * nodes.last_intercept[i, c]
            for done in range(passes):
                last = active_rows(perm, skip[c], begin, end, seed, nodes.first + i, clock * passes + done)
                unit = nodes.violation[i, c] / passes
                found = shrinking_pass(
                    w[i, c], dual[c], skip[c], perm, rows, begin, last, target, kappa, ratio, unit, most
                )
                if done == 0 and found > 0.0:
                    nodes.violation[i, c] = found
            nodes.last_intercept[i, c] = w[i, c, place]
        if (clock + nodes.first + i) % TAU_INTERVAL_TICKS == 0:
            nodes.tau[i] = tension(nodes, edges, i)


@compiled
def intercept_ratio(n_lam: float, R: float, unit: float) -> float:
    """Return n_i lam + R_i, divided by the same sum for the intercept: how much more easily the intercept moves."""
    own = n_lam * unit * unit + R
    return (n_lam + R) / own if own > 0.0 else 1.0


@compiled
def tension(nodes: Nodes, edges: Edges, i: int) -> float:
    """Return tau_i = 2 |v_i - n_i lam w_i| / (|w_i| d_i), the penalty at which the edges pull as hard as the rows.

    v_i - n_i lam w_i is R_i w_i + S_i. A node whose rows pull weakly may lie between two whose rows pull strongly, so
    it announces at least a part of its neighbours' largest tau.
    """
    degree, pull, forwarded, w, lo, hi = 0, 0.0, 0.0, nodes.w[i], edges.ptr[i], edges.ptr[i + 1]
    for e in range(lo, hi):
        if edges.open[e]:
            degree += 1
            forwarded = max(forwarded, FORWARDED_TAU * edges.neighbour_tau[e])
    length2, chunk = 0.0, np.empty(TAU_CHUNK)
    for begin in range(0, len(w), TAU_CHUNK):
        count = min(TAU_CHUNK, len(w) - begin)
        for q in range(count):
            chunk[q] = nodes.R[i] * w[begin + q]
        for e in range(lo, hi):
            if edges.open[e]:
                A, z = edge_sign(nodes.first + i, edges.target[e]), edges.z[e, begin:]
                for q in range(count):
                    chunk[q] += A * z[q]
        for q in range(count):  # one by one: leaving out unused features then changes no bit
            length2 += w[begin + q] * w[begin + q]
            pull += chunk[q] * chunk[q]
    if degree == 0 or length2 == 0.0:
        return 0.0
    return max(forwarded, float(2.0 * np.sqrt(pull / length2) / degree))


@allocation_free
def next_edge(first: int, degree: int, seed: int, node: int, clock: int) -> int:
    """Return one of a node's edges, in a random order that visits each of them once in ``degree`` ticks.

    Independent draws would leave out some neighbours for a long time, and the slowest node determines the speed. In a
    round of ``degree`` ticks, the order is start + place * stride, with a random start and a random stride.
    """
    lap, place = clock // degree, clock % degree
    start = int(draw(seed, node, 2 * lap, NEIGHBOUR) * degree)
    stride = 1 + int(draw(seed, node, 2 * lap + 1, NEIGHBOUR) * (degree - 1)) if degree > 1 else 1
    while math.gcd(stride, degree) != 1:
        stride += 1
    return first + (start + place * stride) % degree


@allocation_free
def choose_edge(nodes: Nodes, edges: Edges, i: int, seed: int, clock: int) -> int:
    """Return the edge along which node i pushes: one with a reply due, else the next open one, else -1 (none)."""
    first, degree = int(edges.ptr[i]), int(edges.ptr[i + 1] - edges.ptr[i])
    if degree == 0 or not nodes.alive[i]:
        return -1
    for e in range(first, first + degree):
        if edges.reply_due[e]:
            return e
    chosen = next_edge(first, degree, seed, nodes.first + i, clock)
    for step in range(degree):
        e = first + (chosen - first + step) % degree
        if edges.open[e]:
            return e
    return -1


@allocation_free
def write_message(nodes: Nodes, edges: Edges, i: int, e: int, m: int, messages: PushMessages) -> None:
    """Write y_ij = z_ij + 2 rho_ij A_ij w_i as message m. A closed edge has z_ij = -rho_ij A_ij w_i."""
    messages.edge[m] = e
    if e < 0:
        return
    w, z, y = nodes.w[i], edges.z[e], messages.vector[m]
    pull = edges.rho[e] * edge_sign(nodes.first + i, edges.target[e])
    if edges.open[e]:
        for q in range(len(y)):
            y[q] = z[q] + 2.0 * pull * w[q]
    else:
        for q in range(len(y)):
            y[q] = pull * w[q]
    messages.rho[m], messages.tau[m] = edges.rho[e], nodes.tau[i]
    edges.reply_due[e] = False


@allocation_free
def push(
    lo: int, hi: int, nodes: Nodes, edges: Edges, to_all: bool, seed: int, clock: int, messages: PushMessages
) -> None:
    """Write what every node sends: message i is that of node i; with ``to_all``, message e is that of edge e."""
    for i in range(lo, hi):
        if not to_all:
            write_message(nodes, edges, i, choose_edge(nodes, edges, i, seed, clock), i, messages)
            continue
        for e in range(edges.ptr[i], edges.ptr[i + 1]):
            sends = nodes.alive[i] and (edges.open[e] or edges.reply_due[e])
            write_message(nodes, edges, i, e if sends else -1, e, messages)


@allocation_free
def receive(
    lo: int, hi: int, nodes: Nodes, edges: Edges, order: Ints, start: Ints, sender: Ints, seq: Ints, vector: Floats,
    rho: Floats, tau: Floats, steps: Steps,
) -> None:  # fmt: skip
    """Apply what the neighbours push. Ignore old, repeated and returned messages, and those of other nodes."""
    for i in range(lo, hi):
        for place in range(start[i], start[i + 1]):
            m = order[place]
            e = find(edges.target, edges.ptr[i], edges.ptr[i + 1], sender[m])
            if e >= 0:
                receive_message(nodes, edges, i, e, seq[m], vector[m], rho[m], tau[m], steps)


@allocation_free
def receive_message(
    nodes: Nodes, edges: Edges, i: int, e: int, seq: int, y: Floats, rho: float, tau: float, steps: Steps
) -> None:
    """Apply one message."""
    epoch = seq >> EPOCH_SHIFT
    if epoch < edges.epoch[e]:
        edges.reply_due[e] = not edges.open[e]  # an open edge informs the other end anyway
        return
    if seq <= edges.last_seq[e]:
        return
    step = steps.theta if seq > edges.last_seq[e] + 1 else steps.theta_repeat
    edges.last_seq[e] = seq
    if not edges.open[e]:
        open_edge(nodes, edges, i, e, y, rho)
        edges.epoch[e] = epoch
        return
    A = edge_sign(nodes.first + i, edges.target[e])
    if epoch > edges.epoch[e]:  # the other end dropped and reopened the edge: take over its rho, keep z
        edges.epoch[e], edges.damping[e], edges.n_changes[e], edges.agreed[e] = epoch, REOPENED_DAMPING, 0, True
        adopted = set_penalty(nodes, edges, i, e, rho)
        kappa = nodes.n_lam[i] + nodes.R[i]
        update_edge(nodes.w[i], edges.z[e], y, adopted, 0.0, REOPENED_DAMPING * step, A, kappa, 0.0)
        return
    step *= edges.damping[e]
    edges.damping[e] = min(1.0, DAMPING_GROWTH * edges.damping[e])
    adopted, mismatch, kappa, adapted = update_penalty(nodes, edges, i, e, rho, tau, steps.adapt)
    update_edge(nodes.w[i], edges.z[e], y, adopted, mismatch, step, A, kappa, adapted)


@allocation_free
def update_penalty(
    nodes: Nodes, edges: Edges, i: int, e: int, theirs: float, tau: float, adapt: bool
) -> tuple[float, float, float, float]:
    """Update the edge's penalty after a message; return what `update_edge` needs: adopted, mismatch, kappa, adapted.

    The end with the lower number owns the penalty. The penalty starts at the mean of both ends' initial penalties, and
    adapts. If the other end's penalty is more than one change above the owner's, the other end restarted or was
    restored from a checkpoint, and the owner adopts its penalty. Otherwise each message would move z by (theirs - mine)
    w, and w by more than its own length, until the other end knows the new penalty.
    """
    owns, mine, adopted, adapted = nodes.first + i < edges.target[e], edges.rho[e], 0.0, 0.0
    if not owns:
        adopted = set_penalty(nodes, edges, i, e, theirs)
    elif edges.agreed[e] and theirs > 2.0 * mine:
        adopted = set_penalty(nodes, edges, i, e, theirs)
        edges.n_changes[e] = 0
    elif not edges.agreed[e]:
        adopted = set_penalty(nodes, edges, i, e, 0.5 * (mine + theirs))
    edges.agreed[e], edges.neighbour_tau[e] = True, tau
    mismatch = (edges.rho[e] - theirs) * -edge_sign(nodes.first + i, edges.target[e])  # y += (rho' - rho) A_sender w
    kappa = nodes.n_lam[i] + nodes.R[i]
    if owns and adapt and mine == theirs and edges.n_changes[e] < MAX_PENALTY_CHANGES:
        largest = max(nodes.tau[i], tau)
        if largest > RAISE_RATIO * mine:
            adapted = set_penalty(nodes, edges, i, e, 2.0 * mine)
        elif largest < mine / LOWER_RATIO:
            adapted = set_penalty(nodes, edges, i, e, 0.5 * mine)
        edges.n_changes[e] += adapted != 0.0
    return adopted, mismatch, kappa, adapted


@compiled
def open_edge(nodes: Nodes, edges: Edges, i: int, e: int, y: Floats, rho: float) -> None:
    """Open an edge with z = y, the content of the first message of the end that stayed: y = -rho A w, with its w.

    A node without any open edge adopts that w instead, and the z that belongs to it. While it had no open edge its own
    w moved far away, and would pull the other nodes as far.
    """
    A, before = edge_sign(nodes.first + i, edges.target[e]), nodes.n_lam[i] + nodes.R[i]
    _, degree = open_edges(edges, i)
    edges.open[e], edges.reply_due[e], edges.agreed[e], edges.rho[e], edges.n_changes[e] = True, False, True, rho, 0
    edges.damping[e] = REOPENED_DAMPING
    nodes.R[i], _ = open_edges(edges, i)
    kappa, w, z = nodes.n_lam[i] + nodes.R[i], nodes.w[i], edges.z[e]
    for q in range(len(y)):
        if degree == 0:
            new = -A * y[q] / rho
            z[q] = A * (before * w[q] - kappa * new)
            w[q] = new
        else:
            z[q] = y[q]
            w[q] = (before * w[q] - A * y[q]) / kappa


@compiled
def close_edge(nodes: Nodes, edges: Edges, i: int, e: int) -> None:
    """Close an edge. v_i and w_i stay the same: the pull along e is spread over the remaining edges.

    Any z is a valid start, and this z causes no jump. If no edge remains, w_i = v_i / (n_i lam).
    """
    A, before, rho = edge_sign(nodes.first + i, edges.target[e]), nodes.n_lam[i] + nodes.R[i], edges.rho[e]
    edges.open[e] = False
    nodes.R[i], degree = open_edges(edges, i)
    w, z = nodes.w[i], edges.z[e]
    if degree == 0:
        for q in range(len(w)):
            w[q] = (before * w[q] + A * z[q]) / nodes.n_lam[i] if nodes.n_lam[i] > 0.0 else 0.0
        return
    for other in range(edges.ptr[i], edges.ptr[i + 1]):
        if edges.open[other]:
            part = edge_sign(nodes.first + i, edges.target[other]) / degree
            for q in range(len(w)):
                edges.z[other, q] += part * (A * z[q] + rho * w[q])


@compiled
def fade_edge(nodes: Nodes, edges: Edges, i: int, e: int, part: float) -> None:
    """Remove a part of the pull A z + rho w of an edge, as if its other end had the same w and no pull."""
    A, kappa, w, z = edge_sign(nodes.first + i, edges.target[e]), nodes.n_lam[i] + nodes.R[i], nodes.w[i], edges.z[e]
    for q in range(len(w)):
        less = part * (z[q] + edges.rho[e] * A * w[q])
        z[q] -= less
        w[q] += less * A / kappa


def initialise(nodes: Nodes, edges: Edges) -> None:
    """Start every edge at z = -rho A w_own, as if both ends had the same w; from w = 0 that is z = 0.

    This function, `initial_penalties` and `pdmm_fused.reverse_edges` are not compiled: they run once, and numpy gives
    the same bits.
    """
    k, owner = len(nodes.R), segments(edges.ptr)
    nodes.R[:] = np.bincount(owner, np.where(edges.open, edges.rho, 0.0), k)  # adds in the order of the edges
    for i in np.flatnonzero(nodes.w.any(axis=1)).tolist():
        kappa = nodes.n_lam[i] + nodes.R[i]
        for e in range(edges.ptr[i], edges.ptr[i + 1]):
            A = 1.0 if nodes.first + i < edges.target[e] else -1.0
            edges.z[e] = -edges.rho[e] * A * nodes.w[i]
        nodes.w[i] = nodes.R[i] * nodes.w[i] / kappa if kappa > 0.0 else 0.0


def segments(ptr: Ints) -> Ints:
    """Return, for each place, the number i of its segment ptr[i]:ptr[i+1]."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def initial_penalties(rows: DualRows, times: Floats, ptr: Ints, lam: float) -> tuple[Floats, Floats]:
    """Return the initial rho of every edge, INITIAL_PENALTY lam sum |x_r|^2 / d_i, and n_i lam of every node.

    A node computes rho from its own rows and degree. Each message carries its sender's rho, so the two ends differ only
    until each has received a message. The bounds grow with the square of the rows' scale: rows s x with s^2 lam are the
    same problem as rows x with lam, and need s^2 times the penalty. lam sum |x_r|^2 grows with s^4, which is far too
    much or too little for very long or short rows.
    """
    k, owner, degree = len(ptr) - 1, segments(rows.start), np.diff(ptr)
    length2 = np.maximum(np.bincount(owner, times * rows.norm2, k), 1e-300)
    n_lam: Floats = np.multiply(lam, np.bincount(owner, times, k), dtype=np.float64)
    highest = INITIAL_PENALTY * np.maximum(MAX_PER_SQUARE * length2, MAX_PER_N_LAM * n_lam)
    total = np.maximum(np.minimum(INITIAL_PENALTY * lam * length2, highest), MIN_PER_N_LAM * n_lam)
    return np.repeat(total, degree) / np.repeat(degree, degree), n_lam
