"""Virtual time: a queue of calls in the order of their times. Calls at one time keep the order in which they came."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class EventQueue:
    """Calls that are due at times of one virtual clock, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = 0  # carried out so far
        self.stopped = False
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0

    def at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        """Carry out a call at a time; a time that has passed means now."""
        self._serial += 1
        heappush(self._heap, (max(when, self.now), self._serial, call, arguments))

    def after(self, delay: float, call: Callable[..., None], *arguments: Any) -> None:
        """Carry out a call after so many seconds."""
        self.at(self.now + delay, call, *arguments)

    def run(self, until: float) -> None:
        """Carry out calls until `stop`, or until virtual time has reached ``until``."""
        heap = self._heap
        while heap and not self.stopped and heap[0][0] <= until:
            self.now, _, call, arguments = heappop(heap)
            self.calls += 1
            call(*arguments)
        if not self.stopped:
            self.now = until

    def stop(self) -> None:
        """Carry out nothing more."""
        self.stopped = True
