"""The table of topologies and `build`, the one way from what a user writes to a Network.

It refuses unknown names and drawn graphs that stay unconnected; graphs the user brings are taken as they are.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.lookup import in_order, lookup
from gadget_svm.core.network import Network
from gadget_svm.spectral import check_connected
from gadget_svm.topologies import randomised, structured
from gadget_svm.topologies.edges import Graph

DRAWS = 20
TRIED = 16
"""Nodes of the graph that `check_name` makes: even, so that every degree is possible."""


@dataclass(frozen=True)
class Topology:
    """A named generator: exactly one of the three forms makes the graph."""

    help: str
    plain: Callable[[int], Graph] | None = None
    shaped: Callable[[int, str | None], Graph] | None = None
    drawn: Callable[[int, str | None, np.random.Generator], Graph] | None = None


TOPOLOGIES: dict[str, Topology] = {
    "complete": Topology("everyone with everyone", plain=structured.complete),
    "ring": Topology("each node with the next, closed", plain=structured.ring),
    "line": Topology("each node with the next", plain=structured.line),
    "star": Topology("node 0 with all others", plain=structured.star),
    "grid": Topology("rows and columns, grid:5x4; default: as square as can be", shaped=structured.grid),
    "torus": Topology("a grid that closes, torus:5x4; default: as square as can be", shaped=structured.torus),
    "tree": Topology("tree:B children a node; default 2", shaped=structured.tree),
    "hypercube": Topology("binary numbers one digit apart", plain=structured.hypercube),
    "exponential": Topology("directed, to i + 1, 2, 4, ... mod n", plain=structured.exponential),
    "k-out": Topology("directed, k-out:K drawn others a node; default 20", drawn=randomised.k_out),
    "random-regular": Topology("random-regular:D drawn neighbours a node; default 4", drawn=randomised.random_regular),
    "erdos-renyi": Topology("erdos-renyi:P the chance of each edge; default 2 ln(n)/n", drawn=randomised.erdos_renyi),
    "small-world": Topology(
        "small-world:K,P ring of K neighbours, a share P rewired; default 4,0.1", drawn=randomised.small_world
    ),
    "scale-free": Topology("scale-free:M links of a new node; default 2", drawn=randomised.scale_free),
}


def build(topology: object, n: int, *, seed: int = 0, transition: str = "lazy") -> Network:
    """The network of ``n`` nodes that ``topology`` names or holds.

    Parameters
    ----------
    topology : str, networkx graph, scipy sparse or square numpy array, or Network
        A name, with an optional parameter after a colon ("k-out:20"); or a graph. A matrix of zeros and ones is an
        adjacency. Other numbers, and the weights of a networkx graph's edges, must be the transition matrix B, see
        `Network.from_matrix`: what is neither is refused. The nodes of a networkx graph are
        numbered in the sorted order of their labels (in the order it lists them if they cannot be sorted), and the
        network keeps the labels. A Network is returned as it is, with its own transition.
    n : int
        How many nodes; a graph must have as many.
    seed : int
        Decides the drawn graphs: the same seed gives the same graph, bit for bit.
    transition : str
        How edges are weighed: "lazy", "random-walk", "metropolis" or "max-degree".
    """
    if n < 1:
        raise ValueError(f"a network has at least one node, not {n}")
    if isinstance(topology, str):
        return _named(topology, n, seed, transition)
    network = topology if isinstance(topology, Network) else _given(topology, transition)
    if network.n != n:
        raise ValueError(
            f"the graph has {network.n} nodes and {n} are asked for: give n_nodes={network.n}"
            f", or {network.n} different sites"
        )
    return network


def nodes_of(topology: object) -> int | None:
    """How many nodes a graph has; None for a name, which fits any number."""
    if isinstance(topology, str):
        return None
    if (labels := labels_of(topology)) is not None:
        return len(labels)
    return topology.n if isinstance(topology, Network) else _given(topology, "lazy").n


def labels_of(topology: object) -> list[Hashable] | None:
    """The labels of a graph's nodes, in the order of their numbers; None for a graph without labels, and for a name."""
    if isinstance(topology, Network):
        return None if topology.labels is None else list(topology.labels)
    return in_order(topology.nodes) if _is_networkx(topology) else None


def check_name(topology: str) -> None:
    """Refuse a name, or a parameter, that is wrong for any number of nodes."""
    name, entry, text = _parsed(topology)
    if name in ("grid", "torus"):
        if text is not None:
            structured.given_sides(name, text)
    elif entry.shaped is not None:
        entry.shaped(TRIED, text)
    elif entry.drawn is not None:
        entry.drawn(TRIED, text, np.random.default_rng(0))


def _parsed(topology: str) -> tuple[str, Topology, str | None]:
    """Its name, its entry in the table and what follows the colon."""
    name, colon, rest = topology.partition(":")
    entry = lookup("topology", name, TOPOLOGIES)
    if colon and entry.plain is not None:
        raise ValueError(f"{name!r} takes no parameter: write {name!r} instead of {topology!r}")
    return name, entry, rest if colon else None


def _named(topology: str, n: int, seed: int, transition: str) -> Network:
    _, entry, text = _parsed(topology)
    if n == 1:
        return _network(Graph(np.zeros(2, np.int64), np.empty(0, np.int64)), topology, transition)
    if entry.plain is not None:
        return _network(entry.plain(n), topology, transition)
    if entry.shaped is not None:
        return _network(entry.shaped(n, text), topology, transition)
    assert entry.drawn is not None
    drawn = entry.drawn
    return _connected(lambda rng: _network(drawn(n, text, rng), topology, transition), seed)


def _connected(draw_network: Callable[[np.random.Generator], Network], seed: int) -> Network:
    """The first connected graph of a bounded number of draws, each with a seed derived from ``seed``."""
    for draw in range(DRAWS):
        network = draw_network(np.random.default_rng([seed, draw]))
        try:
            check_connected(network)
        except ValueError as error:
            fault = error
        else:
            return network
    raise ValueError(
        f"{DRAWS} draws of {network.name!r} on {network.n} nodes were all unconnected: raise its parameter "
        "so that each node has more neighbours, or choose 'random-regular'"
    ) from fault


def _network(graph: Graph, name: str, transition: str) -> Network:
    return Network.from_csr(graph.indptr, graph.indices, name=name, directed=graph.directed, transition=transition)


def _given(topology: Any, transition: str) -> Network:
    """The network of a graph the user brings: matrix or networkx."""
    if isinstance(topology, np.ndarray):
        if topology.ndim != 2:
            raise ValueError(f"an adjacency matrix has two dimensions, this array has {topology.ndim}")
        topology = sp.coo_array(topology)
    if sp.issparse(topology):
        matrix: Any = topology
        data = matrix.tocsr().data
        if ((data == 0) | (data == 1)).all():
            return Network.from_adjacency(topology, transition=transition)
        return Network.from_matrix(topology).with_transition(transition)
    if not _is_networkx(topology):
        raise TypeError(
            "a topology is a name such as 'ring', a networkx graph, a numpy array or a scipy sparse matrix, not "
            f"{type(topology).__name__}: use np.asarray(...) for a table or a list of rows"
        )
    import networkx as nx

    labels = in_order(topology.nodes)
    if any(weight != 1 for _, _, weight in topology.edges(data="weight", default=1)):
        B = nx.to_scipy_sparse_array(topology, nodelist=labels, format="csr")
        return Network.from_matrix(B, labels=labels).with_transition(transition)
    A = nx.to_scipy_sparse_array(topology, nodelist=labels, weight=None, format="csr")
    return Network.from_adjacency(A, transition=transition, labels=labels)


def _is_networkx(topology: Any) -> TypeGuard[Any]:
    """Whether this is a networkx graph; networkx is not imported for it."""
    return hasattr(topology, "adjacency") and hasattr(topology, "nodes")
