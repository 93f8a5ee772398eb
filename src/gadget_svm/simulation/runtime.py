"""The protocols `Runtime`, which drives the nodes, and `Evaluator`, which measures models on all rows."""

from typing import Any, Protocol

import numpy as np

from gadget_svm.algorithms.base import Run
from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.core.objective import Scores
from gadget_svm.core.types import Array, Flags, Floats


class Runtime(Protocol):
    """Nodes that learn in lock step: all in this process, or spread over a cluster.

    What a subclass leaves out is for runtimes that compile when they start and never lose the state of a node.
    """

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
        return

    def advance(self, count: int) -> None:
        """Do ``count`` iterations of all nodes."""

    def certify(self) -> Certificate:
        """One model for all live nodes, and a bound of its gap."""

    def gather(self, name: str) -> Array:
        """A new array with an entry per node: "models", "weights", or an array of the blocks, such as "iterates"."""

    def models(self) -> Floats:
        """Every node's model, nodes x outputs x features."""
        return self.gather("models")

    def weights(self) -> Floats:
        """Every node's last iterate, nodes x outputs x features."""
        return self.gather("weights")

    def exchanges(self) -> int:
        """How often every block has sent."""

    def sizes(self) -> Floats:
        """n_i of every node."""
        return self.gather("n")

    def live_row_weights(self) -> Floats:
        """n_i of the live nodes, 0 for those that are away: the weights of the network average."""
        live = self.live_mask()
        return self.sizes() * live if live.any() else self.sizes()

    def live_mask(self) -> Flags:
        """Which nodes are live."""

    def lost_mask(self) -> Flags:
        """Which nodes lost their state, because their process ended."""
        return np.zeros(len(self.sizes()), dtype=np.bool_)

    def unseen(self, name: str) -> Flags:  # noqa: ARG002
        """Which nodes were lost before this array was ever gathered."""
        return self.lost_mask()

    def events(self) -> list[dict[str, Any]]:
        """The events since the last call that a record lists, such as lost actors."""
        return []

    def close(self) -> None:
        """Release threads and processes."""

    def count(self, messages: int, nbytes: int, vectors: int | None = None) -> None:
        """Count messages that were sent. ``vectors``: how many carry a vector, with its omitted columns; None: all."""
        self.messages += messages
        self.nbytes += nbytes + 8 * self.omitted_columns * (messages if vectors is None else vectors)


class Evaluator(Protocol):
    """Objective and error of models on all rows, in this process or elsewhere."""

    def __call__(self, models: Floats) -> Scores:
        """Scores of models, m x outputs x features."""
