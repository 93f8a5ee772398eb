"""Whose turn it is between two GADGET peers, edge by edge. Owns how many letters one may still write to each neighbour.

In the simulator every round delivers. Where letters are late, a node that goes on writing gives away mass that does not
arrive for many ticks; it runs out of mass and drifts away. So to each neighbour one writes a letter, and then another
for each that comes back. An edge to a slow peer, or over a bad line, takes no more than it can bear, and the others go
on at their own pace. A letter may be lost for good, and a turn with it: after a while one writes all the same.
"""

import math
from collections.abc import Iterable

FIRST, MOST = 1, 2
"""Letters to one neighbour before any came back, and for so many letters of its own at most: one under way, one that
waits."""
PATIENCE = 3.0
"""Heartbeats after which one who does not answer is written to again."""


class Turns:
    """Those of one peer; times are of any clock that does not go back."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._wrote: dict[str, float] = {}

    def heard(self, name: str) -> None:
        """A letter came."""
        self._left[name] = min(self._left.get(name, FIRST) + 1, MOST)

    def wrote(self, name: str, now: float) -> None:
        """One goes out."""
        self._left[name], self._wrote[name] = max(self._left.get(name, FIRST) - 1, 0), now

    def open(self, names: Iterable[str], now: float, heartbeat: float) -> list[str]:
        """To whom of these one may write."""
        late = now - PATIENCE * heartbeat
        return [name for name in names if self._left.get(name, FIRST) or self._wrote.get(name, -math.inf) <= late]

    def forget(self, name: str) -> None:
        """It is gone, or begins anew: the next letter to it is the first."""
        self._left.pop(name, None)
        self._wrote.pop(name, None)
