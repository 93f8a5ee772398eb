"""The graph the nodes gossip on, with the paper's transition matrix B, as plain CSR arrays.

Owns the value and the walks along its edges; how edges are weighed is `transitions`' work, building graphs
`topologies`', measuring them `spectral`'s.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.core.transitions import DOUBLY_STOCHASTIC, GIVEN, WALKS, Nodes, Shares, check_transition, given_shares
from gadget_svm.core.types import Floats, Ints

Sparse = Any  # any scipy sparse matrix or array: they share no typed base


@dataclass(frozen=True, eq=False)
class Network:
    """A graph of ``n`` nodes: node i may send to ``indices[indptr[i]:indptr[i+1]]``.

    ``share[e]`` is b_ij of edge e, ``self_share[i]`` is b_ii; each row of B sums to one. What has an entry per edge
    beside ``indices`` is made when it is asked for: a walk on a large graph needs none of it. ``labels`` are the nodes'
    names in the graph the network was made from, if it had names.
    """

    indptr: Ints
    indices: Nodes
    name: str = "custom"
    directed: bool = False
    transition: str = "lazy"
    labels: tuple[Hashable, ...] | None = None
    weights: Shares | None = None  # b_ij of every edge and b_ii of every node, where the user gave B

    @classmethod
    def from_adjacency(
        cls,
        adjacency: Sparse,
        *,
        name: str = "custom",
        directed: bool | None = None,
        transition: str = "lazy",
        labels: Sequence[Hashable] | None = None,
    ) -> "Network":
        """The network of a sparse adjacency: non-zero means an edge; self-loops and weights are ignored.

        ``directed=None`` looks: a symmetric adjacency is undirected. ``labels`` are the names of its rows.
        """
        indptr, indices = _simple(adjacency)
        if directed is None:
            directed = not _symmetric(indptr, indices)
        network = cls.from_csr(indptr, indices, name=name, directed=directed, transition=transition)
        return network if labels is None else network.with_labels(labels)

    @classmethod
    def from_matrix(cls, B: Sparse, *, name: str = "custom", labels: Sequence[Hashable] | None = None) -> "Network":
        """The network of a transition matrix B of your own; b_ij > 0 means that node i sends to node j.

        Parameters
        ----------
        B : sparse or dense square matrix
            Row i is what node i does with its mass: the share b_ij goes to node j, b_ii stays. No entry is negative and
            every row sums to one. Columns need not: Push-Sum averages correctly under any such matrix. The randomised
            Push-Sum sends half of its mass, to node j with probability b_ij and to none with probability b_ii.
        name : str
            For messages and reports.
        labels : sequence or None
            The names of the nodes.

        Examples
        --------
        >>> Network.from_matrix(np.array([[0.5, 0.5, 0], [0.2, 0.6, 0.2], [0, 0.5, 0.5]])).self_share
        array([0.5, 0.6, 0.5])
        """
        matrix: Sparse = sp.csr_array(B, dtype=np.float64)
        network = cls.from_adjacency(matrix, name=name, labels=labels)
        return replace(network, transition=GIVEN, weights=given_shares(matrix))

    @classmethod
    def from_csr(
        cls,
        indptr: Ints,
        indices: Nodes,
        *,
        name: str = "custom",
        directed: bool = False,
        transition: str = "lazy",
    ) -> "Network":
        """The network of ready CSR arrays: rows sorted, without self-loops or duplicates; int32 indices are not copied.

        ``directed=False`` vouches that the graph is symmetric, which is not checked.
        """
        indptr = np.asarray(indptr, np.int64)
        _check_csr(indptr, np.asarray(indices))
        check_transition(transition, directed)
        return cls(indptr, np.asarray(indices, np.int32), name, directed, transition)

    def with_transition(self, transition: str) -> "Network":
        """The same graph under another B. A B of the user's stays: "lazy" is every algorithm's default."""
        if transition == self.transition or (self.weights is not None and transition == "lazy"):
            return self
        if self.weights is not None:
            raise ValueError(
                f"the topology is a transition matrix B, and transition={transition!r} asks for another: leave "
                "transition out, or give the graph alone (A != 0)"
            )
        check_transition(transition, self.directed)
        return replace(self, transition=transition)

    def with_labels(self, labels: Sequence[Hashable]) -> "Network":
        """The same graph with names for its nodes."""
        if len(labels) != self.n or len(set(labels)) != self.n:
            raise ValueError(f"{self.n} nodes need {self.n} different labels, got {len(labels)}: {list(labels)[:10]}")
        return replace(self, labels=tuple(labels))

    @property
    def is_walk(self) -> bool:
        """Whether all neighbours of a node have the same share and the same chance to be drawn."""
        return self.transition in WALKS

    @property
    def reversible(self) -> bool:
        """Whether B is known to be reversible: all on undirected graphs are, but for one of the user's."""
        return not self.directed and self.weights is None

    @cached_property
    def share(self) -> Floats:
        """b_ij of every edge."""
        return np.repeat(self.each, self.degree) if self.is_walk else self._weighed[0]

    @cached_property
    def self_share(self) -> Floats:
        """b_ii of every node."""
        if self.is_walk:
            return np.where(self.degree > 0, WALKS[self.transition], 1.0)
        return self._weighed[1]

    @cached_property
    def each(self) -> Floats:
        """Of a walk, the share that every neighbour of node i gets."""
        return (1.0 - WALKS[self.transition]) / np.maximum(self.degree, 1)

    @cached_property
    def _weighed(self) -> Shares:
        if self.weights is not None:
            return self.weights
        return DOUBLY_STOCHASTIC[self.transition](self.indptr, self.indices, self.degree)

    @property
    def n(self) -> int:
        """How many nodes there are."""
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        """How many directed edges there are: an undirected edge counts twice."""
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
        """Per edge, the probability that the randomised Push-Sum of its sender draws it.

        It keeps half and sends half to a neighbour drawn by b_ij. A walk sends always: b_ii is left out and the
        rest of the row scaled to one, since for the lazy walk the kept half *is* b_ii and the expected step is B.
        Of any other B the draw is b_ij as it stands, and with probability b_ii the node is silent: where B is doubly
        stochastic, every node is then drawn as often as it draws, on whatever graph.
        """
        return np.repeat(1.0 / np.maximum(self.degree, 1), self.degree) if self.is_walk else self.share

    @cached_property
    def draw_table(self) -> Floats:
        """Per edge, the cumulative probability of being drawn; a draw above a row's last entry is silence.

        Empty for a walk: all neighbours are as likely, so that the draw itself says which (`kernels.gossip.pick_edge`).
        """
        if self.is_walk:
            return np.empty(0)
        total = np.concatenate([[0.0], np.cumsum(self.chances)])
        return np.asarray(total[1:] - np.repeat(total[self.indptr[:-1]], self.degree), dtype=np.float64)

    @cached_property
    def balanced(self) -> bool:
        """Whether every node is drawn at least half as often as it draws: none goes on with next to no mass."""
        drawn = np.zeros(self.n)
        for nodes in _portions(self.indptr):
            degree, edges = self.degree[nodes], slice(self.indptr[nodes.start], self.indptr[nodes.stop])
            chances = np.repeat(1.0 / np.maximum(degree, 1), degree) if self.is_walk else self.share[edges]
            drawn += np.bincount(self.indices[edges], chances, self.n)
        draws = self.degree > 0 if self.is_walk else 1.0 - self.self_share
        return bool(np.all(drawn >= 0.5 * draws - 1e-9))

    def refuse_matrix(self, algorithm: str) -> None:
        """Raise if the user gave a B, for an algorithm that uses none."""
        if self.weights is not None:
            raise ValueError(
                f"{algorithm} uses the edges of the graph and no transition matrix, so the given B would be ignored: "
                "use algorithm='gadget' or 'asgd' with it, or give the graph alone (A != 0)"
            )

    def matrix(self) -> sp.csr_array:
        """B as a sparse matrix, rows are senders."""
        off = sp.csr_array((self.share, self.indices, self.indptr), shape=(self.n, self.n))
        return sp.csr_array(off + sp.diags_array(self.self_share))

    def adjacency(self) -> sp.csr_array:
        """The graph as a 0/1 sparse matrix."""
        return _csr(np.ones(self.n_edges), self.indptr, self.indices)

    def components(self) -> tuple[int, Ints]:
        """How many components there are and the one of each node; strong ones if the graph is directed."""
        return self._components

    @cached_property
    def _components(self) -> tuple[int, Ints]:
        from scipy.sparse.csgraph import connected_components

        ones = np.broadcast_to(1.0, self.n_edges)  # only where they stand is looked at
        count, labels = connected_components(
            _csr(ones, self.indptr, self.indices),
            directed=self.directed,
            connection="strong" if self.directed else "weak",
        )
        return int(count), np.asarray(labels, np.int64)

    def hops(self, source: int, *, backward: bool = False) -> Ints:
        """The fewest edges from ``source`` to each node (``backward``: to it); -1 where there is no way."""
        graph = self.adjacency()
        return hops(sp.csr_array(graph.T) if backward and self.directed else graph, source)


def hops(graph: sp.csr_array, source: int) -> Ints:
    """The fewest edges from ``source`` to each node of a 0/1 matrix; -1 where there is no way."""
    from scipy.sparse.csgraph import breadth_first_order

    reached, before = breadth_first_order(graph, source)
    above = before.astype(np.int64)
    above[above < 0] = source  # the source, and what was not reached, are their own roots
    depth = (np.arange(graph.shape[0]) != source).astype(np.int64)
    while np.any(above != source):  # pointer jumping: the known stretch of every path doubles
        depth += depth[above]
        above = above[above]
    found = np.full(graph.shape[0], -1, dtype=np.int64)
    found[reached] = depth[reached]
    return found


def _csr(data: NDArray[np.generic], indptr: Ints, indices: Nodes) -> sp.csr_array:
    return sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, len(indptr) - 1))


def _sources(indptr: Ints) -> Ints:
    return np.repeat(np.arange(len(indptr) - 1, dtype=np.int64), np.diff(indptr))


def _simple(adjacency: Sparse) -> tuple[Ints, Ints]:
    """CSR arrays of a square matrix with sorted columns, without self-loops, duplicates or stored zeros."""
    if adjacency.shape[0] != adjacency.shape[1]:
        raise ValueError(f"an adjacency matrix is square, this one is {adjacency.shape[0]} x {adjacency.shape[1]}")
    graph = sp.csr_array(adjacency)
    if not graph.has_canonical_format:
        graph = graph.copy()  # what the caller gave stays as it was
        graph.sum_duplicates()
    indptr, indices = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    keep = (indices != _sources(indptr)) & (graph.data != 0)
    if keep.all():
        return indptr, indices
    return np.concatenate([[0], np.cumsum(keep)])[indptr], indices[keep]


def _symmetric(indptr: Ints, indices: Ints) -> bool:
    """Whether every edge has its reverse: the transposed arrays, sorted, are the same arrays."""
    turned = _csr(np.ones(len(indices), np.int8), indptr, indices).T.tocsr()
    return np.array_equal(turned.indptr, indptr) and np.array_equal(turned.indices, indices)


def _check_csr(indptr: Ints, indices: Nodes) -> None:
    """Refuse arrays that are no simple graph, with the first node at fault."""
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
    """All nodes, some at a time with about ``most`` edges: what is worked out per edge then stays small."""
    first, n = 0, len(indptr) - 1
    while first < n:
        last = max(first + 1, int(np.searchsorted(indptr, indptr[first] + most, side="right")) - 1)
        yield slice(first, last)
        first = last
