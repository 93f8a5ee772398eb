"""Which members go out first in a view, and how often. Owns queues of names, and nothing that is said of them."""

from itertools import islice
from math import ceil, log2


class DisseminationQueue:
    """Names with news, the oldest news first: those of verified members, and those known by hearsay only."""

    def __init__(self) -> None:
        self._verified: dict[str, int] = {}  # how often each is still to be sent
        self._hearsay: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._verified) + len(self._hearsay)

    def add(self, name: str, members: int, verified: bool) -> None:
        """There is news of ``name``: send it as often as gossip needs to reach ``members`` peers."""
        self.discard(name)
        (self._verified if verified else self._hearsay)[name] = 3 * ceil(log2(members + 2))

    def verify(self, name: str) -> None:
        """A member known by hearsay has spoken itself."""
        if name in self._hearsay:
            self._verified[name] = self._hearsay.pop(name)

    def discard(self, name: str) -> None:
        """Forget a name."""
        self._verified.pop(name, None)
        self._hearsay.pop(name, None)

    def take(self, count: int) -> list[str]:
        """Return the next names, half of them verified if there is enough of both kinds."""
        verified, hearsay = list(islice(self._verified, count)), list(islice(self._hearsay, count))
        names = verified[: max(count - count // 2, count - len(hearsay))]
        names += hearsay[: count - len(names)]
        for name in names:  # those to be sent again go to the end
            queue = self._verified if name in self._verified else self._hearsay
            left = queue.pop(name)
            if left > 1:
                queue[name] = left - 1
        return names
