"""The graph on which the nodes gossip, with the paper's transition matrix B, as plain CSR arrays.

Owns the value and searches along its edges. `core.transitions` weighs edges, `topologies` builds graphs, and `spectral`
measures them.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.transitions import DOUBLY_STOCHASTIC, GIVEN, WALKS, EdgeWeights, check_transition, given_weights
from gadget_svm.core.types import Array, Flags, Floats, Ints, NodeIds

Sparse = Any  # any scipy sparse matrix or array: they share no typed base


@dataclass(frozen=True, eq=False)
class Network:
    """A graph of ``n`` nodes: node i may send to ``indices[indptr[i]:indptr[i+1]]``.

    Arrays with an entry per edge, other than ``indices``, are made on first use: a random walk on a large graph needs
    none of them.

    Attributes
    ----------
    indptr, indices : arrays of int
        The edges in CSR form, each row sorted.
    name : str, default "custom"
        For messages and reports.
    directed : bool, default False
        Whether some edges have no reverse.
    transition : str, default "lazy"
        How edges are weighed.
    labels : tuple or None, default None
        The names of the nodes in the graph that the network was made from.
    weights : tuple of two arrays, or None, default None
        b_ij of every edge and b_ii of every node, if the user gave B.
    schedule : callable or None, default None
        ``schedule(t, sender, receiver)`` tells which edges are active in iteration t, see `Topology.active`. None: all.
    share, self_share : arrays of float
        b_ij of every edge and b_ii of every node. Each row of B sums to one.
    """

    indptr: Ints
    indices: NodeIds
    name: str = "custom"
    directed: bool = False
    transition: str = "lazy"
    labels: tuple[Hashable, ...] | None = None
    weights: EdgeWeights | None = None
    schedule: Callable[[int, Ints, Ints], Flags] | None = None

    @classmethod
    def from_adjacency(
        cls, adjacency: Sparse, *, name: str = "custom", directed: bool | None = None, transition: str = "lazy",
        labels: Sequence[Hashable] | None = None,
    ) -> "Network":  # fmt: skip
        """Return the network of a sparse adjacency: non-zero means an edge; self-loops and weights are ignored.

        ``directed=None``: a symmetric adjacency is undirected. ``labels`` are the names of its rows.
        """
        indptr, indices = _simple(adjacency)
        if directed is None:
            turned = _csr(np.ones(len(indices), np.int8), indptr, indices).T.tocsr()
            directed = not (np.array_equal(turned.indptr, indptr) and np.array_equal(turned.indices, indices))
        network = cls.from_csr(indptr, indices, name=name, directed=directed, transition=transition)
        if labels is not None and not len(labels) == len(set(labels)) == network.n:
            needed = f"{network.n} nodes need {network.n} different labels"
            raise ValueError(f"{needed}, got {len(labels)}: {list(labels)[:10]}")
        return replace(network, labels=None if labels is None else tuple(labels))

    @classmethod
    def from_matrix(cls, B: Sparse, *, name: str = "custom", labels: Sequence[Hashable] | None = None) -> "Network":
        """Return the network of your own transition matrix B; b_ij > 0 means that node i sends to node j.

        Parameters
        ----------
        B : sparse or dense square matrix
            Row i says what node i does with its mass: it sends the share b_ij to node j and keeps the share b_ii. No
            entry may be negative, and every row must sum to one. Columns need not sum to one: Push-Sum averages
            correctly under any such matrix. In randomised Push-Sum a node sends half of its mass to node j with
            probability b_ij, and sends nothing with probability b_ii.
        name : str, default "custom"
            For messages and reports.
        labels : sequence or None, default None
            The names of the nodes.

        Raises
        ------
        ValueError
            If an entry is negative or a row does not sum to one.

        Examples
        --------
        >>> Network.from_matrix(np.array([[0.5, 0.5, 0], [0.2, 0.6, 0.2], [0, 0.5, 0.5]])).self_share
        array([0.5, 0.6, 0.5])
        """
        matrix: Sparse = sp.csr_array(B, dtype=np.float64)
        network = cls.from_adjacency(matrix, name=name, labels=labels)
        return replace(network, transition=GIVEN, weights=given_weights(matrix))

    @classmethod
    def from_csr(
        cls, indptr: Ints, indices: NodeIds, *, name: str = "custom", directed: bool = False, transition: str = "lazy"
    ) -> "Network":
        """Return the network of CSR arrays with sorted rows and no self-loops or duplicates.

        Indices of 32 bits are not copied. With ``directed=False`` the caller guarantees that the graph is
        symmetric; it is not checked.
        """
        indptr = np.asarray(indptr, np.int64)
        _check_csr(indptr, np.asarray(indices))
        check_transition(transition, directed)
        return cls(indptr, np.asarray(indices, np.int32), name, directed, transition)

    def with_transition(self, transition: str) -> "Network":
        """Return the same graph under another B. "lazy", the default, keeps a B that the user gave."""
        if transition == self.transition or (self.weights is not None and transition == "lazy"):
            return self
        if self.weights is not None:
            raise ValueError(
                f"the topology is a transition matrix B, and transition={transition!r} asks for another: leave "
                "transition out, or give the graph alone (A != 0)"
            )
        check_transition(transition, self.directed)
        return replace(self, transition=transition)

    @property
    def is_walk(self) -> bool:
        """Whether all neighbours of a node have the same share and the same probability to be drawn."""
        return self.transition in WALKS

    @property
    def reversible(self) -> bool:
        """Whether B is known to be reversible: on undirected graphs, unless the user gave it."""
        return not self.directed and self.weights is None

    @cached_property
    def share(self) -> Floats:
        """b_ij of every edge."""
        return np.repeat(self.even_share, self.degree) if self.is_walk else self._weights_of_b[0]

    @cached_property
    def self_share(self) -> Floats:
        """b_ii of every node."""
        if self.is_walk:
            return np.where(self.degree > 0, WALKS[self.transition], 1.0)
        return self._weights_of_b[1]

    @cached_property
    def even_share(self) -> Floats:
        """The share that every neighbour of node i gets, if B is a walk."""
        return (1.0 - WALKS[self.transition]) / np.maximum(self.degree, 1)

    @cached_property
    def _weights_of_b(self) -> EdgeWeights:
        if self.weights is not None:
            return self.weights
        return DOUBLY_STOCHASTIC[self.transition](self.indptr, self.indices, self.degree)

    @property
    def n(self) -> int:
        """The number of nodes."""
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        """The number of directed edges: an undirected edge counts twice."""
        return len(self.indices)

    @cached_property
    def degree(self) -> Ints:
        """The out-degree of every node."""
        return np.diff(self.indptr)

    @cached_property
    def sources(self) -> Ints:
        """The sending node of every directed edge."""
        return _sources(self.indptr)

    @cached_property
    def chances(self) -> Floats:
        """The probability, per edge, that its sender draws it in randomised Push-Sum.

        A node keeps half and sends half to a neighbour drawn by b_ij. In a walk a node always sends: b_ii is left out,
        and the rest of the row is scaled to one. For the lazy walk the kept half is b_ii, so the expected step is B.
        Under any other B a node draws by b_ij unscaled, and sends nothing with probability b_ii. If that B is doubly
        stochastic, every node is drawn as often as it draws, on any graph.
        """
        return np.repeat(1.0 / np.maximum(self.degree, 1), self.degree) if self.is_walk else self.share

    @cached_property
    def draw_table(self) -> Floats:
        """The cumulative probability, per edge, to be drawn; a draw above a row's last entry sends nothing.

        Empty for a walk, whose neighbours are equally likely (see `kernels.gossip.pick_edge`).
        """
        if self.is_walk:
            return np.empty(0)
        total = np.concatenate([[0.0], np.cumsum(self.chances)])
        return np.asarray(total[1:] - np.repeat(total[self.indptr[:-1]], self.degree), dtype=np.float64)

    @cached_property
    def balanced(self) -> bool:
        """Whether every node receives at least half as many messages as it sends, on average, so that none runs out of
        mass."""
        drawn = np.zeros(self.n)
        for nodes in _portions(self.indptr):
            degree, edges = self.degree[nodes], slice(self.indptr[nodes.start], self.indptr[nodes.stop])
            chances = np.repeat(1.0 / np.maximum(degree, 1), degree) if self.is_walk else self.share[edges]
            drawn += np.bincount(self.indices[edges], chances, self.n)
        draws = self.degree > 0 if self.is_walk else 1.0 - self.self_share
        return bool(np.all(drawn >= 0.5 * draws - 1e-9))

    def refuse_matrix(self, algorithm: str) -> None:
        """Raise ValueError if the user gave a B, because ``algorithm`` uses none."""
        if self.weights is not None:
            raise ValueError(
                f"{algorithm} uses the edges of the graph and no transition matrix, so the given B would be ignored: "
                "use algorithm='gadget' or 'asgd' with it, or give the graph alone (A != 0)"
            )

    def matrix(self) -> sp.csr_array:
        """Return B as a sparse matrix; rows are senders."""
        off = sp.csr_array((self.share, self.indices, self.indptr), shape=(self.n, self.n))
        return sp.csr_array(off + sp.diags_array(self.self_share))

    def adjacency(self) -> sp.csr_array:
        """Return the graph as a 0/1 sparse matrix."""
        return _csr(np.ones(self.n_edges), self.indptr, self.indices)

    @cached_property
    def components(self) -> tuple[int, Ints]:
        """Return the number of components, and each node's component; strong components if the graph is directed."""
        ones = np.broadcast_to(1.0, self.n_edges)  # only their positions matter
        count, labels = sp.csgraph.connected_components(_csr(ones, self.indptr, self.indices), self.directed, "strong")
        return int(count), np.asarray(labels, np.int64)

    def by_receiver(self, values: Array) -> tuple[Ints, NodeIds, Array]:
        """Return the edges into every node j, source[in_ptr[j]:in_ptr[j+1]] ascending, and the value of each edge."""
        turned = _csr(values, self.indptr, self.indices).tocsc()
        return turned.indptr.astype(np.int64), turned.indices.astype(np.int32, copy=False), turned.data

    def hops(self, source: int, *, backward: bool = False) -> Ints:
        """Return the fewest edges from ``source`` to each node (``backward``: to it); -1 where there is no path."""
        graph = self.adjacency().T.tocsr() if backward and self.directed else self.adjacency()
        reached, before = sp.csgraph.breadth_first_order(graph, source)
        above = before.astype(np.int64)
        above[above < 0] = source  # the source, and what was not reached, are their own roots
        depth = (np.arange(self.n) != source).astype(np.int64)
        while np.any(above != source):  # pointer jumping: the known stretch of every path doubles
            depth += depth[above]
            above = above[above]
        found = np.full(self.n, -1, dtype=np.int64)
        found[reached] = depth[reached]
        return found


def _csr(data: Array, indptr: Ints, indices: NodeIds) -> sp.csr_array:
    return sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, len(indptr) - 1))


def _sources(indptr: Ints) -> Ints:
    return np.repeat(np.arange(len(indptr) - 1, dtype=np.int64), np.diff(indptr))


def _simple(adjacency: Sparse) -> tuple[Ints, Ints]:
    """Return CSR arrays of a square matrix with sorted columns and no self-loops, duplicates or stored zeros."""
    if adjacency.shape[0] != adjacency.shape[1]:
        raise ValueError(f"an adjacency matrix is square, this one is {adjacency.shape[0]} x {adjacency.shape[1]}")
    graph = sp.csr_array(adjacency)
    if not graph.has_canonical_format:
        graph = graph.copy()  # do not change the caller's matrix
        graph.sum_duplicates()
    indptr, indices = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    keep = (indices != _sources(indptr)) & (graph.data != 0)
    if keep.all():
        return indptr, indices
    return np.concatenate([[0], np.cumsum(keep)])[indptr], indices[keep]


def _check_csr(indptr: Ints, indices: NodeIds) -> None:
    """Raise ValueError, with the first node at fault, if the arrays are not a simple graph."""
    n = len(indptr) - 1
    if n < 1 or indptr[0] != 0 or indptr[-1] != len(indices) or np.any(indptr[1:] < indptr[:-1]):
        raise ValueError(f"indptr must rise from 0 to the {len(indices)} edges, with one entry more than nodes")
    for nodes in _portions(indptr):
        ptr = indptr[nodes.start : nodes.stop + 1]
        near, source = indices[ptr[0] : ptr[-1]], nodes.start + _sources(ptr - ptr[0])
        wrong = (near < 0) | (near >= n) | (near == source)
        wrong[1:] |= (near[1:] <= near[:-1]) & (source[1:] == source[:-1])
        if wrong.any():
            raise ValueError(
                f"the neighbours of node {source[np.argmax(wrong)]} must be other nodes of 0..{n - 1}, in rising "
                "order, each once: Network.from_adjacency sorts and cleans them"
            )


def _portions(indptr: Ints, most: int = 2**20) -> Iterator[slice]:
    """Yield slices that cover all nodes, with about ``most`` edges each, so that arrays per edge stay small."""
    first, n = 0, len(indptr) - 1
    while first < n:
        last = max(first + 1, int(np.searchsorted(indptr, indptr[first] + most, side="right")) - 1)
        yield slice(first, last)
        first = last
