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
TIMEOUT = 15
"""Times that a node could send, after which a neighbour that does not answer gets another push. If three pushes in ten
are lost, a node makes three times as many ticks with 15 as with 60, and mass that is late does as little harm."""


class SendCredits:
    """The credits of one node, by the neighbour's number. Time is counted in the times that the node could send."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}
        self._sent_at: dict[int, int] = {}

    def received(self, number: int) -> None:
        """A push came from this neighbour."""
        self._left[number] = min(self._left.get(number, INITIAL) + 1, MOST)

    def sent(self, number: int, now: int) -> None:
        """A push goes to this neighbour."""
        self._left[number], self._sent_at[number] = max(self._left.get(number, INITIAL) - 1, 0), now

    def open(self, numbers: Iterable[int], now: int) -> set[int]:
        """Return those of these neighbours that may be sent to."""
        late = now - TIMEOUT
        return {one for one in numbers if self._left.get(one, INITIAL) or self._sent_at.get(one, -math.inf) <= late}

    def forget(self, number: int) -> None:
        """The neighbour is gone or was restarted: the next push to it is the first."""
        self._left.pop(number, None)
        self._sent_at.pop(number, None)
