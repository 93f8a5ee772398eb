"""The default: whichever algorithm the benchmarks show best for the network at hand."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gadget_svm.algorithms.base import Algorithm, BaseAlgorithm, Run
from gadget_svm.algorithms.gadget_params import Gadget
from gadget_svm.algorithms.pdmm import Pdmm
from gadget_svm.core.lookup import lookup
from gadget_svm.core.network import Network


class Auto(BaseAlgorithm):
    """PDMM, which brings every node to the pooled optimum; GADGET with implicit steps where PDMM does not apply.

    All neighbours are pushed to in every tick, which takes the least time; ``Pdmm()`` by itself pushes to one, which
    takes the fewest messages on a sparse graph, and on a dense one long: every edge has to be used to be of use. PDMM
    does not apply on directed graphs, where the two ends of an edge do not hear each other; with a transition matrix B
    that the user gives, which it would not use; and to rows that come batch by batch: it solves for the rows it has,
    and would forget those of earlier batches.

    Parameters
    ----------
    window : int or None
        About how many of its latest examples a node learns from in `partial_fit`, where rows change over time; see
        `Gadget`. None: all of them.
    """

    def __init__(self, window: int | None = None) -> None:
        self.window = window

    def for_network(self, network: Network) -> Algorithm:
        """The algorithm for this network."""
        if network.directed or network.weights is not None:
            return self.for_batches()
        return self.for_all_rows()

    def for_all_rows(self) -> Algorithm:
        """The algorithm for rows that are all there, on an undirected graph."""
        return Pdmm(neighbours="all")

    def with_settings(self, names: Iterable[str]) -> Algorithm:
        """The algorithm that has all these settings, with the values "auto" gives to its others."""
        wanted, choice = set(names), (self.for_all_rows(), self.for_batches())
        for algorithm in choice:
            if wanted <= algorithm.get_params().keys():
                return algorithm
        known = {name: None for algorithm in choice for name in algorithm.get_params()}
        for name in sorted(wanted):
            lookup("setting of the algorithms that 'auto' chooses from", name, known)
        raise ValueError(
            f"no algorithm that 'auto' chooses from has all of these settings ({', '.join(sorted(wanted))}): choose "
            "algorithm='pdmm' or algorithm='gadget'"
        )

    def for_batches(self) -> Algorithm:
        """The algorithm for rows that come batch by batch, and for settings that only GADGET has."""
        # Nearer the optimum after fewer messages than as printed.
        return Gadget(solver="implicit", local_steps=10, window=self.window)

    def with_transition_of(self, network: Network) -> Network:
        """The network as the algorithm for it wants it."""
        return self.for_network(network).with_transition_of(network)

    def bind(
        self,
        network: Network,
        lam: float,
        radius: float,
        lossy: bool = False,
        sizes: NDArray[np.float64] | None = None,
    ) -> Run:
        """The algorithm for this network, with every choice made."""
        return self.for_network(network).bind(network, lam, radius, lossy, sizes)
