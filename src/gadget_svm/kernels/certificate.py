"""The moves of a certificate on a block's nodes: a wave out, the candidate down a tree, sums up, the bound down.

Owns the arithmetic of the bound and the protocol of one edge. Nothing is ever sent unless it is new or asked for, and
everything received may come late, twice or not at all: a node that lacks something asks for it again.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gadget_svm.kernels.compiler import compiled, interpreted
from gadget_svm.kernels.dual import DualRows
from gadget_svm.kernels.gossip import find
from gadget_svm.kernels.rows import side
from gadget_svm.kernels.vectors import add_row, dot_row, sq_norm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

HELLO, MODEL, SUM, BOUND = range(4)
"""What a message carries: nothing but its head, the candidate, a subtree's sums, the bound."""
KINDS = 4
SOON, PART = 4, 32
"""A node asks (again) for what it lacks after SOON exchanges and a PART-th of those so far: deep trees take long."""
EPS = 2.0**-52


class Nodes(NamedTuple):
    """What every node knows of the certificate; ``parent`` is -1 until the wave arrives, the owner's is itself."""

    first: int
    alive: Flags
    parent: Ints
    has: Flags  # nodes x KINDS: what a node holds of its own
    model: Floats  # the candidate
    total: Floats  # the sums of its subtree so far, see `width`
    bound: Floats
    news: Ints  # how often it learned something


class Ends(NamedTuple):
    """Node i's ends of its edges are ptr[i]:ptr[i+1], by ascending target."""

    ptr: Ints
    target: Ints
    live: Flags  # whether anybody is at the other end
    heard: Flags  # whether the neighbour's head, and so its parent, is known
    child: Flags
    added: Flags  # whether the child's sums are in
    asked: Flags  # ends x KINDS: what the neighbour asks for
    sent: Ints  # ends x KINDS: when it was last sent, -1 for never; HELLO is any message
    ask_at: Ints


def width(n_features: int, n_outputs: int) -> tuple[int, int, int, int]:
    """How many numbers each kind of message holds.

    Sums: v = sum alpha y x of every output; for each output the hinges h, sum alpha, and the sizes of what was summed
    in h and in v; then the rows' weight, the number of operations and of nodes. Bound: gap and dual value of each
    output, the rows' weight and the number of nodes.
    """
    D = n_features * n_outputs
    return 0, D, D + 4 * n_outputs + 3, 2 * n_outputs + 2


@compiled
def own_sums(
    lo: int, hi: int, which: Flags, nodes: Nodes, alpha: Floats, rows: DualRows, times: Floats, K: int, F: int
) -> None:
    """What the rows of each chosen node add to the sums, at the candidate; alpha is cut to its box [0, c_r]."""
    for i in range(lo, hi):
        if not which[i]:
            continue
        total, D = nodes.total[i], K * F
        total[:] = 0.0
        longest = 0
        for c in range(K):
            w, v, target = nodes.model[i, c * F : (c + 1) * F], total[c * F : (c + 1) * F], 1 if K == 1 else c
            length = np.sqrt(sq_norm(w))
            for p in range(rows.start[i], rows.start[i + 1]):
                r, most, norm = rows.order[p], rows.upper[p], np.sqrt(rows.norm2[p])
                first, last = rows.indptr[r], rows.indptr[r + 1]
                y = side(rows.pairs, target, rows.label[r])
                if y == 0.0:
                    continue
                a = min(max(alpha[c, p], 0.0), most)
                longest = max(longest, last - first)
                total[D + c] += most * max(0.0, 1.0 - y * dot_row(w, rows.indices, rows.data, first, last))
                total[D + K + c] += a
                total[D + 2 * K + c] += most * (1.0 + norm * length)
                total[D + 3 * K + c] += a * norm
                if a > 0.0:
                    add_row(v, a * y, rows.indices, rows.data, first, last)
        for p in range(rows.start[i], rows.start[i + 1]):
            total[D + 4 * K] += times[p]
        total[D + 4 * K + 1] = rows.start[i + 1] - rows.start[i] + longest + 16.0
        total[D + 4 * K + 2] = 1.0


@compiled
def conclude(bound: Floats, w: Floats, total: Floats, lam: float, K: int, F: int) -> None:
    """From the sums of all nodes the gap P(w) - D(alpha) and the dual value of every output, rounded to the safe side.

    A sum of k terms is off by at most k eps times the sum of their sizes, whatever the order; so P is taken
    that much higher, D that much lower.
    """
    D = K * F
    off = (total[D + 4 * K + 1] + F + 64.0) * EPS
    N = total[D + 4 * K]
    for c in range(K):
        h, a = total[D + c] + off * total[D + 2 * K + c], total[D + K + c] * (1.0 - off)
        v = np.sqrt(sq_norm(total[c * F : (c + 1) * F])) * (1.0 + off) + off * total[D + 3 * K + c]
        primal = (1.0 + off) * (0.5 * lam * sq_norm(w[c * F : (c + 1) * F]) + h / N)
        bend = (1.0 + 4.0 * off) * v * v / (2.0 * lam * N * N)
        dual = (1.0 - 4.0 * off) * a / N - bend - 4.0 * EPS * (a / N + bend)
        bound[c] = primal - dual + 4.0 * EPS * (primal + abs(dual))
        bound[K + c] = dual
    bound[2 * K], bound[2 * K + 1] = N, total[D + 4 * K + 2]


def judge(i: int, nodes: Nodes, ends: Ends, lam: float, K: int, F: int) -> None:
    """The owner, node i, concludes when all sums are in. Not compiled: it is one node."""
    if not nodes.has[i, BOUND] and interpreted(complete)(nodes, ends, i):
        conclude(nodes.bound[i], nodes.model[i], nodes.total[i], lam, K, F)
        nodes.has[i, SUM] = nodes.has[i, BOUND] = True


@compiled
def complete(nodes: Nodes, ends: Ends, i: int) -> bool:
    """Whether node i holds the sums of its whole subtree: it knows all neighbours' parents and all children's sums."""
    if not nodes.has[i, MODEL]:
        return False
    for e in range(ends.ptr[i], ends.ptr[i + 1]):
        if ends.live[e] and (not ends.heard[e] or (ends.child[e] and not ends.added[e])):
            return False
    return True


@compiled
def lacks(nodes: Nodes, ends: Ends, i: int, e: int) -> int:
    """What node i waits for from the other end of e, a bit for each kind."""
    missing = 0 if ends.heard[e] else 1 << HELLO
    if ends.target[e] == nodes.parent[i]:
        if not nodes.has[i, MODEL]:
            missing |= 1 << MODEL
        elif nodes.has[i, SUM] and not nodes.has[i, BOUND]:
            missing |= 1 << BOUND
    elif ends.child[e] and nodes.has[i, MODEL] and not ends.added[e]:
        missing |= 1 << SUM
    return missing


@compiled
def due(nodes: Nodes, ends: Ends, i: int, e: int) -> int:
    """The kind node i has for the other end of e, new or asked for; HELLO if that is all, -1 if there is nothing."""
    for kind in (BOUND, SUM, MODEL):
        takes = ends.target[e] == nodes.parent[i] if kind == SUM else ends.child[e]
        if takes and nodes.has[i, kind] and (ends.sent[e, kind] < 0 or ends.asked[e, kind]):
            return kind
    return HELLO if ends.sent[e, HELLO] < 0 or ends.asked[e, HELLO] else -1


@compiled
def decide(lo: int, hi: int, now: int, nodes: Nodes, ends: Ends, kind: Ints, missing: Ints) -> None:
    """What goes along each edge now: ``kind`` is -1 where nothing does."""
    for i in range(lo, hi):
        here = nodes.alive[i] and nodes.parent[i] >= 0
        if here and not nodes.has[i, SUM] and complete(nodes, ends, i):
            nodes.has[i, SUM] = True
        for e in range(ends.ptr[i], ends.ptr[i + 1]):
            kind[e] = -1
            if not (here and ends.live[e]):
                continue
            missing[e], kind[e] = lacks(nodes, ends, i, e), due(nodes, ends, i, e)
            if missing[e] and now >= ends.ask_at[e]:
                kind[e] = max(kind[e], HELLO)
            if kind[e] >= 0:
                ends.sent[e, HELLO] = ends.sent[e, kind[e]] = now
                ends.ask_at[e] = now + SOON + now // PART
                ends.asked[e, :] = False


@compiled
def write(
    lo: int, hi: int, nodes: Nodes, senders: Ints, chosen: Ints, kind: Ints, missing: Ints, vector: Floats,
    head: Floats, widths: Ints,
) -> None:  # fmt: skip
    """Message m of node senders[m] along edge chosen[m]: what it carries, and in its head what the sender lacks."""
    for m in range(lo, hi):
        i, e = senders[m], chosen[m]
        what = kind[e]
        head[m] = what + KINDS * missing[e]
        content = nodes.model[i] if what == MODEL else nodes.total[i] if what == SUM else nodes.bound[i]
        size = widths[what]
        vector[m, :size] = content[:size]


@compiled
def listen(
    lo: int, hi: int, since: int, until: int, nodes: Nodes, ends: Ends, order: Ints, start: Ints, sender: Ints,
    seq: Ints, vector: Floats, parent: Floats, head: Floats, widths: Ints,
) -> None:  # fmt: skip
    """Take in what arrived; mail of another certificate, of learning, returned or from the departed is ignored.

    Mail comes ordered by sender, so of several waves that arrive at once the lowest sender's makes the parent.
    """
    for i in range(lo, hi):
        for place in range(start[i], start[i + 1]):
            m = order[place]
            if not (nodes.alive[i] and since <= seq[m] < until):
                continue
            e = find(ends.target, ends.ptr[i], ends.ptr[i + 1], sender[m])
            if e >= 0 and ends.live[e]:
                what, missing = int(head[m]) % KINDS, int(head[m]) // KINDS
                hear(nodes, ends, i, e, int(parent[m]), what, vector[m], widths[what])
                for asked in range(KINDS):  # what was sent since the question may still be on its way
                    if (missing >> asked) & 1 and seq[m] - since > ends.sent[e, asked]:
                        ends.asked[e, asked] = True


@compiled
def hear(nodes: Nodes, ends: Ends, i: int, e: int, parent: int, what: int, content: Floats, size: int) -> None:
    """One message: every fact of it is taken down once, and told again changes nothing."""
    if nodes.parent[i] < 0:
        nodes.parent[i] = ends.target[e]
    if not ends.heard[e]:
        ends.heard[e], ends.child[e] = True, parent == nodes.first + i
        nodes.news[i] += 1
    if what == SUM and ends.child[e] and not ends.added[e]:
        ends.added[e] = True
        nodes.news[i] += 1
        nodes.total[i, :size] += content[:size]
    elif what in (MODEL, BOUND) and not nodes.has[i, what]:
        nodes.has[i, what] = True
        nodes.news[i] += 1
        mine = nodes.model[i] if what == MODEL else nodes.bound[i]
        mine[:size] = content[:size]
