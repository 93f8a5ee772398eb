"""Whom to dial now. Owns which dials are under way, and the back-off of each address; dials nobody itself.

There are five kinds of addresses, and they take turns, so that many of one kind hide no other:

- chosen neighbours without a link;
- seeds, the addresses of peer.toml: while this peer is alone; otherwise now and then those where no known member is,
  so that two halves of a network find each other again;
- suspects: a dial tells whether they or the paths to them are down;
- the dead, and members known before a restart: more and more rarely;
- one of the members known by hearsay only, once a minute, because names are easily invented.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from math import inf
from random import Random

from gadget_svm.peers.membership.failure_detector import FailureDetector

DIALS_ALONE, DIALS = 16, 2
"""Dials at a time: of a peer without any link, and otherwise."""
FIRST_WAIT_S, LONGEST_WAIT_S, LONGEST_WAIT_DEAD_S = 1.0, 30.0, 300.0
"""Back-off after a dial that failed; it doubles each time."""
SEED_INTERVAL_S, HEARSAY_INTERVAL_S = 60.0, 60.0
DIAL_TIMEOUT_S = 60.0
MAX_ADDRESSES = 10_000

Candidates = dict[str, str | None]
"""Addresses, and the names that must answer."""


@dataclass(slots=True)
class Attempts:
    """What is known of one address."""

    next: float = -inf  # no dial before
    wait: float = 0.0
    dialled: float = -inf
    answered: str = ""  # who answered last


class Discovery:
    """Parameters: the seeds, and this peer's own address, which is never dialled."""

    def __init__(self, join: tuple[str, ...], own_address: str) -> None:
        self._seeds, self._own = join, own_address
        self._former: dict[str, str] = {}
        self._attempts: dict[str, Attempts] = {}
        self._under_way: dict[str, float] = {}  # since when
        self._turn = 0
        self._hearsay: Candidates = {}  # the one that may be next
        self._hearsay_from = -inf

    def remember(self, addresses: Mapping[str, str]) -> None:
        """Take the addresses of members, by name, as they were before a restart."""
        self._former = dict(addresses)

    def due(
        self, now: float, detector: FailureDetector, linked: Collection[str], chosen: Collection[str], rng: Random
    ) -> list[tuple[str, str | None]]:
        """Return whom to dial now, and who has to answer there. Until one answers, each counts as failed.

        ``linked`` are the names with an open link, ``chosen`` the neighbours that this peer wants.
        """
        self._under_way = {a: since for a, since in self._under_way.items() if now - since < DIAL_TIMEOUT_S}
        room = (DIALS if linked else DIALS_ALONE) - len(self._under_way)
        queues, longest_wait = [], dict[str, float]()
        for longest, kind in self._kinds(now, detector, linked, chosen, rng):
            longest_wait.update(dict.fromkeys(kind, longest))
            free = [a for a in kind if a not in {self._own, *self._under_way} and self._attempt(a).next <= now]
            queues.append(
                [(address, kind[address]) for address in sorted(free, key=lambda a: self._attempt(a).dialled)]
            )
        first = self._turn % len(queues)
        self._turn += 1
        mixed = chain.from_iterable(zip_longest(*queues[first:], *queues[:first]))
        found: dict[str, str | None] = {}
        for dial in mixed:
            if dial is not None and len(found) < room:
                found.setdefault(*dial)
        for address in found:
            attempt = self._attempt(address)
            attempt.wait = min(max(2 * attempt.wait, FIRST_WAIT_S), longest_wait[address])
            attempt.next = now + attempt.wait * rng.uniform(0.75, 1.25)
            self._under_way[address] = attempt.dialled = now
            if address in self._hearsay:
                self._hearsay_from = now + HEARSAY_INTERVAL_S
        return list(found.items())

    def failed(self, address: str) -> None:
        """Nobody answered, or it was refused."""
        self._under_way.pop(address, None)

    def connected(self, address: str, name: str, now: float) -> None:
        """``name`` answered, and its hello was accepted (or it is this peer itself)."""
        self._under_way.pop(address, None)
        attempt = self._attempt(address)
        attempt.wait, attempt.next, attempt.answered = 0.0, now + FIRST_WAIT_S, name

    def _kinds(
        self, now: float, detector: FailureDetector, linked: Collection[str], chosen: Collection[str], rng: Random
    ) -> Iterator[tuple[float, Candidates]]:
        """Yield the candidates of each kind, and the longest wait between two dials of one."""
        table, me = detector.table, detector.me.name
        wanted = (table.known(name) for name in sorted(chosen) if name not in linked and name != me)
        yield LONGEST_WAIT_S, {m.address: m.name for m in wanted if m is not None and m.address and m.reachable}
        here = {table.get(name).address for name in table.verified()} if linked else set()
        seeds: Candidates = {}
        for address in self._seeds:
            attempt = self._attempt(address)
            nobody_here = address not in here and not table.is_present(attempt.answered)
            rested = nobody_here and (not attempt.answered or now - attempt.dialled >= SEED_INTERVAL_S)
            if attempt.answered != me and (rested or not linked):
                seeds[address] = None
        yield LONGEST_WAIT_S, seeds
        suspects = [m for m in table.suspects() if m.reachable and m.name not in linked]
        yield LONGEST_WAIT_S, {m.address: m.name for m in suspects if table.is_verified(m.name)}
        dead = [m for m in table.dead() if m.reachable]
        former: Candidates = {a: name for name, a in self._former.items() if a and not table.is_present(name)}
        yield LONGEST_WAIT_DEAD_S, former | {m.address: m.name for m in dead if table.is_verified(m.name)}
        self._hearsay = {}
        if now >= self._hearsay_from:
            some = [m for m in (*table.unverified(), *dead) if m.reachable and not table.is_verified(m.name)]
            self._hearsay = {m.address: m.name for m in rng.sample(some, min(1, len(some)))}
        yield LONGEST_WAIT_DEAD_S, self._hearsay

    def _attempt(self, address: str) -> Attempts:
        if address not in self._attempts:
            if len(self._attempts) >= MAX_ADDRESSES:
                del self._attempts[next(iter(self._attempts))]
            self._attempts[address] = Attempts()
        return self._attempts[address]
