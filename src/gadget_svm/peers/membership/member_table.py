"""All members that a peer knows: present, gone, and tombstones. Owns their records and answers queries about them.

What is believed, and when a member is dead, is for the failure detector; only it calls what changes the table.
"""

from collections import Counter
from dataclasses import dataclass, replace
from math import inf

from gadget_svm.peers.membership.member import Member, State


@dataclass(slots=True)
class Record:
    """What is known of a member: its entry as this peer passes it on, and how it came to be known."""

    entry: Member
    since: float  # the last sign of life
    spoke: float = -inf  # the last word of its own
    proven: int = 0  # the highest incarnation that spoke itself
    left: int = 0  # the highest incarnation that said itself that it leaves
    leaving: bool = False  # others say that it left

    @property
    def present(self) -> bool:
        return self.entry.state <= State.SUSPECT

    @property
    def verified(self) -> bool:
        """Whether it ever spoke itself."""
        return self.proven > 0


class MemberTable:
    """Fewer than ``limit`` other members, and as many tombstones: members of which only the numbers are kept."""

    def __init__(self, me: Member, limit: int) -> None:
        self.me = me
        self.version = 0  # changes when a member comes, goes, is verified, or changes its address or reachability
        self.records: dict[str, Record] = {}
        self.gone: dict[str, float] = {}  # of the records: those dead or left, the longest gone first
        self.tombstones: dict[str, Record] = {}  # the oldest first
        self._limit = limit
        self._present: list[str] | None = []
        self._verified: list[str] | None = []

    # Queries

    def alive(self) -> list[str]:
        """Return the names of all who are present, this peer and suspects included, sorted."""
        return sorted([self.me.name, *self.present()])

    def present(self) -> list[str]:
        """Return the names of the others who are present, suspects included."""
        if self._present is None:
            self._present = [name for name, record in self.records.items() if record.present]
        return self._present

    def verified(self) -> list[str]:
        """Return the names of the others who are present and have spoken themselves, in any incarnation."""
        if self._verified is None:
            self._verified = [name for name in self.present() if self.records[name].verified]
        return list(self._verified)

    def unverified(self) -> list[Member]:
        """Return the present members known by hearsay only that have an address."""
        entries = [self.records[name].entry for name in self.present() if not self.records[name].verified]
        return [entry for entry in entries if entry.address]

    def is_verified(self, name: str) -> bool:
        """Whether a member, present or not, has ever spoken itself."""
        record = self.find(name)
        return record is not None and record.verified

    def get(self, name: str) -> Member:
        """Return the entry of a member, present or gone. KeyError if there is only a tombstone, or nothing."""
        return self.me if name == self.me.name else self.records[name].entry

    def known(self, name: str) -> Member | None:
        """Return an entry, tombstones included: sent to a peer that is refused, so that it can outbid it."""
        record = self.find(name)
        return self.me if name == self.me.name else record.entry if record else None

    def incarnations(self) -> dict[str, int]:
        """Return the last known incarnation of every other member, tombstones included: for a snapshot."""
        return {name: record.entry.incarnation for name, record in (*self.tombstones.items(), *self.records.items())}

    def dead(self) -> list[Member]:
        """Return the dead that did not leave and have an address, the longest dead first."""
        entries = [self.records[name].entry for name in self.gone]
        return [entry for entry in entries if entry.state == State.DEAD and entry.address]

    def suspects(self) -> list[Member]:
        """Return the suspects that have an address: a dial tells whether they or the paths to them are down."""
        entries = [self.records[name].entry for name in self.present()]
        return [entry for entry in entries if entry.state == State.SUSPECT and entry.address]

    def states(self) -> Counter[State]:
        """Return how many others are in each state."""
        return Counter(State(record.entry.state) for record in self.records.values())

    # Changes, for the failure detector

    def find(self, name: str) -> Record | None:
        """Return a record or a tombstone."""
        return self.records.get(name) or self.tombstones.get(name)

    def is_present(self, name: str) -> bool:
        return name in self.records and self.records[name].present

    def prove(self, record: Record, incarnation: int) -> None:
        """Note which incarnation of a member has spoken itself."""
        if not record.verified:
            self._verified = None
            self.version += 1
        record.proven = incarnation

    def put(self, record: Record, entry: Member) -> None:
        """Replace the entry of a record; its state stays."""
        old = record.entry
        record.entry = entry if entry.state == old.state else replace(entry, state=old.state)
        self.version += (old.address, old.reachable) != (entry.address, entry.reachable)

    def set_state(self, record: Record, state: State, now: float) -> bool:
        """Set the state of a member. True if it came or went by this."""
        name, was_present = record.entry.name, record.present
        if record.entry.state != state:
            record.entry = replace(record.entry, state=state)
        if record.present:
            self.gone.pop(name, None)
        elif name in self.records:
            self.gone.setdefault(name, now)
        if record.present != was_present:
            self._present = self._verified = None
            self.version += 1
        return record.present != was_present

    def enter(self, record: Record, now: float) -> None:
        """Add a record that is not present yet."""
        self.tombstones.pop(record.entry.name, None)
        self.records[record.entry.name] = record
        self.gone[record.entry.name] = now

    @property
    def full(self) -> bool:
        return len(self.records) >= self._limit - 1

    def replaceable(self, direct: bool) -> str | None:
        """Return who makes room for a new member: the gone who are unverified; if the new one speaks itself
        (``direct``) also the other unverified, and then the other gone."""
        name = next((gone for gone in self.gone if not self.records[gone].verified), None)
        if name is None and direct:
            hearsay = [record for record in self.records.values() if not record.verified]
            oldest = min(hearsay, key=lambda record: record.since, default=None)
            name = next(iter(self.gone), None) if oldest is None else oldest.entry.name
        return name

    def bury(self, name: str, record: Record) -> None:
        """Keep a tombstone only. If there are too many, one that never spoke itself is dropped first."""
        self.records.pop(name, None)
        self.gone.pop(name, None)
        self.tombstones[name] = record
        if len(self.tombstones) > self._limit:
            hearsay = (other for other, old in self.tombstones.items() if not old.proven)
            del self.tombstones[next(hearsay, next(iter(self.tombstones)))]
