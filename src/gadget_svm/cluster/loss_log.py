"""Who of a run's actors was lost and who came back, since when, and what mass went with them.

Owns the account, and the events as the history tells them. What is done about a loss is for the run.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gadget_svm.core.types import Flags, Ints

MOST_SAID = 300
"""Letters of a reason that the history keeps."""


class Account:
    """Of actors by their number, whose nodes ``bounds`` tells."""

    def __init__(self, bounds: Ints) -> None:
        self.bounds = bounds
        self.gone: dict[int, int] = {}  # nodes that are away, and since which iteration
        self.mass = 0.0  # Push-Sum's, of those who are here
        self._happened: list[dict[str, Any]] = []
        self._unweighed: list[dict[str, Any]] = []

    def lost(self, index: int, t: int, why: str) -> None:
        """An actor is gone, and what it took along is not known yet."""
        for node in range(*self.nodes(index)):
            self.gone.setdefault(node, t)
        self._unweighed.append(self._note("lost", index, t, why=why))

    def back(self, index: int, t: int, since: int | None) -> None:
        """An actor is in its place again, with its block of iteration ``since`` if it had one on disk."""
        for node in range(*self.nodes(index)):
            self.gone.pop(node, None)
        self._note("restarted", index, t, **{"from": since})

    def not_back(self, index: int, t: int, why: str) -> None:
        """Nobody took the place."""
        self._note("restart failed", index, t, why=" ".join(why.split())[:MOST_SAID])

    def unsaved(self, t: int, why: str) -> None:
        """A checkpoint could not be written."""
        nodes = [0, int(self.bounds[-1]) - 1]
        about = {"event": "checkpoint failed", "actor": None, "nodes": nodes, "iteration": t, "why": why[:MOST_SAID]}
        self._happened.append(about)

    def all_anew(self) -> None:
        """All places are taken by new actors that go the whole way again: nothing is missing any more."""
        self.gone, self._unweighed = {}, []

    def with_transition_of(self, total: Callable[[], float]) -> None:
        """Push-Sum's mass that went with the lost, or was on its way to them: of several at a time, with the last."""
        events: list[dict[str, Any]] = []
        while self._unweighed:  # asking for it may lose another
            events, self._unweighed = events + self._unweighed, []
            now = total()
        if not events:
            return
        if not now:  # nodes have no mass before their first iteration
            self._unweighed = events
            return
        *others, last = events
        last["mass_lost"], self.mass = self.mass - now, now
        for event in others:
            event["mass_lost_with"] = last["actor"]

    def tell(self) -> list[dict[str, Any]]:
        """What happened since this was last asked for."""
        happened, self._happened = self._happened, []
        return happened

    def live_mask(self) -> Flags:
        """Which nodes are not lost."""
        here = np.ones(int(self.bounds[-1]), dtype=np.bool_)
        here[list(self.gone)] = False
        return here

    def last_reason(self) -> str:
        """Why the last actor was lost."""
        return next((event["why"] for event in reversed(self._happened) if event["event"] == "lost"), "no answer")

    def nodes(self, index: int) -> tuple[int, int]:
        """An actor's nodes: the first, and the one after its last."""
        return int(self.bounds[index]), int(self.bounds[index + 1])

    def _note(self, event: str, index: int, t: int, **more: Any) -> dict[str, Any]:
        first, last = self.nodes(index)
        about = {"event": event, "actor": index, "nodes": [first, last - 1], "iteration": t, **more}
        self._happened.append(about)
        return about
