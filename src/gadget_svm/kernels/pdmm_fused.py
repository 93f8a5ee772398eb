"""Many ticks of PDMM in one compiled call, where all nodes are here, all edges open and no mail is lost.

Owns the order in which several threads do them; the arithmetic is that of `pdmm`, to the same bits as by mail. Threads
share the nodes to solve and, where everyone speaks to everyone, the features to listen: what is said about one feature
touches no other, so both ends of an edge are turned in one reading of them, in place, and no message is written down.
"""

import numpy as np

from gadget_svm.core.types import Bytes, Floats, Ints
from gadget_svm.kernels.barrier import BarrierGroup, wait_at_barrier
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.dual import DualRows
from gadget_svm.kernels.pdmm import Edges, Nodes, PushMessages, hear, owners, push, settle, sign, solve, turn_to

NEAR = 8192
"""Numbers of all nodes' w that are worked on at a time: they and what is made of them stay in a near cache."""
LEAST, MOST = 16, 512
"""Features at a time. With so many nodes that it would be fewer, nothing stays near anyway ..."""
FAR = 2048
"""... and it is so many: short pieces of rows that lie far apart take longest to find."""


def turned(ptr: Ints, target: Ints) -> Ints:
    """The other end of every edge of a block that holds all nodes: sorted by target, they are the edges in order."""
    back = np.empty(len(target), dtype=np.int64)
    back[np.lexsort((owners(ptr), target))] = np.arange(len(target))
    return back


# One neighbour a tick


@compiled
def pushes(
    lo: int, hi: int, party: BarrierGroup, nodes: Nodes, edges: Edges, w: Floats, dual: Floats, rest: Bytes, turn: Ints,
    rows: DualRows, passes: int, seed: int, back: Ints, theta: float, again: float, adapt: bool, clock: int,
    letters: PushMessages, count: int,
) -> None:  # fmt: skip
    """``count`` ticks: all solve and push, then all listen to what was pushed to them, by ascending sender."""
    for step in range(count):
        for i in range(lo, hi):
            solve(i, i + 1, nodes, edges, w, dual, rest, turn, rows, passes, seed, clock + step)
            push(i, i + 1, nodes, edges, False, seed, clock + step, letters)
        wait_at_barrier(party, 2 * step + 1)
        for i in range(lo, hi):
            for e in range(edges.ptr[i], edges.ptr[i + 1]):
                m = edges.target[e]
                if letters.along[m] == back[e]:
                    y, rho, tau = letters.vector[m], letters.rho[m], letters.tau[m]
                    hear(nodes, edges, i, e, clock + step, y, rho, tau, theta, again, adapt)
        wait_at_barrier(party, 2 * step + 2)


# All neighbours in every tick


@compiled
def broadcasts(
    lo: int, hi: int, party: BarrierGroup, nodes: Nodes, edges: Edges, w: Floats, dual: Floats, rest: Bytes, turn: Ints,
    rows: DualRows, passes: int, seed: int, back: Ints, theta: float, again: float, adapt: bool, clock: int,
    said: Floats, terms: Floats, count: int,
) -> None:  # fmt: skip
    """``count`` ticks: all solve, settle on penalties, and listen; ``said`` is rho as each end was when it spoke."""
    width = nodes.w.shape[1]
    begins, ends = width * party.number // party.size, width * (party.number + 1) // party.size
    near = NEAR // max(len(nodes.w), 1)
    stretch = min(MOST, near) if near >= LEAST else FAR
    room, ys = np.empty((len(nodes.w), stretch)), np.empty((2, stretch))
    for step in range(count):
        solve(lo, hi, nodes, edges, w, dual, rest, turn, rows, passes, seed, clock + step)
        for e in range(edges.ptr[lo], edges.ptr[hi]):  # one by one: numba compiles a slice's errors for a second
            said[e] = edges.rho[e]
        wait_at_barrier(party, 3 * step + 1)
        agree(lo, hi, nodes, edges, back, theta, again, adapt, clock + step, said, terms)
        wait_at_barrier(party, 3 * step + 2)
        for first in range(begins, ends, stretch):
            listen_to_all(first, min(first + stretch, ends), nodes, edges, back, said, terms, room, ys)
        wait_at_barrier(party, 3 * step + 3)


@compiled
def agree(
    lo: int, hi: int, nodes: Nodes, edges: Edges, back: Ints, theta: float, again: float, adapt: bool, clock: int,
    said: Floats, terms: Floats,
) -> None:  # fmt: skip
    """`settle` all edges of some nodes, and keep what `turn_to` has to know of each."""
    for i in range(lo, hi):
        for e in range(edges.ptr[i], edges.ptr[i + 1]):
            tau = nodes.tau[edges.target[e]]
            shift, lack, kappa, after = settle(nodes, edges, i, e, said[back[e]], tau, adapt)
            step = theta if clock > edges.seen[e] + 1 else again
            terms[e, 0], terms[e, 1], terms[e, 2], terms[e, 3], terms[e, 4] = shift, lack, step, kappa, after
            edges.seen[e] = clock


@compiled
def listen_to_all(
    first: int, last: int, nodes: Nodes, edges: Edges, back: Ints, said: Floats, terms: Floats, room: Floats, ys: Floats
) -> None:
    """What all nodes say to all about the features first:last.

    Taken by the lower end of each edge, in order: so every node hears its neighbours by ascending number.
    """
    size = last - first
    for i in range(len(nodes.w)):
        for q in range(size):
            room[i, q] = nodes.w[i, first + q]
    for i in range(len(nodes.w)):
        for e in range(edges.ptr[i], edges.ptr[i + 1]):
            j, m = edges.target[e], back[e]
            if j < i:
                continue
            A = sign(i, j)
            mine, theirs = edges.z[e, first:last], edges.z[m, first:last]
            made_up(ys[0, :size], theirs, -A * said[m], room[j])
            made_up(ys[1, :size], mine, A * said[e], room[i])
            turn_end(nodes.w[i, first:last], mine, ys[0], terms[e], A)
            turn_end(nodes.w[j, first:last], theirs, ys[1], terms[m], -A)


@compiled
def made_up(y: Floats, z: Floats, pull: float, w: Floats) -> None:
    """y = z + 2 rho A w, as `pdmm.write` writes it."""
    for q in range(len(y)):
        y[q] = z[q] + 2.0 * pull * w[q]


@compiled
def turn_end(w: Floats, z: Floats, y: Floats, terms: Floats, A: float) -> None:
    """`turn_to` with what `agree` kept."""
    turn_to(w, z, y, terms[0], terms[1], terms[2], A, terms[3], terms[4])
