"""Lost actors, as the driver records them: events for the history, and the last known state of their nodes."""

from collections.abc import Mapping
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
        self.last_reason = "no answer"
        self._events: list[dict[str, Any]] = []

    def lost(self, index: int, t: int, why: str) -> None:
        """Note that an actor is lost."""
        for node in self._nodes(index):
            self.lost_since.setdefault(node, t)
        self._add("lost", index, t, why=why)
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
        self._add("checkpoint failed", None, t, why=why)

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

    def _add(self, event: str, index: int | None, t: int, **more: Any) -> None:
        nodes = range(int(self.bounds[-1])) if index is None else self._nodes(index)
        if "why" in more:
            more["why"] = " ".join(more["why"].split())[:MAX_REASON_LENGTH]
        self._events.append({"event": event, "actor": index, "nodes": [nodes[0], nodes[-1]], "iteration": t, **more})


class LastKnownState:
    """The arrays that were last fetched from every node, by name. Of lost nodes nothing else is known."""

    def __init__(self, bounds: Ints) -> None:
        self.bounds = bounds
        self._arrays: dict[str, NDArray[Any]] = {}
        self._known: dict[str, Flags] = {}

    def update(self, name: str, parts: Mapping[int, NDArray[Any]]) -> NDArray[Any]:
        """Return the actors' parts as one array; other nodes have their last fetched values, or zeros."""
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
        """Return for which nodes the array was fetched at least once."""
        return self._known.get(name, np.zeros(int(self.bounds[-1]), dtype=np.bool_)).copy()
