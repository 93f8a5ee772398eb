"""The kernels of gossip, on a block's sums ``s`` (k x D) and masses ``phi`` (k): load, send, absorb, average."""

import numpy as np

from gadget_svm.core.types import Array, Flags, Floats, Ints, NodeIds
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.counter_rng import ANSWER, NEIGHBOUR, draw
from gadget_svm.kernels.vectors import PREFETCH_ROWS, prefetch, prefetch_row

Places = Array
"""Positions of messages in a batch, 32 bits each."""

MIN_MASS = 1e-250
"""A node with less mass than this sends no mass. A node that is cut off for a thousand rounds halves its mass so often
that s/phi would lose its digits, and then become 0/0."""
EPOCH_SHIFT = 40
"""The bit of a sequence number at which the epoch begins; below it is the exchange in which the message was sent. One
comparison then tells whether a message is newer or of a higher epoch."""


@compiled
def load_vectors(
    lo: int, hi: int, alive: Flags, n: Floats, w: Floats, s: Floats, phi: Floats, held: Floats, persist: bool
) -> None:
    """Enter every node's new vector w into its sum.

    Without ``persist``, or at a node without mass: s = n w, phi = n. Otherwise the step n (w - s/phi) is added to
    ``held``, and the part min(1, phi/n) of that moves to s; the rest is held back until the next call. Without this
    limit, the estimate of a node with little mass would move n/phi times too far.
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
    """Return the edge of first:last whose interval of the cumulative probability contains u; -1 above the last.

    With an empty table all edges are equally likely.
    """
    if len(table) == 0:
        return first + int(u * (last - first))
    e = first + int(np.searchsorted(table[first:last], u, side="right"))
    return e if e < last else -1


@compiled
def draw_edges(alive: Flags, first: int, indptr: Ints, table: Floats, seed: int, time: int) -> Ints:
    """Return the out-edge that every node draws; -1 if it is not active, has no neighbours, or draws none."""
    edges = np.empty(len(alive), dtype=np.int64)
    for i in range(len(alive)):
        edges[i] = -1
        if alive[i] and indptr[i + 1] > indptr[i]:
            edges[i] = pick_edge(table, indptr[i], indptr[i + 1], draw(seed, first + i, time, NEIGHBOUR))
    return edges


@compiled
def halve(lo: int, hi: int, edges: Ints, s: Floats, phi: Floats, vector: Floats, weight: Floats) -> None:
    """Keep half and send half. A node with less than MIN_MASS sends nothing: its entry of ``edges`` becomes -1."""
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
    lo: int, hi: int, edges: Ints, s: Floats, phi: Floats, sigma: Floats, sigma_phi: Floats, vector: Floats,
    weight: Floats,
) -> None:  # fmt: skip
    """Keep half, add half to the running sum of the drawn edge, and send that sum."""
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
    """Send the share b_ij to every neighbour and keep b_ii; message e belongs to edge e."""
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
def order_messages(receiver: NodeIds, sender: NodeIds, seq: NodeIds, first: int, count: int) -> tuple[Places, Places]:
    """Sort messages by receiver, then sender, then sequence number: the fixed order of absorption.

    Returns the order, and where each receiver's messages start in it. Messages to other nodes are left out.
    """
    start = np.zeros(count + 1, dtype=np.int32)  # 32 bits: more of a million stay in the cache
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
            while p > least and (  # an insertion sort, if messages are not in order
                sender[order[p - 1]] > sender[m] or (sender[order[p - 1]] == sender[m] and seq[order[p - 1]] > seq[m])
            ):
                order[p] = order[p - 1]
                p -= 1
            order[p] = m
            filled[i] += 1
    return order, start


@compiled
def in_order(sender: NodeIds, seq: NodeIds) -> bool:
    """Return whether messages are sorted by sender, then sequence number."""
    for m in range(1, len(sender)):
        if sender[m - 1] > sender[m] or (sender[m - 1] == sender[m] and seq[m - 1] > seq[m]):
            return False
    return True


@compiled
def absorb(
    lo: int, hi: int, order: Places, start: Places, seq: Ints, since: int, vector: Floats, weight: Floats,
    s: Floats, phi: Floats,
) -> None:  # fmt: skip
    """Add to every node's sum what was sent to it. Messages numbered below ``since`` are out of date and left out."""
    last = start[hi] - 1
    for i in range(lo, hi):
        for p in range(start[i], start[i + 1]):
            m = order[p]
            soon = order[min(p + PREFETCH_ROWS, last)]
            prefetch_row(vector, soon)
            prefetch(weight, (soon,))
            if since > 0 and seq[m] < since:
                continue
            phi[i] += weight[m]
            for j in range(s.shape[1]):
                s[i, j] += vector[m, j]


@compiled
def absorb_running(
    lo: int, hi: int, order: Places, start: Places, sender: Ints, seq: Ints, vector: Floats, weight: Floats,
    in_ptr: Ints, source: Ints, seen: Floats, seen_phi: Floats, seen_seq: Ints, s: Floats, phi: Floats,
) -> None:  # fmt: skip
    """Add what is new in each running sum since the last one seen. Old, repeated or returned messages are ignored."""
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
    """Return the position of ``wanted`` in the sorted interval first:last, or -1."""
    p = first + int(np.searchsorted(sorted_ids[first:last], wanted))
    return p if p < last and sorted_ids[p] == wanted else -1


@compiled
def mix_robustly(
    lo: int, hi: int, order: Places, start: Places, sender: Ints, seq: Ints, since: int, vector: Floats, weight: Floats,
    first: int, n: Floats, most: Floats, claims: Floats, liars: int, trims: bool, s: Floats,
) -> None:  # fmt: skip
    """Move every node's vector towards those of its neighbours, by differences that are clipped or dropped.

    See `gossip.robust.RobustMixing`. ``weight`` and ``claims`` are a_j of the senders and a_i of the nodes, and
    ``most`` is the largest b_ij of a node.
    """
    step = np.empty(s.shape[1])
    for i in range(lo, hi):
        chosen = latest_messages(order, start[i], start[i + 1], sender, seq, since, first + i)
        heard = len(chosen)
        if heard <= (liars if trims else 2 * liars):
            continue
        far = np.empty(heard)
        for p in range(heard):
            far[p] = distance(vector[chosen[p]], s[i])
        nearest = np.argsort(far, kind="mergesort")
        kept = heard - liars if trims else heard
        limit = np.inf if trims else far[nearest[heard - 2 * liars - 1]]
        step[:] = 0.0
        for rank in range(kept):
            p = nearest[rank]
            m = chosen[p]
            if far[p] == np.inf or not weight[m] > 0.0:
                continue
            part = most[i] if n[i] == 0.0 else most[i] * min(1.0, weight[m] / claims[i])
            if far[p] > limit:
                part *= limit / far[p]
            for j in range(s.shape[1]):
                step[j] += part * (vector[m, j] - s[i, j])
        for j in range(s.shape[1]):
            s[i, j] += step[j]


@compiled
def latest_messages(
    order: Places, begin: int, end: int, sender: Ints, seq: Ints, since: int, receiver: int
) -> Ints:  # fmt: skip
    """Return the newest message of every other sender among order[begin:end], which is sorted by sender and number.

    Messages numbered below ``since`` are out of date. A message from the receiver itself came back to it, and does not
    count.
    """
    chosen, count = np.empty(end - begin, dtype=np.int64), 0
    for p in range(begin, end):
        m = order[p]
        superseded = p + 1 < end and sender[order[p + 1]] == sender[m]
        if not superseded and sender[m] != receiver and seq[m] >= since:
            chosen[count] = m
            count += 1
    return chosen[:count]


@compiled
def distance(v: Floats, w: Floats) -> float:
    """Return |v - w|; infinity if it is not a number or too large to compute."""
    total = 0.0
    for j in range(len(v)):
        total += (v[j] - w[j]) ** 2
    return np.sqrt(total) if total < np.inf else np.inf


@compiled
def estimate(lo: int, hi: int, alive: Flags, s: Floats, phi: Floats, w: Floats) -> None:
    """Set w = s / phi. A node without mass keeps its vector."""
    for i in range(lo, hi):
        if alive[i] and phi[i] > 0.0:
            per_mass = 1.0 / phi[i]
            for j in range(s.shape[1]):
                w[i, j] = s[i, j] * per_mass


@compiled
def pick_message(
    first: int, order: Places, start: Places, seq: Ints, since: int, eligible: Flags, seed: int, time: int
) -> Ints:
    """For every eligible node, draw one of its messages with a number of at least ``since``; -1 if there is none."""
    chosen = np.full(len(eligible), -1, dtype=np.int64)
    for i in range(len(eligible)):
        seen = 0
        for p in range(start[i], start[i + 1]):
            if eligible[i] and seq[order[p]] >= since:
                seen += 1
                if draw(seed, first + i, (time << 24) + seen, ANSWER) * seen < 1.0:  # reservoir sampling
                    chosen[i] = order[p]
    return chosen
