"""What came by letter: owns who was heard, as whom and when, and what waits for the learner.

Of each sender the newest letter waits and nothing else: it says all there is to say. A sender that was started anew
numbers its letters from the beginning, so what was heard of its former life must not hide them.
"""

import math
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gadget_svm.peers.learner import Parcel
from gadget_svm.peers.overlay import node_id
from gadget_svm.peers.turns import Turns


@dataclass
class Heard:
    """What is kept of one who sends letters, beside the algorithm's own state."""

    incarnation: int
    seq: int = -1
    at: float = -math.inf
    letters: int = 0
    wanted: bool = False  # whether it has me among the neighbours it chose
    last: Parcel | None = None
    previous: Parcel | None = None


class Mailbox:
    """Letters to one peer, between the desk and the learner."""

    def __init__(self) -> None:
        self.heard: dict[str, Heard] = {}
        self.waiting: dict[str, Parcel] = {}
        self.renewed: set[str] = set()  # begun anew, and the learner does not know yet
        self.turns = Turns()
        self._voices: dict[int, int] = {}  # by number: as which incarnation they were heard before a restart

    def listen(self, name: str, incarnation: int) -> tuple[Heard, bool]:
        """Somebody writes, who is not older than before: what is kept of it, and whether this is the first of it."""
        heard = self.heard.get(name)
        if heard is not None and incarnation <= heard.incarnation:
            heard.at = time.monotonic()
            return heard, False
        before = self._voices.pop(node_id(name), incarnation) if heard is None else heard.incarnation
        if before != incarnation:
            self.begun_anew(name)
        heard = self.heard[name] = Heard(incarnation, at=time.monotonic())
        return heard, True

    def put(self, name: str, parcel: Parcel, last: bool) -> None:
        """A letter for the learner, newer than those before; a ``last`` one waits elsewhere (`legacies`)."""
        heard = self.heard[name]
        heard.seq, heard.previous, heard.last = parcel.seq, heard.last, parcel
        heard.letters += 1
        if last:
            self.waiting.pop(name, None)
        else:
            self.waiting[name] = parcel
            self.turns.heard(name)

    def take(self, names: Collection[str]) -> list[Parcel]:
        """All that waits of these senders, by their numbers; nothing waits from here on."""
        found = [self.waiting[name] for name in sorted(self.waiting.keys() & set(names), key=node_id)]
        self.waiting = {}
        return found

    def begun_anew(self, name: str) -> None:
        """Somebody was started anew and numbers its letters from the beginning: an old one would hide them all."""
        self.renewed.add(name)
        self.waiting.pop(name, None)
        self.turns.forget(name)

    def asks(self, name: str, patience: float) -> bool:
        """Whether somebody has me among its chosen, and still says so: one who changes its mind just stops writing."""
        heard = self.heard.get(name)
        return heard is not None and heard.wanted and time.monotonic() - heard.at < patience

    def forget(self, names: Iterable[str]) -> None:
        """Who is not here any more."""
        for name in names:
            self.heard.pop(name, None)
            self.turns.forget(name)

    # A restart of ours

    def restart(self) -> None:
        """The learner begins from nothing: whatever comes is new to it."""
        self.waiting, self._voices = {}, {}
        for heard in self.heard.values():
            heard.seq, heard.last, heard.previous = -1, None, None

    def voices(self) -> dict[int, int]:
        """As which incarnation the learner has heard everybody, by number; 0 if it is not known."""
        heard = {node_id(name): 0 if name in self.renewed else each.incarnation for name, each in self.heard.items()}
        return {**self._voices, **heard}

    def recall(self, voices: Mapping[int, int], numbers: Iterable[int]) -> None:
        """Go on with a learner that has heard letters before a restart of ours, on edges to these nodes."""
        self._voices = {number: voices.get(number, 0) for number in numbers}
