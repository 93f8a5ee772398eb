"""Which members are alive: a state machine over what peers say of themselves and of each other.

Owns the rules below, on top of a `MemberTable`. Sends nothing, and reads no clock: ``tick`` is told the time. A member
gives a sign of life if its beat advances, or if it sends a message itself. What others say of it is no sign of life.
Certificates prove who sends an entry (``direct``). Nothing proves what an entry says of a third member. So:

1. What a member says itself has priority: for ``suspect`` seconds after its own word, hearsay of another incarnation is
   ignored, and a later word of its own undoes hearsay. Only an incarnation that spoke itself makes older ones invalid
   (``accept``), and only its own word makes a member renewed.
2. Otherwise the higher (incarnation, beat) wins. It is a sign of life as old as the speaker says: now if "alive",
   ``suspect`` seconds ago if "suspect", none if "dead". Hearsay without a higher number counts for nothing. "Left"
   starts the suspicion at once, and any newer beat ends it: hearsay kills no member whose beats arrive.
3. A leave is final, and only if the member itself says it; a higher incarnation may come back.
4. Hearsay of this peer that it did not cause (``Changes.impostor``) is for the node to look into, by a dial to its
   address. A second process that proves itself with this name and a higher incarnation makes ``tick`` raise
   `SupersededError`. If nobody proves it, this peer outbids it with a higher incarnation (``Changes.raised``), each
   time after twice the wait: no lie can stop a peer, and two processes that cannot dial each other contend O(log time)
   times.
5. Time is counted in ticks of this peer: a gap longer than ``suspect`` (a stopped process, a jump of the clock) is not
   held against the others.
6. Members that are gone become tombstones after ``forget`` seconds: old views bring nobody back. A view has one of the
   gone, so that peers that start later learn their last incarnations.
7. A member that has ever spoken itself is verified. Unverified ones make room first; in a view they come last and have
   a share only, because names are easily invented.

A holder of a certificate can invent names, up to ``limit``. They never displace a verified member.
Beats travel in views, so the time until a member is suspected grows with the network, by ``spread`` for each member: by
simulation, n members that each hear L entries a second need some 8 n / L seconds.
"""

from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from typing import Any

from gadget_svm.peers.membership.dissemination import DisseminationQueue
from gadget_svm.peers.membership.member import Member, State
from gadget_svm.peers.membership.member_table import MemberTable, Record
from gadget_svm.peers.membership.name_conflict import NameConflict

MANY_NEWS = 8
JUMP = 1 << 32
"""Hearsay raises a known incarnation by no more than this, so that a lie leaves room to outbid it."""


class SupersededError(RuntimeError):
    """Another process runs under this name with a higher incarnation; this one has to stop."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened since the last tick. Lists are sorted; handle ``left`` before ``joined``.

    ``renewed``: members that spoke as a new incarnation. ``impostor``: an entry of this peer that this peer did not
    make. ``raised``: the new incarnation of this peer, which must be saved; the others will see this peer as renewed.
    """

    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    impostor: Member | None = None
    raised: int | None = None


class FailureDetector:
    """Updates ``table`` by these rules. The node calls ``tick`` often, ``beat`` once a heartbeat, and sends views."""

    def __init__(
        self, me: Member, *, suspect: float, dead: float, spread: float = 0.0, forget: float = 3600.0,
        limit: int = 10_000,
    ) -> None:  # fmt: skip
        self.table = MemberTable(me, limit)
        self._spread = spread  # seconds that beats need to reach everybody, for each member
        self._suspect, self._dead, self._forget = suspect, dead, forget
        self._last: float | None = None  # ``now`` at the last tick
        self._late = False
        self._time = 0.0  # advances in `tick` only; the times below are on this clock
        self._scanned = -inf
        self._reported: set[str] = set()  # joined, by the ticks so far
        self._touched: set[str] = set()  # may have come or gone since the last tick
        self._renewed: set[str] = set()
        self._queue = DisseminationQueue()
        self._conflict = NameConflict(suspect)

    @property
    def me(self) -> Member:
        """This peer's own entry."""
        return self.table.me

    @property
    def has_news(self) -> bool:
        """Whether views should be longer, because there is news of many members."""
        return len(self._queue) > MANY_NEWS

    def fresh(self, age: float) -> list[Member]:
        """Return the entries of the other members that gave a sign of life within ``age`` seconds."""
        oldest = self._time - age
        return [record.entry for record in self.table.records.values() if record.present and record.since >= oldest]

    def accept(self, name: str, incarnation: int) -> bool:
        """Return whether to use a message of this incarnation: it has not left, and no later one has spoken."""
        if name == self.me.name:
            return False
        record = self.table.find(name)
        return record is None or (incarnation >= record.proven and incarnation > record.left)

    def view(self, count: int, rng: Random) -> tuple[Member, ...]:
        """Return at most ``count`` entries to send.

        The first entry is that of this peer. News takes up to half of the places. The rest goes to members that are
        present and, if ``count`` is at least 4, to one member that is gone. At least an eighth of the entries and half
        of the news are of verified members, as far as there are any. These entries come before those of other members.
        """
        if count == 1:
            return (self.me,)
        records = self.table.records
        names = [name for name in self._queue.take(count // 2) if name in records]
        gone = [] if count < 4 else [entry for entry in self._one_gone(rng) if entry.name not in names]
        room = max(count - 1 - len(names) - len(gone), 0)
        verified = _sample(self.table.verified(), count - 1, rng)
        some = [name for name in verified if name not in names][: min(count // 8, room)]
        taken = {*names, *some}
        present = _sample(self.table.present(), count - 1, rng)
        some += [name for name in present if name not in taken][: room - len(some)]
        chosen = sorted((records[name] for name in (*names, *some)), key=lambda record: not record.verified)
        spoken = (replace(r.entry, state=State.LEFT) if r.leaving else r.entry for r in chosen)
        return (self.me, *spoken, *gone)

    def remember(self, name: str, incarnation: int) -> None:
        """Add a member of a snapshot. It counts as gone until it gives a sign of life."""
        if name != self.me.name and self.table.find(name) is None:
            self._bury(name, Record(Member(name, "", incarnation, 0, State.DEAD, reachable=False), self._time))

    def beat(self, **fields: Any) -> None:
        """Advance this peer's beat. Its own fields (rows, loss, slack, objective, reachable, certified, address) change
        only with a beat, so that (incarnation, beat) tells the newer entry."""
        self.table.me = replace(self.me, **fields, beat=self.me.beat + 1)

    def hear(self, member: Member, direct: bool) -> None:
        """Use an entry of a view. ``direct``: by its certificate, the sender is the member that the entry is about."""
        if member.name == self.me.name:
            if self._conflict.hear(member, direct, self.me, self._time):
                self.beat()
        elif direct:
            self._hear_itself(member)
        else:
            self._hear_hearsay(member)

    def spoke(self, name: str, incarnation: int) -> None:
        """Note that the member itself has sent a message, of any kind, which holds no entry and no beat."""
        record = self.table.find(name)
        if record is not None and record.proven == incarnation and record.entry.state == State.ALIVE:
            record.since = record.spoke = self._time
            record.leaving = False
            return
        known = Member(name, "", incarnation, 0, reachable=False) if record is None else record.entry
        beat = known.beat if known.incarnation == incarnation else 0
        self.hear(replace(known, incarnation=incarnation, beat=beat, state=State.ALIVE), direct=True)

    def leave(self, name: str, incarnation: int) -> None:
        """Note that the member itself leaves. It is gone at once, until a higher incarnation is heard of."""
        if not self.accept(name, incarnation):
            return
        record = self.table.find(name)
        if record is None:
            record = Record(Member(name, "", incarnation, 0, State.LEFT, reachable=False), self._time)
            self._bury(name, record)
        self.table.prove(record, incarnation)
        record.left = incarnation
        record.spoke = -inf  # from now on hearsay of a successor is heard
        if record.entry.incarnation <= incarnation:
            record.entry = replace(record.entry, incarnation=incarnation)
            self._set_state(record, State.LEFT)

    def tick(self, now: float) -> Changes:
        """Let time pass and return what changed. Raises `SupersededError` if a second process proved itself."""
        self._pass_time(now)
        other = self._conflict.proven
        if other is not None:
            raise SupersededError(
                f"another process runs as {self.me.name!r}: incarnation {other.incarnation} at "
                f"{other.address or 'an unknown address'}, this one is {self.me.incarnation} at "
                f"{self.me.address or 'no address'}. This one stops; give every peer its own name, certificate and "
                f"state folder."
            )
        self._watch()
        impostor, raised = self._conflict.answer(self.me, self._time)
        if raised is not None:
            self.table.me = replace(self.me, incarnation=raised, beat=1)
        touched, present = sorted(self._touched), self.table.is_present
        joined = [name for name in touched if present(name) and name not in self._reported]
        left = [name for name in touched if not present(name) and name in self._reported]
        renewed = sorted(self._renewed)
        self._reported.update(joined)
        self._reported.difference_update(left)
        self._touched.clear()
        self._renewed.clear()
        return Changes(joined, left, renewed, impostor, raised)

    def _hear_itself(self, member: Member) -> None:
        if not self.accept(member.name, member.incarnation):
            return
        record = self._admit(member, direct=True)
        if record is None:
            return
        if member.incarnation != record.entry.incarnation or member.beat >= record.entry.beat:
            self.table.put(record, member if member.address else replace(member, address=record.entry.address))
        if 0 < record.proven < member.incarnation:
            self._renewed.add(member.name)
        self.table.prove(record, member.incarnation)
        self._queue.verify(member.name)
        record.spoke, record.leaving = self._time, False
        self._revive(record)

    def _hear_hearsay(self, member: Member) -> None:
        record = self.table.find(member.name)
        if record is None:
            if member.state >= State.DEAD:
                self._bury(member.name, Record(member, self._time))
            elif new := self._admit(member, direct=False):
                self._revive(new)
                new.since -= self._suspect * member.state
            return
        old = record.entry
        own_word = self._time - record.spoke <= self._suspect and member.incarnation != old.incarnation
        if own_word or member.incarnation <= record.left or member.incarnation > old.incarnation + JUMP:
            return
        if (member.incarnation, member.beat) > (old.incarnation, old.beat):
            keep_address = old.address and (member.incarnation == old.incarnation or not member.address)
            keep_address = keep_address and member.address != old.address
            self.table.put(record, replace(member, address=old.address) if keep_address else member)
            if member.state == State.ALIVE and self._admit(member, direct=False):
                self._revive(record)
            elif member.state == State.SUSPECT and record.present:
                record.since = max(record.since, self._time - self._suspect)
        elif not old.address and member.incarnation == old.incarnation:
            self.table.put(record, replace(old, address=member.address))
        if member.state == State.LEFT and member.incarnation == record.entry.incarnation:
            self._hear_of_leave(record)

    def _hear_of_leave(self, record: Record) -> None:
        if record.present and not record.leaving and self._time - record.spoke > self._suspect:
            record.leaving = True
            record.since = min(record.since, self._time - self._suspect)
            self._announce(record)

    def _pass_time(self, now: float) -> None:
        gap = 0.0 if self._last is None else now - self._last
        late = not 0 <= gap <= self._suspect
        if not late:
            self._time += gap
        elif self._late and gap > 0:  # this peer is always this slow, and must see the dead all the same
            self._time += self._suspect / 2
        self._last, self._late = now, late

    def _watch(self) -> None:
        if self._time - self._scanned < min(self._suspect, self._dead) / 20:
            return
        self._scanned = self._time
        suspect = max(self._suspect, self._spread * len(self.table.present()))
        for record in self.table.records.values():
            silent = self._time - record.since
            if not record.present or silent < suspect:
                continue
            if silent >= suspect + self._dead:
                self._set_state(record, State.DEAD)
            elif record.entry.state == State.ALIVE:
                self.table.set_state(record, State.SUSPECT, self._time)
        for name in [name for name, since in self.table.gone.items() if self._time - since >= self._forget]:
            self._bury(name, self.table.records[name])

    def _revive(self, record: Record) -> None:
        record.since = self._time
        self._set_state(record, State.ALIVE)

    def _set_state(self, record: Record, state: State) -> None:
        record.leaving = False
        if self.table.set_state(record, state, self._time):
            self._touched.add(record.entry.name)
            self._announce(record)

    def _admit(self, member: Member, direct: bool) -> Record | None:
        """Return the record of a member that gives a sign of life; None if the table has no room.

        If the table has no record, its tombstone becomes one, or a new one is made.
        """
        table = self.table
        if member.name in table.records:
            return table.records[member.name]
        least = table.replaceable(direct) if table.full else None
        if table.full and least is None:
            return None
        record = table.tombstones.pop(member.name, None) or Record(replace(member, state=State.DEAD), self._time)
        if least is not None:
            self._bury(least, table.records[least])
        table.enter(record, self._time)
        return record

    def _bury(self, name: str, record: Record) -> None:
        if self.table.is_present(name):
            self._set_state(record, State.DEAD)
        self._queue.discard(name)
        self.table.bury(name, record)

    def _announce(self, record: Record) -> None:
        self._queue.add(record.entry.name, len(self.table.records), record.verified)

    def _one_gone(self, rng: Random) -> list[Member]:
        names = [*self.table.gone, *self.table.tombstones]
        record = self.table.find(rng.choice(names)) if names else None
        return [] if record is None else [record.entry]


def _sample(names: list[str], count: int, rng: Random) -> list[str]:
    return names if len(names) <= count else rng.sample(names, count)
