"""The checkpoints of a run on a cluster: when one is due, whose block is on disk from when, and whether what lies there
is of this run.

Owns the driver's part. Actors write and read their own blocks; the files' form is `checkpoints`'s.
"""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gadget_svm.cluster import checkpoints
from gadget_svm.cluster.actor import Saved
from gadget_svm.cluster.row_digests import changed, named

A_WHILE = 60.0
"""Seconds after which a checkpoint is due, however few the iterations."""


class Unsaved(Exception):  # noqa: N818 - what happened
    """Why a checkpoint could not be written: the run may go on without."""


class Saves:
    """Checkpoints of ``actors`` in ``folder``, every so many iterations; without a folder none is ever due."""

    def __init__(self, folder: str | None, every: int, actors: int) -> None:
        self.folder, self.every, self.actors = None if folder is None else Path(folder), every, actors
        self.last = 0  # the iteration of the last complete one
        self.kept: dict[int, int] = {}  # the last generation of every actor's block on disk
        self._tried, self._tried_at = 0, time.monotonic()
        self._failed = False

    def start(self, resume: bool) -> None:
        """Make room for this run, or for its rest."""
        if self.folder is not None:
            checkpoints.sweep(self.folder)
            if not resume:
                checkpoints.set_aside(self.folder)

    def due(self, t: int) -> bool:
        """Whether it is time for one."""
        late = t - self._tried >= self.every or time.monotonic() - self._tried_at > A_WHILE
        return self.folder is not None and late

    def attempt(self, t: int, save: Callable[[], None]) -> str:
        """One that cannot be written is told of and, when the next is due, tried again. Why not, or nothing."""
        self._tried, self._tried_at = t, time.monotonic()
        try:
            save()
        except Unsaved as error:
            if not self._failed:
                warnings.warn(
                    f"the checkpoint of iteration {t} could not be written ({error}); the run goes on, and would be "
                    f"resumed from iteration {self.last}",
                    stacklevel=3,
                )
            self._failed = True
            return str(error)
        self._failed = False
        return ""

    def pause(self, why: str) -> None:
        """There will be none for now, and it is said once."""
        if self.folder is not None:
            warnings.warn(
                f"{why}. No checkpoint is made as long as this is so: the run would be resumed from iteration "
                f"{self.last}",
                stacklevel=3,
            )

    def complete(self, found: Mapping[int, Saved], about: dict[str, Any]) -> None:
        """These actors have written their blocks: from now on this is what would be resumed."""
        assert self.folder is not None
        for index, saved in found.items():
            if saved.why:
                raise Unsaved(saved.why)
            if saved.t != about["t"]:
                raise Unsaved(f"actor {index} is at iteration {saved.t}")
        kept = self.kept | dict.fromkeys(found, about["t"])
        try:
            checkpoints.save_run(self.folder, {**about, "kept": [kept.get(index) for index in range(self.actors)]})
        except OSError as error:
            raise Unsaved(str(error)) from error
        self.kept, self.last = kept, about["t"]

    def read(self, fingerprint: str, rows: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
        """What `complete` was told last, if it is of the run with this fingerprint and these digests of rows."""
        assert self.folder is not None
        about = checkpoints.load_run(self.folder)
        self._check_same(about, fingerprint, rows, names)
        self.last = self._tried = about["t"]
        self.kept = {index: t for index, t in enumerate(about["kept"]) if t is not None}
        return about

    def behind(self) -> list[int]:
        """Actors without a block of the last checkpoint's iteration: they had been lost when it was made."""
        return [index for index in range(self.actors) if self.kept.get(index) != self.last]

    def _check_same(self, about: dict[str, Any], fingerprint: str, rows: Sequence[str], names: Sequence[str]) -> None:
        """Refuse a checkpoint of another run, or of other rows. Those of before rows were noted are not asked."""
        before = about.get("rows", rows)
        nodes = changed(before, rows) if len(before) == len(rows) else []
        others = f"the rows of {named(nodes, names)} are not those the checkpoint in {self.folder} was made with"
        if about["fingerprint"] != fingerprint:
            raise ValueError(
                f"the checkpoint in {self.folder} is of another run: data, nodes, topology, algorithm, lam, seed and "
                f"the number of actors, there {len(about['kept'])}, must be the same"
                + (f"; {others}" if 0 < len(nodes) < len(before) else "")
            )
        if nodes:
            raise ValueError(f"{others}: put the former ones back, or start anew, without resume")
