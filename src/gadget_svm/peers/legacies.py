"""What a peer keeps of those who have left: owns whose pull stays on its edges, and until when. See `leaving` for how.

A legacy may hold those that the leaver kept itself. If one of these comes back it must not count twice, so the whole
legacy is dropped; if the leaver does, the edge goes on where it was. A legacy is of one incarnation: to have heard of a
later one in any state ends it, since that one counts itself, has left to somebody else, or has withdrawn.

The last letter is part of the legacy: before the learner has taken it in, nothing is kept (`Bequest`), nor saved.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gadget_svm.peers.identity import Verifier
from gadget_svm.peers.learner import Parcel
from gadget_svm.peers.logs import fields
from gadget_svm.peers.messages import KEPT, Kept
from gadget_svm.peers.overlay import node_id

log = logging.getLogger(__name__)

SURE = 30.0
"""Seconds after which nobody who leaves takes back what an heir has: it asks some, then says goodbye to the rest."""


@dataclass(frozen=True)
class Legacy:
    """What is known of one who has left, and whose pull stays as it was then."""

    serial: int  # of the certificate it showed
    incarnation: int  # as which it left
    others: tuple[Kept, ...] = ()  # whose legacies are part of its own

    def parts(self, name: str) -> tuple[Kept, ...]:
        """Everybody whose rows are in it, ``name`` first, who left it."""
        return (Kept(name, self.incarnation), *self.others)


class Bequest(NamedTuple):
    """A last letter that the learner has not taken in yet."""

    legacy: Legacy
    parcel: Parcel


def names_in(kept: Mapping[str, Legacy]) -> tuple[Kept, ...]:
    """Everybody who must not come back to a sum that holds them already."""
    found: dict[str, int] = {}
    for name, legacy in kept.items():
        for part in legacy.parts(name):
            found[part.name] = max(part.incarnation, found.get(part.name, 0))
    return tuple(Kept(name, found[name]) for name in sorted(found))


def has_room(kept: Mapping[str, Legacy], others: Collection[Kept]) -> bool:
    """Whether one more fits, with what it holds: all of them travel on in one letter some day."""
    return len(names_in(kept)) + 1 + len(others) <= KEPT


class Legacies:
    """Those of one peer. ``latest``: the last incarnation known of a name."""

    def __init__(self, latest: Callable[[str], int], verifier: Verifier) -> None:
        self.kept: dict[str, Legacy] = {}
        self.bequests: dict[str, Bequest] = {}  # to be kept once the learner has taken in the last letter
        self._latest, self._verifier = latest, verifier
        self._since: dict[str, float] = {}
        self._started = time.monotonic()

    def restart(self, kept: Mapping[str, Legacy] | None = None) -> None:
        """With what a checkpoint says, or with nothing."""
        self.kept, self.bequests = dict(kept or {}), {}

    @property
    def names(self) -> tuple[Kept, ...]:
        """Everybody whose rows are in what is kept."""
        return names_in(self.kept)

    @property
    def numbers(self) -> frozenset[int]:
        """The nodes at the other ends of edges that stay as they are, those of bequests too."""
        return frozenset(map(node_id, (*self.kept, *self.bequests)))

    def standing(self, kept: Mapping[str, Legacy]) -> dict[str, Legacy]:
        """Those that still count: not of one heard of since, nor of one whose certificate was revoked."""
        return {
            name: legacy
            for name, legacy in kept.items()
            if all(self._latest(part.name) <= part.incarnation for part in legacy.parts(name))
            and not self._verifier.is_revoked(legacy.serial)
        }

    @property
    def outdated(self) -> bool:
        """Whether some do not count any more."""
        return len(self.standing(self.kept)) < len(self.kept)

    def inherit(self, name: str, incarnation: int, others: tuple[Kept, ...], parcel: Parcel) -> bool:
        """Somebody leaves: whether its edge can stay as this letter says, until it comes back."""
        legacy = Legacy(self._verifier.serial_of(name), incarnation, others)
        mine = self.standing({**self.kept, **{other: each.legacy for other, each in self.bequests.items()}})
        twice = {part.name for part in legacy.parts(name)} & {part.name for part in names_in(mine)}
        if twice or not has_room(mine, others) or not self.standing({name: legacy}):
            return False
        self.bequests[name] = Bequest(legacy, parcel)
        log.info(
            "keeping what one who leaves has taught", extra=fields(name=name, others=[part.name for part in others])
        )
        return True

    def last_letters(self, held: Collection[int]) -> list[Parcel]:
        """Those that wait for the learner, of nodes whose edges it holds."""
        last = [bequest.parcel for bequest in self.bequests.values() if bequest.parcel.other in held]
        return sorted(last, key=lambda parcel: parcel.other)

    def taken_in(self, parcels: Collection[Parcel]) -> bool:
        """What last letters say that the learner has now is kept from here on; whether there is any."""
        done = [name for name, each in self.bequests.items() if any(parcel is each.parcel for parcel in parcels)]
        for name in done:
            self.kept[name], self._since[name] = self.bequests.pop(name).legacy, time.monotonic()
        return bool(done)

    def settle(self) -> bool:
        """Keep what still counts; whether anything was dropped."""
        for name in [name for name, each in self.bequests.items() if not self.standing({name: each.legacy})]:
            del self.bequests[name]
        stands = self.standing(self.kept)
        return self._drop([name for name in self.kept if name not in stands])

    def give_way(self, theirs: Collection[Kept]) -> bool:
        """Somebody else keeps these: drop our own of them; whether there was any. Not those that the leaver may be
        about to tell who keeps them."""
        surely = time.monotonic() - SURE
        known = [name for name in self.kept if self._since.get(name, self._started) < surely]
        return self._drop([name for name in known if set(self.kept[name].parts(name)) & set(theirs)])

    def release(self, name: str, incarnation: int) -> int | None:
        """Somebody said goodbye to us: what it asked us to keep, before, is with somebody else. As which incarnation
        it had asked, if it did."""
        asked = self.bequests.get(name)
        legacy = self.kept.get(name) if asked is None else asked.legacy
        if legacy is None or incarnation < legacy.incarnation:
            return None
        self.bequests.pop(name, None)
        self.kept.pop(name, None)
        return legacy.incarnation

    def _drop(self, names: list[str]) -> bool:
        for name in names:
            del self.kept[name]
        if names:
            log.info("keeping no longer what was taught by", extra=fields(names=sorted(names)))
        return bool(names)
