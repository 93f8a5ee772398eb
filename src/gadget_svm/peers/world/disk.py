"""The disk of one simulated machine. Owns what survives a kill: only what was synced.

Two generations of the snapshot are kept. A kill loses the write that is under way, or tears its file, or lets it reach
the disk without an acknowledgement. A torn file is recognised by its digest, and the generation before it is restored.
"""

import hashlib
import json
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gadget_svm.peers.storage.ledger import Ledger
from gadget_svm.peers.storage.snapshot import ModelDocument, Snapshot
from gadget_svm.peers.world.event_queue import EventQueue

Content = Snapshot | ModelDocument | Ledger
Answer = Callable[[int, str], None]
"""Called with the number of a write, and why it failed; an empty reason means that it is synced."""


class ChangedWhileWrittenError(AssertionError):
    """A node changed a snapshot that it had asked its host to save."""


@dataclass(frozen=True)
class SnapshotFile:
    """A snapshot on the disk, and whether it is whole."""

    snapshot: Snapshot
    whole: bool


@dataclass
class Disk:
    """Writes one thing after another; answers each write, unless the machine is killed before."""

    queue: EventQueue
    rng: random.Random
    latency: tuple[float, float]
    tear: float
    slowness: list[float] = field(default_factory=lambda: [1.0])  # factors, of which the largest counts
    full: bool = False
    generations: list[SnapshotFile] = field(default_factory=list)  # the newest last
    models: dict[str, ModelDocument] = field(default_factory=dict)  # by file
    ledger: str = ""  # its text
    writes: int = 0
    _waiting: deque[tuple[int, Content, str, Answer]] = field(default_factory=deque)
    _life: int = 0  # writes of a machine that was killed are never answered

    def write(self, number: int, content: Content, answer: Answer) -> None:
        """Begin to write; the answer comes later."""
        digest = digest_of(content) if isinstance(content, Snapshot) else ""
        self._waiting.append((number, content, digest, answer))
        if len(self._waiting) == 1:
            self._begin()

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return bool(self._waiting)

    def kill(self) -> None:
        """Lose what is not synced; the file that is being written may be torn, or whole after all."""
        self._life += 1
        if self._waiting and isinstance(ledger := self._waiting[0][1], Ledger) and self.rng.random() < 0.5:
            self.ledger = ledger.text()  # all of it, without an acknowledgement, or nothing
        if self._waiting and isinstance(content := self._waiting[0][1], Snapshot):
            fate = self.rng.random()
            if fate < self.tear:
                self._keep(torn(content), digest_of(content))
            elif fate < 0.5 + 0.5 * self.tear:
                self._keep(content, digest_of(content))
        self._waiting.clear()

    def stored(self) -> Snapshot | None:
        """Return the newest snapshot that is whole; None if there is none."""
        return next((file.snapshot for file in reversed(self.generations) if file.whole), None)

    def restore(self) -> Snapshot | None:
        """Return a copy of the newest snapshot that is whole, as a process reads it; None if there is none."""
        stored = self.stored()
        if stored is None:
            return None
        self.generations = [file for file in self.generations if file.whole]
        about = json.loads(json.dumps(stored.about, allow_nan=False))
        return Snapshot({name: np.array(array) for name, array in stored.arrays.items()}, about)

    def restore_ledger(self) -> Ledger | None:
        """Return the ledger, as a process reads it; None if there is none."""
        return Ledger.parse(self.ledger) if self.ledger else None

    def set_aside(self) -> None:
        """Remove all snapshots, for a start from scratch; the ledger stays."""
        self.generations = []

    def restore_older(self) -> None:
        """Remove the newest snapshot if there is an older one, as if somebody had restored a copy."""
        whole = [file for file in self.generations if file.whole]
        self.generations = whole[:1]

    def _begin(self) -> None:
        self.queue.after(max(self.slowness) * self.rng.uniform(*self.latency), self._end, self._life)

    def _end(self, life: int) -> None:
        if life != self._life:
            return
        number, content, digest, answer = self._waiting.popleft()
        reason = "no space left on the device" if self.full else ""
        if not reason:
            self.writes += 1
            if isinstance(content, Snapshot):
                self._keep(content, digest)
                if not self.generations[-1].whole:
                    raise ChangedWhileWrittenError("a snapshot changed while it was written")
            elif isinstance(content, Ledger):
                self.ledger = content.text()
            else:
                self.models[model_file(content)] = content
        if self._waiting:
            self._begin()
        answer(number, reason)

    def _keep(self, snapshot: Snapshot, digest: str) -> None:
        whole = [file for file in self.generations if file.whole]
        self.generations = [*whole[-1:], SnapshotFile(snapshot, digest_of(snapshot) == digest)]


def model_file(model: ModelDocument) -> str:
    """Return the file of a model: that of a partition is beside the others'."""
    return "partition" if model.kind == "partition" else "model"


def torn(snapshot: Snapshot) -> Snapshot:
    """Return what is left of a snapshot of which only the first part was written."""
    arrays = {name: np.array(array) for name, array in snapshot.arrays.items()}
    for name in sorted(arrays)[len(arrays) // 2 :]:
        arrays[name] = np.zeros_like(arrays[name])
    about = dict(list(snapshot.about.items())[: len(snapshot.about) // 2])
    return Snapshot(arrays, about)


def digest_of(snapshot: Snapshot) -> str:
    """Return a digest of a snapshot's content."""
    digest = hashlib.blake2b(json.dumps(snapshot.about, sort_keys=True, allow_nan=False).encode(), digest_size=16)
    for name in sorted(snapshot.arrays):
        array = np.ascontiguousarray(snapshot.arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
