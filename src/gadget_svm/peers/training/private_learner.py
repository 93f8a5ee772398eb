"""The learner of a private study: private gradient descent in gossip rounds that neighbours do at the same time.

A tick mixes what the neighbours sent in the last round, then takes a step and sends the result. The sequence number of
a message is the number of its round. A node mixes only with vectors of its own round: a difference to an older vector
would slow down all of the movement that nodes have in common. So it waits for its neighbours (`TrainingSession`), and
does at each tick what a node of the simulator does in each iteration. A node that is behind goes on with the round of
the one that is farthest ahead.

Only the noisy slopes depend on the rows. There are no measures: whatever is computed from rows would need a budget.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.algorithms.private_gradient import PrivateGradientRun
from gadget_svm.core.messages import Delivery
from gadget_svm.core.types import Floats
from gadget_svm.gossip import RobustMixing, estimate
from gadget_svm.peers.training.learner import Learner, NodeMessage, algorithm_of
from gadget_svm.study.study import Study

MOST_AHEAD = 1_000_000_000
"""Gossip rounds, at 20 a second for more than a year. Without a bound one push could use up the sequence numbers."""


class PrivateLearner(Learner):
    """A node's state. A tick is `absorb` of what the neighbours sent in the last round, then `step`."""

    def __init__(
        self, X: sp.csr_matrix, label: NDArray[np.int32], study: Study, node: int, *, seed: int = 0,
        noise: str = "secret",
    ) -> None:  # fmt: skip
        super().__init__(X, label, study, node, seed=seed, algorithm=algorithm_of(study, X.shape[0], noise))
        self.released = 0  # noisy slopes in the life of this object
        self._has_stepped = False
        self._is_new = True  # its vector may be out of date, or none at all

    @property
    def _private(self) -> PrivateGradientRun:
        assert isinstance(self.run, PrivateGradientRun)
        return self.run

    @property
    def _mixing(self) -> RobustMixing:
        assert isinstance(self._private.protocol, RobustMixing)
        return self._private.protocol

    @property
    def rounds(self) -> int:
        """How many rounds of the plan are done."""
        return int(self.block.steps[0])

    @property
    def seq(self) -> int:
        """The number of the gossip round whose vector was sent last; -1 before the first one."""
        return self.block.exchanges - 1

    def is_plausible(self, weight: float, seq: int) -> bool:  # noqa: ARG002
        """Return whether an honest neighbour may be in this gossip round: not if it is more than years ahead."""
        return seq <= self.seq + MOST_AHEAD

    @property
    def has_model(self) -> bool:
        """Whether there is an iterate to average."""
        return bool(self.block.iterates[0] > 0)

    def count_as_done(self, rounds: int) -> None:
        """Go on after so many rounds of the plan: they were reserved, and may have been released."""
        self.block.steps[:] = np.maximum(self.block.steps, rounds)

    def absorb(self, messages: Sequence[NodeMessage]) -> None:
        """Mix with the neighbours' vectors of this node's round, and average the iterates."""
        block = self.block
        ahead = [message for message in messages if message.seq > self.seq + 1]
        same = [message for message in messages if message.seq == self.seq]
        if ahead:
            if self._is_new:
                self._adopt(np.mean([message.vector for message in ahead], axis=0))
            block.exchanges = max(message.seq for message in ahead)
        elif same:
            self._mixing.load_vectors(block, persist=False)
            self._mixing.mix(block, Delivery(self._batch(same)), since=0)
            estimate(block)
        if self._has_stepped or (self.t > 0 and not self.has_model):
            self._private.take_average(block)
        self._has_stepped = False
        if messages or not len(block.links.target):
            self._is_new = False

    def step(self, most: int) -> list[NodeMessage]:
        """Release a noisy slope, if fewer than ``most`` rounds are done, and take a step; return what to send.

        A node that has heard nobody yet takes no step: it may be far behind.
        """
        before = self.rounds
        self.t += 1
        self._private.step(self.block, 0 if self._is_new else most)
        self._has_stepped = self.rounds > before
        self.released += self._has_stepped
        return self._messages()

    def repeat(self) -> list[NodeMessage]:
        """Return the messages of this round again: some may have been lost."""
        self.block.exchanges -= self.t > 0
        return self._messages()

    def estimate_neighbour_model(
        self, last: NodeMessage, previous: NodeMessage | None, sent: Floats | None
    ) -> Floats | None:  # fmt: skip
        """Return the neighbour's last vector, outputs x width."""
        del previous, sent
        return last.vector.reshape(self.block.w.shape[1:])

    def _messages(self) -> list[NodeMessage]:
        self._mixing.load_vectors(self.block, persist=False)
        sent: Any = self._mixing.messages(self.block, self.t)
        numbers = zip(sent.receiver.tolist(), sent.seq.tolist(), sent.vector, sent.weight.tolist(), strict=True)
        return [NodeMessage(*each, None) for each in numbers]

    def _adopt(self, vector: Floats) -> None:
        """Begin where the neighbours are."""
        block = self.block
        block.flat[0] = vector
        block.edge["previous"] = block.flat.copy()
        block.w_sum[0], block.iterates[0] = block.w[0], 1
