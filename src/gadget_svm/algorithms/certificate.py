"""A certificate without a server: every node ends with one model, and with a bound of how far it is from the optimum.

Owns the protocol and the value; `kernels.certificate` owns the arithmetic. Works with every algorithm that keeps dual
variables 0 <= alpha_r <= c_r. Put together they are feasible for the dual of the pooled problem, so for any model w

    F(w) - F* <= P - D,   P = lam/2 |w|^2 + (1/N) sum_i h_i(w),   D = (1/N) sum_r alpha_r - |sum_i v_i|^2 / (2 lam N^2)

with h_i the summed hinges of node i and v_i = sum_r alpha_r y_r x_r. What is missing is a common w and four sums. They
are gathered along a tree that lasts for one certificate (the echo of Chang, 1982):

    out    the owner, the lowest-numbered node that is here, says hello to its neighbours; whoever hears of the
           certificate for the first time takes the sender as its parent and says hello to all its neighbours
    down   the owner's model goes from parent to child; a node that has it computes h_i, v_i and sum alpha_r
    up     a node that has heard hello from every neighbour, so that it knows its children, and the sums of all of
           them, adds its own and sends them to its parent
    down   the owner, when it has all sums, computes P - D and sends it the way its model went

Why it is right whatever is lost, late, repeated or out of order. A parent is chosen once and was there before, so the
chosen edges form a tree. A node's sums are final when it sends them, and a parent adds each child's once. The owner is
done only when all its neighbours are in the tree, and each subtree only when all neighbours of its nodes are: so every
node with a path to the owner is counted, once. No node need know how many there are, nor the diameter. Who lacks
something asks for it again. If a node is cut off the certificate fails and says so; a bound too low it never gives.

A certificate is one of the rows of the nodes that take part, and names them. Nodes that are declared dead are left out.
A node that is away for a moment takes part: its mail is lost as other mail may be, until it returns and is asked again.

Of vectors it takes one down and one up for every node but the owner. Push-Sum of the sums and the largest bound that
any node then believes in (the bound is convex) would do as well, at a vector per edge and round, and give a larger one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gadget_svm.algorithms.base import Run, models
from gadget_svm.core.block import Block
from gadget_svm.core.messages import HEADER_BYTES, MessageBatch
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.gossip import Round
from gadget_svm.kernels import certificate as moves
from gadget_svm.kernels.compiler import interpreted
from gadget_svm.kernels.dual import dual_rows, multiplicity
from gadget_svm.kernels.gossip import order_messages

BEGINNING, SPAN = -(2**62), 2**31
"""Mail of certificates is numbered below zero, each certificate in a span of its own: to learners it is old mail."""
NEVER = 2**62
FEW_ENDS = 512
"""Up to so many ends of edges in a block, who sends what to whom is worked out in Python: compiling that would take
seconds, and it takes less than a millisecond an exchange."""
Cost = tuple[int, int, int, int]
"""Exchanges, messages, bytes, and messages with a vector."""
FREE = (0, 0, 0, 0)


class Echo(NamedTuple):
    """How a certificate went: which sums were added to whose, in this order, and what it cost.

    Where no message is lost or late, every certificate of the same nodes by the same owner goes like this.
    """

    added: list[tuple[int, int]]  # parent and child, as numbers in the block
    cost: Cost


@dataclass(frozen=True)
class Certificate:
    """A model and how far above the optimum its objective is at most, of the rows of the nodes that took part.

    ``bounds`` and ``duals`` have an entry for each output (one a class, or one for every two classes). A ``failure``
    says why there is no bound.
    """

    model: Floats  # outputs x features
    owner: int
    bounds: Floats
    duals: Floats  # lower bounds of each output's optimum
    n_rows: float  # N, of those who took part
    n_nodes: int
    exchanges: int
    messages: int
    nbytes: int
    vectors: int = 0  # how many of the messages carry a vector as long as the model
    failure: str = ""
    nodes: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # those whose rows it counts

    @property
    def bound(self) -> float:
        """F(model) - F* is at most this; F is summed over the outputs, as everywhere."""
        return float("inf") if self.failure else float(self.bounds.sum())

    @property
    def relative(self) -> float:
        """F(model) / F* - 1 is at most this: the bound as a part of the dual value, which F* is not below."""
        below = float(self.duals.sum())
        return self.bound / below if not self.failure and below > 0 else float("inf")

    @property
    def relatives(self) -> Floats:
        """The bound of each output as a part of its own dual value."""
        known = (self.duals > 0) & (not self.failure)
        return np.where(known, self.bounds / np.where(known, self.duals, 1.0), np.inf)


@dataclass
class CertificateSession:
    """One block's part in a certificate. ``conversation`` goes on answering until whoever drives it is content."""

    run: Run
    block: Block
    lam: float
    owner: int
    live_mask: Flags  # of all nodes in the network, which take part
    serial: int  # how many certificates there were before
    time: int
    messages: int = 0
    nbytes: int = 0
    vectors: int = 0
    failure: str = ""
    exchanges: int = 0
    interpret: bool | None = None  # whether the protocol runs in Python; None: if the block has few edges
    empty: bool = False  # messages carry no vectors, and nothing is computed: all there is to learn is how they go
    _computed: bool = field(default=False, init=False)
    _added: list[tuple[int, int]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        block, K = self.block, self.block.w.shape[1]
        k, ends, F = block.k, len(block.links.target), block.w.shape[2]
        if self.interpret is None:
            self.interpret = few_edges(block)
        self.widths = np.array(moves.width(F, K), dtype=np.int64)
        self._carried = self.widths * (not self.empty)
        _, model, sums, told = self._carried.tolist()
        self.since = BEGINNING + self.serial * SPAN
        self.nodes = moves.Nodes(
            block.first, self.live_mask[block.first : block.first + k], np.full(k, -1, dtype=np.int64),
            np.zeros((k, moves.KINDS), dtype=np.bool_), np.zeros((k, model)), np.zeros((k, sums)),
            np.zeros((k, told)), np.zeros(k, dtype=np.int64),
        )  # fmt: skip
        self.ends = moves.Ends(
            block.links.indptr, block.links.target, self.live_mask[block.links.target], np.zeros(ends, dtype=np.bool_),
            np.zeros(ends, dtype=np.bool_), np.zeros(ends, dtype=np.bool_),
            np.zeros((ends, moves.KINDS), dtype=np.bool_), np.full((ends, moves.KINDS), -1, dtype=np.int64),
            np.full(ends, NEVER, dtype=np.int64),
        )  # fmt: skip

    @property
    def told(self) -> Flags:
        """Which nodes hold the model and its bound."""
        return self.nodes.has[:, moves.BOUND]

    @property
    def news(self) -> int:
        """How much the block's nodes have learned: it stands still only if nothing gets through."""
        return int(self.nodes.news.sum())

    def conversation(self) -> Round:
        """Exchanges without end: each yields what the block's nodes send and takes in what reaches them."""
        self._propose()
        while True:
            self._compute()
            delivery = yield self._post()
            messages, first, k = delivery.messages, self.block.first, self.block.k
            sort = interpreted(order_messages) if self.interpret else order_messages
            order, start = sort(messages.receiver, messages.sender, messages.seq, first, k)
            head = np.zeros(messages.n_messages) if messages.note is None else messages.note
            before = self.ends.added.copy()
            self._run(
                moves.listen, k, int(self._carried[moves.SUM]), self.since, self.since + SPAN,
                self.nodes, self.ends, order, start, messages.sender, messages.seq, messages.vector, messages.weight,
                head,
                self._carried,
            )  # fmt: skip
            for end in np.flatnonzero(self.ends.added & ~before).tolist():
                parent = int(np.searchsorted(self.ends.ptr, end, side="right")) - 1
                self._added.append((parent, int(self.ends.target[end]) - first))

    @property
    def echo(self) -> Echo:
        """How the conversation went so far; of a block that holds all nodes."""
        return Echo(self._added, (self.exchanges, self.messages, self.nbytes, self.vectors))

    def repeat(self, echo: Echo) -> None:
        """What a conversation that goes like ``echo`` ends with, to the same bits, without its messages."""
        self._propose()
        self._compute()
        total, i = self.nodes.total, self.owner - self.block.first
        for parent, child in echo.added:
            total[parent] += total[child]
        self._conclude(i)
        self.nodes.has[:, moves.BOUND] = self.nodes.alive
        self.exchanges, self.messages, self.nbytes, self.vectors = echo.cost

    def _run(self, kernel: Callable[..., None], count: int, width: int, *args: Any) -> None:
        """A step of the protocol over 0..count: in Python, or compiled and shared among threads."""
        if self.interpret:
            interpreted(kernel)(0, count, *args)
        else:
            self.block.team.run(kernel, count, width, *args)

    def _propose(self) -> None:
        """The owner's model is the candidate."""
        i = self.owner - self.block.first
        if 0 <= i < self.block.k:
            self.nodes.parent[i], self.nodes.has[i, moves.MODEL] = self.owner, True
            if not self.empty:
                self.nodes.model[i] = models(self.run, self.block)[i].ravel()

    def _compute(self) -> None:
        """The sums of all nodes when the first one has the candidate, which is everybody's; the bound when they are in.

        A node reads its sums when it has the candidate itself.
        """
        holders, i = np.flatnonzero(self.nodes.has[:, moves.MODEL]), self.owner - self.block.first
        if len(holders) and not self._computed and not self.empty:
            self._computed = True
            own_sums(self.block)(self.nodes.model[holders[0]], self.run.duals(self.block), self.nodes.total)
        if 0 <= i < self.block.k and moves.judge(i, self.nodes, self.ends) and not self.empty:
            self._conclude(i)

    def _conclude(self, i: int) -> None:
        """The bound, from all sums, which the owner has: it is the block's node i."""
        nodes = self.nodes
        moves.conclude(nodes.bound[i], nodes.model[i], nodes.total[i], self.lam, *self.block.w.shape[1:])

    def _post(self) -> MessageBatch:
        """A message along every edge that needs one, as wide as the longest; bytes are those of its own content."""
        ends, degree = self.ends, np.diff(self.ends.ptr)
        kind, missing = np.full(len(ends.target), -1, dtype=np.int64), np.zeros(len(ends.target), dtype=np.int64)
        now, self.exchanges = self.exchanges, self.exchanges + 1
        self._run(moves.decide, self.block.k, 1, now, self.nodes, ends, kind, missing)
        chosen = np.flatnonzero(kind >= 0)
        senders, kinds = np.repeat(np.arange(self.block.k), degree)[chosen], kind[chosen]
        vector, head = np.zeros((len(chosen), int(self._carried[kinds].max(initial=0)))), np.empty(len(chosen))
        self._run(
            moves.write, len(chosen), vector.shape[1], self.nodes, senders, chosen, kind, missing, vector, head,
            self._carried,
        )  # fmt: skip
        self.messages += len(chosen)
        self.nbytes += len(chosen) * (HEADER_BYTES + 16) + 8 * int(self.widths[kinds].sum())
        self.vectors += int(((kinds == moves.MODEL) | (kinds == moves.SUM)).sum())
        seq = np.full(len(chosen), self.since + now, dtype=np.int64)
        parent = self.nodes.parent[senders].astype(np.float64)
        receivers = ends.target[chosen].astype(np.int64)
        return MessageBatch(self.time, senders + self.block.first, receivers, seq, vector, parent, head)


def own_sums(block: Block) -> moves.OwnSums:
    """What works out the sums of the block's own rows; made once."""
    if "own_sums" not in block.scratch:
        rows, (K, F) = dual_rows(block), block.w.shape[1:]
        block.scratch["own_sums"] = moves.OwnSums(rows, multiplicity(block.rows.mass, rows.start), K, F)
    made: moves.OwnSums = block.scratch["own_sums"]
    return made


def few_edges(block: Block) -> bool:
    """Whether the protocol takes less time in Python than it takes to compile."""
    return len(block.links.target) <= FEW_ENDS


def longest(block: Block) -> int:
    """How many numbers the longest message of a certificate holds; no learner sends a longer one."""
    return max(moves.width(block.w.shape[2], block.w.shape[1]))


def gather(inquiries: Sequence[CertificateSession]) -> Certificate:
    """What the nodes hold at the end, as one value."""
    first, (_, K, F) = inquiries[0], inquiries[0].block.w.shape
    messages, nbytes, vectors = np.sum([(part.messages, part.nbytes, part.vectors) for part in inquiries], axis=0)
    cost = first.exchanges, int(messages), int(nbytes), int(vectors)
    model, bound = (
        np.concatenate([part.nodes.model for part in inquiries])[first.owner],
        np.concatenate([part.nodes.bound for part in inquiries])[first.owner],
    )
    failure = _failure(inquiries, bound)
    if failure:
        return failed(first.block, failure, first.owner, cost)
    rows, nodes = bound[2 * K :].tolist()
    return Certificate(
        model.reshape(K, F), first.owner, bound[:K].copy(), bound[K : 2 * K].copy(), rows, int(nodes), *cost,
        nodes=np.flatnonzero(first.live_mask),
    )  # fmt: skip


def _failure(inquiries: Sequence[CertificateSession], bound: Floats) -> str:
    for part in inquiries:
        if part.failure:
            return part.failure
    out = np.concatenate([part.block.first + np.flatnonzero(part.nodes.alive & ~part.told) for part in inquiries])
    if len(out) == sum(part.nodes.alive.sum() for part in inquiries):
        return "some nodes are cut off from the others"
    if len(out):
        return f"{len(out)} nodes, the first of them node {out[0]}, are cut off from the others"
    return "" if np.isfinite(bound).all() else "its model or its dual variables are not finite"


def failed(block: Block, failure: str, owner: int = -1, cost: Cost = FREE) -> Certificate:
    """A certificate that came to nothing, and why."""
    _, K, F = block.w.shape
    return Certificate(
        np.full((K, F), np.nan), owner, np.full(K, np.inf), np.full(K, -np.inf), 0.0, 0, *cost, failure
    )  # fmt: skip
