"""How often a sender may speak: token buckets, one a name. Owns counts and times only; whoever asks decides what to do.

A forgotten name starts anew with a full bucket, so names must cost something: here, a certificate.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

Clock = Callable[[], float]


class Bucket:
    """``burst`` tokens at first, ``rate`` more each second, never more than ``burst``."""

    __slots__ = ("_at", "_clock", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, clock: Clock = time.monotonic) -> None:
        _check(rate, burst)
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._at = -math.inf  # the first to come finds it full

    def take(self, now: float | None = None) -> bool:
        """One token, if there is one. A clock that steps back brings nothing, and takes nothing."""
        now = self._clock() if now is None else now
        if now > self._at:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
            self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Buckets:
    """A bucket for each name, for ``most`` names at once: whoever was silent longest is forgotten."""

    def __init__(self, rate: float, burst: float, *, most: int = 10_000, clock: Clock = time.monotonic) -> None:
        _check(rate, burst)
        if most < 1:
            raise ValueError(f"most={most}: there must be room for one name at least")
        self.rate = rate
        self.burst = burst
        self.most = most
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def __contains__(self, name: object) -> bool:
        return name in self._buckets

    def take(self, name: str, now: float | None = None) -> bool:
        """One token of this name's bucket, if there is one."""
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(self.rate, self.burst, self._clock)
            if len(self._buckets) > self.most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(name)
        return bucket.take(now)

    def forget(self, name: str) -> None:
        """Nothing is known of this name any more."""
        self._buckets.pop(name, None)


def _check(rate: float, burst: float) -> None:
    if not 0 < rate < math.inf:
        raise ValueError(f"rate={rate}: messages per second must be positive and finite")
    if not 1 <= burst < math.inf:
        raise ValueError(f"burst={burst}: below 1 nothing would ever pass, and it must be finite")
