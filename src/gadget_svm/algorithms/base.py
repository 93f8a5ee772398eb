"""What an algorithm is to those who run it: choices by name, and the run that comes of them on a network."""

from typing import Any, Protocol

from gadget_svm.core.block import Block
from gadget_svm.core.network import Network
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.gossip import Round


class Run(Protocol):
    """An algorithm with every choice made, as a runtime needs it."""

    @property
    def average(self) -> bool:
        """Whether models are averages of iterates."""

    def weights(self, block: Block) -> Floats:
        """Every node's last iterate, nodes x outputs x features."""

    def iteration(self, block: Block, t: int) -> Round:
        """One iteration of a block's nodes: yields mail, is sent deliveries."""

    def supports_fused(self, block: Block) -> bool:
        """Whether `advance_fused` may stand in for `iteration`."""

    def advance_fused(self, block: Block, count: int) -> tuple[int, int]:
        """Several iterations of a block that holds all nodes; returns the messages sent and their bytes."""


def models(run: Run, block: Block) -> Floats:
    """The model every node would answer with now: the average of its iterates, or the last one."""
    return block.averages() if run.average else run.weights(block)


class Certifiable(Run, Protocol):
    """A run whose models can be certified, for it keeps a feasible point of the dual."""

    def counted(self, block: Block) -> Flags:
        """Per end of an edge, whether its other end counts as a part of the network also when it is away."""

    def duals(self, block: Block) -> Floats:
        """alpha, outputs x rows of the block, in [0, c_r] for f_i(w) = n_i lam/2 |w|^2 + sum_r c_r hinge_r(w)."""


class Elastic(Run, Protocol):
    """A run that can stand on a real network: nothing is lost with a message, and neighbours come and go.

    Its block holds one node, made with `Links.alone`.
    """

    def set_neighbours(self, block: Block, neighbours: Ints) -> None:
        """From now on these are the neighbours, by ascending number. Called between iterations."""

    def reset_edge(self, block: Block, other: int) -> None:
        """A neighbour was started anew: it counts its messages from the beginning, and may have forgotten all."""


class Algorithm(Protocol):
    """Choices by name, which `bind` checks against a network and makes definite: what comes back can be run."""

    def with_transition_of(self, network: Network) -> Network:
        """The network under the transition matrix the algorithm asks for."""

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None
    ) -> Run:
        """The algorithm on this network, for shards of these sizes; ``lossy`` says that messages may vanish."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every choice, by name."""

    def set_params(self, **params: Any) -> Any:
        """Change some choices."""
