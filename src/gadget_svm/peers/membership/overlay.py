"""Whom to talk to: a sparse graph that everyone who knows the same names works out alike, with nobody asked.

Owns the number of a name and the neighbours of a name; knows no addresses, no states and no time."""

from collections.abc import Collection, Iterable
from functools import lru_cache
from hashlib import sha256


def node_id(name: str) -> int:
    """The number of a peer in arrays: the first 31 bits of SHA-256 of its name."""
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big") >> 1


def check_distinct(names: Iterable[str]) -> None:
    """Refuses two names with one number (a chance of n²/2³² among n names: 2 % at ten thousand)."""
    owner: dict[int, str] = {}
    for name in sorted(set(names)):
        first = owner.setdefault(node_id(name), name)
        if first != name:
            raise ValueError(f"peers {first!r} and {name!r} share the node number {node_id(name)}: rename one of them")


def neighbours(me: str, names: Collection[str], degree: int) -> tuple[str, ...]:
    """The neighbours of ``me`` among ``names`` (``me`` counts as one of them), sorted; at most ``degree``.

    Each of ``degree // 2`` rings lines the names up by a hash of its own; neighbours are those before and after on
    each. One ring alone connects everyone; a name that comes or goes cuts one edge of each ring and closes it again.
    Up to ``degree + 1`` names, everyone is everyone's neighbour.
    """
    if degree < 2:
        raise ValueError(f"degree is {degree}: more than two peers cannot be connected with fewer than 2 neighbours")
    others = set(names) - {me}
    if len(others) <= degree:
        return tuple(sorted(others))
    return tuple(sorted({name for ring in range(degree // 2) for name in _beside(me, others, ring)}))


def _beside(me: str, others: Collection[str], ring: int) -> tuple[str, str]:
    """Who stands before and after ``me`` on a ring: the nearest on that side, else the farthest on the other."""
    here = _place(ring, me)
    places = [_place(ring, name) for name in others]
    before = max((place for place in places if place < here), default=None) or max(places)
    after = min((place for place in places if place > here), default=None) or min(places)
    return before[1], after[1]


@lru_cache(maxsize=1 << 16)
def _place(ring: int, name: str) -> tuple[bytes, str]:
    return sha256(f"{ring}/{name}".encode()).digest()[:8], name
