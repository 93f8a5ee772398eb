"""Counts connections on which no peer proved its identity.

The other end may have a certificate of another authority or an expired one, or may send plaintext or nothing. Such
connections end inside gRPC's TLS handshake, and gRPC does not report them. But gRPC asks for this peer's certificate
before each handshake, and each call shows the address of its sender. So the connections that have failed are those that
began, minus those on which a call came.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

GRACE_S = 10.0  # for the handshake and the first call


class HandshakeCounter:
    """Counts the connections that began, and the addresses that sent a call: the last ``max_addresses`` of them."""

    def __init__(self, max_addresses: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_addresses, self._clock = max_addresses, clock
        self._lock = threading.Lock()
        self._began = self._overdue = self._proved = self._reported = 0
        self._marks: deque[tuple[float, int]] = deque()  # how many had begun when `take_failed` was called
        self._addresses: dict[str, None] = {}  # the last one with a call is last

    def began(self) -> None:
        """Note that a TLS handshake begins. May be called from any thread."""
        with self._lock:
            self._began += 1

    def proved(self, address: str) -> None:
        """Note that a call came from this address, so that TLS has accepted a certificate."""
        self._proved += address not in self._addresses
        self._addresses.pop(address, None)
        self._addresses[address] = None
        if len(self._addresses) > self._max_addresses:
            del self._addresses[next(iter(self._addresses))]

    def take_failed(self) -> int:
        """Return how many connections failed that were not counted in an earlier result. Call it every few seconds."""
        now = self._clock()
        self._marks.append((now, self._began))
        while self._marks and self._marks[0][0] <= now - GRACE_S:
            self._overdue = self._marks.popleft()[1]
        failed = max(self._overdue - self._proved - self._reported, 0)
        self._reported += failed
        return failed
