"""The moves of a certificate on a block's nodes: a wave out, the candidate down a tree, sums up, the bound down.

Owns the arithmetic of the bound and the protocol of one edge. Nothing is ever sent unless it is new or asked for, and
everything received may come late, twice or not at all: a node that lacks something asks for it again.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.kernels.compiler import compiled, interpreted
from gadget_svm.kernels.dual import DualRows
from gadget_svm.kernels.gossip import find
from gadget_svm.kernels.rows import sides

HELLO, MODEL, SUM, BOUND = range(4)
"""What a message carries: nothing but its head, the candidate, a subtree's sums, the bound."""
KINDS = 4
SOON, PART = 4, 32
"""A node asks (again) for what it lacks after SOON exchanges and a PART-th of those so far: deep trees take long."""
EPS = 2.0**-52
TOGETHER = 1 << 20
"""Numbers of several nodes that are summed at a time: more nodes if they are small."""
KEPT = 1 << 22
"""Up to so many margins are worked out at once, and what is known of their rows is kept between certificates."""


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


class OwnSums:
    """What the rows of each node add to the sums, at a candidate; alpha is cut to its box [0, c_r].

    Not compiled: scipy's products do the work. They add row by row, so a node's sums are the same whichever other
    nodes are worked on with it. Margins are those of all rows as they lie in memory; v is that of support vectors.
    """

    def __init__(self, rows: DualRows, times: Floats, K: int, F: int) -> None:
        self.rows, self.times, self.K, self.F = rows, times, K, F
        self.X = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(len(rows.label), F))
        work = np.cumsum(K * (F + np.diff(rows.start))) // TOGETHER
        cuts = [0, *(np.flatnonzero(np.diff(work)) + 1).tolist(), len(work)]
        self._parts: list[tuple[int, int]] = [(lo, hi) for lo, hi in pairwise(cuts) if hi > lo]
        small, most = K * len(rows.label) <= KEPT, 2 * len(rows.order) >= len(rows.label)
        self._kept: list[_Part] = [self._part(*part) for part in self._parts] if small else []
        self._at_once = small and most

    def __call__(self, w: Floats, alpha: Floats, total: Floats) -> None:
        """The sums of every node into the lines of ``total``, see `width`, for the candidate ``w``."""
        w = w.reshape(self.K, self.F)
        margins = np.asarray(self.X @ w.T) if self._at_once else None
        for number, (lo, hi) in enumerate(self._parts):
            part = self._kept[number] if self._kept else self._part(lo, hi)
            mine = np.asarray(self.X[part.row] @ w.T) if margins is None else margins[part.row]
            self._sums(part, w, mine, alpha[:, part.places].T, total[lo:hi])

    def _part(self, lo: int, hi: int) -> "_Part":
        rows, places = self.rows, slice(self.rows.start[lo], self.rows.start[hi])
        ends, row = rows.start[lo : hi + 1] - rows.start[lo], rows.order[places]
        count, longest = np.diff(ends), np.zeros(hi - lo)
        longest[count > 0] = np.maximum.reduceat(np.diff(rows.indptr)[row], ends[:-1][count > 0])
        adder = sp.csr_matrix((np.ones(len(row)), np.arange(len(row)), ends), shape=(hi - lo, len(row)))
        y, norm = sides(rows.pairs, self.K, rows.label[row]), np.sqrt(rows.norm2[places, None])
        counts = np.stack([count + longest + 16.0, np.ones(hi - lo)], axis=1)
        return _Part(places, row, np.repeat(np.arange(hi - lo), count), adder, y, norm, counts)

    def _sums(self, part: "_Part", w: Floats, margins: Floats, alpha: Floats, total: Floats) -> None:
        (K, F), most, y = w.shape, self.rows.upper[part.places, None], part.y
        a = np.clip(alpha, 0.0, most) * (y != 0.0)
        with np.errstate(over="ignore", invalid="ignore"):  # then there is no certificate
            hinge = most * np.maximum(0.0, np.abs(y) - y * margins)
            size = most * (np.abs(y) + part.norm * np.sqrt(sq_lengths(w, K)) * np.abs(y))
        v = self._pull(part, a * y, len(total)).reshape(-1, F, K)
        total[:, : K * F] = v.swapaxes(1, 2).reshape(-1, K * F)
        total[:, K * F : -2] = part.adder @ np.hstack([hinge, a, size, a * part.norm, self.times[part.places, None]])
        total[:, -2:] = part.counts

    def _pull(self, part: "_Part", factors: Floats, count: int) -> Floats:
        """The sum of the nodes' rows times their factors: every node has places of its own for its features."""
        some = np.flatnonzero(factors.any(axis=1))
        X = self.X[part.row[some]]
        kind: Any = np.int32 if count * self.F < 2**31 else np.int64
        columns = X.indices + np.repeat((part.owner[some] * self.F).astype(kind), np.diff(X.indptr))
        apart = sp.csc_matrix((X.data, columns, X.indptr), shape=(count * self.F, len(some)))
        return np.asarray(apart @ factors[some])


class _Part(NamedTuple):
    """Some nodes' rows, as `OwnSums` needs them: of every place its row and node, y and norm."""

    places: slice
    row: Ints
    owner: Ints
    adder: sp.csr_matrix  # nodes x rows
    y: Floats
    norm: Floats
    counts: Floats


@np.errstate(over="ignore", invalid="ignore")  # what is not finite certifies nothing, and the fit says so
def conclude(bound: Floats, w: Floats, total: Floats, lam: float, K: int, F: int) -> None:
    """From the sums of all nodes the gap P(w) - D(alpha) and the dual value of every output, rounded to the safe side.

    A sum of k terms is off by at most k eps times the sum of their sizes, whatever the order; so P is taken
    that much higher, D that much lower.
    """
    v, (h, a, size, length), (N, count, n_nodes) = total[: K * F], total[K * F : -3].reshape(4, K), total[-3:]
    off = (count + F + 64.0) * EPS
    h, a = h + off * size, a * (1.0 - off)
    v = np.sqrt(sq_lengths(v, K)) * (1.0 + off) + off * length
    primal = (1.0 + off) * (0.5 * lam * sq_lengths(w, K) + h / N)
    bend = (1.0 + 4.0 * off) * v * v / (2.0 * lam * N * N)
    dual = (1.0 - 4.0 * off) * a / N - bend - 4.0 * EPS * (a / N + bend)
    bound[:] = np.concatenate([primal - dual + 4.0 * EPS * (primal + np.abs(dual)), dual, [N, n_nodes]])


def sq_lengths(vectors: Floats, count: int) -> Floats:
    """|v|^2 of so many vectors that lie one after another."""
    return np.asarray((vectors * vectors).reshape(count, -1).sum(axis=1))


def judge(i: int, nodes: Nodes, ends: Ends) -> bool:
    """Whether all sums are in only now, and the owner, node i, is to conclude. Not compiled: it is one node."""
    if nodes.has[i, BOUND] or not interpreted(complete)(nodes, ends, i):
        return False
    nodes.has[i, SUM] = nodes.has[i, BOUND] = True
    return True


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
