"""Send credits: how many pushes a GADGET node may still send to each neighbour. PDMM needs none.

In the simulator every round delivers. Where messages are late, a node that goes on sending gives away mass that does
not arrive for many ticks; it runs out of mass and drifts away. So a node sends one push to each neighbour, and one more
for each that comes back: a slow edge carries no more than it can, and the others keep their own pace. A push may be
lost, and a credit with it, so after a timeout the node sends all the same.
"""

import math
from collections.abc import Iterable

INITIAL, MOST = 1, 2
"""Credits before any push came back, and the most at any time: one push under way, one that waits."""
TIMEOUT_HEARTBEATS = 3.0
"""Heartbeats after which a neighbour that does not answer gets another push."""


class SendCredits:
    """The credits of one node; times are of any clock that does not go back."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._sent_at: dict[str, float] = {}

    def received(self, name: str) -> None:
        """A push came from this neighbour."""
        self._left[name] = min(self._left.get(name, INITIAL) + 1, MOST)

    def sent(self, name: str, now: float) -> None:
        """A push goes to this neighbour."""
        self._left[name], self._sent_at[name] = max(self._left.get(name, INITIAL) - 1, 0), now

    def open(self, names: Iterable[str], now: float, heartbeat: float) -> list[str]:
        """Return those of these neighbours that may be sent to."""
        late = now - TIMEOUT_HEARTBEATS * heartbeat
        return [name for name in names if self._left.get(name, INITIAL) or self._sent_at.get(name, -math.inf) <= late]

    def forget(self, name: str) -> None:
        """The neighbour is gone or was restarted: the next push to it is the first."""
        self._left.pop(name, None)
        self._sent_at.pop(name, None)
