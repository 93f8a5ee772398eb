"""What a node writes, and what it continues from: snapshots of all its parts, its present model, certified models.

Owns the content of writes; `write_schedule` owns when they are due. The host makes them durable.
"""

from gadget_svm.peers import events as ev
from gadget_svm.peers.certification import Certification
from gadget_svm.peers.issues import IssueTable
from gadget_svm.peers.neighbourhood import Neighbourhood
from gadget_svm.peers.outbox import Outbox
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.storage.snapshot import ModelDocument, Snapshot, join_parts, split_parts
from gadget_svm.peers.training.session import TrainingSession
from gadget_svm.peers.write_schedule import WriteSchedule
from gadget_svm.study.study import Study


class Persistence:
    """The writes of one node. ``wall_time`` is the time of day."""

    def __init__(
        self, settings: NodeSettings, study: Study, session: TrainingSession, neighbourhood: Neighbourhood,
        certification: Certification, out: Outbox, issues: IssueTable,
    ) -> None:  # fmt: skip
        self.settings, self.study, self.out, self.issues = settings, study, out, issues
        self.session, self.neighbourhood, self.certification = session, neighbourhood, certification
        self.schedule = WriteSchedule(settings.snapshot_interval, settings.export_interval, out)
        self.waits = False  # for the step under way: what is due is written after it

    def write_what_is_due(self, now: float, wall_time: float, stepping: bool) -> None:
        """Write models, and a snapshot unless a step changes the learner now."""
        certification, schedule, ticks = self.certification, self.schedule, self.session.ticks
        scale = self.session.scale
        if certification.export_is_ready and scale is not None:
            schedule.export(lambda number: certification.take_export(number, scale), ticks, now)
        if schedule.export_is_due(now, ticks):
            self.export_current(now, wall_time)
        self.waits = stepping
        if self.waits:
            return
        if self.out.muted:
            self.save("incarnation", now)
        elif certification.snapshot_due or schedule.snapshot_is_due(now, ticks):
            self.save("snapshot", now)

    def save(self, label: str, now: float) -> None:
        """Write a snapshot."""
        number = self.schedule.save(label, lambda: self._snapshot(now), self.session.ticks, now)
        self.certification.saving(number)

    def export_current(self, now: float, wall_time: float) -> None:
        """Write the present model, unless there is a certified one: nothing replaces that."""
        model, scale = self.session.model(), self.session.scale
        if model is None or scale is None or self.certification.label:
            return
        metadata = {
            "name": self.settings.name, "ticks": self.session.ticks, "study": self.study.name,
            "study_digest": self.study.digest.hex(), "time": wall_time,
        }  # fmt: skip
        document = ModelDocument("current", model.copy(), scale.divisor, scale.shift, metadata)
        self.schedule.export(lambda _: document, self.session.ticks, now)

    def saved(self, event: ev.Saved, now: float) -> str:
        """Note that a write is on disk, and confirm the certificate that it completes; return the write's label."""
        label = self.schedule.saved(event.number, now)
        self.issues.resolve(_topic(label))
        if self.certification.saved(event.number):
            self.neighbourhood.confirm(self.certification.confirmed)
        return label

    def failed(self, event: ev.SaveFailed, now: float) -> str:
        """Note that a write failed; return its label."""
        label = self.schedule.failed(event.number)
        self.issues.report(_topic(label), event.reason, now)
        self.certification.save_failed(event.number)
        return label

    def restore(self, snapshot: Snapshot, now: float) -> int:
        """Continue from a snapshot; return the incarnation that wrote it."""
        parts = split_parts(snapshot)
        self.neighbourhood.restore(snapshot.about, now)
        for warning in self.session.restore(parts["session"]):
            self.out.log("warning", warning)
        self.certification.restore(parts["conclusion"], now)
        return int(snapshot.about["incarnation"])

    def _snapshot(self, now: float) -> Snapshot:
        about = {"incarnation": self.neighbourhood.detector.me.incarnation, **self.neighbourhood.snapshot(now)}
        return join_parts(about, {"session": self.session.snapshot(), "conclusion": self.certification.snapshot()})


def _topic(label: str) -> str:
    """Return the topic of issues with a write."""
    return label if label in ("model", "ledger") else "snapshot"
