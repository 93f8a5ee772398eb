"""Which members go out first in a view, and how often. Owns a queue of names, and nothing that is said of them."""

from collections.abc import Callable
from itertools import islice
from math import ceil, log2

SCANNED = 4
"""Names that are looked at for each one that is taken: the queue may be long."""


class DisseminationQueue:
    """Names with news, the oldest news first."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}  # how often each is still to be sent

    def add(self, name: str, members: int) -> None:
        """There is news of ``name``: send it as often as gossip needs to reach ``members`` peers."""
        self.left[name] = 3 * ceil(log2(members + 2))

    def take(self, count: int, is_verified: Callable[[str], bool]) -> list[str]:
        """Return the next names, half of them verified if there is enough of both kinds."""
        verified: list[str] = []
        hearsay: list[str] = []
        for name in islice(self.left, SCANNED * count):
            (verified if is_verified(name) else hearsay).append(name)
        names = verified[: max(count - count // 2, count - len(hearsay))]
        names += hearsay[: count - len(names)]
        for name in names:  # those to be sent again go to the end
            left = self.left.pop(name)
            if left > 1:
                self.left[name] = left - 1
        return names
