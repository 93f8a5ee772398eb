"""Counts connections on which no peer proved its identity: other authorities, expired certificates, plaintext, silence.

They end inside gRPC's TLS handshake, which does not report them. gRPC does ask for the certificate to present before
each handshake, and a call shows from where it comes: connections that began, minus those with a call, have failed.
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

GRACE_S = 10.0  # for the handshake and the first call


class HandshakeCounter:
    """Connections that began and connections with a call. ``began`` may be called from any thread.

    The last ``max_addresses`` addresses with a call are remembered, and only the last seconds of what began.
    """

    def __init__(self, max_addresses: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_addresses = max_addresses
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: Counter[int] = Counter()  # connections that began, by second
        self._overdue = self._proved = self._reported = 0
        self._addresses: OrderedDict[str, None] = OrderedDict()

    def began(self) -> None:
        """A TLS handshake begins."""
        with self._lock:
            self._expire()
            self._recent[int(self._clock())] += 1

    def proved(self, address: str) -> None:
        """A call came from this address: TLS has accepted a certificate."""
        if address in self._addresses:
            self._addresses.move_to_end(address)
            return
        self._addresses[address] = None
        self._proved += 1
        if len(self._addresses) > self.max_addresses:
            self._addresses.popitem(last=False)

    def take_failed(self) -> int:
        """Return how many failed and were not returned before."""
        with self._lock:
            self._expire()
            failed = max(self._overdue - self._proved - self._reported, 0)
        self._reported += failed
        return failed

    def _expire(self) -> None:
        end = self._clock() - GRACE_S - 1
        for second in [second for second in self._recent if second <= end]:
            self._overdue += self._recent.pop(second)
