"""The epochs of edges, as learners have them: they never go backwards, not by a restart from a snapshot either.

A learner that was built anew, because a step failed or the scale changed, begins anew.
"""

from functools import partial
from typing import Any

from gadget_svm.peers.events import RunStep
from gadget_svm.peers.storage.snapshot import Snapshot
from gadget_svm.peers.training.trainer import Trainer

ALL = -1


class EdgeEpochs:
    """Of one process. With GADGET all edges of a node have one epoch."""

    def __init__(self, snapshot: Snapshot | None, per_edge: bool) -> None:
        self._per_edge = per_edge
        self._trainer: Trainer | None = None
        self._known: dict[int, int] = {}
        if snapshot is not None and "session.edge.epoch" in snapshot.arrays:
            self._known = self._by_edge(snapshot.arrays["session.neighbours"], snapshot.arrays["session.edge.epoch"])

    def runs(self, effect: RunStep) -> None:
        """Note whose step it is."""
        owner = getattr(effect.step.func, "__self__", None) if isinstance(effect.step, partial) else None
        if isinstance(owner, Trainer):
            if self._trainer not in (None, owner):
                self._known = {}
            self._trainer = owner

    def done(self) -> str:
        """Return what is wrong after a step, or an empty text."""
        block: Any = None if self._trainer is None else self._trainer.learner.block
        if block is None or "epoch" not in block.edge:
            return ""
        found = self._by_edge(block.links.target, block.edge["epoch"])
        before, self._known = self._known, found
        for edge, epoch in found.items():
            if epoch < before.get(edge, epoch):
                where = "all edges" if edge == ALL else f"the edge to number {edge}"
                return f"goes back from epoch {before[edge]} to {epoch} of {where}"
        return ""

    def _by_edge(self, neighbours: Any, epochs: Any) -> dict[int, int]:
        return dict(zip(neighbours.tolist() if self._per_edge else [ALL], epochs.tolist(), strict=True))
