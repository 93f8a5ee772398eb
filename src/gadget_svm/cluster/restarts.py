"""New actors on their way into the place of lost ones: when one is made, how long it is waited for, when again.

Owns those that are not in yet. What is asked of one, and what the others are told, is for the run to say.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gadget_svm.cluster.actor_pool import Crew, cause, said

FIRST, LONGEST = 5.0, 300.0
"""Seconds from a failure to the next attempt: they double from the first to the longest."""


@dataclass(frozen=True)
class Attempt:
    """An actor that is to take a place, and its answer to come."""

    actor: Any
    ref: Any
    since: float


class Restarts:
    """``begin(index, actor)`` returns the call to wait for, ``admit(index, actor, answer)`` lets an actor in or raises,
    ``failed(index, why)`` is told of those that will not come."""

    def __init__(
        self, crew: Crew, begin: Callable[[int, Any], Any], admit: Callable[[int, Any, Any], None],
        failed: Callable[[int, str], None],
    ) -> None:  # fmt: skip
        self.crew, self.ray, self.options = crew, crew.ray, crew.options
        self._begin, self._admit, self._failed = begin, admit, failed
        self.under_way: dict[int, Attempt] = {}
        self._due: dict[int, float] = {}  # when the next attempt may be made
        self._pause: dict[int, float] = {}

    def step(self, lost: Sequence[int]) -> None:
        """Make what is due, let in who is ready. Only a first attempt is waited for, ``timeout`` seconds at most."""
        now = time.monotonic()
        due = [index for index in lost if index not in self.under_way and now >= self._due.get(index, now)]
        first = [index for index in due if index not in self._due or now >= self._due[index] + LONGEST]
        self._pause |= dict.fromkeys(first, FIRST)
        for index in due:
            self._make(index, now)
        refs = [self.under_way[index].ref for index in first if index in self.under_way]
        if refs:
            self.ray.wait(refs, num_returns=len(refs), timeout=self.options.timeout)
        for index in list(self.under_way):
            if index in self.under_way:  # to let one in may end them all
                self._look(index)

    def _make(self, index: int, now: float) -> None:
        try:
            actor = self.crew.cluster.make(index, self.crew.sources[index], self.options.timeout)
        except TimeoutError as error:
            self._rest(index)
            self._failed(index, str(error))
        else:
            self.under_way[index] = Attempt(actor, self._begin(index, actor), now)

    def _look(self, index: int) -> None:
        attempt, wait = self.under_way[index], self.options.start_timeout
        ready, _ = self.ray.wait([attempt.ref], timeout=0)
        if not ready:
            if time.monotonic() - attempt.since > wait:
                self._drop(index, f"not there within start_timeout={wait:g} s: has the cluster room for it?")
            return
        try:
            answer = self.ray.get(attempt.ref, timeout=self.options.timeout)
            self._admit(index, attempt.actor, answer)
        except (self.ray.exceptions.RayError, ValueError) as error:
            if index not in self.under_way:  # it is not this one that failed
                raise
            self._drop(index, self._reason(error))
        else:
            if self.under_way.pop(index, None) is not None:
                self._rest(index)

    def _reason(self, error: Exception) -> str:
        if isinstance(error, self.ray.exceptions.RayTaskError):
            return f"{type(cause(error)).__name__}: {cause(error)}"
        return said(error) if isinstance(error, self.ray.exceptions.RayError) else str(error)

    def _drop(self, index: int, why: str) -> None:
        self.crew.end(self.under_way.pop(index).actor)
        self._rest(index)
        self._failed(index, why)

    def _rest(self, index: int) -> None:
        """Not again for a while: also one that came back and is soon lost once more would only be lost again."""
        pause = self._pause[index]
        self._due[index], self._pause[index] = time.monotonic() + pause, min(2 * pause, LONGEST)

    def close(self) -> None:
        """End all that are not in."""
        for attempt in self.under_way.values():
            self.crew.end(attempt.actor)
        self.under_way = {}
