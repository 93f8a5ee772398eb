"""What goes out first in a view, and how often. Owns two queues of names; what is said of them is for `membership`."""

from collections.abc import Iterator
from math import ceil, log2


class News:
    """Names in turn: those of members who were met, and those of whom there is hearsay only."""

    def __init__(self) -> None:
        self._met: dict[str, int] = {}  # how often to pass it on
        self._rumours: dict[str, int] = {}

    def __iter__(self) -> Iterator[str]:
        return iter((*self._met, *self._rumours))

    def tell(self, name: str, met: bool, crowd: int) -> None:
        """There is news of it, to go out as often as it takes to reach everyone."""
        queue = self._met if met else self._rumours
        queue[name] = 3 * ceil(log2(crowd + 2))

    def meet(self, name: str) -> None:
        """It has spoken itself: what is left to tell of it is no longer hearsay."""
        if name in self._rumours:
            self._met[name] = self._rumours.pop(name)

    def drop(self, name: str) -> None:
        """Nothing more of it."""
        self._met.pop(name, None)
        self._rumours.pop(name, None)

    def take(self, count: int) -> list[str]:
        """Of those who were met and of the others, by halves if there is enough of both."""
        names = _next_of(self._met, max(count - count // 2, count - len(self._rumours)))
        return names + _next_of(self._rumours, count - len(names))


def _next_of(queue: dict[str, int], count: int) -> list[str]:
    """The next in turn; whoever has turns left goes to the end of the queue."""
    names = [name for name, _ in zip(queue, range(count), strict=False)]
    for name in names:
        turns = queue.pop(name)
        if turns > 1:
            queue[name] = turns - 1
    return names
