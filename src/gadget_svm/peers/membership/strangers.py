"""Whom to call of those known by hearsay only. Owns whose word is tried and who was called in vain; calls nobody.

Neighbours are chosen among those who have spoken themselves, so that names that somebody made up displace nobody. A
stranger that the overlay would choose is called, and is none once it has answered; both ends know each other then.
Names cost nothing and calls do, so there are few at a time:

- those whom the overlay would choose among all whom I have heard of, and
- one on the word of each who speaks: of its last view the first whom the overlay would choose. A view begins with those
  whom its sender knows itself (`membership.view`), so however many names one liar tells, the others' newcomers are
  called next.

Who does not answer is left alone, each time twice as long.
"""

from collections.abc import Collection, Iterable, Mapping

from gadget_svm.peers.member import Member, State
from gadget_svm.peers.overlay import neighbours

CALLS = 8
"""Calls at a time to those whom the overlay would choose."""
SPEAKERS, LINES = 32, 8
"""Whose word is tried, who spoke last; and how much of it."""
FIRST, LAST = 2.0, 128.0
"""Heartbeats between two calls to one who does not answer: after the first, and at most."""
MOST = 10_000
"""Of so many is it known that they did not answer."""


class Strangers:
    """Those whom peer ``me`` has heard of and never heard."""

    def __init__(self, me: str, degree: int, heartbeat: float) -> None:
        self.me, self.degree, self.heartbeat = me, degree, heartbeat
        self._words: dict[str, tuple[Member, ...]] = {}  # of each speaker its last view, who spoke last at the end
        self._under_way: dict[str, str] = {}  # who is called, and on whose word; on nobody's if the overlay asks for it
        self._in_vain: dict[str, tuple[float, float]] = {}  # when to call again, and the wait

    def named(self, speaker: str, members: Iterable[Member]) -> None:
        """The strangers in the view of somebody who spoke itself."""
        self._words.pop(speaker, None)
        self._words[speaker] = tuple(m for m in members if m.state < State.DEAD and m.address)[:LINES]
        if len(self._words) > SPEAKERS:
            del self._words[next(iter(self._words))]

    def take(self, met: Collection[str], strange: Mapping[str, str], now: float) -> list[tuple[str, str]]:
        """Whom to call now, and where; ``called`` is to follow. ``strange``: where all strangers are said to be."""
        calls = self._by_word(met, now)
        calls |= self._by_choice(met, {name: strange[name] for name in strange if self._due(name, now)})
        return sorted(calls.items())

    def called(self, name: str, answered: bool, now: float) -> None:
        """How a call went."""
        self._under_way.pop(name, None)
        if answered:
            self._in_vain.pop(name, None)
            return
        wait = 2 * self._in_vain.pop(name)[1] if name in self._in_vain else FIRST * self.heartbeat
        wait = min(wait, LAST * self.heartbeat)
        self._in_vain[name] = (now + wait, wait)
        if len(self._in_vain) > MOST:
            del self._in_vain[next(iter(self._in_vain))]

    def _due(self, name: str, now: float) -> bool:
        return name not in self._under_way and (name not in self._in_vain or now >= self._in_vain[name][0])

    def _by_word(self, met: Collection[str], now: float) -> dict[str, str]:
        """Each speaker's first of use, at the address it gave: what others say of that counts nothing."""
        found = {}
        for speaker in set(self._words).intersection(met).difference(self._under_way.values()):
            lines = [line for line in self._words[speaker] if line.name not in met and self._due(line.name, now)]
            first = next((x for x in lines if x.name in neighbours(self.me, {*met, x.name}, self.degree)), None)
            if first is not None:
                found[first.name], self._under_way[first.name] = first.address, speaker
        return found

    def _by_choice(self, met: Collection[str], due: Mapping[str, str]) -> dict[str, str]:
        room = CALLS - sum(not speaker for speaker in self._under_way.values())
        wished = sorted(set(neighbours(self.me, {*met, *due}, self.degree)) - set(met))[: max(room, 0)]
        self._under_way.update(dict.fromkeys(wished, ""))
        return {name: due[name] for name in wished}
