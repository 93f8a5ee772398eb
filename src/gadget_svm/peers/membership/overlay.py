"""The overlay: which members a peer keeps edges with. Every peer that knows the same members computes the same graph.

Owns the number of a name and the neighbours of a name; knows no addresses, no states and no time.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from gadget_svm.peers.membership.member_table import MemberTable


class Choice(NamedTuple):
    """What follows from who is present."""

    chosen: frozenset[str]  # neighbours among the verified members
    to_verify: frozenset[str]  # among all, also those known by hearsay
    any_reachable: bool


class Overlay:
    """Whom the owner of a member table chooses as neighbours."""

    def __init__(self, table: MemberTable, degree: int) -> None:
        self._table, self._degree = table, degree
        self._version: tuple[int, bool] | None = None
        self._choice = Choice(frozenset(), frozenset(), any_reachable=True)

    def choice(self) -> Choice:
        """Return the present choice; it is computed again only when the members change."""
        table, me = self._table, self._table.me
        version = (table.version, me.reachable)
        if self._version != version:
            mine = {me.name: me.reachable}
            present = {name: table.get(name).reachable for name in table.present()} | mine
            verified = {name: present[name] for name in table.verified()} | mine
            self._version = version
            self._choice = Choice(
                frozenset(neighbours(me.name, verified, self._degree)),
                frozenset(neighbours(me.name, present, self._degree)),
                any_reachable(present) or len(present) == 1,
            )
        return self._choice


@lru_cache(maxsize=1 << 16)
def node_id(name: str) -> int:
    """Return the number of a peer in arrays: the first 31 bits of SHA-256 of its name."""
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big") >> 1


def any_reachable(reachable: Mapping[str, bool]) -> bool:
    """Whether any member accepts connections. If not, no two members can be connected."""
    return any(reachable.values())


def neighbours(me: str, reachable: Mapping[str, bool], degree: int) -> tuple[str, ...]:
    """Return the neighbours that ``me`` chooses, sorted, at most ``degree``.

    ``reachable`` has all members, ``me`` included, and says which of them can be dialled. Each of ``degree // 2`` rings
    orders the reachable members by a hash of its own; neighbours are those before and after on each. An outbound-only
    member chooses those before and after its own hash; these need not choose it, and accept it. So all members are
    connected as soon as one is reachable. A reachable member that comes or goes changes one place of each ring. Up to
    ``degree + 1`` members, all are neighbours, except two that are both outbound-only.
    """
    if degree < 2:
        raise ValueError(f"degree is {degree}: more than two peers cannot be connected with fewer than 2 neighbours")
    if len(reachable) <= degree + 1:
        return tuple(sorted(name for name in reachable if name != me and (reachable[name] or reachable[me])))
    others = [name for name, can in reachable.items() if can and name != me]
    if len(others) <= degree:
        return tuple(sorted(others))
    return tuple(sorted({name for ring in range(degree // 2) for name in _beside(me, others, ring)}))


def _beside(me: str, others: Collection[str], ring: int) -> tuple[str, str]:
    """Return who is before and after ``me`` on a ring: the nearest on that side, else the farthest on the other."""
    here = _place(ring, me)
    places = [_place(ring, name) for name in others]
    before = max((place for place in places if place < here), default=None) or max(places)
    after = min((place for place in places if place > here), default=None) or min(places)
    return before[1], after[1]


@lru_cache(maxsize=1 << 16)
def _place(ring: int, name: str) -> tuple[bytes, str]:
    return sha256(f"{ring}/{name}".encode()).digest()[:8], name
