"""What the training loop and the stopping rules need of a runtime, wherever its nodes are."""

from typing import Any, Protocol, TypeGuard

from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.core.objective import Scores
from gadget_svm.core.types import Flags, Floats


class Runtime(Protocol):
    """Nodes that learn in step: all in this process, or spread over a cluster."""

    t: int  # iterations done

    @property
    def messages(self) -> int:
        """How many messages the nodes have sent."""

    @property
    def nbytes(self) -> int:
        """What these take on a wire, as float64."""

    def warm_up(self) -> None:
        """Compile every kernel an iteration needs, so that no clock counts it."""

    def advance(self, count: int) -> None:
        """``count`` iterations of all nodes."""

    def certify(self) -> Certificate:
        """One model for all nodes that are here and a bound of its gap."""

    def models(self) -> Floats:
        """Every node's model, nodes x outputs x features."""

    def weights(self) -> Floats:
        """Every node's last iterate, nodes x outputs x features."""

    def sizes(self) -> Floats:
        """n_i of every node."""

    def live_row_weights(self) -> Floats:
        """n_i of the nodes that are here, 0 for those that are away."""

    def live_mask(self) -> Flags:
        """Which nodes are not away."""

    def close(self) -> None:
        """Let go of all that was taken: threads, processes."""


class Eventful(Runtime, Protocol):
    """A runtime to which things happen that a record should tell."""

    def events(self) -> list[dict[str, Any]]:
        """What has happened since this was last asked for."""


class Evaluator(Protocol):
    """The objective and the error of models on all rows, wherever these are."""

    def __call__(self, models: Floats) -> Scores:
        """Scores of models, m x outputs x features."""


def eventful(runtime: Runtime) -> TypeGuard[Eventful]:
    """Whether the runtime tells events."""
    return hasattr(runtime, "events")
