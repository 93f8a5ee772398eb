"""How many messages each sender may send, by the generic cell rate algorithm: one number per sender.

The caller decides what to do with a message too many. A sender that is forgotten has its whole burst again, so names
must cost something: here, a certificate.
"""

import time
from collections.abc import Callable


class RateLimits:
    """``burst`` messages at once and ``rate`` a second, for each name.

    At most ``max_names`` are remembered: the one that was silent longest is forgotten.
    """

    def __init__(
        self, rate: float, burst: float, *, max_names: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval, self._ahead = 1 / rate, (burst - 1) / rate
        self._max_names, self._clock = max_names, clock
        self._due: dict[str, float] = {}  # when a sender at the rate would send next; the last one to send is last

    def __len__(self) -> int:
        return len(self._due)

    def take(self, name: str) -> bool:
        """Return whether this name may send a message now, and count it if so."""
        now = self._clock()
        due = max(self._due.pop(name, now), now)
        allowed = due - now <= self._ahead
        self._due[name] = due + self._interval if allowed else due
        if len(self._due) > self._max_names:
            del self._due[next(iter(self._due))]
        return allowed
