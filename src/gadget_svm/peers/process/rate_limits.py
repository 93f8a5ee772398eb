"""Token buckets, one per sender. Owns counts and times; the caller decides what to do when no token is left.

A sender that is forgotten starts again with a full bucket, so names must cost something: here, a certificate.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable


class TokenBucket:
    """``burst`` tokens at first, ``rate`` more each second, never more than ``burst``."""

    __slots__ = ("_tokens", "_updated", "burst", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._updated = float(burst), -math.inf

    def take(self, now: float) -> bool:
        """Take a token if there is one. A clock that steps back brings none."""
        if now > self._updated:
            self._tokens = min(self.burst, self._tokens + (now - self._updated) * self.rate)
            self._updated = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class RateLimits:
    """A bucket for each name, for at most ``max_names`` at once: the one that was silent longest is forgotten."""

    def __init__(
        self, rate: float, burst: float, *, max_names: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not 0 < rate < math.inf:
            raise ValueError(f"rate={rate}: messages per second must be positive and finite")
        if not 1 <= burst < math.inf:
            raise ValueError(f"burst={burst}: must be at least 1 and finite, or no message would ever pass")
        if max_names < 1:
            raise ValueError(f"max_names={max_names}: must be at least 1")
        self.rate, self.burst, self.max_names = rate, burst, max_names
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str) -> bool:
        """Take a token of this name's bucket if there is one."""
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = TokenBucket(self.rate, self.burst)
            if len(self._buckets) > self.max_names:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(name)
        return bucket.take(self._clock())
