"""The kernels of gossip, on a block's sums ``s`` (k x D) and masses ``phi`` (k): load, send, absorb, average."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.counter_rng import ANSWER, NEIGHBOUR, draw
from gadget_svm.kernels.prefetch import PREFETCH_ROWS, prefetch_entry, prefetch_row

Places = NDArray[Any]
"""Places of messages in a batch, 32 bits each."""

MIN_MASS = 1e-250
"""A node cut off for a thousand rounds has halved its mass so often that s/phi would lose its digits, and then be
0/0: with less than this it keeps what it has."""
EPOCH_SHIFT = 40
"""A message's number is its epoch, from this bit on, and below that the exchange it was sent in: where epochs count,
newer and of a higher epoch are one comparison."""


@compiled
def load_vectors(
    lo: int, hi: int, alive: Flags, n: Floats, w: Floats, s: Floats, phi: Floats, held: Floats, persist: bool
) -> None:
    """Let every node's new vector w into its sum.

    Mass that starts anew: s = n w, phi = n. Mass that persists: the step n (w - s/phi) is added to what was
    held back, and as much of it enters s as the node's mass allows, phi/n at most 1; the rest waits. Without
    that bound a node whose mass is low for the moment would take its step n/phi times too far.
    """
    for i in range(lo, hi):
        if not alive[i]:
            continue
        if not persist or phi[i] == 0.0:
            phi[i] = n[i]
            for j in range(s.shape[1]):
                s[i, j] = n[i] * w[i, j]
        elif n[i] > 0.0:
            enters, per_mass = min(1.0, phi[i] / n[i]), 1.0 / phi[i]
            for j in range(s.shape[1]):
                step = held[i, j] + n[i] * (w[i, j] - s[i, j] * per_mass)
                s[i, j] += enters * step
                held[i, j] = (1.0 - enters) * step


@compiled
def pick_edge(table: Floats, first: int, last: int, u: float) -> int:
    """The edge of first:last whose stretch of the cumulative probability holds u; -1 above the last.

    Without a table all of them are as likely.
    """
    if len(table) == 0:
        return first + int(u * (last - first))
    if u >= table[last - 1]:
        return -1
    lo, hi = first, last - 1
    while lo < hi:
        middle = (lo + hi) // 2
        if u < table[middle]:
            hi = middle
        else:
            lo = middle + 1
    return lo


@compiled
def draw_edges(alive: Flags, first: int, indptr: Ints, table: Floats, seed: int, time: int) -> Ints:
    """The out-edge every node draws at this time; -1 for the silent (dead, without neighbours, or by the draw)."""
    edges = np.empty(len(alive), dtype=np.int64)
    for i in range(len(alive)):
        edges[i] = -1
        if alive[i] and indptr[i + 1] > indptr[i]:
            edges[i] = pick_edge(table, indptr[i], indptr[i + 1], draw(seed, first + i, time, NEIGHBOUR))
    return edges


@compiled
def halve(lo: int, hi: int, edges: Ints, s: Floats, phi: Floats, vector: Floats, weight: Floats) -> None:
    """Keep half, put half on the wire. A node with next to no mass falls silent: its entry of ``edges`` becomes -1."""
    for i in range(lo, hi):
        if phi[i] < MIN_MASS:
            edges[i] = -1
        if edges[i] < 0:
            continue
        phi[i] *= 0.5
        weight[i] = phi[i]
        for j in range(s.shape[1]):
            half = 0.5 * s[i, j]
            s[i, j] = half
            vector[i, j] = half


@compiled
def halve_running(
    lo: int,
    hi: int,
    edges: Ints,
    s: Floats,
    phi: Floats,
    sigma: Floats,
    sigma_phi: Floats,
    vector: Floats,
    weight: Floats,
) -> None:
    """Keep half, add half to the drawn edge's running sum, put that sum on the wire."""
    for i in range(lo, hi):
        e = edges[i]
        if e < 0:
            continue
        part = 0.5 if phi[i] >= MIN_MASS else 0.0
        sigma_phi[e] += part * phi[i]
        phi[i] -= part * phi[i]
        weight[i] = sigma_phi[e]
        for j in range(s.shape[1]):
            sigma[e, j] += part * s[i, j]
            s[i, j] -= part * s[i, j]
            vector[i, j] = sigma[e, j]


@compiled
def send_shares(
    lo: int, hi: int, alive: Flags, indptr: Ints, share: Floats, keep: Floats, s: Floats, phi: Floats,
    vector: Floats, weight: Floats,
) -> None:  # fmt: skip
    """A share b_ij to every neighbour, b_ii to itself; message e belongs to edge e."""
    for i in range(lo, hi):
        if not alive[i]:
            continue
        sends = phi[i] >= MIN_MASS
        for e in range(indptr[i], indptr[i + 1]):
            part = share[e] if sends else 0.0
            weight[e] = part * phi[i]
            for j in range(s.shape[1]):
                vector[e, j] = part * s[i, j]
        part = keep[i] if sends else 1.0
        phi[i] *= part
        for j in range(s.shape[1]):
            s[i, j] *= part


@compiled
def order_messages(receiver: Ints, sender: Ints, seq: Ints, first: int, count: int) -> tuple[Places, Places]:
    """Mail in the fixed order of absorption: by receiver, then sender, then sequence.

    Returns the order and where each receiver's mail starts in it; mail for others is left out.
    """
    start = np.zeros(count + 1, dtype=np.int32)  # half as wide: of a million, more stay near the processor
    for m in range(len(receiver)):
        if first <= receiver[m] < first + count:
            start[receiver[m] - first + 1] += 1
    for i in range(count):
        start[i + 1] += start[i]
    order = np.empty(start[count], dtype=np.int32)
    filled, ready = start[:-1].copy(), in_order(sender, seq)
    for m in range(len(receiver)):
        i = receiver[m] - first
        if 0 <= i < count:
            p, least = filled[i], filled[i] if ready else start[i]
            while p > least and (  # an insertion sort, where mail does not come in order
                sender[order[p - 1]] > sender[m] or (sender[order[p - 1]] == sender[m] and seq[order[p - 1]] > seq[m])
            ):
                order[p] = order[p - 1]
                p -= 1
            order[p] = m
            filled[i] += 1
    return order, start


@compiled
def in_order(sender: Ints, seq: Ints) -> bool:
    """Whether mail comes by sender, then sequence."""
    for m in range(1, len(sender)):
        if sender[m - 1] > sender[m] or (sender[m - 1] == sender[m] and seq[m - 1] > seq[m]):
            return False
    return True


@compiled
def absorb(
    lo: int, hi: int, order: Places, start: Places, seq: Ints, since: int, vector: Floats, weight: Floats,
    s: Floats, phi: Floats,
) -> None:  # fmt: skip
    """Add to every node's own share what was sent to it; mail of before ``since`` is stale and left out."""
    last = start[hi] - 1
    for i in range(lo, hi):
        for p in range(start[i], start[i + 1]):
            m = order[p]
            soon = order[min(p + PREFETCH_ROWS, last)]
            prefetch_row(vector, soon)
            prefetch_entry(weight, soon)
            if since > 0 and seq[m] < since:
                continue
            phi[i] += weight[m]
            for j in range(s.shape[1]):
                s[i, j] += vector[m, j]


@compiled
def absorb_running(
    lo: int, hi: int, order: Places, start: Places, sender: Ints, seq: Ints, vector: Floats, weight: Floats,
    in_ptr: Ints, source: Ints,
    seen: Floats, seen_phi: Floats, seen_seq: Ints, s: Floats, phi: Floats,
) -> None:  # fmt: skip
    """Add what is new in each running sum since the last one seen; old, repeated or returned mail is ignored."""
    for i in range(lo, hi):
        for p in range(start[i], start[i + 1]):
            m = order[p]
            e = find(source, in_ptr[i], in_ptr[i + 1], sender[m])
            if e < 0 or seq[m] <= seen_seq[e]:
                continue
            seen_seq[e] = seq[m]
            phi[i] += weight[m] - seen_phi[e]
            seen_phi[e] = weight[m]
            for j in range(s.shape[1]):
                s[i, j] += vector[m, j] - seen[e, j]
                seen[e, j] = vector[m, j]


@compiled
def find(sorted_ids: Ints, first: int, last: int, wanted: int) -> int:
    """Where ``wanted`` stands in the sorted stretch first:last, or -1."""
    lo, hi = first, last
    while lo < hi:
        middle = (lo + hi) // 2
        if sorted_ids[middle] < wanted:
            lo = middle + 1
        else:
            hi = middle
    return lo if lo < last and sorted_ids[lo] == wanted else -1


@compiled
def estimate(lo: int, hi: int, alive: Flags, s: Floats, phi: Floats, w: Floats) -> None:
    """w = s / phi; a node without mass keeps the vector it had."""
    for i in range(lo, hi):
        if alive[i] and phi[i] > 0.0:
            per_mass = 1.0 / phi[i]
            for j in range(s.shape[1]):
                w[i, j] = s[i, j] * per_mass


@compiled
def average_with(lo: int, hi: int, partner: Ints, vector: Floats, s: Floats) -> None:
    """Every node with a partner's vector moves to the middle of the two."""
    for i in range(lo, hi):
        m = partner[i]
        if m >= 0:
            for j in range(s.shape[1]):
                s[i, j] = 0.5 * (s[i, j] + vector[m, j])


@compiled
def pick_message(
    first: int, order: Places, start: Places, seq: Ints, since: int, willing: Flags, seed: int, time: int
) -> Ints:
    """For every willing node one of the messages to it not older than ``since``, drawn evenly; -1 for none."""
    chosen = np.full(len(willing), -1, dtype=np.int64)
    for i in range(len(willing)):
        seen = 0
        for p in range(start[i], start[i + 1]):
            if willing[i] and seq[order[p]] >= since:
                seen += 1
                if draw(seed, first + i, (time << 24) + seen, ANSWER) * seen < 1.0:  # each of them with chance 1/seen
                    chosen[i] = order[p]
    return chosen
