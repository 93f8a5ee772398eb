"""A certificate without a server: all nodes end with the same model, and with an upper bound of its gap to the optimum.

Owns the result (`Certificate`) and the procedure (`CertificateSession`); `echo` owns the messages,
`kernels.certificate` the arithmetic. It works with every algorithm that keeps dual variables 0 <= alpha_r <= c_r.
Together the variables of all nodes are feasible for the dual of the pooled problem, so for any model w

    F(w) - F* <= P - D,   P = lam/2 |w|^2 + (1/N) sum_i h_i(w),   D = (1/N) sum_r alpha_r - |sum_i v_i|^2 / (2 lam N^2)

where h_i is the sum of the hinges of node i, and v_i = sum_r alpha_r y_r x_r. The bound needs a common w and four sums.
Nodes gather them along a tree that exists for one certificate only:

    out    the owner, the lowest-numbered node that is present, sends hello to its neighbours. At its first message of
           the certificate, a node takes the sender as its parent and sends hello to all its neighbours
    down   the owner's model goes from parent to child; a node that has it computes h_i, v_i and sum alpha_r
    up     a node that has received hello from every neighbour, so that it knows its children, and has the sums of all
           of them, adds its own and sends them to its parent
    down   the owner, when it has all sums, computes P - D and sends it the same way as its model

Why it is right if messages are lost, late, repeated or out of order: a node chooses its parent once, and the parent was
in the tree before, so the chosen edges form a tree. A node's sums are final when it sends them, and a parent adds the
sums of each child once. A subtree is complete only when all neighbours of its nodes are in the tree, and the owner
finishes only when all subtrees are complete and all its neighbours are in the tree. So every node with a path to the
owner is counted exactly once. No node needs the number of nodes or the diameter. A node that lacks something asks for
it again. If a node is cut off, the certificate fails and reports why. A bound is never too low.

A certificate is about the rows of the nodes that take part, and lists these nodes. Nodes that are declared dead are
left out. A node that is away for a short time takes part: the messages sent to it are lost, and its neighbours ask it
again when it returns.

It costs one vector down and one vector up for every node but the owner. An alternative is to average the sums by
Push-Sum and to take the largest bound of any node (the bound is convex). It would cost a vector per edge and round, and
give a larger bound.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gadget_svm.algorithms.base import Run, models
from gadget_svm.algorithms.echo import BOUND, HELLO, MODEL, EchoNodes
from gadget_svm.core.block import Block
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.gossip import Round
from gadget_svm.kernels import certificate as kernels
from gadget_svm.kernels.dual import dual_rows, multiplicity

Cost = tuple[int, int, int, int]
"""The cost of a certificate: the numbers of exchanges, messages, bytes, and messages with a vector."""
FREE = (0, 0, 0, 0)
MAX_IDLE_EXCHANGES = 200
"""A certificate fails after this many exchanges in a row in which no node learned anything new."""


class Echo(NamedTuple):
    """The course of a certificate: which sums were added to which, in what order, and the cost.

    If no message is lost or late, all certificates of the same nodes by the same owner have the same course.
    """

    added: list[tuple[int, int]]  # parent and child, as numbers in the block
    cost: Cost


class CertificateState(NamedTuple):
    """What the nodes of one block know of a certificate after an exchange."""

    uninformed: Ints  # the nodes that take part and do not have the bound yet
    n_present: int  # how many take part
    progress: int  # how many facts they have received; it does not grow if no message arrives
    cost: Cost  # so far
    result: tuple[Floats, Floats] | None = None  # the model and its bound, if the owner is here and has both

    @staticmethod
    def final(exchanges: Iterator[Sequence["CertificateState"]]) -> Sequence["CertificateState"]:
        """Return the states of all blocks after the exchange at which all nodes have the bound, or learn nothing new.

        ``exchanges`` yields the states at the beginning, and after each exchange.
        """
        states, known, idle = next(exchanges), 0, 0
        while idle < MAX_IDLE_EXCHANGES and any(len(state.uninformed) for state in states):
            states = next(exchanges)
            progress = sum(state.progress for state in states)
            known, idle = progress, idle + 1 if progress == known else 0
        return states


@dataclass(frozen=True)
class Certificate:
    """A model and an upper bound of its gap to the optimum, on the rows of the nodes that took part.

    Attributes
    ----------
    model : array, outputs x features
        The model that every node holds at the end.
    owner : int
        The node whose model it is.
    bounds, duals : array, one per output
        The upper bound of F(model) - F*, and the value of the dual, which is a lower bound of F*.
    n_rows : float
        N, the weight of the rows that count.
    n_nodes : int
        How many nodes took part.
    exchanges, messages, nbytes, vectors : int
        The cost; ``vectors`` is the number of messages with a vector as long as the model.
    failure : str
        Why there is no bound; empty if there is one.
    nodes : array of int
        The nodes whose rows count.
    """

    model: Floats
    owner: int
    bounds: Floats
    duals: Floats
    n_rows: float
    n_nodes: int
    exchanges: int
    messages: int
    nbytes: int
    vectors: int = 0
    failure: str = ""
    nodes: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(
        cls, states: Sequence[CertificateState], shape: tuple[int, int], owner: int, participates: Flags
    ) -> "Certificate":
        """Return the certificate that follows from the final states of all blocks, for models of ``shape``."""
        (K, _), (exchanges, *_) = shape, states[0].cost
        messages, nbytes, vectors = np.sum([state.cost[1:] for state in states], axis=0).tolist()
        cost = exchanges, messages, nbytes, vectors
        uninformed = np.concatenate([state.uninformed for state in states])
        if len(uninformed) == sum(state.n_present for state in states):
            return cls.failed(shape, "some nodes are cut off from the others", owner, cost)
        if len(uninformed):
            some = f"{len(uninformed)} nodes, the first of them node {uninformed[0]},"
            return cls.failed(shape, f"{some} are cut off from the others", owner, cost)
        model, bound = next(state.result for state in states if state.result is not None)
        if not np.isfinite(bound).all():
            return cls.failed(shape, "its model or its dual variables are not finite", owner, cost)
        rows, nodes = bound[2 * K :].tolist()
        return cls(
            model.reshape(shape), owner, bound[:K], bound[K : 2 * K], rows, int(nodes), *cost,
            nodes=np.flatnonzero(participates),
        )  # fmt: skip

    @classmethod
    def failed(cls, shape: tuple[int, int], failure: str, owner: int = -1, cost: Cost = FREE) -> "Certificate":
        """Return a certificate that has no bound, with the reason in ``failure``."""
        K, _ = shape
        nothing = np.full(shape, np.nan), owner, np.full(K, np.inf), np.full(K, -np.inf)
        return cls(*nothing, 0.0, 0, *cost, failure)

    @property
    def bound(self) -> float:
        """The upper bound of F(model) - F*; F is summed over the outputs."""
        return float("inf") if self.failure else float(self.bounds.sum())

    @property
    def relative(self) -> float:
        """The upper bound of F(model) / F* - 1: the bound divided by the dual value."""
        below = float(self.duals.sum())
        return self.bound / below if not self.failure and below > 0 else float("inf")

    @property
    def relatives(self) -> Floats:
        """The bound of each output, divided by its own dual value."""
        known = (self.duals > 0) & (not self.failure)
        return np.where(known, self.bounds / np.where(known, self.duals, 1.0), np.inf)


@dataclass
class CertificateSession:
    """One block's part in a certificate. A runtime drives ``steps()`` until all nodes hold the bound."""

    run: Run
    block: Block
    lam: float
    owner: int
    participates: Flags  # of all nodes in the network
    serial: int  # the number of this certificate
    time: int
    empty: bool = False  # messages carry no vectors, and nothing is computed: only the course is of interest
    cost: Cost = FREE  # so far

    def __post_init__(self) -> None:
        widths = kernels.widths(self.block.w.shape[2], self.block.w.shape[1])
        self.nodes = EchoNodes(self.block, self.participates, widths, self.empty, self.serial)
        self._computed, i = False, self.owner - self.block.first
        self._added: list[tuple[int, int]] = []
        self._result: tuple[Floats, Floats] | None = None
        self.place = i if 0 <= i < self.block.k else None  # the owner's, if it is here
        if self.place is not None:
            self.nodes.parent[i], self.nodes.has[i, MODEL] = self.owner, True
            if not self.empty:
                self.nodes.model[i] = models(self.run, self.block)[i].ravel()

    @property
    def state(self) -> CertificateState:
        """What the block's nodes know now."""
        nodes, i = self.nodes, self.place
        if self._result is None and i is not None and nodes.has[i, BOUND]:
            self._result = nodes.model[i].copy(), nodes.bound[i].copy()
        uninformed = self.block.first + np.flatnonzero(nodes.alive & ~nodes.has[:, BOUND])
        return CertificateState(uninformed, int(nodes.alive.sum()), nodes.progress, self.cost, self._result)

    def steps(self) -> Round:
        """An endless generator: each step yields what the block's nodes send, and reads what arrives."""
        while True:
            self._compute()
            exchanges, n_messages, nbytes, vectors = self.cost
            messages, kinds = self.nodes.messages(self.time, exchanges)
            vectors += int(((kinds != HELLO) & (kinds != BOUND)).sum())
            self.cost = exchanges + 1, n_messages + len(kinds), nbytes + self.nodes.nbytes(kinds), vectors
            delivery = yield messages
            self._added.extend(self.nodes.receive(delivery.messages))

    def course(self) -> Echo:
        """Return the course so far. The block must hold all nodes."""
        return Echo(self._added, self.cost)

    def replay(self, echo: Echo) -> None:
        """Compute the result of a session with this course, without messages. The result is the same bit for bit."""
        self._compute()
        for parent, child in echo.added:
            self.nodes.total[parent] += self.nodes.total[child]
        self._conclude()
        self.nodes.has[:, BOUND] = self.nodes.alive
        self.cost = echo.cost

    def _compute(self) -> None:
        """Compute the sums of all nodes when the first one has the model, and the bound when the owner has all sums."""
        holders = np.flatnonzero(self.nodes.has[:, MODEL])
        if len(holders) and not self._computed and not self.empty:
            self._computed = True
            w = self.nodes.model[holders[0]].reshape(self.block.w.shape[1:])
            _write_own_sums(self.run, self.block, w, self.nodes.total)
        if self.place is not None and not self.nodes.has[self.place, BOUND] and self.nodes.complete()[self.place]:
            self.nodes.has[self.place] = True
            if not self.empty:
                self._conclude()

    def _conclude(self) -> None:
        i, nodes = self.place, self.nodes
        nodes.bound[i] = kernels.bound(nodes.model[i], nodes.total[i], self.lam, *self.block.w.shape[1:])


def own_sums(run: Run, block: Block, w: Floats) -> Floats:
    """Return the sums of every node of a block for the model w, outputs x features. See `kernels.certificate`.

    To get the sums of several nodes together, add their sums; see `bound_of`.
    """
    K, F = block.w.shape[1:]
    total = np.zeros((block.k, kernels.widths(F, K)[2]))
    _write_own_sums(run, block, w.reshape(K, F), total)
    return total


def bound_of(model: Floats, total: Floats, lam: float, outputs: int, features: int) -> tuple[Floats, Floats, float]:
    """Return, from a model and the sums of all nodes, the bounds and the dual values per output, and the rows' weight.

    See `Certificate`. A value that is not finite is not a bound.
    """
    found = kernels.bound(model.ravel(), total, lam, outputs, features)
    return found[:outputs], found[outputs : 2 * outputs], float(found[2 * outputs])


def sums_length(outputs: int, features: int) -> int:
    """Return how many numbers the sums of a node hold."""
    return kernels.widths(features, outputs)[2]


def _write_own_sums(run: Run, block: Block, w: Floats, total: Floats) -> None:
    rows = dual_rows(block).unsigned()
    ascending = block.once("ascending", lambda: np.argsort(rows.order))
    times = block.once("times", lambda: multiplicity(block.rows.mass, rows.start))
    kernels.own_sums(rows, ascending, times, w, run.duals(block), total)


def longest(block: Block) -> int:
    """Return how many numbers the longest message of a certificate holds; messages of learning are never longer."""
    return max(kernels.widths(block.w.shape[2], block.w.shape[1]))
