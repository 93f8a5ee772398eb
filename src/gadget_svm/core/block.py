"""All state of some nodes, side by side in arrays: all nodes in the simulator, a part of them elsewhere.

Owns the arrays and their layout. Everything that a checkpoint needs is here; protocols keep no state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gadget_svm.core.messages import Delivery
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Array, Flags, Floats, Indices, Ints
from gadget_svm.kernels import ThreadTeam

T = TypeVar("T")


class Links(NamedTuple):
    """The edges of a block's nodes: out-edges with their share of B, and in-edges sorted by source."""

    indptr: Ints
    target: Array  # 32 bits each
    share: Floats
    keep: Floats
    table: Floats
    in_ptr: Ints
    source: Indices

    @classmethod
    def of(cls, network: Network, first: int, last: int) -> "Links":
        """Return the edges of the nodes first:last."""
        lo, hi = network.indptr[first], network.indptr[last]
        in_ptr, source, _ = network.by_receiver(np.zeros(network.n_edges, np.int8))
        return cls(
            network.indptr[first : last + 1] - lo, network.indices[lo:hi], network.share[lo:hi],
            network.self_share[first:last], network.draw_table[lo:hi], in_ptr[first : last + 1] - in_ptr[first],
            source[in_ptr[first] : in_ptr[last]],
        )  # fmt: skip

    @classmethod
    def alone(cls, neighbours: Indices) -> "Links":
        """Return the edges of a peer, a block of one node: both directions, equal shares, ascending numbers."""
        count = len(neighbours)
        ptr, share = np.array([0, count]), np.full(count, 0.5 / max(count, 1))
        return cls(ptr, neighbours, share, np.full(1, 0.5), np.empty(0), ptr, neighbours)


class Block:
    """The nodes first .. first + k: their rows, links, weights and gossip state.

    Parameters
    ----------
    links : Links
        The edges of these nodes.
    rows : Rows
        Their rows.
    n : array of float
        n_i, the number of rows of every node, counted with their multiplicity.
    n_outputs, n_features : int
        The shape of a model.
    first : int, default 0
        The number of the first node.
    seed : int, default 0
        The seed of all random draws.
    team : ThreadTeam or None, default None
        The threads that kernels use; None: only the calling thread.
    """

    def __init__(
        self, links: Links, rows: Rows, n: Floats, n_outputs: int, n_features: int, *,
        first: int = 0, seed: int = 0, team: ThreadTeam | None = None,
    ) -> None:  # fmt: skip
        self.k, size = len(n), n_outputs * n_features  # how many nodes the block holds
        self.first, self.seed, self.links, self.rows, self.n = first, seed, links, rows, n
        self.team = team or ThreadTeam()
        self.w: Floats = np.zeros((self.k, n_outputs, n_features))  # the paper's w-hat
        self.s: Floats = np.zeros((self.k, size))  # Push-Sum's sums
        self.phi: Floats = np.zeros(self.k)  # Push-Sum's weights
        self.held: Floats = np.zeros((self.k, size))  # the part of local steps that has not entered the sums yet
        self.w_sum: Floats = np.zeros((self.k, n_outputs, n_features))  # the sum of all iterates so far
        self.iterates: Ints = np.zeros(self.k, dtype=np.int64)  # how many iterates w_sum holds
        self.steps: Ints = np.zeros(self.k, dtype=np.int64)  # local steps taken: the paper's t, per node
        self.alive: Flags = np.ones(self.k, dtype=np.bool_)  # which nodes are active: not away, and not idle
        self.away: Ints = np.zeros(self.k, dtype=np.int64)  # for how many reasons a node is away
        self.idle: tuple[int, ...] = ()  # places of the nodes that are live but take no part
        self.exchanges = 0  # how often this block has sent: the sequence number of its messages
        self.edge: dict[str, Array] = {}  # per-edge state of protocols that keep any
        self.scratch: dict[str, Any] = {}  # what can be computed again from the rest

    @classmethod
    def fresh(
        cls, network: Network, rows: Rows, n: Floats, n_outputs: int, n_features: int, *,
        seed: int = 0, first: int = 0, last: int | None = None, team: ThreadTeam | None = None,
    ) -> "Block":  # fmt: skip
        """Return the nodes first:last of the network at w = 0; ``rows`` and ``n`` belong to these nodes."""
        links = Links.of(network, first, network.n if last is None else last)
        return cls(links, rows, n, n_outputs, n_features, first=first, seed=seed, team=team)

    @property
    def flat(self) -> Floats:
        """The weights as one vector per node, as messages carry them: a view of w, also in a copy."""
        return self.w.reshape(self.s.shape)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what the block keeps under ``name``. If it has nothing there, keep what ``make`` returns."""
        if name not in self.scratch:
            self.scratch[name] = make()
        made: T = self.scratch[name]
        return made

    def without_nodes(self) -> "Block":
        """Return a block of the same kind without nodes: kernels that run on it only compile."""
        old, none = self.links, self.links.share[:0]
        links = Links(old.indptr[:1], old.target[:0], none, none, none, old.in_ptr[:1], old.source[:0])
        return Block(links, self.rows.of_nodes(0, 0), np.empty(0), *self.w.shape[1:])

    def averages(self) -> Floats:
        """Return the average of every node's iterates."""
        count = np.maximum(self.iterates, 1)[:, None, None]
        return np.asarray(self.w_sum / count, dtype=np.float64)

    @property
    def live_mask(self) -> Flags:
        """Return which nodes are not away."""
        live = self.alive.copy()
        live[list(self.idle)] = True
        return live

    def note_presence(self, delivery: Delivery) -> None:
        """Update which nodes are away, and which are idle."""
        for i in self.idle:
            self.alive[i] = self.away[i] == 0
        for nodes, change in ((delivery.left, 1), (delivery.joined, -1)):
            for node in nodes:
                i = node - self.first
                if 0 <= i < self.k:
                    self.away[i] += change  # a count: a node may be away for two reasons at once
                    self.alive[i] = self.away[i] == 0
        inside = {node - self.first for node in delivery.idle if 0 <= node - self.first < self.k}
        self.idle = tuple(sorted(i for i in inside if self.alive[i]))
        for i in self.idle:
            self.alive[i] = False
