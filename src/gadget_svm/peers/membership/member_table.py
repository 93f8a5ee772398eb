"""Everybody a peer has heard of: the present, the gone and the forgotten. Owns their records, and answers about them.

Whom to believe, and when somebody is gone, is for `membership`.
"""

from collections import Counter
from dataclasses import dataclass, replace
from math import inf

from gadget_svm.peers.member import Member, State


@dataclass(slots=True)
class Record:
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


class Roster:
    """The members one peer knows: fewer than ``limit`` others, and the numbers of as many who are forgotten."""

    def __init__(self, me: Member, limit: int) -> None:
        self.me = me
        self.limit = limit
        self.meetings = 0  # how often somebody was met for the first time
        self._records: dict[str, Record] = {}
        self._gone: dict[str, float] = {}  # of the records, in the order of their going
        self._graves: dict[str, Record] = {}  # forgotten but for their numbers, the oldest first
        self._present: list[str] | None = []
        self._met: list[str] | None = []  # of the present

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

    # What is for `membership` only

    def _find(self, name: str) -> Record | None:
        return self._records.get(name) or self._graves.get(name)

    def _is_present(self, name: str) -> bool:
        return name in self._records and self._records[name].present

    def _here(self) -> list[str]:
        if self._present is None:
            self._present = [name for name, record in self._records.items() if record.present]
        return self._present

    def _meet(self, record: Record) -> None:
        record.met, self._met = True, None
        self.meetings += 1

    def _turn(self, record: Record, state: State, now: float) -> bool:
        """Its state from now on; whether by this it came or went."""
        name, was = record.line.name, record.present
        if record.line.state != state:
            record.line = replace(record.line, state=state)
        if record.present:
            self._gone.pop(name, None)
        elif name in self._records:
            self._gone.setdefault(name, now)
        if record.present != was:
            self._present = self._met = None
        return record.present != was

    def _recalled(self, member: Member, now: float) -> Record:
        """The record of one who had none or was forgotten."""
        return self._graves.pop(member.name, None) or Record(replace(member, state=State.DEAD), now)

    def _enter(self, record: Record, now: float) -> None:
        """Among the gone, until it lives, which is next."""
        self._records[record.line.name] = record
        self._gone[record.line.name] = now

    def _is_full(self) -> bool:
        return len(self._records) >= self.limit - 1

    def _least(self, direct: bool) -> str | None:
        """The gone who were never met make room for anyone; for one who speaks all such do, and then the other gone."""
        name = next((gone for gone in self._gone if not self._records[gone].met), None)
        if name is None and direct:
            rumoured = [record for record in self._records.values() if not record.met]
            oldest = min(rumoured, key=lambda record: record.since, default=None)
            name = next(iter(self._gone), None) if oldest is None else oldest.line.name
        return name

    def _bury(self, name: str, record: Record) -> None:
        """It is forgotten but for its numbers. Those of ``limit`` are kept: who never spoke itself is dropped first."""
        self._records.pop(name, None)
        self._gone.pop(name, None)
        self._graves[name] = record
        if len(self._graves) > self.limit:
            rumoured = (other for other, old in self._graves.items() if not old.proven)
            del self._graves[next(rumoured, next(iter(self._graves)))]
