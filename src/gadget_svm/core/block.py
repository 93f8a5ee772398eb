"""All state of some nodes, side by side in arrays: all nodes in the simulator, a part of them elsewhere.

Owns the arrays and their layout. Everything that a checkpoint needs is here; protocols keep no state.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.messages import Delivery
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Floats, Ints
from gadget_svm.kernels import ThreadTeam

T = TypeVar("T")


class Links(NamedTuple):
    """The edges of a block's nodes: out-edges with their share of B, and in-edges by sorted source."""

    indptr: Ints
    target: NDArray[Any]  # 32 bits each
    share: Floats
    keep: Floats
    table: Floats
    in_ptr: Ints
    source: NDArray[np.int32]

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
    def alone(cls, neighbours: NDArray[np.int32]) -> "Links":
        """Return the edges of a block of one node, a peer: both ways, with equal shares, by ascending number."""
        count = len(neighbours)
        ptr, share = np.array([0, count]), np.full(count, 0.5 / max(count, 1))
        return cls(ptr, neighbours, share, np.full(1, 0.5), np.empty(0), ptr, neighbours)


@dataclass
class Block:
    """The nodes first .. first + k: their rows, links, weights and gossip state."""

    first: int
    seed: int
    n: Floats  # n_i, the rows of every node
    links: Links
    rows: Rows
    w: Floats  # k x outputs x features: the paper's w-hat
    s: Floats  # k x (outputs * features): Push-Sum's sums
    phi: Floats  # Push-Sum's weights
    held: Floats  # the part of local steps that has not entered the sums yet
    w_sum: Floats  # the sum of all iterates so far, for the averaged one
    iterates: Ints  # how many iterates w_sum holds
    steps: Ints  # local steps taken: the paper's t, on every node's own clock
    alive: NDArray[np.bool_]
    exchanges: int = 0  # how often this block has sent: the sequence number of its messages
    edge: dict[str, NDArray[Any]] = field(default_factory=dict)  # per-edge state of protocols that keep any
    team: ThreadTeam = field(default_factory=ThreadTeam)
    scratch: dict[str, Any] = field(default_factory=dict, repr=False)  # what can be computed again from the rest

    @classmethod
    def fresh(
        cls, network: Network, rows: Rows, n: Floats, n_outputs: int, n_features: int, *,
        seed: int = 0, first: int = 0, last: int | None = None, team: ThreadTeam | None = None,
    ) -> "Block":  # fmt: skip
        """Return the nodes first:last of the network at w = 0; ``rows`` and ``n`` are those of these nodes."""
        last = network.n if last is None else last
        k = last - first
        shape = (k, n_outputs, n_features)
        return cls(
            first, seed, n, Links.of(network, first, last), rows,
            np.zeros(shape), np.zeros((k, n_outputs * n_features)), np.zeros(k), np.zeros((k, n_outputs * n_features)),
            np.zeros(shape),
            np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64), np.ones(k, dtype=np.bool_),
            team=team or ThreadTeam(),
        )  # fmt: skip

    def __post_init__(self) -> None:
        self.away = np.zeros(len(self.n), dtype=np.int64)
        self.idle: tuple[int, ...] = ()  # places of the nodes that are present but take no part
        self.k = len(self.n)  # how many nodes the block holds

    @property
    def flat(self) -> Floats:
        """The weights as one vector per node, as they travel: a view of w, also in a copy of the block."""
        return self.w.reshape(self.s.shape)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Return what ``make`` makes, which the block keeps under ``name``: it can be made again from the rest."""
        if name not in self.scratch:
            self.scratch[name] = make()
        made: T = self.scratch[name]
        return made

    def without_nodes(self) -> "Block":
        """Return a block of the same kind without nodes: kernels that run on it only compile."""
        old, none = self.links, self.links.share[:0]
        links = Links(old.indptr[:1], old.target[:0], none, none, none, old.in_ptr[:1], old.source[:0])
        w, s = np.empty((0, *self.w.shape[1:])), np.empty((0, self.s.shape[1]))
        numbers, counts, flags = np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_)
        return Block(
            0, 0, numbers, links, self.rows.of_nodes(0, 0), w, s, numbers, s.copy(), w.copy(), counts, counts.copy(),
            flags,
        )  # fmt: skip

    def averages(self) -> Floats:
        """Return the average of every node's iterates."""
        count = np.maximum(self.iterates, 1)[:, None, None]
        return np.asarray(self.w_sum / count, dtype=np.float64)

    @property
    def live_mask(self) -> NDArray[np.bool_]:
        """Which nodes are present: those that are alive, and those that are idle."""
        present = self.alive.copy()
        present[list(self.idle)] = True
        return present

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
