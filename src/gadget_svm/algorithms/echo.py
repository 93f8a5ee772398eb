"""The messages of a certificate: an echo (Chang, 1982) along a tree that lasts for one certificate.

Owns what the nodes of a block know, send and receive; it does not know what the sums mean. Each node sends only what is
new or requested. Messages may arrive late, twice or not at all: a node that lacks something asks for it again.
"""

from collections.abc import Iterator

import numpy as np

from gadget_svm.core.block import Block
from gadget_svm.core.messages import HEADER_BYTES, MessageBatch
from gadget_svm.core.types import Flags, Ints
from gadget_svm.kernels.pdmm import segments

HELLO, MODEL, SUM, BOUND = range(4)
"""The kinds of messages by content: only the header, the candidate model, the sums of a subtree, the bound."""
KINDS = 4
ASK_AFTER, ASK_FRACTION = 4, 32
"""A node waits ASK_AFTER exchanges, plus one per ASK_FRACTION exchanges so far, and then asks for what it lacks. Deep
trees need the longer wait."""
FIRST_SEQ, SEQ_SPAN = -(2**62), 2**31
"""Sequence numbers are negative, and each certificate has its own span of them. The algorithms treat messages with
these numbers as old and ignore them."""


class EchoNodes:
    """What every node of a block knows of one certificate, per node and per end of an edge.

    Parameters
    ----------
    block : Block
        The nodes.
    participates : array of bool
        Which nodes of the network take part.
    widths : tuple of int
        How many numbers each kind of message holds.
    empty : bool, default False
        Messages carry no vectors: only their order and cost are of interest.
    serial : int
        The number of the certificate.
    """

    def __init__(self, block: Block, participates: Flags, widths: tuple[int, ...], empty: bool, serial: int) -> None:
        k, ends, self.first = block.k, len(block.links.target), block.first
        self.since = FIRST_SEQ + serial * SEQ_SPAN
        self.widths, self.carried = np.array(widths), np.array(widths) * (not empty)
        self.alive = participates[self.first : self.first + k]
        self.parent = np.full(k, -1, dtype=np.int64)  # -1: no message so far; the owner is its own parent
        self.has = np.zeros((k, KINDS), dtype=np.bool_)
        self.model, self.total, self.bound = (np.zeros((k, self.carried[kind])) for kind in (MODEL, SUM, BOUND))
        self.progress = 0  # how often a node learned something
        self.owner, self.target = segments(block.links.indptr), block.links.target.astype(np.int64)
        self.live = participates[self.target]
        self._n = len(participates)
        self._key = self.owner * self._n + self.target  # ascending: ends are sorted by target
        self.heard = np.zeros(ends, dtype=np.bool_)  # whether the neighbour's parent is known
        self.child = np.zeros(ends, dtype=np.bool_)
        self.added = np.zeros(ends, dtype=np.bool_)  # whether the child's sums were added
        self.asked = np.zeros((ends, KINDS), dtype=np.bool_)  # by the neighbour
        self.sent = np.full((ends, KINDS), -1, dtype=np.int64)  # the last exchange, -1 for never; HELLO: any message
        self.ask_at = np.full(ends, 2**62)

    def complete(self) -> Flags:
        """Return which nodes hold their subtree's sums: they know all neighbours' parents and all children's sums."""
        waiting = self.live & (~self.heard | (self.child & ~self.added))
        return np.asarray(self.has[:, MODEL] & (np.bincount(self.owner, waiting, len(self.parent)) == 0))

    def messages(self, time: int, now: int) -> tuple[MessageBatch, Ints]:
        """Return the messages of exchange ``now``, padded to one width, and the kind of content of each."""
        present = self.alive & (self.parent >= 0)
        self.has[:, SUM] |= present & self.complete()
        has, to_parent = self.has[self.owner], self.target == self.parent[self.owner]
        missing = (~self.heard).astype(np.int64) << HELLO
        missing |= (to_parent & ~has[:, MODEL]).astype(np.int64) << MODEL
        missing |= (to_parent & has[:, MODEL] & has[:, SUM] & ~has[:, BOUND]).astype(np.int64) << BOUND
        missing |= (~to_parent & self.child & has[:, MODEL] & ~self.added).astype(np.int64) << SUM
        due = (self.sent < 0) | self.asked
        kinds = np.where(due[:, HELLO] | ((missing > 0) & (now >= self.ask_at)), HELLO, -1)
        for kind in (MODEL, SUM, BOUND):
            kinds[has[:, kind] & due[:, kind] & (to_parent if kind == SUM else self.child)] = kind
        ends = np.flatnonzero(present[self.owner] & self.live & (kinds >= 0))
        kinds, senders = kinds[ends], self.owner[ends]
        self.sent[ends, HELLO] = self.sent[ends, kinds] = now
        self.ask_at[ends] = now + ASK_AFTER + now // ASK_FRACTION
        self.asked[ends] = False
        vector = np.zeros((len(ends), int(self.carried[kinds].max(initial=0))))
        for kind, content in ((MODEL, self.model), (SUM, self.total), (BOUND, self.bound)):
            if len(rows := np.flatnonzero(kinds == kind)):
                vector[rows, : self.carried[kind]] = content[senders[rows]]
        header = (kinds + KINDS * missing[ends]).astype(np.float64)
        seq, parent = np.full(len(ends), self.since + now), self.parent[senders].astype(np.float64)
        return MessageBatch(time, senders + self.first, self.target[ends], seq, vector, parent, header), kinds

    def nbytes(self, kinds: Ints) -> int:
        """Return the bytes of messages of these kinds."""
        return len(kinds) * (HEADER_BYTES + 16) + 8 * int(self.widths[kinds].sum())

    def receive(self, messages: MessageBatch) -> Iterator[tuple[int, int]]:
        """Read what arrived. Ignore messages of other certificates or of learning, from absent nodes, or returned.

        Messages are read by receiver and sender, so if the first messages of several neighbours arrive at once, the
        lowest sender becomes the parent. Each fact counts once; repeating it changes nothing. Yields parent and child,
        as numbers in the block, of all sums that were added.
        """
        i = messages.receiver.astype(np.int64) - self.first
        mine = (i >= 0) & (i < len(self.parent)) & (messages.seq >= self.since) & (messages.seq < self.since + SEQ_SPAN)
        m = np.flatnonzero(mine)
        m = m[self.alive[i[m]]]
        m = m[np.lexsort((messages.seq[m], messages.sender[m], i[m]))]
        keys = i[m] * self._n + messages.sender[m]
        e = np.minimum(np.searchsorted(self._key, keys), max(len(self._key) - 1, 0))
        known = (self._key[e] == keys) & self.live[e] if len(self._key) else np.zeros(len(m), dtype=np.bool_)
        m, e = m[known], e[known]
        if messages.note is None or not len(m):
            return
        i, header = i[m], messages.note[m].astype(np.int64)
        kinds, missing = header % KINDS, header // KINDS
        new = _first(i, self.parent[i] < 0)
        self.parent[i[new]] = self.target[e[new]]
        new = _first(e, ~self.heard[e])
        self.heard[e[new]], self.child[e[new]] = True, messages.weight[m[new]] == self.first + i[new]
        self.progress += len(new)
        for kind, content in ((MODEL, self.model), (BOUND, self.bound)):
            if len(new := _first(i, (kinds == kind) & ~self.has[i, kind])):
                self.has[i[new], kind] = True
                content[i[new]] = messages.vector[m[new], : self.carried[kind]]
                self.progress += len(new)
        for kind in range(KINDS):  # what was sent after the question may still arrive
            self.asked[e[((missing >> kind) & 1 > 0) & (messages.seq[m] - self.since > self.sent[e, kind])], kind] = (
                True
            )
        new = _first(e, (kinds == SUM) & self.child[e] & ~self.added[e])
        self.added[e[new]] = True
        self.progress += len(new)
        for node, end, message in zip(i[new].tolist(), e[new].tolist(), m[new].tolist(), strict=True):
            self.total[node] += messages.vector[message, : self.carried[SUM]]
            yield node, int(self.target[end]) - self.first


def _first(values: Ints, which: Flags) -> Ints:
    """Return the first index of each distinct value, among the indices that ``which`` selects; values are sorted."""
    chosen = np.flatnonzero(which)
    firsts, found = np.ones(len(chosen), dtype=np.bool_), values[chosen]
    firsts[1:] = found[1:] != found[:-1]
    return chosen[firsts]
