"""Complete rounds of averaging, for networks on which no message is lost or late and all nodes are live.

A node is a row of ``state``: its sum s, and its weight phi in the last column, so that both are in one cache line. A
round reads one such array and writes another. It adds a node's own part first, then what other nodes sent, in ascending
order of senders. `kernels.gossip` does the same, so the results agree bit for bit.
"""

from gadget_svm.core.types import Floats, Indices, Ints
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.counter_rng import NEIGHBOUR, draw
from gadget_svm.kernels.gossip import MIN_MASS, order_messages, pick_edge
from gadget_svm.kernels.vectors import PREFETCH_ROWS, prefetch, prefetch_row

Nodes = Indices


@compiled
def draw_receivers(
    lo: int, hi: int, indptr: Ints, target: Nodes, table: Floats, seed: int, time: int, state: Floats, receiver: Nodes
) -> None:
    """Draw the receiver of every node's half; -1 for a node that sends nothing."""
    phi = state.shape[1] - 1
    for i in range(lo, hi):
        receiver[i] = -1
        if indptr[i + 1] > indptr[i] and state[i, phi] >= MIN_MASS:
            e = pick_edge(table, indptr[i], indptr[i + 1], draw(seed, i, time, NEIGHBOUR))
            if e >= 0:
                receiver[i] = target[e]


@compiled
def pull_halves(lo: int, hi: int, receiver: Nodes, sender: Nodes, start: Nodes, before: Floats, after: Floats) -> None:
    """Sum half of each node's own state (all of it, if it sends nothing) and the halves that were sent to it.

    The nodes that send to node i are sender[start[i]:start[i+1]].
    """
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
    """Do as `pull_halves`, sender by sender, for one number per node: adding then takes less time than sorting."""
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
    count: int, indptr: Ints, target: Nodes, table: Floats, seed: int, receiver: Nodes, ids: Nodes, before: Floats,
    after: Floats,
) -> Floats:  # fmt: skip
    """Run ``count`` rounds on one thread; returns the state after them."""
    k = len(receiver)
    for time in range(count):
        draw_receivers(0, k, indptr, target, table, seed, time, before, receiver)
        if before.shape[1] == 2:
            push_halves(receiver, before, after)
        else:
            sender, start = order_messages(receiver, ids, ids, 0, k)
            pull_halves(0, k, receiver, sender, start, before, after)
        before, after = after, before
    return before


@compiled
def pull_shares(
    lo: int, hi: int, in_ptr: Ints, source: Nodes, even: bool, share: Floats, keep: Floats, before: Floats,
    after: Floats,
) -> None:  # fmt: skip
    """Sum the shares that every node keeps and receives; ``share`` has an entry per in-edge, per sender if ``even``."""
    width, last, phi = before.shape[1], len(source) - 1, before.shape[1] - 1
    for i in range(lo, hi):
        part = keep[i] if before[i, phi] >= MIN_MASS else 1.0
        for j in range(width):
            after[i, j] = part * before[i, j]
        for p in range(in_ptr[i], in_ptr[i + 1]):
            soon = source[min(p + PREFETCH_ROWS, last)]
            prefetch_row(before, soon)
            if even:
                prefetch(share, (soon,))
            m = source[p]
            part = 0.0 if before[m, phi] < MIN_MASS else share[m] if even else share[p]
            for j in range(width):
                after[i, j] += part * before[m, j]
