"""Pushes that wait for the learner, and what is remembered of each sender.

Of each sender only the newest push waits: it holds all that the older ones do. A sender that was restarted counts from
0, so what its former incarnation sent must not hide its messages.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gadget_svm.peers.training.learner import NodeMessage, is_within
from gadget_svm.peers.wire.limits import LARGEST, WEIGHTS
from gadget_svm.peers.wire.messages import Push
from gadget_svm.study.study import Study


@dataclass(slots=True)
class Heard:
    """The last two pushes of a neighbour."""

    last: NodeMessage
    previous: NodeMessage | None = None


class Inbox:
    """The pushes to one node, by the number of their sender."""

    def __init__(self, study: Study) -> None:
        self._dimension, self._has_note = study.dimension, study.algorithm == "pdmm"
        self._weights = WEIGHTS[study.algorithm]
        self.heard: dict[int, Heard] = {}
        self.restarted: set[int] = set()  # senders that count from 0 again, which the learner does not know yet
        self.incarnations: dict[int, int] = {}  # of which the learner has pushes; 0: restarted since
        self._waiting: dict[int, NodeMessage] = {}

    def put(self, number: int, push: Push) -> bool:
        """Keep a push for the learner, if it is usable and newer than those before."""
        if not self.is_usable(push) or push.incarnation < self.incarnations.get(number, 0):
            return False
        if push.incarnation > self.incarnations.get(number, push.incarnation) > 0:
            self.restart(number)
        heard = self.heard.get(number)
        if heard is not None and push.seq <= heard.last.seq:
            return False
        self.incarnations[number] = push.incarnation
        message = NodeMessage(number, push.seq, push.vector, push.weight, push.note)
        self.heard[number] = Heard(message, None if heard is None else heard.last)
        self._waiting[number] = message
        return True

    def is_usable(self, push: Push) -> bool:
        """Return whether the algorithm can have sent this: finite numbers in their range, in the right places."""
        vector, note = push.vector, push.note
        if len(vector) != self._dimension or not is_within(vector, LARGEST):
            return False
        if not self._weights[0] <= push.weight <= self._weights[1]:
            return False
        if note is None:
            return not self._has_note
        return self._has_note and 0.0 <= note <= self._weights[1]

    def take(self) -> tuple[list[NodeMessage], set[int]]:
        """Return the waiting pushes by ascending sender, and the senders to reset first. Nothing waits after that."""
        waiting, restarted = self._waiting, self.restarted
        self._waiting, self.restarted = {}, set()
        return [waiting[number] for number in sorted(waiting)], restarted

    def restart(self, number: int) -> None:
        """The sender was restarted: it counts from 0."""
        self.restarted.add(number)
        self.incarnations[number] = 0
        self.forget(number)

    def forget(self, number: int) -> None:
        """Forget the pushes of a former neighbour."""
        self.heard.pop(number, None)
        self._waiting.pop(number, None)

    def clear(self) -> None:
        """Forget all pushes: they were for another learner."""
        self.heard, self._waiting, self.restarted, self.incarnations = {}, {}, set(), {}

    def incarnations_of(self, numbers: Collection[int]) -> dict[str, int]:
        """Return which incarnations of these senders the learner has pushes of, as JSON."""
        return {str(number): self.incarnations[number] for number in numbers if number in self.incarnations}

    def restore(self, incarnations: Mapping[int, int]) -> None:
        """Continue with a learner that has pushes of these incarnations."""
        self.clear()
        self.incarnations = dict(incarnations)
        self.restarted = {number for number, incarnation in incarnations.items() if not incarnation}
