"""Where somebody may be found. Owns whose turn it is to be called, and how many addresses are kept; calls nobody.

There are three kinds, and they take turns: however many there are of one, the others are called too. Within a kind the
one that was called longest ago is next, so that no number of dead addresses hides one where somebody answers.
"""

from collections.abc import Collection, Iterable
from itertools import chain, zip_longest

CLAIMS = 16
"""Addresses at which this peer's own name is said to be in use: the last ones heard of."""


class Seeds:
    """Addresses to call: those of peer.toml first, which nothing pushes out."""

    def __init__(self, given: Iterable[str]) -> None:
        self.given = tuple(given)
        self.former: tuple[str, ...] = ()  # of those known before a restart
        self._claimed: dict[str, None] = {}  # the last one at the end
        self._turns = 0
        self._called: dict[str, int] = {}  # in which turn

    def claim(self, address: str) -> None:
        """Somebody else is said to have this peer's name there. Others can say so without end."""
        self._claimed.pop(address, None)
        self._claimed[address] = None
        if len(self._claimed) > CLAIMS:
            del self._claimed[next(iter(self._claimed))]

    def take(self, most: int, missed: Iterable[str], here: Collection[str]) -> list[str]:
        """Whom to call now, ``most`` of them. ``missed``: where members were; ``here``: where there is no need to."""
        kinds = [
            [address for address in dict.fromkeys(kind) if address not in here]
            for kind in (self.given, (*missed, *self.former), self._claimed)
        ]
        self._called = {address: self._called.get(address, -1) for address in chain(*kinds)}
        first = self._turns % len(kinds)
        queues = [sorted(kind, key=self._called.__getitem__) for kind in (*kinds[first:], *kinds[:first])]
        mixed = dict.fromkeys(address for row in zip_longest(*queues) for address in row if address is not None)
        taken = list(mixed)[:most]
        self._called.update(dict.fromkeys(taken, self._turns))
        self._turns += 1
        return taken
