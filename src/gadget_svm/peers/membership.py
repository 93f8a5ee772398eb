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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil, inf, log2
from random import Random

from gadget_svm.peers.member import Member, State

LARGEST = 1 << 62
"""No incarnation and no beat is higher; what claims to be is not heard."""
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


@dataclass(slots=True)
class _Record:
    """What is known of a member: its line as I pass it on, and where I have it from."""

    line: Member
    since: float  # the last sign of life
    spoke: float = -inf  # its last own word
    met: bool = False  # whether it ever showed itself
    proven: int = 0  # the highest incarnation that spoke itself
    goodbye: int = 0  # the highest incarnation that took its leave itself
    parting: bool = False  # somebody says that it took its leave

    @property
    def present(self) -> bool:
        return self.line.state <= State.SUSPECT

    @property
    def number(self) -> tuple[int, int]:
        return self.line.incarnation, self.line.beat


class Membership:
    """The members one peer knows. The host calls ``tick`` often, ``beat`` once a heartbeat, and carries the views."""

    def __init__(
        self, me: Member, *, suspect: float, dead: float, forget: float = 3600.0, limit: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.me = me
        self.suspect = suspect
        self.dead = dead
        self.forget = forget
        self.limit = limit
        self._clock = clock
        self._last: float | None = None  # the clock at the last tick
        self._late = False
        self._time = 0.0  # counted in ticks; all that follows is in this time
        self._scanned = -inf
        self._records: dict[str, _Record] = {}
        self._gone: dict[str, float] = {}  # of the records, in the order of their going
        self._graves: dict[str, _Record] = {}  # forgotten but for their numbers, the oldest first
        self._told: set[str] = set()  # joined, by the ticks so far
        self._touched: set[str] = set()  # may have come or gone since the last tick
        self._renewed: set[str] = set()
        self._news: dict[str, int] = {}  # how often to pass it on first; of those who were met
        self._rumours: dict[str, int] = {}  # and of the others
        self._present: list[str] | None = []
        self._met: list[str] | None = []  # of the present
        self.meetings = 0  # how often somebody was met for the first time
        self._double: Member | None = None
        self._claim: Member | None = None
        self._claimed = 0.0
        self._claim_told = False
        self._outbid_from = -inf
        self._wait = suspect

    # What the host asks

    def alive(self) -> list[str]:
        """Everyone present, me and the merely suspected included, sorted: those joined and not left."""
        return sorted([self.me.name, *self._here()])

    def met(self) -> list[str]:
        """Those others of the present who have spoken themselves, in this life of theirs or in an earlier one."""
        if self._met is None:
            self._met = [name for name in self._here() if self._records[name].met]
        return list(self._met)

    def strange(self) -> list[Member]:
        """Those of the present of whom there is hearsay only, and where they are said to be."""
        lines = [self._records[name].line for name in self._here() if not self._records[name].met]
        return [line for line in lines if line.address]

    def is_strange(self, member: Member) -> bool:
        """Whether it is one of these, or one for whom there is no room."""
        record = self._find(member.name)
        return member.name != self.me.name and (record is None or (record.present and not record.met))

    def has_met(self, name: str) -> bool:
        """Whether somebody has spoken itself, ever, and was not forgotten since."""
        record = self._find(name)
        return record is not None and record.met

    def get(self, name: str) -> Member:
        """The line of a member, present or gone; KeyError for one never heard of or forgotten."""
        return self.me if name == self.me.name else self._records[name].line

    def known(self, name: str) -> Member | None:
        """Also of the forgotten: the line to answer with when ``accept`` refuses, so that the other can outbid it."""
        record = self._find(name)
        return self.me if name == self.me.name else record.line if record else None

    def latest(self, name: str) -> int:
        """The incarnation in which somebody was last heard of, in any state; 0 if never."""
        known = self.known(name)
        return 0 if known is None else known.incarnation

    def numbers(self) -> dict[str, int]:
        """That of everybody else, the forgotten too: to be remembered over a restart."""
        return {name: record.line.incarnation for name, record in (*self._graves.items(), *self._records.items())}

    def lost(self) -> list[Member]:
        """The dead who took no leave and have an address, the longest dead first: worth a call now and then."""
        lines = [self._records[name].line for name in self._gone]
        return [line for line in lines if line.state == State.DEAD and line.address]

    def doubtful(self) -> list[Member]:
        """The suspected who have an address: one call decides whether they or the paths between us are down."""
        lines = [self._records[name].line for name in self._here()]
        return [line for line in lines if line.state == State.SUSPECT and line.address]

    def states(self) -> Counter[State]:
        """How many others are in each state."""
        return Counter(State(record.line.state) for record in self._records.values())

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
        names = self._take_news(count // 2)
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
            self._bury(name, _Record(Member(name, "", incarnation, 0, State.DEAD), self._time))

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
            self._hear_of_me(member, direct)
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
            record = _Record(Member(name, "", incarnation, 0, State.LEFT), self._time)
            self._bury(name, record)
        record.goodbye = record.proven = incarnation
        record.spoke = -inf  # from here on rumours of a successor are welcome
        if record.line.incarnation <= incarnation:
            record.line = replace(record.line, incarnation=incarnation)
            self._go(record, State.LEFT)

    def tick(self, now: float | None = None) -> Changes:
        """Lets time pass and says what changed; raises ``Superseded`` once a double has proved itself."""
        self._pass_time(self._clock() if now is None else now)
        if self._double is not None:
            raise Superseded(
                f"another process runs as {self.me.name!r}: incarnation {self._double.incarnation} at "
                f"{self._double.address or 'an unknown address'}, this one is {self.me.incarnation} at "
                f"{self.me.address}. This one stops; give every peer its own name, certificate and state folder."
            )
        self._watch()
        impostor, raised = self._answer_claim()
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

    def _meet(self, record: _Record) -> None:
        record.met, self._met = True, None
        self.meetings += 1
        if record.line.name in self._rumours:
            self._news[record.line.name] = self._rumours.pop(record.line.name)

    def _hear_rumour(self, member: Member) -> None:
        record = self._find(member.name)
        if record is None:
            if member.state >= State.DEAD:
                self._bury(member.name, _Record(member, self._time))
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

    def _hint_of_leave(self, record: _Record) -> None:
        if record.present and not record.parting and self._time - record.spoke > self.suspect:
            record.parting = True
            record.since = min(record.since, self._time - self.suspect)
            self._tell(record)

    def _hear_of_me(self, member: Member, direct: bool) -> None:
        mine = self.me
        elsewhere = bool(member.address) and member.address != mine.address
        same = member.incarnation == mine.incarnation
        ahead = member.address > mine.address if elsewhere else member.beat > mine.beat
        if direct:
            if member.incarnation > mine.incarnation or (same and ahead):
                self._double = member
        elif member.incarnation > mine.incarnation or (same and (ahead or elsewhere or member.state == State.LEFT)):
            self._note_claim(member)
        elif same and member.state != State.ALIVE:
            self.beat()

    def _note_claim(self, member: Member) -> None:
        old = self._claim
        if old is None or (member.incarnation, member.address) > (old.incarnation, old.address):
            self._claimed = self._time if old is None else self._claimed
            self._claim, self._claim_told = member, False

    def _answer_claim(self) -> tuple[Member | None, int | None]:
        claim = self._claim
        if claim is None:
            return None, None
        news = None if self._claim_told else claim
        self._claim_told = True
        grace = 0.0 if claim.address == self.me.address else self.suspect  # at my own address there is only me
        if self._time < max(self._claimed + grace, self._outbid_from) or claim.incarnation >= LARGEST:
            return news, None
        raised = max(claim.incarnation, self.me.incarnation) + 1
        self.me = replace(self.me, incarnation=raised, beat=1)
        self._claim = None
        self._outbid_from = self._time + self._wait
        self._wait *= 2
        return news, raised

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

    def _live(self, record: _Record) -> None:
        record.since, record.parting = self._time, False
        if not record.present:
            self._gone.pop(record.line.name, None)
            self._touch(record)
        if record.line.state != State.ALIVE:
            record.line = replace(record.line, state=State.ALIVE)

    def _go(self, record: _Record, state: State) -> None:
        if record.present:
            self._touch(record)
        record.line, record.parting = replace(record.line, state=state), False
        if record.line.name in self._records:
            self._gone.setdefault(record.line.name, self._time)

    def _touch(self, record: _Record) -> None:
        self._touched.add(record.line.name)
        self._present = self._met = None
        self._tell(record)

    def _admit(self, member: Member, direct: bool) -> _Record | None:
        """The record of a member who shows signs of life, from the grave or new; None if there is no room."""
        if member.name in self._records:
            return self._records[member.name]
        if not self._make_room(direct):
            return None
        record = self._graves.pop(member.name, None) or _Record(replace(member, state=State.DEAD), self._time)
        self._records[member.name] = record
        self._gone[member.name] = self._time  # until it lives, which is next
        return record

    def _make_room(self, direct: bool) -> bool:
        """The gone who were never met make room for anyone; for one who speaks all such do, and then the other gone."""
        if len(self._records) < self.limit - 1:
            return True
        name = next((gone for gone in self._gone if not self._records[gone].met), None)
        if name is None and direct:
            rumoured = [record for record in self._records.values() if not record.met]
            oldest = min(rumoured, key=lambda record: record.since, default=None)
            name = next(iter(self._gone), None) if oldest is None else oldest.line.name
        if name is not None:
            self._bury(name, self._records[name])
        return name is not None

    def _bury(self, name: str, record: _Record) -> None:
        if name in self._records and record.present:
            self._go(record, State.DEAD)
        self._records.pop(name, None)
        self._gone.pop(name, None)
        self._news.pop(name, None)
        self._rumours.pop(name, None)
        self._graves[name] = record
        if len(self._graves) > self.limit:
            rumoured = (other for other, old in self._graves.items() if not old.proven)
            del self._graves[next(rumoured, next(iter(self._graves)))]

    # Small things

    def _find(self, name: str) -> _Record | None:
        return self._records.get(name) or self._graves.get(name)

    def _is_present(self, name: str) -> bool:
        return name in self._records and self._records[name].present

    def _here(self) -> list[str]:
        if self._present is None:
            self._present = [name for name, record in self._records.items() if record.present]
        return self._present

    def _tell(self, record: _Record) -> None:
        """News goes out first, as often as it takes to reach everyone."""
        queue = self._news if record.met else self._rumours
        queue[record.line.name] = 3 * ceil(log2(len(self._records) + 2))

    def _take_news(self, count: int) -> list[str]:
        """Of those I have met and of the others, by halves if there is enough of both."""
        names = self._next_of(self._news, max(count - count // 2, count - len(self._rumours)))
        names += self._next_of(self._rumours, count - len(names))
        return [name for name in names if name in self._records]

    @staticmethod
    def _next_of(queue: dict[str, int], count: int) -> list[str]:
        """The next in turn; whoever has turns left goes to the end of the queue."""
        names = [name for name, _ in zip(queue, range(count), strict=False)]
        for name in names:
            turns = queue.pop(name)
            if turns > 1:
                queue[name] = turns - 1
        return names

    @staticmethod
    def _some(names: list[str], count: int, rng: Random) -> list[str]:
        return names if len(names) <= count else rng.sample(names, count)

    def _one_gone(self, rng: Random) -> list[Member]:
        """Any one of them: who starts later than they went has to hear of them too."""
        names = [*self._gone, *self._graves]
        record = self._find(rng.choice(names)) if names else None
        return [] if record is None else [record.line]

    def _spoken(self, record: _Record) -> Member:
        return replace(record.line, state=State.LEFT) if record.parting else record.line
