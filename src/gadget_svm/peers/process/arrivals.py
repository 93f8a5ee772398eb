"""Counts connections that nobody proved themselves on: strangers, expired certificates, plaintext, silence.

They end inside gRPC's TLS handshake, which tells nobody. It does ask for the certificate to show before each begins,
and a call tells from where it comes: connections begun, less those that a call came over, are those turned away.
"""

import threading
import time
from collections import Counter, OrderedDict

from gadget_svm.peers.limits import Clock

GRACE = 10.0
"""Seconds to shake hands and make a first call. A handshake itself may take five."""


class Arrivals:
    """Connections begun and connections spoken on. ``begun`` may be called from any thread."""

    def __init__(self, most: int, clock: Clock = time.monotonic) -> None:
        self.most = most  # connections whose last call is remembered
        self._clock = clock
        self._lock = threading.Lock()
        self._young: Counter[int] = Counter()  # begun, by second: however many come, only the last seconds are kept
        self._old = self._spoken = self._told = 0
        self._known: OrderedDict[str, None] = OrderedDict()

    def begun(self) -> None:
        """A connection was opened, and is to show who it is."""
        with self._lock:
            self._sort()
            self._young[int(self._clock())] += 1

    def spoken(self, address: str) -> None:
        """A call came: TLS has seen a certificate of our authority."""
        if address in self._known:
            self._known.move_to_end(address)
            return
        self._known[address] = None
        self._spoken += 1
        if len(self._known) > self.most:
            self._known.popitem(last=False)

    def turned_away(self) -> int:
        """How many were, and were not told of before."""
        with self._lock:
            self._sort()
            fresh = max(self._old - self._spoken - self._told, 0)
        self._told += fresh
        return fresh

    def _sort(self) -> None:
        """Those that had their time are old."""
        end = self._clock() - GRACE - 1
        for second in [second for second in self._young if second <= end]:
            self._old += self._young.pop(second)
