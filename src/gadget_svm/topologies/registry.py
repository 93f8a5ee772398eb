"""The table of topologies, and `build`, which makes a Network from the user's ``topology``.

It refuses unknown names, and drawn graphs that stay unconnected. Graphs that the user gives are used as they are.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.lookup import in_order, lookup
from gadget_svm.core.network import Network
from gadget_svm.core.registry import Registry
from gadget_svm.topologies import families
from gadget_svm.topologies.base import Graph, Topology

MAX_DRAWS = 20
"""How often an unconnected graph is drawn again."""
TRIAL_NODES = 16
"""Nodes of the graph that `check_name` builds. The number is even, so that every degree is possible."""


@dataclass(frozen=True)
class Named(Topology):
    """A topology of this package. Calling it with the text after the colon of a name sets its parameter.

    ``generate`` takes the number of nodes, then the text if there is a ``parameter``, then a random generator if the
    graph is ``drawn``.
    """

    name: str = field()  # without the default of Topology
    generate: Callable[..., Graph] = field()
    parameter: bool = False
    drawn: bool = False
    text: str | None = None

    def __call__(self, text: str | None = None) -> "Named":
        if text is None:
            return self
        if not self.parameter:
            raise ValueError(f"{self.name!r} takes no parameter: write {self.name!r} instead of '{self.name}:{text}'")
        return replace(self, text=text, name=f"{self.name}:{text}")

    def build(self, n: int, rng: np.random.Generator) -> Graph:
        """Return the graph of ``n`` nodes."""
        return self.generate(n, *([self.text] if self.parameter else []), *([rng] if self.drawn else []))


NAMED = (
    Named("complete", families.complete),  # every node with every other
    Named("ring", families.ring),
    Named("line", families.line),
    Named("star", families.star),  # node 0 with all others
    Named("grid", families.grid, parameter=True),  # grid:5x4, default as square as possible
    Named("torus", families.torus, parameter=True),  # a grid that closes
    Named("tree", families.tree, parameter=True),  # tree:2 children per node
    Named("hypercube", families.hypercube),  # binary numbers that differ in one digit
    Named("exponential", families.exponential),  # directed, to i + 1, 2, 4, ... mod n
    Named("k-out", families.k_out, True, True),  # directed, k-out:20 drawn others per node
    Named("random-regular", families.random_regular, True, True),  # random-regular:4 drawn neighbours
    Named("erdos-renyi", families.erdos_renyi, True, True),  # erdos-renyi:P each edge, default 2 ln(n)/n
    Named("small-world", families.small_world, True, True),  # small-world:4,0.1 neighbours, share rewired
    Named("scale-free", families.scale_free, True, True),  # scale-free:2 links of a new node
)
TOPOLOGIES: Registry[Callable[..., Topology]] = Registry("gadget_svm.topologies", {each.name: each for each in NAMED})
"""Classes or functions that make a topology. They take the text after the colon, or no argument if there is no
colon."""


def build(topology: object, n: int, *, seed: int = 0, transition: str = "lazy") -> Network:
    """Return the network of ``n`` nodes that ``topology`` names, builds or holds.

    Parameters
    ----------
    topology : str, Topology, networkx graph, scipy sparse or square numpy array, or Network
        A name, with an optional parameter after a colon ("k-out:20"); an object of your own `Topology` class; or a
        graph. A matrix of zeros and ones is an adjacency. Other numbers, and the weights of a networkx graph's edges,
        must be the transition matrix B, see `Network.from_matrix`. The nodes of a networkx graph are numbered in the
        sorted order of their labels (in the order it lists them if they cannot be sorted), and the network keeps the
        labels. A Network is returned as it is, with its own transition.
    n : int
        How many nodes; a graph must have as many.
    seed : int, default 0
        Decides the drawn graphs: the same seed gives the same graph, bit for bit.
    transition : str, default "lazy"
        How edges are weighed: "lazy", "random-walk", "metropolis" or "max-degree".

    Returns
    -------
    Network
        The graph with its transition matrix.

    Raises
    ------
    ValueError
        If the name is unknown, its parameter or ``n`` does not fit, or no connected graph was drawn.
    TypeError
        If ``topology`` is something else.

    Examples
    --------
    >>> from gadget_svm import build_network
    >>> build_network("grid:2x3", 6).n_edges
    14
    """
    if n < 1:
        raise ValueError(f"a network has at least one node, not {n}")
    if isinstance(topology, str):
        topology = _by_name(topology)
    if isinstance(topology, Topology) and not isinstance(topology, type):
        network = _built(topology, n, seed, transition)
    else:
        network = _network(topology, "custom", transition)
    if network.n != n:
        fix = f"give n_nodes={network.n}, or {network.n} different sites"
        raise ValueError(f"the graph has {network.n} nodes and {n} are asked for: {fix}")
    return network


def nodes_of(topology: object) -> int | None:
    """Return how many nodes a graph has; None for a name or a `Topology`, which fit any number."""
    if isinstance(topology, str | Topology):
        return None
    if (labels := labels_of(topology)) is not None:
        return len(labels)
    return _network(topology, "custom", "lazy").n


def labels_of(topology: object) -> list[Hashable] | None:
    """Return the labels of a graph's nodes, in the order of their numbers; None if it has no labels."""
    if isinstance(topology, Network):
        return None if topology.labels is None else list(topology.labels)
    return in_order(topology.nodes) if _is_networkx(topology) else None


def check_name(topology: str) -> None:
    """Raise ValueError for a name or a parameter that is wrong for every number of nodes."""
    entry = _by_name(topology)
    name, colon, text = topology.partition(":")
    if colon and name in ("grid", "torus"):
        families.given_sides(name, text)
    elif isinstance(entry, Named) and entry.parameter:
        entry.build(TRIAL_NODES, np.random.default_rng(0))


def _by_name(topology: str) -> Topology:
    name, colon, text = topology.partition(":")
    make = lookup("topology", name, TOPOLOGIES)
    try:
        return make(text) if colon else make()
    except TypeError as error:
        what, fix = (f"does not take the parameter {text!r}", name) if colon else ("needs a parameter", f"{name}:VALUE")
        raise ValueError(f"topology {name!r} {what}: write {fix!r} ({error})") from error


def _built(topology: Topology, n: int, seed: int, transition: str) -> Network:
    """Return the network of a topology. A random graph is drawn again until it is connected."""
    for draw in range(MAX_DRAWS):
        rng = np.random.default_rng([seed, draw])
        graph = topology.build(n, rng) if n > 1 else Graph(np.zeros(2, np.int64), np.empty(0, np.int64))
        network = _network(graph, topology.name, transition)
        if not topology.drawn or network.components[0] == 1:
            return replace(network, labels=None, schedule=topology.active if topology.time_varying else None)
    drawn = f"{MAX_DRAWS} draws of {topology.name!r} on {n} nodes were all unconnected"
    raise ValueError(f"{drawn}: raise its parameter for more neighbours, or choose 'random-regular'")


def _network(topology: Any, name: str, transition: str) -> Network:
    """Return the network of a graph: CSR arrays, matrix or networkx."""
    if isinstance(topology, Network):
        return topology
    if isinstance(topology, Graph):
        csr = topology.indptr, topology.indices
        return Network.from_csr(*csr, name=name, directed=topology.directed, transition=transition)
    if isinstance(topology, np.ndarray):
        if topology.ndim != 2:
            raise ValueError(f"an adjacency matrix has two dimensions, this array has {topology.ndim}")
        topology = sp.coo_array(topology)
    labels = None
    if _is_networkx(topology):
        import networkx as nx

        labels = in_order(topology.nodes)
        weighted = any(weight != 1 for _, _, weight in topology.edges(data="weight", default=1))
        topology = nx.to_scipy_sparse_array(topology, labels, weight="weight" if weighted else None, format="csr")
    if not sp.issparse(topology):
        raise TypeError(
            "a topology is a name such as 'ring', a networkx graph, a numpy array, a scipy sparse matrix, or an object "
            f"of a subclass of gadget_svm.topologies.Topology, not {type(topology).__name__}: use np.asarray(...)"
        )
    matrix: Any = topology
    data = matrix.tocsr().data
    if ((data == 0) | (data == 1)).all():
        return Network.from_adjacency(matrix, name=name, transition=transition, labels=labels)
    return Network.from_matrix(matrix, name=name, labels=labels).with_transition(transition)


def _is_networkx(topology: Any) -> TypeGuard[Any]:
    """Return whether this is a networkx graph, without importing networkx."""
    return hasattr(topology, "adjacency") and hasattr(topology, "nodes")
