"""Whole rounds of averaging for networks on which nothing is lost, late or away.

A node is a row of ``state``: its sum s, and its weight phi in the last column, so that both come with one look at
memory. A round reads one such array and writes another. Every node's own part is taken first and then what was sent to
it, by ascending sender, as in `kernels.gossip`: the bits are the same.
"""

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Floats, Ints
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.counter_rng import NEIGHBOUR, draw
from gadget_svm.kernels.gossip import MIN_MASS, pick_edge
from gadget_svm.kernels.prefetch import PREFETCH_ROWS, prefetch_entry, prefetch_row

Nodes = NDArray[np.int32]


@compiled
def draw_receivers(
    lo: int, hi: int, indptr: Ints, target: Nodes, table: Floats, seed: int, time: int, state: Floats, receiver: Nodes
) -> None:
    """Whom every node sends half of what it has; -1 for the silent."""
    phi = state.shape[1] - 1
    for i in range(lo, hi):
        receiver[i] = -1
        if indptr[i + 1] > indptr[i] and state[i, phi] >= MIN_MASS:
            e = pick_edge(table, indptr[i], indptr[i + 1], draw(seed, i, time, NEIGHBOUR))
            if e >= 0:
                receiver[i] = target[e]


@compiled
def sort_by_receiver(receiver: Nodes, start: Nodes, sender: Nodes) -> None:
    """The senders to node i, ascending, into sender[start[i]:start[i+1]]."""
    start[:] = 0
    for r in receiver:
        if r >= 0:
            start[r + 1] += 1
    for i in range(len(start) - 1):
        start[i + 1] += start[i]
    for m in range(len(receiver)):
        r = receiver[m]
        if r >= 0:
            sender[start[r]] = m
            start[r] += 1  # which makes it the start of the next ...
    for i in range(len(start) - 1, 0, -1):
        start[i] = start[i - 1]  # ... so move all up by one
    start[0] = 0


@compiled
def pull_halves(lo: int, hi: int, receiver: Nodes, start: Nodes, sender: Nodes, before: Floats, after: Floats) -> None:
    """Half of one's own (all of it, if one is silent), and the halves that were sent."""
    width, last = before.shape[1], start[hi] - 1
    for i in range(lo, hi):
        part = 0.5 if receiver[i] >= 0 else 1.0
        for j in range(width):
            after[i, j] = part * before[i, j]
        for p in range(start[i], start[i + 1]):
            prefetch_row(before, sender[min(p + PREFETCH_ROWS, last)])
            m = sender[p]
            for j in range(width):
                after[i, j] += 0.5 * before[m, j]


@compiled
def push_halves(receiver: Nodes, before: Floats, after: Floats) -> None:
    """The same for one number a node, sender by sender: so short a row is sooner added than its mail sorted."""
    last = len(receiver) - 1
    for i in range(len(receiver)):
        part = 0.5 if receiver[i] >= 0 else 1.0
        after[i, 0], after[i, 1] = part * before[i, 0], part * before[i, 1]
    for i in range(len(receiver)):
        prefetch_row(after, receiver[min(i + PREFETCH_ROWS, last)])
        r = receiver[i]
        if r >= 0:
            after[r, 0] += 0.5 * before[i, 0]
            after[r, 1] += 0.5 * before[i, 1]


@compiled
def halving_rounds(
    count: int, indptr: Ints, target: Nodes, table: Floats, seed: int, time: int, receiver: Nodes, start: Nodes,
    sender: Nodes, before: Floats, after: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """``count`` rounds on one thread; the state after them, and the other array."""
    k = len(receiver)
    for r in range(count):
        draw_receivers(0, k, indptr, target, table, seed, time + r, before, receiver)
        if before.shape[1] == 2:
            push_halves(receiver, before, after)
        else:
            sort_by_receiver(receiver, start, sender)
            pull_halves(0, k, receiver, start, sender, before, after)
        before, after = after, before
    return before, after


@compiled
def incoming_edges(indptr: Ints, target: Nodes, first: int, last: int, which_edge: bool) -> tuple[Ints, Nodes, Ints]:
    """The edges into the nodes first:last, by receiver: source[in_ptr[j]:in_ptr[j+1]] ascending.

    The third array, empty unless asked for, says which out-edge each of them is.
    """
    in_ptr = np.zeros(last - first + 1, dtype=np.int64)
    for j in target:
        if first <= j < last:
            in_ptr[j - first + 1] += 1
    for j in range(last - first):
        in_ptr[j + 1] += in_ptr[j]
    source, edge = np.empty(in_ptr[-1], np.int32), np.empty(in_ptr[-1] if which_edge else 0, np.int64)
    filled = in_ptr[:-1].copy()
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            j = target[e] - first
            if 0 <= j < last - first:
                source[filled[j]] = i
                if which_edge:
                    edge[filled[j]] = e
                filled[j] += 1
    return in_ptr, source, edge


@compiled
def pull_shares(
    lo: int, hi: int, in_ptr: Ints, source: Nodes, even: bool, share: Floats, keep: Floats, before: Floats,
    after: Floats,
) -> None:  # fmt: skip
    """b_ii of one's own and b_ij of what every neighbour has; ``share`` is per in-edge, or ``even`` and per sender."""
    width, last, phi = before.shape[1], len(source) - 1, before.shape[1] - 1
    for i in range(lo, hi):
        part = keep[i] if before[i, phi] >= MIN_MASS else 1.0
        for j in range(width):
            after[i, j] = part * before[i, j]
        for p in range(in_ptr[i], in_ptr[i + 1]):
            soon = source[min(p + PREFETCH_ROWS, last)]
            prefetch_row(before, soon)
            if even:
                prefetch_entry(share, soon)
            m = source[p]
            part = 0.0 if before[m, phi] < MIN_MASS else share[m] if even else share[p]
            for j in range(width):
                after[i, j] += part * before[m, j]
