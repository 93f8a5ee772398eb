"""What reaches the learners in a simulation: which pushes, of whom, on which edges. Owns the rules for both.

A training step carries its inputs, so that every vector can be followed from the message that brought it. Pushes must
come from the neighbour that they are applied for, be meant for this incarnation, and be newer than those before. An
edge may count only after the other end has said, to this incarnation, that it hears this end.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

from gadget_svm.peers.events import RunStep
from gadget_svm.peers.storage.snapshot import Snapshot
from gadget_svm.peers.training.trainer import TickInput
from gadget_svm.peers.wire.messages import EdgeState, Heartbeat, Push

MAX_WAITING = 200
"""Pushes to a node of a private study that may wait for the next round."""


@dataclass
class LearnerInputs:
    """Of one process. The methods return what is wrong, or an empty text."""

    name: str
    refused: Collection[str]  # machines that never get an edge
    incarnation: int = 0
    acknowledged: set[str] = field(default_factory=set)  # neighbours that have said that they hear this end
    identities: dict[int, str] = field(default_factory=dict)  # of the other ends of links
    counted: frozenset[str] = frozenset()  # the edges of the last tick
    _arrived: dict[int, tuple[str, Push]] = field(default_factory=dict)  # by the identity of the vector
    _last: dict[tuple[str, int], int] = field(default_factory=dict)  # sequence number by sender and incarnation

    def restored(self, snapshot: Snapshot | None) -> None:
        """Note the edges of a restored learner."""
        if snapshot is not None:
            self.acknowledged.update(snapshot.about.get("edges", ()))

    def heartbeat(self, sender: str, beat: Heartbeat) -> None:
        """Note a heartbeat that was delivered."""
        if beat.edge >= EdgeState.INIT and beat.receiver_incarnation == self.incarnation:
            self.acknowledged.add(sender)

    def push(self, sender: str, push: Push) -> None:
        """Note a push that was delivered."""
        self._arrived[id(push.vector)] = sender, push

    def step(self, effect: RunStep) -> str:
        """Check the inputs of a training step."""
        given = effect.step.args[-1] if isinstance(effect.step, partial) and effect.step.args else None
        if not isinstance(given, TickInput):
            return ""
        wanted = frozenset(given.wanted.values())
        if new := (wanted - self.counted).difference(self.acknowledged):
            return f"{self.name} counts the edge to {min(new)}, which has not said that it hears {self.name}"
        self.acknowledged -= self.counted - wanted
        self.counted = wanted
        if wrong := wanted.intersection(self.refused):
            return f"{self.name} counts an edge to {min(wrong)}, which is refused"
        arrived, self._arrived = self._arrived, {}
        if given.reserved:  # a neighbour of a private study may be one round ahead: that push waits for a round
            self._arrived = dict(list(arrived.items())[-MAX_WAITING:])
        for message in given.arrived:
            known = arrived.get(id(message.vector))
            if known is None:
                return f"{self.name} learns from a vector that did not arrive since its last tick"
            if mistake := self._wrong_push(*known, given.wanted.get(message.other, ""), again=given.reserved > 0):
                return f"{self.name} learns from {mistake}"
        return ""

    def _wrong_push(self, sender: str, push: Push, neighbour: str, again: bool) -> str:
        what = f"push {push.seq} of {sender}"
        if sender != neighbour:
            return f"{what} as if it came from {neighbour or 'a former neighbour'}"
        if push.receiver_incarnation != self.incarnation:
            return f"{what}, which is for incarnation {push.receiver_incarnation}, not {self.incarnation}"
        known = max((incarnation for name, incarnation in self._last if name == sender), default=0)
        if push.incarnation < known:
            return f"{what} of incarnation {push.incarnation}, after one of {known}"
        if push.seq + again <= self._last.get((sender, push.incarnation), -1):  # a private node may look at it twice
            return f"{what} after push {self._last[sender, push.incarnation]}"
        self._last[sender, push.incarnation] = push.seq
        return ""
