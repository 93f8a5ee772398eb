"""Pushes that wait for the learner, and what is remembered of each sender.

Of each sender only the newest push waits: it holds all that the older ones do. A sender that was restarted counts from
0, so (incarnation, sequence number) tells what is newer.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gadget_svm.peers.training.learner import NodeMessage
from gadget_svm.peers.wire.messages import Push


class Heard(NamedTuple):
    """The last two pushes of a neighbour in one incarnation."""

    incarnation: int
    last: NodeMessage
    previous: NodeMessage | None = None


class Inbox:
    """The pushes to one node, by the number of their sender."""

    def __init__(self, incarnations: Mapping[int, int]) -> None:
        self.heard: dict[int, Heard] = {}
        self.incarnations = dict(incarnations)  # of which the learner has pushes
        self._newest: dict[int, tuple[int, int]] = {}  # incarnation and sequence number, also of former neighbours
        self._waiting: set[int] = set()

    def put(self, number: int, push: Push) -> bool:
        """Keep a push for the learner, if it is newer than those before."""
        heard = self.heard.get(number)
        if push.incarnation < self.incarnations.get(number, 0):
            return False
        age, newest = (push.incarnation, push.seq), self._newest.get(number, (0, -1))
        if age < newest or (age == newest and heard is not None):  # a forgotten push may be repeated
            return False
        self._newest[number] = age
        previous = heard.last if heard is not None and heard.incarnation == push.incarnation else None
        message = NodeMessage(number, push.seq, push.vector, push.weight, push.note)
        self.heard[number] = Heard(push.incarnation, message, previous)
        self._waiting.add(number)
        return True

    def take(self) -> tuple[list[NodeMessage], set[int]]:
        """Return the waiting pushes by ascending sender, and which of the senders have restarted since their last."""
        waiting = {number: self.heard[number] for number in sorted(self._waiting)}
        self._waiting = set()
        restarted = {n for n, heard in waiting.items() if 0 < self.incarnations.get(n, 0) < heard.incarnation}
        self.incarnations.update({number: heard.incarnation for number, heard in waiting.items()})
        return [heard.last for heard in waiting.values()], restarted

    def newest(self, number: int) -> int:
        """Return the sequence number of a neighbour's last push; -1 if there was none."""
        heard = self.heard.get(number)
        return -1 if heard is None else heard.last.seq

    def of_round(self, number: int, seq: int) -> NodeMessage | None:
        """Return a neighbour's push with this sequence number, or else a newer one; None if there is neither."""
        heard = self.heard.get(number)
        if heard is None or heard.last.seq < seq:
            return None
        return heard.previous if heard.previous is not None and heard.previous.seq == seq else heard.last

    def forget(self, number: int) -> None:
        """Forget the pushes of a former neighbour, but not how new they were: older ones may still arrive."""
        self.heard.pop(number, None)
        self._waiting.discard(number)
