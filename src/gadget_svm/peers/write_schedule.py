"""Which snapshots and models are due, and which are on their way to the disk. Owns the numbers and times of writes."""

from collections.abc import Callable
from math import inf

from gadget_svm.peers.events import Export, Save, Spend
from gadget_svm.peers.outbox import Outbox
from gadget_svm.peers.storage.ledger import Ledger
from gadget_svm.peers.storage.snapshot import ModelDocument, Snapshot


class WriteSchedule:
    """The writes of one node; at most one periodic snapshot and one model are under way at a time."""

    def __init__(self, snapshot_interval: float, export_interval: float, out: Outbox) -> None:
        self._snapshot_interval, self._export_interval, self._out = snapshot_interval, export_interval, out
        self._under_way: dict[int, str] = {}  # by number: "incarnation", "snapshot", "last", "model" or "ledger"
        self._count = 0
        self._snapshot_at = self._export_at = inf
        self._snapshot_ticks = self._export_ticks = -1
        self.saved_at = -inf  # when the last snapshot was on disk

    def start(self, now: float, ticks: int) -> None:
        """Begin to count; ``ticks`` are in the snapshot that the node was restored from."""
        self._snapshot_at, self._export_at = now + self._snapshot_interval, now + self._export_interval
        self._snapshot_ticks = ticks

    @property
    def idle(self) -> bool:
        """Whether everything is on disk."""
        return not self._under_way

    def snapshot_is_due(self, now: float, ticks: int) -> bool:
        """Return whether it is time, and something has changed."""
        is_due = now >= self._snapshot_at and ticks != self._snapshot_ticks
        return is_due and "snapshot" not in self._under_way.values()

    def export_is_due(self, now: float, ticks: int) -> bool:
        """Return whether it is time, and something has changed."""
        return now >= self._export_at and ticks != self._export_ticks and "model" not in self._under_way.values()

    def save(self, label: str, make: Callable[[], Snapshot], ticks: int, now: float) -> int:
        """Write a snapshot; return its number."""
        self._snapshot_at, self._snapshot_ticks = now + self._snapshot_interval, ticks
        number = self._next(label)
        self._out.add(Save(number, make()))
        return number

    def export(self, make: Callable[[int], ModelDocument], ticks: int, now: float) -> None:
        """Write the model that ``make`` returns for the number of the write."""
        self._export_at, self._export_ticks = now + self._export_interval, ticks
        number = self._next("model")
        self._out.add(Export(number, make(number)))

    def spend(self, ledger: Ledger) -> None:
        """Write the ledger."""
        self._out.add(Spend(self._next("ledger"), ledger))

    def saved(self, number: int, now: float) -> str:
        """Note that a write is on disk; return its label."""
        label = self._under_way.pop(number, "")
        if label and label not in ("model", "ledger"):
            self.saved_at = now
        return label

    def failed(self, number: int) -> str:
        """Note that a write failed; it is due again after its interval."""
        self._snapshot_ticks = self._export_ticks = -1
        return self._under_way.pop(number, "")

    def _next(self, label: str) -> int:
        self._count += 1
        self._under_way[self._count] = label
        return self._count
