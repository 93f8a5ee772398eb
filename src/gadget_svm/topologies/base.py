"""The interface of topologies: objects that build a graph for a number of nodes."""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from gadget_svm.core.types import Flags, Ints


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
            For graphs that are drawn: it decides the graph, so that a seed gives the same graph again.

        Returns
        -------
        networkx graph, sparse or dense matrix
            As `build_network` takes it. Of a time-varying graph: all edges that are ever active.
        """
        raise NotImplementedError

    def active(self, t: int, sender: Ints, receiver: Ints) -> Flags:  # noqa: ARG002
        """Return which of these edges may carry messages in iteration ``t``, one entry per pair."""
        return np.ones(len(sender), dtype=np.bool_)
