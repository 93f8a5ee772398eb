"""The moves of PDMM on a block's edges: local solve, push, receive, change of penalty, opening and closing of an edge.
Many ticks in one call are in `pdmm_leap`.

Owns the arithmetic. Two vectors are kept consistent by every move: z of the open edges, and
w_i = (v_i - S_i) / (n_i lam + R_i) with S_i = sum_j A_ij z_ij and v_i = sum_r alpha_r y_r x_r, neither of which is
ever formed. A move costs one reading of what it changes: on wide data these vectors, not the rows, take the time.

The intercept is the weight of a constant feature that every row has. All rows pull at it alike, so it needs a larger
penalty than features that few rows have. It is held in units in which that feature is not 1 but u, which is
`Rows.intercept_unit`, so edges hold it 1 / u^2 times as tightly. Its regulariser is n_i lam u^2 in these units, and
`solve` goes by that. Between two solves, every move takes it for n_i lam, as that of the other weights. The next solve
makes up for this, from what the intercept was after the last: the anchor.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.counter_rng import NEIGHBOUR, draw
from gadget_svm.kernels.dual import NEVER, DualRows, rested_pass, waking
from gadget_svm.kernels.gossip import EPOCH_SHIFT, find

UNITS = 14.0
"""A node wishes its edges' penalties to add up to so many times lam sum |x_r|^2."""
STRAINED, SLACK = 2.0, 2.0
"""The owner doubles rho where the larger tau is above STRAINED rho, and halves it where it is below rho / SLACK."""
MOST_OF_LENGTH, MOST_OF_CURVE, LEAST_OF_CURVE = 1.0, 1e4, 0.05
"""That wish is at most UNITS times the larger of MOST_OF_LENGTH sum |x_r|^2 and MOST_OF_CURVE n_i lam, and at least
LEAST_OF_CURVE n_i lam. Only lam > 1 with rows longer than 100, or rows shorter than 0.06, come so far."""
CARRIED = 0.1
"""The part of its neighbours' largest tau that a node announces, if its own is less. Without it edges between nodes
of few rows starve, and a line of such nodes separates those at its ends."""
LONGEST_REST = 30.0
"""A row rests for a tick per ``stir`` that its margin has to spare, and for so many ticks at most."""
LOOK = 4
"""A node works out tau in every so many ticks: it reads all its edges for it, and changes take a few ticks anyway."""
STRETCH = 4096
"""Numbers of w that are worked on at a time where several edges want it: they stay in a near cache."""
MOST_CHANGES = 20
"""An edge's penalty is changed so often at most: from then on it is plain PDMM, which converges."""
FIRST_EASE, EASE_GROWTH = 0.05, 1.1
"""theta of an edge that was reopened is multiplied by FIRST_EASE, and by EASE_GROWTH more with every message, up to 1:
what one end had lost of the other's pull comes back in small parts, and the nodes around it keep up."""


class Edges(NamedTuple):
    """Node i's ends of its edges are ptr[i]:ptr[i+1], by ascending target; everything else is per end."""

    ptr: Ints
    target: Ints
    z: Floats
    rho: Floats
    open: Flags  # whether it counts in R and S
    due: Flags  # closed here, but the other end still speaks: it is owed an answer
    agreed: Flags  # whether both ends have settled on one rho
    changes: Ints
    epoch: Ints  # how often the edge was dropped or reopened, by either end
    seen: Ints  # the number of the newest mail; what is not newer is ignored
    strain: Floats  # tau as the other end last announced it
    ease: Floats  # a factor of theta, below 1 for a while after the edge was reopened


class Nodes(NamedTuple):
    """What a node holds beside its edges; ``curve`` is n_i lam and ``R`` the sum of its open edges' rho."""

    alive: Flags
    first: int
    w: Floats  # flat: nodes x (outputs * features)
    curve: Floats
    R: Floats
    tau: Floats
    stir: Floats  # nodes x outputs: by how much margins were off where an alpha moved, in a tick's first pass
    anchor: Floats  # nodes x outputs: the intercept after the last solve


class PushMessages(NamedTuple):
    """Messages: along which edge of the sender (-1: none), the vector y, and what rides with it."""

    along: Ints
    vector: Floats
    rho: Floats
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
def turn_to(
    w: Floats, z: Floats, y: Floats, shift: float, lack: float, theta: float, A: float, kappa: float, after: float
) -> None:
    """z <- (1 - theta) z + theta (y + lack w), and w along; rho rose by ``shift`` before it and by ``after`` after."""
    keep, per_kappa, shift = 1.0 - theta, A / kappa, shift * A
    for q in range(len(w)):
        old = z[q] - shift * w[q]
        new = keep * old + theta * (y[q] + lack * w[q])
        w[q] -= (new - old) * per_kappa
        z[q] = new
    if after != 0.0:
        keep_still(w, z, after * A)


@compiled
def keep_still(w: Floats, z: Floats, more: float) -> None:
    """z <- z - (rho' - rho) A w: w stays where it is as rho changes."""
    for q in range(len(w)):
        z[q] -= more * w[q]


@compiled
def set_penalty(nodes: Nodes, edges: Edges, i: int, e: int, rho: float) -> float:
    """Change the rho of an open edge; by how much. What `keep_still` does is left to do."""
    more = float(rho - edges.rho[e])
    if more != 0.0:
        edges.rho[e] = rho
        nodes.R[i] = total_penalty(edges, i)
    return more


@compiled
def solve(
    lo: int, hi: int, nodes: Nodes, edges: Edges, w: Floats, dual: Floats, rest: NDArray[np.uint8], turn: Ints,
    rows: DualRows, passes: int, seed: int, clock: int,
) -> None:  # fmt: skip
    """Warm-started passes of dual coordinate ascent on every node, w moving along with alpha."""
    for i in range(lo, hi):
        if not nodes.alive[i]:
            continue
        kappa, mine, end = nodes.curve[i] + nodes.R[i], rows.start[i], rows.start[i + 1]
        longest, place = min(LONGEST_REST * passes, NEVER - 1.0), w.shape[2] - 1
        ratio = intercept_ratio(nodes.curve[i], nodes.R[i], rows.constant)
        for c in range(w.shape[1]):
            target = 1 if w.shape[1] == 1 else c
            if rows.constant > 0.0:
                w[i, c, place] = ratio * w[i, c, place] - (ratio - 1.0) * nodes.anchor[i, c]
            for done in range(passes):
                last = waking(turn, rest[c], mine, end, seed, nodes.first + i, clock * passes + done)
                wide = nodes.stir[i, c] / passes
                off = rested_pass(
                    w[i, c], dual[c], rest[c], turn, rows, mine, last, target, kappa, ratio, wide, longest
                )
                if done == 0 and off > 0.0:
                    nodes.stir[i, c] = off
            nodes.anchor[i, c] = w[i, c, place]
        if (clock + nodes.first + i) % LOOK == 0:
            nodes.tau[i] = strain(nodes, edges, i)


@compiled
def intercept_ratio(curve: float, R: float, unit: float) -> float:
    """How much more easily the intercept moves than other weights: (n_i lam + R_i) by the same for the intercept."""
    own = curve * unit * unit + R
    return (curve + R) / own if own > 0.0 else 1.0


@compiled
def strain(nodes: Nodes, edges: Edges, i: int) -> float:
    """tau_i = 2 |v_i - n_i lam w_i| / (|w_i| d_i): the penalty at which the edges pull as hard as the rows do.

    v_i - n_i lam w_i is R_i w_i + S_i. A node with next to no pull of its own may yet stand between two that pull
    hard: it announces a part of what its neighbours do.
    """
    degree, pull, carried, w, lo, hi = 0, 0.0, 0.0, nodes.w[i], edges.ptr[i], edges.ptr[i + 1]
    for e in range(lo, hi):
        if edges.open[e]:
            degree += 1
            carried = max(carried, CARRIED * edges.strain[e])
    length2, part = 0.0, np.empty(STRETCH)
    for begins in range(0, len(w), STRETCH):
        count = min(STRETCH, len(w) - begins)
        for q in range(count):
            part[q] = nodes.R[i] * w[begins + q]
        for e in range(lo, hi):
            if edges.open[e]:
                A, z = sign(nodes.first + i, edges.target[e]), edges.z[e, begins:]
                for q in range(count):
                    part[q] += A * z[q]
        for q in range(count):  # one by one: features that occur nowhere may be left out without changing a bit
            length2 += w[begins + q] * w[begins + q]
            pull += part[q] * part[q]
    if degree == 0 or length2 == 0.0:
        return 0.0
    return max(carried, float(2.0 * np.sqrt(pull / length2) / degree))


@compiled
def common_divisor(a: int, b: int) -> int:
    """The largest number that divides both."""
    while b:
        a, b = b, a % b
    return a


@compiled
def next_in_turn(first: int, degree: int, seed: int, node: int, clock: int) -> int:
    """One of a node's edges, in a random order that comes to each of them once in ``degree`` ticks.

    Independent draws leave some neighbour unheard for long, and the node farthest off is the one that counts. The order
    of a round is start + place * stride, both drawn.
    """
    turn, place = clock // degree, clock % degree
    start = int(draw(seed, node, 2 * turn, NEIGHBOUR) * degree)
    stride = 1 + int(draw(seed, node, 2 * turn + 1, NEIGHBOUR) * (degree - 1)) if degree > 1 else 1
    while common_divisor(stride, degree) != 1:
        stride += 1
    return first + (start + place * stride) % degree


@compiled
def choose(nodes: Nodes, edges: Edges, i: int, seed: int, clock: int) -> int:
    """The edge node i pushes along: one that is owed an answer, else the next in turn that is open, else none (-1)."""
    first, degree = int(edges.ptr[i]), int(edges.ptr[i + 1] - edges.ptr[i])
    if degree == 0 or not nodes.alive[i]:
        return -1
    for e in range(first, first + degree):
        if edges.due[e]:
            return e
    drawn = next_in_turn(first, degree, seed, nodes.first + i, clock)
    for step in range(degree):
        e = first + (drawn - first + step) % degree
        if edges.open[e]:
            return e
    return -1


@compiled
def write(nodes: Nodes, edges: Edges, i: int, e: int, m: int, letters: PushMessages) -> None:
    """y_ij = z_ij + 2 rho_ij A_ij w_i into place m. A closed edge has z_ij = -rho_ij A_ij w_i, as if just reopened."""
    letters.along[m] = e
    if e < 0:
        return
    w, z, y = nodes.w[i], edges.z[e], letters.vector[m]
    pull = edges.rho[e] * sign(nodes.first + i, edges.target[e])
    if edges.open[e]:
        for q in range(len(y)):
            y[q] = z[q] + 2.0 * pull * w[q]
    else:
        for q in range(len(y)):
            y[q] = pull * w[q]
    letters.rho[m], letters.tau[m] = edges.rho[e], nodes.tau[i]
    edges.due[e] = False


@compiled
def push(
    lo: int, hi: int, nodes: Nodes, edges: Edges, everyone: bool, seed: int, clock: int, letters: PushMessages
) -> None:
    """What every node sends: place i of ``letters`` is node i's, or place e is that of the edge e."""
    for i in range(lo, hi):
        if not everyone:
            write(nodes, edges, i, choose(nodes, edges, i, seed, clock), i, letters)
            continue
        for e in range(edges.ptr[i], edges.ptr[i + 1]):
            speaks = nodes.alive[i] and (edges.open[e] or edges.due[e])
            write(nodes, edges, i, e if speaks else -1, e, letters)


@compiled
def listen(
    lo: int, hi: int, nodes: Nodes, edges: Edges, order: Ints, start: Ints, sender: Ints, seq: Ints, vector: Floats,
    penalty: Floats, tau: Floats, theta: float, again: float, adapt: bool,
) -> None:  # fmt: skip
    """What the neighbours push; old, repeated, returned or foreign mail is ignored."""
    for i in range(lo, hi):
        for place in range(start[i], start[i + 1]):
            m = order[place]
            e = find(edges.target, edges.ptr[i], edges.ptr[i + 1], sender[m])
            if e >= 0:
                hear(nodes, edges, i, e, seq[m], vector[m], penalty[m], tau[m], theta, again, adapt)


@compiled
def hear(
    nodes: Nodes, edges: Edges, i: int, e: int, seq: int, y: Floats, theirs: float, tau: float, theta: float,
    again: float, adapt: bool,
) -> None:  # fmt: skip
    """One message. ``again`` is theta for mail that follows on other mail of the same sender without a tick between."""
    epoch = seq >> EPOCH_SHIFT
    if epoch < edges.epoch[e]:
        edges.due[e] = not edges.open[e]  # an open edge tells the other end by itself
        return
    if seq <= edges.seen[e]:
        return
    step = theta if seq > edges.seen[e] + 1 else again
    edges.seen[e] = seq
    if not edges.open[e]:
        open_edge(nodes, edges, i, e, y, theirs)
        edges.epoch[e] = epoch
        return
    A = sign(nodes.first + i, edges.target[e])
    if epoch > edges.epoch[e]:  # the other end had dropped the edge: its penalty counts, z stays as it is
        edges.epoch[e], edges.ease[e], edges.changes[e], edges.agreed[e] = epoch, FIRST_EASE, 0, True
        shift = set_penalty(nodes, edges, i, e, theirs)
        turn_to(nodes.w[i], edges.z[e], y, shift, 0.0, FIRST_EASE * step, A, nodes.curve[i] + nodes.R[i], 0.0)
        return
    step *= edges.ease[e]
    edges.ease[e] = min(1.0, EASE_GROWTH * edges.ease[e])
    shift, lack, kappa, after = settle(nodes, edges, i, e, theirs, tau, adapt)
    turn_to(nodes.w[i], edges.z[e], y, shift, lack, step, A, kappa, after)


@compiled
def settle(
    nodes: Nodes, edges: Edges, i: int, e: int, theirs: float, tau: float, adapt: bool
) -> tuple[float, float, float, float]:
    """The edge's penalty after a message, and what `turn_to` has to know of it: shift, lack, kappa, after.

    The end with the lower id owns the penalty: it meets the other's first wish halfway and adapts. It takes over one
    that is more than one change above its own: the other end began anew, or went back to what it was. What it says
    would be turned by (theirs - mine) w here, and w by more than itself, with every letter until it hears of ours.
    """
    own, mine, shift, after = nodes.first + i < edges.target[e], edges.rho[e], 0.0, 0.0
    if not own:
        shift = set_penalty(nodes, edges, i, e, theirs)
    elif edges.agreed[e] and theirs > 2.0 * mine:
        shift = set_penalty(nodes, edges, i, e, theirs)
        edges.changes[e] = 0
    elif not edges.agreed[e]:
        shift = set_penalty(nodes, edges, i, e, 0.5 * (mine + theirs))
    edges.agreed[e], edges.strain[e] = True, tau
    lack = (edges.rho[e] - theirs) * -sign(nodes.first + i, edges.target[e])  # y += (rho' - rho) A_sender w_own
    kappa = nodes.curve[i] + nodes.R[i]
    if own and adapt and mine == theirs and edges.changes[e] < MOST_CHANGES:
        strongest = max(nodes.tau[i], tau)
        if strongest > STRAINED * mine:
            after = set_penalty(nodes, edges, i, e, 2.0 * mine)
        elif strongest < mine / SLACK:
            after = set_penalty(nodes, edges, i, e, 0.5 * mine)
        edges.changes[e] += after != 0.0
    return shift, lack, kappa, after


@compiled
def open_edges(edges: Edges, i: int) -> int:
    """How many of node i's edges count."""
    count = 0
    for e in range(edges.ptr[i], edges.ptr[i + 1]):
        count += edges.open[e]
    return count


@compiled
def open_edge(nodes: Nodes, edges: Edges, i: int, e: int, y: Floats, rho: float) -> None:
    """Count an edge, with z = y: -rho A w_survivor, which is what the survivor's first message holds.

    A node that had no edge left takes over that w instead, with the z that goes with it: on its own it has gone far,
    and would throw the others off by as much.
    """
    A, before, alone = sign(nodes.first + i, edges.target[e]), nodes.curve[i] + nodes.R[i], open_edges(edges, i) == 0
    edges.open[e], edges.due[e], edges.agreed[e], edges.rho[e], edges.changes[e] = True, False, True, rho, 0
    edges.ease[e] = FIRST_EASE
    nodes.R[i] = total_penalty(edges, i)
    kappa, w, z = nodes.curve[i] + nodes.R[i], nodes.w[i], edges.z[e]
    for q in range(len(y)):
        if alone:
            new = -A * y[q] / rho
            z[q] = A * (before * w[q] - kappa * new)
            w[q] = new
        else:
            z[q] = y[q]
            w[q] = (before * w[q] - A * y[q]) / kappa


@compiled
def close_edge(nodes: Nodes, edges: Edges, i: int, e: int) -> None:
    """Count an edge no longer. v_i is as it was, and so is w_i: what pulled along e now pulls along the edges left.

    Any z is as good as any other to begin with, and this makes no jump. Without an edge left, w_i = v_i / (n_i lam).
    """
    A, before, rho = sign(nodes.first + i, edges.target[e]), nodes.curve[i] + nodes.R[i], edges.rho[e]
    edges.open[e] = False
    nodes.R[i] = total_penalty(edges, i)
    left, w, z = open_edges(edges, i), nodes.w[i], edges.z[e]
    if left == 0:
        for q in range(len(w)):
            w[q] = (before * w[q] + A * z[q]) / nodes.curve[i] if nodes.curve[i] > 0.0 else 0.0
        return
    for other in range(edges.ptr[i], edges.ptr[i + 1]):
        if edges.open[other]:
            to = sign(nodes.first + i, edges.target[other]) / left
            for q in range(len(w)):
                edges.z[other, q] += to * (A * z[q] + rho * w[q])


@compiled
def fade_edge(nodes: Nodes, edges: Edges, i: int, e: int, part: float) -> None:
    """Let go of a part of the pull A z + rho w of an edge, as if its other end agreed with w and pulled at nothing."""
    A, kappa, w, z = sign(nodes.first + i, edges.target[e]), nodes.curve[i] + nodes.R[i], nodes.w[i], edges.z[e]
    for q in range(len(w)):
        less = part * (z[q] + edges.rho[e] * A * w[q])
        z[q] -= less
        w[q] += less * A / kappa


def begin(nodes: Nodes, edges: Edges) -> None:
    """Every edge at z = -rho A w_own, as if both ends agreed on it; from w = 0 that is z = 0, as it is.

    Not compiled, and neither are `wishes` and `pdmm_leap.turned`: they run once, and numpy gives the same bits.
    """
    k, owner = len(nodes.R), owners(edges.ptr)
    nodes.R[:] = np.bincount(owner, np.where(edges.open, edges.rho, 0.0), k)  # adds in the order of the edges
    for i in np.flatnonzero(nodes.w.any(axis=1)).tolist():
        kappa = nodes.curve[i] + nodes.R[i]
        for e in range(edges.ptr[i], edges.ptr[i + 1]):
            A = 1.0 if nodes.first + i < edges.target[e] else -1.0
            edges.z[e] = -edges.rho[e] * A * nodes.w[i]
        nodes.w[i] = nodes.R[i] * nodes.w[i] / kappa if kappa > 0.0 else 0.0


def owners(ptr: Ints) -> Ints:
    """The number of the stretch ptr[i]:ptr[i+1] that each place is in."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def wishes(rows: DualRows, times: Floats, ptr: Ints, lam: float) -> tuple[Floats, Floats]:
    """The rho a node would choose from its own rows and degree, UNITS lam sum |x_r|^2 / d_i, per edge; and n_i lam.

    It rides in every message; the two ends of an edge differ only until the first message each way.
    """
    k, owner, degree = len(ptr) - 1, owners(rows.start), np.diff(ptr)
    length2 = np.maximum(np.bincount(owner, times * rows.norm2, k), 1e-300)
    curve: Floats = np.multiply(lam, np.bincount(owner, times, k), dtype=np.float64)
    total = in_scale(UNITS * lam * length2, length2, curve, UNITS)
    return np.repeat(total, degree) / np.repeat(degree, degree), curve


def in_scale(penalty: Floats, length2: Floats, curve: Floats, units: float) -> Floats:
    """A first penalty within bounds that grow with the square of the rows' scale; inside them it is left as it is.

    Rows s x with s^2 lam pose the same problem as rows x with lam, and want s^2 times the penalty. ``units`` lam
    sum |x_r|^2 grows with s^4, so for very long or short rows it is too far off to be adapted.
    """
    highest = units * np.maximum(MOST_OF_LENGTH * length2, MOST_OF_CURVE * curve)
    return np.maximum(np.minimum(penalty, highest), LEAST_OF_CURVE * curve)
