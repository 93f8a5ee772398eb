"""Which members go out first in a view, and how often. Owns two queues of names, and nothing that is said of them."""

from collections.abc import Iterator
from math import ceil, log2


class DisseminationQueue:
    """Names with news: of verified members, and of members known by hearsay only."""

    def __init__(self) -> None:
        self._verified: dict[str, int] = {}  # how often it is still to be sent
        self._hearsay: dict[str, int] = {}

    def __iter__(self) -> Iterator[str]:
        return iter((*self._verified, *self._hearsay))

    def add(self, name: str, verified: bool, members: int) -> None:
        """There is news of ``name``: send it as often as gossip needs to reach ``members`` peers."""
        queue = self._verified if verified else self._hearsay
        queue[name] = 3 * ceil(log2(members + 2))

    def verify(self, name: str) -> None:
        """``name`` is verified now; what is left to send is no longer hearsay."""
        if name in self._hearsay:
            self._verified[name] = self._hearsay.pop(name)

    def drop(self, name: str) -> None:
        """Send nothing more of ``name``."""
        self._verified.pop(name, None)
        self._hearsay.pop(name, None)

    def take(self, count: int) -> list[str]:
        """Return the next names, half of them verified if there is enough of both kinds."""
        names = _take(self._verified, max(count - count // 2, count - len(self._hearsay)))
        return names + _take(self._hearsay, count - len(names))


def _take(queue: dict[str, int], count: int) -> list[str]:
    """Take the first names; those to be sent again go to the end of the queue."""
    names = [name for name, _ in zip(queue, range(count), strict=False)]
    for name in names:
        left = queue.pop(name)
        if left > 1:
            queue[name] = left - 1
    return names
