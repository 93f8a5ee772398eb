"""Who is here: a state machine over what peers say of themselves and of each other. No sockets, no files, no threads.

A sign of life is a beat that advanced, or a word from the member itself; opinions are not. Certificates prove who
speaks (``direct``), nothing proves what is said of a third, so the rules are these:

1. What a member says itself stands above what is said of it: for ``suspect`` seconds after its own word, a rumour of
   another incarnation is not heard, and a later word of its own undoes the rumour. Only an incarnation that spoke
   itself outlaws the older ones (``accept``), and only its own word is a renewal.
2. Otherwise the higher (incarnation, beat) wins, and is a sign of life as old as the speaker says: now if "alive",
   ``suspect`` seconds ago if "suspect", none if "dead". Without a higher number these words count for nothing. "Left"
   starts the suspicion at once and any newer beat ends it: nobody whose beats arrive is talked to death.
3. A goodbye is believed at once, and for good, only from the member itself; a higher incarnation may come back.
4. A rumour of me that I did not start (``Changes.impostor``) is for the host to look into, by calling its address: a
   double that answers with my certificate and a higher incarnation makes ``tick`` raise ``Superseded``. If nobody
   answers I outbid it with a higher incarnation (``Changes.raised``), each time after twice the wait: no lie can stop
   a peer, and doubles that cannot reach each other contend O(log time) times.
5. Time is counted in ticks of mine: a gap longer than ``suspect`` (a stopped process, a jump of the clock) is not
   held against the others.
6. The gone are forgotten after ``forget`` seconds, but not their numbers: old views bring nobody back. They are spoken
   of now and then, one in a view, so that who comes later knows what was their last incarnation too.
7. Who has spoken itself, ever, is ``met``. The others make room first, and in a view come last and have a part only:
   names are easily invented.

What does not hold: one who has a certificate can invent names, up to ``limit``; they never displace one who spoke, but
another of whom there is hearsay only finds no room then, until it speaks.
Beats travel in views, so ``suspect`` has to grow with the crowd: by simulation, n members of whom one hears L lines a
second want some 8 n / L seconds.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

from gadget_svm.peers.claims import Claims
from gadget_svm.peers.member import LARGEST, Member, State
from gadget_svm.peers.news import News
from gadget_svm.peers.roster import Record, Roster

JUMP = 1 << 32
"""A rumour raises a known incarnation by no more than this, so that a lie leaves room to outbid it."""


class Superseded(RuntimeError):  # noqa: N818
    """Another process runs under this name with a higher incarnation: this one has to stop."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened since the last tick; every list is sorted, and ``left`` is to be handled before ``joined``.

    ``renewed``: spoke as a new incarnation, missed or not. ``impostor``: what is said of me and is not from me; call
    its address. ``raised``: my own new incarnation, to be stored; to the others I am renewed.
    """

    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    impostor: Member | None = None
    raised: int | None = None


class Membership(Roster):
    """A roster kept by these rules. The host calls ``tick`` often, ``beat`` once a heartbeat, and carries the views."""

    def __init__(
        self, me: Member, *, suspect: float, dead: float, forget: float = 3600.0, limit: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        super().__init__(me, limit)
        self.suspect = suspect
        self.dead = dead
        self.forget = forget
        self._clock = clock
        self._last: float | None = None  # the clock at the last tick
        self._late = False
        self._time = 0.0  # counted in ticks; all that follows is in this time
        self._scanned = -inf
        self._told: set[str] = set()  # joined, by the ticks so far
        self._touched: set[str] = set()  # may have come or gone since the last tick
        self._renewed: set[str] = set()
        self._news = News()
        self._claims = Claims(suspect)

    # What the host asks

    def accept(self, name: str, incarnation: int) -> bool:
        """Whether to use a message of this incarnation: not if a later one spoke, nor after its goodbye."""
        if name == self.me.name or not 0 < incarnation <= LARGEST:
            return False
        record = self._find(name)
        return record is None or (incarnation >= record.proven and incarnation > record.goodbye)

    def view(self, count: int, rng: Random) -> tuple[Member, ...]:
        """At most ``count`` lines to send: me, news for up to half of them, any who are present, one of the gone.

        An eighth of it, at least, and half of the news are of those I have met; they come before the others.
        """
        names = [name for name in self._news.take(count // 2) if name in self._records]
        gone = [] if count < 4 else [line for line in self._one_gone(rng) if line.name not in names]
        room = max(count - 1 - len(names) - len(gone), 0)
        some = [name for name in self._some(self.met(), count - 1, rng) if name not in names][: min(count // 8, room)]
        told = {*names, *some}
        some += [name for name in self._some(self._here(), count - 1, rng) if name not in told][: room - len(some)]
        records = sorted((self._records[name] for name in (*names, *some)), key=lambda record: not record.met)
        return (self.me, *map(self._spoken, records), *gone)

    # What the host tells

    def remember(self, name: str, incarnation: int) -> None:
        """Somebody was heard of before I was started anew: gone, until it shows itself."""
        if name != self.me.name and 0 < incarnation <= LARGEST and self._find(name) is None:
            self._bury(name, Record(Member(name, "", incarnation, 0, State.DEAD), self._time))

    def beat(
        self, *, rows: float | None = None, loss: float | None = None, slack: float | None = None,
        objective: float | None = None,
    ) -> None:  # fmt: skip
        """I live; my scalars change only with a beat, so that (incarnation, beat) tells the newer line."""
        mine = self.me
        self.me = replace(
            mine,
            beat=mine.beat + 1,
            rows=mine.rows if rows is None else rows,
            loss=mine.loss if loss is None else loss,
            slack=mine.slack if slack is None else slack,
            objective=mine.objective if objective is None else objective,
        )

    def hear(self, member: Member, direct: bool) -> None:
        """A line of a view; ``direct`` if the member it is about has sent it, by its certificate."""
        if not (0 < member.incarnation <= LARGEST and 0 <= member.beat <= LARGEST):
            return
        if member.name == self.me.name:
            if self._claims.hear(member, direct, self.me, self._time):
                self.beat()
        elif direct:
            self._hear_itself(member)
        else:
            self._hear_rumour(member)

    def heard(self, name: str, incarnation: int, beat: int) -> None:
        """A word from the member itself that brought no line: a letter, an answer."""
        record = self._find(name)
        old = record.line if record else Member(name, "", incarnation, beat)
        self.hear(replace(old, incarnation=incarnation, beat=beat, state=State.ALIVE), direct=True)

    def spoke(self, name: str, incarnation: int) -> None:
        """A word from the member itself that says nothing of its beat."""
        record = self._records.get(name)
        if record is not None and record.proven == incarnation and record.line.state == State.ALIVE:
            record.since = record.spoke = self._time
            record.parting = False
            return
        same = record is not None and record.line.incarnation == incarnation
        self.heard(name, incarnation, record.line.beat if same and record is not None else 0)

    def leave(self, name: str, incarnation: int) -> None:
        """The member itself took its leave: gone at once, until a higher incarnation speaks or is spoken of."""
        if not self.accept(name, incarnation):
            return
        record = self._find(name)
        if record is None:
            record = Record(Member(name, "", incarnation, 0, State.LEFT), self._time)
            self._bury(name, record)
        record.goodbye = record.proven = incarnation
        record.spoke = -inf  # from here on rumours of a successor are welcome
        if record.line.incarnation <= incarnation:
            record.line = replace(record.line, incarnation=incarnation)
            self._go(record, State.LEFT)

    def tick(self, now: float | None = None) -> Changes:
        """Lets time pass and says what changed; raises ``Superseded`` once a double has proved itself."""
        self._pass_time(self._clock() if now is None else now)
        double = self._claims.double
        if double is not None:
            raise Superseded(
                f"another process runs as {self.me.name!r}: incarnation {double.incarnation} at "
                f"{double.address or 'an unknown address'}, this one is {self.me.incarnation} at "
                f"{self.me.address}. This one stops; give every peer its own name, certificate and state folder."
            )
        self._watch()
        impostor, raised = self._claims.answer(self.me, self._time)
        if raised is not None:
            self.me = replace(self.me, incarnation=raised, beat=1)
        touched = sorted(self._touched)
        joined = [name for name in touched if self._is_present(name) and name not in self._told]
        left = [name for name in touched if not self._is_present(name) and name in self._told]
        renewed = sorted(self._renewed)
        self._told.update(joined)
        self._told.difference_update(left)
        self._touched.clear()
        self._renewed.clear()
        return Changes(joined, left, renewed, impostor, raised)

    # Hearing

    def _hear_itself(self, member: Member) -> None:
        if not self.accept(member.name, member.incarnation):
            return
        if member.state == State.LEFT:
            self.leave(member.name, member.incarnation)
            return
        record = self._admit(member, direct=True)
        if record is None:
            return
        if member.incarnation != record.line.incarnation or member.beat >= record.line.beat:
            state, address = record.line.state, member.address or record.line.address
            record.line = replace(member, state=state, address=address)
        if 0 < record.proven < member.incarnation:
            self._renewed.add(member.name)
        record.proven, record.spoke = member.incarnation, self._time
        if not record.met:
            self._meet(record)
        self._live(record)

    def _meet(self, record: Record) -> None:
        super()._meet(record)
        self._news.meet(record.line.name)

    def _hear_rumour(self, member: Member) -> None:
        record = self._find(member.name)
        if record is None:
            if member.state >= State.DEAD:
                self._bury(member.name, Record(member, self._time))
            elif fresh := self._admit(member, direct=False):
                self._live(fresh)
                fresh.since -= self.suspect * member.state
            return
        old = record.line
        own_word = self._time - record.spoke <= self.suspect and member.incarnation != old.incarnation
        if own_word or member.incarnation <= record.goodbye or member.incarnation > old.incarnation + JUMP:
            return
        if (member.incarnation, member.beat) > record.number:
            stays = member.incarnation == old.incarnation or not member.address
            address = old.address if old.address and stays else member.address
            record.line = replace(member, state=old.state, address=address)
            if member.state == State.ALIVE and self._admit(member, direct=False):
                self._live(record)
            elif member.state == State.SUSPECT and record.present:
                record.since = max(record.since, self._time - self.suspect)
        elif not old.address and member.incarnation == old.incarnation:
            record.line = replace(old, address=member.address)
        if member.state == State.LEFT and member.incarnation == record.line.incarnation:
            self._hint_of_leave(record)

    def _hint_of_leave(self, record: Record) -> None:
        if record.present and not record.parting and self._time - record.spoke > self.suspect:
            record.parting = True
            record.since = min(record.since, self._time - self.suspect)
            self._tell(record)

    # Coming and going

    def _pass_time(self, now: float) -> None:
        gap = 0.0 if self._last is None else now - self._last
        late = not 0 <= gap <= self.suspect
        if not late:
            self._time += gap
        elif self._late and gap > 0:  # not a pause: I am always this slow, and still the dead must be seen
            self._time += self.suspect / 2
        self._last, self._late = now, late

    def _watch(self) -> None:
        if self._time - self._scanned < min(self.suspect, self.dead) / 20:
            return
        self._scanned = self._time
        for record in self._records.values():
            silent = self._time - record.since
            if not record.present or silent < self.suspect:
                continue
            if silent >= self.suspect + self.dead:
                self._go(record, State.DEAD)
            elif record.line.state == State.ALIVE:
                record.line = replace(record.line, state=State.SUSPECT)
        for name in [name for name, since in self._gone.items() if self._time - since >= self.forget]:
            self._bury(name, self._records[name])

    def _live(self, record: Record) -> None:
        record.since, record.parting = self._time, False
        if self._turn(record, State.ALIVE, self._time):
            self._touch(record)

    def _go(self, record: Record, state: State) -> None:
        record.parting = False
        if self._turn(record, state, self._time):
            self._touch(record)

    def _touch(self, record: Record) -> None:
        self._touched.add(record.line.name)
        self._tell(record)

    def _admit(self, member: Member, direct: bool) -> Record | None:
        """The record of a member who shows signs of life, from the grave or new; None if there is no room."""
        if member.name in self._records:
            return self._records[member.name]
        full = self._is_full()
        least = self._least(direct) if full else None
        if full and least is None:
            return None
        record = self._recalled(member, self._time)  # before another grave takes the place of its own
        if least is not None:
            self._bury(least, self._records[least])
        self._enter(record, self._time)
        return record

    def _bury(self, name: str, record: Record) -> None:
        if self._is_present(name):
            self._go(record, State.DEAD)
        self._news.drop(name)
        super()._bury(name, record)

    # Small things

    def _tell(self, record: Record) -> None:
        self._news.tell(record.line.name, record.met, len(self._records))

    @staticmethod
    def _some(names: list[str], count: int, rng: Random) -> list[str]:
        return names if len(names) <= count else rng.sample(names, count)

    def _one_gone(self, rng: Random) -> list[Member]:
        """Any one of them: who starts later than they went has to hear of them too."""
        names = [*self._gone, *self._graves]
        record = self._find(rng.choice(names)) if names else None
        return [] if record is None else [record.line]

    def _spoken(self, record: Record) -> Member:
        return replace(record.line, state=State.LEFT) if record.parting else record.line
