"""The interface of topologies, and what they share: sorted CSR arrays of edges, and the parameter after a colon."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gadget_svm.core.types import Flags, Ints, NodeIds


@runtime_checkable
class Topology(Protocol):
    """A family of graphs. Derive from this class and write `build`; also `active` if the edges change over time.

    Attributes
    ----------
    name : str, default "custom"
        The name in messages and tables.
    drawn : bool, default False
        Whether the graph is random. An unconnected graph is then drawn again, a bounded number of times.
    time_varying : bool, default False
        Whether `active` leaves edges out. Only the simulator (``engine="local"``) supports this.

    Examples
    --------
    >>> import networkx as nx
    >>> from gadget_svm import build_network
    >>> class Wheel(Topology):
    ...     name = "wheel"
    ...     def build(self, n, rng):
    ...         return nx.wheel_graph(n)
    >>> build_network(Wheel(), 6).degree
    array([5, 3, 3, 3, 3, 3])
    """

    name: str = "custom"
    drawn: bool = False
    time_varying: bool = False

    def build(self, n: int, rng: np.random.Generator) -> Any:
        """Return the graph of ``n`` nodes.

        Parameters
        ----------
        n : int
            How many nodes.
        rng : numpy.random.Generator
            The source of random numbers for drawn graphs, so that the same seed gives the same graph.

        Returns
        -------
        networkx graph, sparse or dense matrix
            Any graph that `build_network` accepts. For a time-varying graph: all edges that are ever active.
        """
        raise NotImplementedError

    def active(self, t: int, sender: Ints, receiver: Ints) -> Flags:  # noqa: ARG002
        """Return which of these edges may carry messages in iteration ``t``, one entry per pair."""
        return np.ones(len(sender), dtype=np.bool_)


@dataclass(frozen=True)
class Graph:
    """A simple graph without edge weights, as CSR arrays with sorted rows."""

    indptr: Ints
    indices: NodeIds
    directed: bool = False


def from_pairs(n: int, u: Ints, v: Ints) -> Graph:
    """Return the undirected graph of the edges u[e] - v[e]; self-loops and repetitions are dropped."""
    return from_keys(n, np.unique(pair_keys(n, u, v)))


def pair_keys(n: int, u: Ints, v: Ints) -> Ints:
    """Return one number per undirected edge: the lower end times n plus the higher; -1 for a self-loop."""
    return np.where(u == v, -1, np.minimum(u, v) * n + np.maximum(u, v))


def from_keys(n: int, keys: Ints) -> Graph:
    """Return the undirected graph of distinct `pair_keys`."""
    low, high = np.divmod(keys[keys >= 0], n)
    both = np.concatenate([low * n + high, high * n + low])
    both.sort()
    degree = np.bincount(low, minlength=n) + np.bincount(high, minlength=n)
    return Graph(np.concatenate([[0], np.cumsum(degree)]), both % n)


def from_rows(neighbours: NodeIds, *, directed: bool) -> Graph:
    """Return the graph in which node i sends to row i of ``neighbours``, whose rows are sorted in place."""
    neighbours.sort(axis=1)
    n, k = neighbours.shape
    return Graph(np.arange(0, n * k + 1, k, dtype=np.int64), neighbours.reshape(-1), directed)


def integer(name: str, text: str | None, default: int, least: int = 1) -> int:
    """Return the whole number after the colon, at least ``least``."""
    if text is None:
        return default
    value = int(text) if text.strip().isdecimal() else least - 1
    if value < least:
        raise ValueError(f"{name}:{text} needs a whole number of at least {least}, as in '{name}:{default}'")
    return value


def probability(name: str, text: str | None, default: float, *, zero: bool = False) -> float:
    """Return the probability after the colon; 0 only if ``zero``."""
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (0 < value <= 1 or (zero and value == 0)):
        raise ValueError(f"{name}:{text} needs a probability, above 0 and at most 1, as in '{name}:{default:g}'")
    return value
