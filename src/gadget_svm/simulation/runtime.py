"""The protocols `Runtime`, which drives the nodes, and `Evaluator`, which measures models on all rows."""

from typing import Any, Protocol

from numpy.typing import NDArray

from gadget_svm.algorithms.base import Run
from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.core.objective import Scores
from gadget_svm.core.types import Flags, Floats


class Runtime(Protocol):
    """Nodes that learn in lock step: all in this process, or spread over a cluster."""

    run: Run
    t: int
    """Iterations done."""
    messages: int
    """Messages sent by all nodes."""
    nbytes: int
    """The size of these messages on a wire, as float64."""
    omitted_columns: int
    """Numbers of every vector that are left out here, being zero, and would be sent on a wire."""

    def warm_up(self) -> None:
        """Compile every kernel an iteration needs, so that no measured time includes it."""

    def advance(self, count: int) -> None:
        """Do ``count`` iterations of all nodes."""

    def certify(self) -> Certificate:
        """One model for all live nodes, and a bound of its gap."""

    def models(self) -> Floats:
        """Every node's model, nodes x outputs x features."""

    def weights(self) -> Floats:
        """Every node's last iterate, nodes x outputs x features."""

    def gather(self, name: str) -> NDArray[Any]:
        """An array of the blocks with an entry per node, such as "iterates"."""

    def exchanges(self) -> int:
        """How often every block has sent."""

    def sizes(self) -> Floats:
        """n_i of every node."""

    def live_row_weights(self) -> Floats:
        """n_i of the live nodes, 0 for those that are away."""

    def live_mask(self) -> Flags:
        """Which nodes are live."""

    def lost_mask(self) -> Flags:
        """Which nodes lost their state, because their process ended."""

    def unseen(self, name: str) -> Flags:
        """Which nodes were lost before this array was ever gathered."""

    def events(self) -> list[dict[str, Any]]:
        """The events since the last call that a record lists, such as lost actors."""

    def close(self) -> None:
        """Release threads and processes."""


class Evaluator(Protocol):
    """Objective and error of models on all rows, in this process or elsewhere."""

    def __call__(self, models: Floats) -> Scores:
        """Scores of models, m x outputs x features."""
