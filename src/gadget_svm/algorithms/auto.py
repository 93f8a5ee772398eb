"""The default algorithm. It chooses the algorithm that is best in benchmarks for the network."""

from collections.abc import Iterable
from dataclasses import dataclass

from gadget_svm.algorithms.base import Algorithm, BaseAlgorithm, Run
from gadget_svm.algorithms.gadget_params import Gadget
from gadget_svm.algorithms.pdmm import Pdmm
from gadget_svm.algorithms.private_gradient import PrivateGradient
from gadget_svm.core.lookup import lookup
from gadget_svm.core.network import Network
from gadget_svm.core.types import Floats
from gadget_svm.privacy import DifferentialPrivacy


@dataclass(repr=False, eq=False)
class Auto(BaseAlgorithm):
    """PDMM, which brings every node to the pooled optimum, or GADGET with implicit steps if PDMM does not apply.

    With PDMM, nodes push to all neighbours in every tick, which takes the least time. ``Pdmm()`` without parameters
    pushes to one neighbour per tick. This takes the fewest messages on a sparse graph, but many ticks on a dense graph.
    PDMM does not apply in three cases: on directed graphs, where an edge carries messages one way only; with a
    transition matrix B that the user gives, because PDMM uses no B; and with rows that come in batches, because PDMM
    solves for the rows it has and would forget earlier batches.

    Parameters
    ----------
    window : int or None
        In `partial_fit`, a node learns from about this many of its latest examples, since rows may change over time;
        see `Gadget`. None: it learns from all examples.
    """

    window: int | None = None

    def for_network(self, network: Network) -> Algorithm:
        """Return the algorithm for this network."""
        if network.directed or network.weights is not None:
            return self.for_batches()
        return self.for_all_rows()

    def for_all_rows(self) -> Algorithm:
        """Return the algorithm for undirected graphs, if all rows are known."""
        return Pdmm(neighbours="all")

    def with_settings(self, names: Iterable[str]) -> Algorithm:
        """Return the algorithm that has all these parameters; "auto" sets the others."""
        wanted, choice = set(names), (self.for_all_rows(), self.for_batches())
        for algorithm in choice:
            if wanted <= algorithm.get_params().keys():
                return algorithm
        known = {name: None for algorithm in choice for name in algorithm.get_params()}
        for name in sorted(wanted):
            lookup("parameter of the algorithms that 'auto' chooses from", name, known)
        raise ValueError(
            f"no algorithm that 'auto' chooses from has all of these parameters ({', '.join(sorted(wanted))}): choose "
            "algorithm='pdmm' or algorithm='gadget'"
        )

    def for_batches(self) -> Algorithm:
        """Return the algorithm for rows that come in batches, and for parameters that only GADGET has."""
        # After the same number of messages it is closer to the optimum than with the printed step.
        return Gadget(solver="implicit", local_steps=10, window=self.window)

    def with_privacy(self, privacy: DifferentialPrivacy) -> Algorithm:
        """Return private gradient descent."""
        return PrivateGradient(privacy=privacy)

    def with_transition_of(self, network: Network) -> Network:
        """Return the network as the chosen algorithm needs it."""
        return self.for_network(network).with_transition_of(network)

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None
    ) -> Run:
        """Return the run of the algorithm for this network."""
        return self.for_network(network).bind(network, lam, radius, lossy, sizes)
