"""What the driver knows of lost actors: events for the history, Push-Sum's mass, and their nodes' last known state."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Flags, Ints

MAX_REASON_LENGTH = 300
"""Characters of a reason that the history keeps."""


class LossLog:
    """Losses and returns of actors. Actor ``index`` has the nodes ``bounds[index] : bounds[index + 1]``."""

    def __init__(self, bounds: Ints) -> None:
        self.bounds = bounds
        self.lost_since: dict[int, int] = {}  # nodes that are lost, and the iteration of the loss
        self.mass = 0.0  # Push-Sum's, of the nodes that are live
        self.last_reason = "no answer"
        self._events: list[dict[str, Any]] = []
        self._unmeasured: list[dict[str, Any]] = []  # losses whose mass is not known yet

    def lost(self, index: int, t: int, why: str) -> None:
        """Note that an actor is lost."""
        for node in self._nodes(index):
            self.lost_since.setdefault(node, t)
        self._unmeasured.append(self._add("lost", index, t, why=why))
        self.last_reason = why

    def restarted(self, index: int, t: int, since: int | None) -> None:
        """Note that an actor is back, from the checkpoint of iteration ``since`` if there was one."""
        for node in self._nodes(index):
            self.lost_since.pop(node, None)
        self._add("restarted", index, t, **{"from": since})

    def restart_failed(self, index: int, t: int, why: str) -> None:
        """Note that a lost actor did not come back."""
        self._add("restart failed", index, t, why=why)
        self.last_reason = why

    def checkpoint_failed(self, t: int, why: str) -> None:
        """Note that a checkpoint could not be written."""
        nodes = [0, int(self.bounds[-1]) - 1]
        self._events.append(
            {"event": "checkpoint failed", "actor": None, "nodes": nodes, "iteration": t, "why": _line(why)}
        )

    def reset_mass(self, mass: float) -> None:
        """Note that the group starts with this mass: what was lost before is back."""
        self.mass, self._unmeasured = mass, []

    def measure_mass(self, total: Callable[[], float]) -> None:
        """Note what mass went with the losses since the last measurement, with the last of them."""
        last = None
        while self._unmeasured:  # to ask for the total may lose another actor
            last, self._unmeasured = self._unmeasured[-1], []
            now = total()
            if not now:  # nodes have no mass before their first iteration
                self._unmeasured.insert(0, last)
                return
        if last is not None:
            last["mass_lost"], self.mass = self.mass - now, now

    def take_events(self) -> list[dict[str, Any]]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def live_mask(self) -> Flags:
        """Return which nodes are not lost."""
        live = np.ones(int(self.bounds[-1]), dtype=np.bool_)
        live[list(self.lost_since)] = False
        return live

    def _nodes(self, index: int) -> range:
        return range(int(self.bounds[index]), int(self.bounds[index + 1]))

    def _add(self, event: str, index: int, t: int, **more: Any) -> dict[str, Any]:
        nodes = self._nodes(index)
        if "why" in more:
            more["why"] = _line(more["why"])
        entry = {"event": event, "actor": index, "nodes": [nodes[0], nodes[-1]], "iteration": t, **more}
        self._events.append(entry)
        return entry


def _line(text: str) -> str:
    return " ".join(text.split())[:MAX_REASON_LENGTH]


class LastKnownState:
    """The arrays last fetched of every node, by name: all that is known of lost ones."""

    def __init__(self, bounds: Ints) -> None:
        self.bounds = bounds
        self._arrays: dict[str, NDArray[Any]] = {}
        self._known: dict[str, Flags] = {}

    def update(self, name: str, parts: Mapping[int, NDArray[Any]]) -> NDArray[Any]:
        """Return the actors' parts as one array; other nodes have what was last fetched of them, or zeros."""
        example, known = next(iter(parts.values())), self.known(name)
        if len(parts) < len(self.bounds) - 1 and name in self._arrays:
            whole = self._arrays[name].copy()
        else:
            whole = np.zeros((int(self.bounds[-1]), *example.shape[1:]), dtype=example.dtype)
        for index, part in parts.items():
            nodes = slice(*self.bounds[index : index + 2].tolist())
            whole[nodes], known[nodes] = part, True
        self._arrays[name], self._known[name] = whole, known
        return whole

    def known(self, name: str) -> Flags:
        """Return of which nodes the array was ever fetched."""
        return self._known.get(name, np.zeros(int(self.bounds[-1]), dtype=np.bool_)).copy()
