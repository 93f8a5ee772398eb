"""A peer as a pure state machine: `Node.handle` takes an event and returns effects. Knows no socket, file or clock.

Owns the life of a node (started, live, leaving, finished), its timers, and when a training step, a snapshot or an
export is due. Everything else belongs to a part: other peers to `neighbourhood`, learning to `training.session`, the
end of the study to `conclusion`. The parts do not know each other.
"""

import random
from collections.abc import Callable
from math import inf, nan
from typing import Any

from gadget_svm.core.types import Floats
from gadget_svm.peers.conclusion import Conclusion, Situation
from gadget_svm.peers.estimates import Estimates, estimate
from gadget_svm.peers.events import (
    CredentialsChanged,
    DialFailed,
    Effect,
    Event,
    Export,
    Finish,
    LinkDown,
    LinkUp,
    Received,
    Rejected,
    RunStep,
    Save,
    Saved,
    SaveFailed,
    SetTimer,
    Started,
    StepDone,
    StepFailed,
    StopRequested,
    TimerFired,
)
from gadget_svm.peers.issues import IssueTable
from gadget_svm.peers.links import Link
from gadget_svm.peers.membership.failure_detector import SupersededError
from gadget_svm.peers.membership.member import Member
from gadget_svm.peers.neighbourhood import Neighbourhood
from gadget_svm.peers.outbox import Outbox
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.status import with_state
from gadget_svm.peers.storage.snapshot import ModelDocument, Snapshot, join_parts, split_parts
from gadget_svm.peers.training.scale import ScalingError
from gadget_svm.peers.training.session import TrainingSession
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.wire.messages import (
    Acknowledgement,
    Heartbeat,
    Hello,
    Leave,
    Message,
    Push,
    Refusal,
    Statistics,
)
from gadget_svm.peers.writer import Writer
from gadget_svm.study.study import Study

WAKING_GAPS = 2.0
"""A node at rest learns again when the estimated gap is above this multiple of the study's."""
RESTING_GAP = 0.1
"""Below this part of the study's gap, a node without a certificate makes one tick per heartbeat."""
MAX_STEP_FAILURES = 3
"""Training steps that may fail in a row before the node gives up."""
STATISTICS_HEARTBEATS = 2
"""Statistics for the scale are repeated to each neighbour after so many heartbeats, until they are settled."""


class Node:
    """One peer.

    Parameters
    ----------
    settings : NodeSettings
        What is local: name, address, pace.
    study : Study
        What all sites agree on.
    site : Site
        The rows.
    rng : random.Random
        The source of all randomness; from the operating system in a process, seeded in a simulation.
    """

    def __init__(self, settings: NodeSettings, study: Study, site: Site, rng: random.Random) -> None:
        if settings.until == "certified" and study.algorithm != "pdmm":
            raise ValueError(f"{study.algorithm} keeps no dual variables, so that no model is certified: use pdmm")
        self.settings, self.study, self.site = settings, study, site
        self.out, self.issues = Outbox(), IssueTable()
        me = Member(settings.name, settings.address, 1, 1, rows=float(site.X.shape[0]), slack=-1.0)
        self.neighbourhood = Neighbourhood(settings, study, me, rng, self.out, self.issues)
        self.links, self.edges = self.neighbourhood.links, self.neighbourhood.edges
        self.session = TrainingSession(study, site, settings.name, settings.seed, rng=rng)
        self.conclusion = Conclusion(settings, study, self.links, self.out)
        self.writer = Writer(settings.snapshot_interval, settings.export_interval, self.out)
        self.phase = "starting"  # then "live", "leaving", "finished"
        self.error = ""
        self.started = self.expires = inf
        self.found = Estimates()  # as of the last heartbeat
        self.at_rest = False  # the model is certified for the sites and rows that are here: nothing is left to learn
        self._wall_offset = 0.0
        self._now = 0.0
        self._tick_at = self._beat_at = self._measure_at = inf
        self._timer = inf
        self._step: str = ""  # the label of the step under way
        self._failures = 0  # of steps, in a row
        self._sums_for: Any = None
        self._beats = 0
        self._reason = ""
        self._handlers: dict[type, Callable[[Any], None]] = {
            Started: self._start, TimerFired: self._timer_fired, LinkUp: self._link_up, LinkDown: self._link_down,
            DialFailed: self._dial_failed, Received: self._received, Rejected: self._rejected,
            StepDone: self._step_done, StepFailed: self._step_failed, Saved: self._saved, SaveFailed: self._save_failed,
            CredentialsChanged: self._credentials_changed, StopRequested: lambda event: self._leave(event.reason),
        }  # fmt: skip
        self._readers: dict[type, Callable[[Link, Any], None]] = {
            Heartbeat: self._heartbeat, Push: self._push, Acknowledgement: self._acknowledged,
            Statistics: self._statistics, Leave: self.neighbourhood.left, Refusal: self._refused,
        }  # fmt: skip

    # The interface of hosts

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Handle an event, and return what the host shall do."""
        if self.phase == "finished":
            return []
        self._now = now
        try:
            self._handlers[type(event)](event)
            if self.phase == "live":
                self._do_what_is_due()
        except SupersededError as error:
            self._fail(str(error))
        self._set_timer()
        return self.out.take()

    @property
    def finished(self) -> bool:
        """Whether the node has left; it handles no more events."""
        return self.phase == "finished"

    @property
    def incarnation(self) -> int:
        """The number of this life of the node, which grows with every start."""
        return self.neighbourhood.detector.me.incarnation

    def model(self) -> Floats | None:
        """Return the present weights, outputs x width, of scaled features; None before learning."""
        return self.session.model()

    def estimates(self) -> Estimates:
        """Return what this node believes of the whole network."""
        measures = self.session.measures
        if measures is None:
            return Estimates()
        me = self.neighbourhood.detector.me
        others = [line for line in self._members().values() if line.name != me.name]
        near = [model for _, model in self.session.neighbour_models()]
        return estimate(self.study.lam, measures.norm, me, others, self.session.model(), near)

    def status(self, now: float) -> dict[str, Any]:
        """Return everything worth knowing, as plain values."""
        own = {
            "name": self.settings.name, "address": self.settings.address, "incarnation": self.incarnation,
            "uptime": now - self.started, "phase": self.phase, "at_rest": self.at_rest,
            "study": self.study.name, "study_digest": self.study.digest.hex(), "algorithm": self.study.algorithm,
            "lam": self.study.lam, "gap": self.study.gap, "objective": self.found.objective,
            "gap_estimate": self.found.gap, "disagreement": self.found.disagreement, "network_rows": self.found.rows,
            "snapshot_age": now - self.writer.saved_at, "issues": dict(self.issues.open),
            "certificate_days_left": (self.expires - self._wall_time) / 86400.0,
        }  # fmt: skip
        session, measures = self.session, self.session.measures
        learned = {
            "rows": int(session.rows), "ticks": session.ticks, "waiting": session.waiting,
            "withheld": session.withheld, "test_accuracy": session.test_accuracy,
            "train_accuracy": None if measures is None else measures.accuracy,
            "local_objective": None if measures is None else measures.objective,
        }  # fmt: skip
        parts = own | learned | self.neighbourhood.status(now)
        return with_state(parts | {"certified": self.conclusion.status(self.neighbourhood.everyone())})

    # Life

    def _start(self, event: Started) -> None:
        self._wall_offset = event.wall_time - self._now
        self.started = self._now
        try:
            before = self._restore(event.snapshot) if event.snapshot is not None else 0
        except ValueError as error:  # nothing was written, so that the snapshot is still there
            self.phase = "finished"
            self.out.add(Finish("cannot continue from the snapshot", str(error)))
            return
        self.neighbourhood.begin(max(int(event.wall_time), before + 1))
        self._save("incarnation")  # it is on disk before anybody hears of it

    def _timer_fired(self, event: TimerFired) -> None:  # noqa: ARG002
        self._timer = inf

    def _go_live(self) -> None:
        self.phase = "live"
        self._tick_at = self._beat_at = self._measure_at = self._now
        self.writer.start(self._now, self.session.ticks)
        self.out.log(
            "info", "live", address=self.settings.address, incarnation=self.incarnation, rows=self.site.X.shape[0],
            study=self.study.name, ticks=self.session.ticks,
        )  # fmt: skip

    def _leave(self, reason: str) -> None:
        if self.phase in ("leaving", "finished"):
            return
        was_live, self.phase, self._reason = self.phase == "live", "leaving", reason
        self.out.log("info", "leaving", reason=reason, ticks=self.session.ticks)
        if was_live:
            for link in self.links.all_open():
                if link.ready:
                    self.out.send(link.number, Leave(self.incarnation, reason))
                self.out.hang_up(link.number, "leaving")
                self.links.close(link.number)
        if not self._step:
            self._save_last()

    def _save_last(self) -> None:
        self._save("last")
        self._export_current()
        self._finish_if_saved()

    def _finish_if_saved(self) -> None:
        if self.phase == "leaving" and not self._step and self.writer.idle:
            self.phase = "finished"
            self.out.add(Finish(self._reason, self.error))

    def _fail(self, error: str) -> None:
        self.error = self.error or error
        self.out.log("error", "cannot go on", reason=error)
        self._leave("cannot go on")

    # What is due

    def _set_timer(self) -> None:
        due = inf if self.phase != "live" else min(self._beat_at, inf if self._step else self._tick_at)
        if due != self._timer or due <= self._now:
            self._timer = due
            if due < inf:
                self.out.add(SetTimer(max(due, self._now)))

    def _do_what_is_due(self) -> None:
        settings = self.settings
        if self._now >= self._beat_at:
            self._beat_at = self._now + settings.heartbeat
            self._beat()
        if self.phase == "live" and not self._step:
            self.session.set_edges(self.edges.counted(self._now))
            for name in self.neighbourhood.restarted:
                self.session.restart_edge(name)
            self.neighbourhood.restarted.clear()
            self._begin_step()
        if settings.stop_after_ticks is not None and self.session.ticks >= settings.stop_after_ticks:
            self._leave("enough ticks")

    def _beat(self) -> None:
        self._beats += 1
        settings = self.settings
        found, measures = self.estimates(), self.session.measures
        self.found = found
        own = {} if measures is None else {
            "loss": measures.loss, "slack": self.session.gap_share(), "objective": measures.objective,
        }  # fmt: skip
        self.neighbourhood.detector.beat(certified=self.conclusion.confirmed, **own)
        limit = WAKING_GAPS * self.study.gap if self.at_rest else self.study.gap
        is_certified = bool(self.conclusion.confirmed) and self.conclusion.ending.at_rest(self._members())
        self.at_rest = is_certified and found.gap <= limit
        self.neighbourhood.at_rest = self.at_rest
        changes = self.neighbourhood.beat(self._now)
        if changes.raised is not None:
            self._save("incarnation")
        if not self.neighbourhood.agreed and self.neighbourhood.study_refused and not self.session.ticks:
            self._fail(f"cannot learn together: {self.neighbourhood.study_refused}")
            return
        self.conclusion.beat(self._situation(), self.session.model(), found.gap, self._members())
        if self._beats % STATISTICS_HEARTBEATS == 0 and self.session.waiting:
            self._share_statistics()
        self._check_session()
        self._write_what_is_due()
        over = settings.stop_after_seconds is not None and self._now - self.started >= settings.stop_after_seconds
        if over or self.conclusion.is_finished(self._now, self.neighbourhood.everyone()):
            self._leave("certified" if not over else "time is up")

    def _check_session(self) -> None:
        """Report what keeps this site from learning or from being heard."""
        if self.session.name_clashes:
            text = f"no edge to {', '.join(self.session.name_clashes)}: another peer has the same number; rename one"
            self.out.add(*self.issues.report("names", text, self._now))
        if self.session.blocked:
            text = (
                f"nothing was sent to {', '.join(self.session.blocked)}, because it would give a row away: are the rows "
                "nearly alike? Take the mean off features that vary little beside it, or leave them out"
            )
            self.out.add(*self.issues.report("release", text, self._now))
        else:
            self.issues.resolve("release")
        if self._wall_time > self.expires:
            text = "this peer's certificate has expired: issue a new one, and start the peer again"
            self.out.add(*self.issues.report("certificate", text, self._now))

    def _begin_step(self) -> None:
        """Run the next step: the sums of a certificate, or a tick."""
        wanted = self.conclusion.take_sums()
        if wanted is not None:
            id_, model, scale = wanted
            step = self.session.sums_step(model, scale)
            if step is not None:
                self._sums_for = id_
                self._run(step, "sums")
                return
        if self._now < self._tick_at:
            return
        if self.at_rest and self.session.ready:
            self._tick_at = self._now + self.settings.heartbeat
            return
        open_to = [
            name for name in sorted(self.edges.up())
            if (link := self.links.ready(name)) is not None and link.has_credit(self._now, self.settings.heartbeat)
        ]  # fmt: skip
        measure = self._now >= self._measure_at
        self._tick_at = self._now + self._tick_interval()
        step = self.session.next_step(open_to, measure)
        if step is not None:
            if measure:
                self._measure_at = self._now + min(1.0, self.settings.heartbeat)
            self._run(step, "tick")

    def _run(self, step: Callable[[], Any], label: str) -> None:
        self._step = label
        self.out.add(RunStep(step, label, float(self.site.X.nnz)))

    def _tick_interval(self) -> float:
        settings = self.settings
        width = 4 if self.neighbourhood.narrow else 8
        interval = max(settings.tick, width * self.study.dimension / settings.send_rate)
        if self.found.gap < RESTING_GAP * self.study.gap:
            return max(interval, settings.heartbeat)
        return interval

    # Events

    def _link_up(self, event: LinkUp) -> None:
        if self.phase != "live":
            self.out.hang_up(event.link, "not live")
            return
        self.neighbourhood.link_up(event.link, event.identity, event.dialled, self._now)

    def _link_down(self, event: LinkDown) -> None:
        self.neighbourhood.link_down(event.link, event.reason, self._now)

    def _dial_failed(self, event: DialFailed) -> None:
        self.neighbourhood.dial_failed(event.address, event.reason, self._now)

    def _rejected(self, event: Rejected) -> None:
        self.neighbourhood.count_refusal(event.reason, event.text, event.count)

    def _received(self, event: Received) -> None:
        link, message = self.links.get(event.link), event.message
        if link is None or self.phase != "live":
            return
        link.heard = self._now
        if isinstance(message, Hello):
            if not link.ready and self.neighbourhood.hello(link, message, self._now) and self.session.waiting:
                self.out.send(link.number, self.session.statistics())
            return
        if not link.ready and not isinstance(message, Refusal):
            return  # what comes before the hello was accepted is not for the node
        reader = self._readers.get(type(message))
        if reader is not None:
            reader(link, message)
        else:
            self._read_certificate(link, message)

    def _read_certificate(self, link: Link, message: Message) -> None:
        self.conclusion.received(link.name, message, self._situation())

    def _heartbeat(self, link: Link, message: Heartbeat) -> None:
        self.neighbourhood.heard(link, message, self._now)

    def _refused(self, link: Link, message: Refusal) -> None:
        self.neighbourhood.refused_by(link, message, self._now)

    def _push(self, link: Link, message: Push) -> None:
        self.out.send(link.number, Acknowledgement(message.seq, self.incarnation))
        hello = link.hello
        if hello is None or message.receiver_incarnation != self.incarnation:
            return
        if message.incarnation != hello.incarnation or link.name not in self.edges.up():
            return
        if self.session.receive(link.name, message):
            link.received += 1

    def _acknowledged(self, link: Link, message: Acknowledgement) -> None:
        link.in_flight.pop(message.seq, None)

    def _statistics(self, link: Link, message: Statistics) -> None:
        try:
            is_new = self.session.hear_statistics(message)
            self.issues.resolve("scaling")
        except ScalingError as error:
            self.out.add(*self.issues.report("scaling", f"from {link.name}: {error}", self._now))
            return
        if is_new:
            self._share_statistics()
        elif not self.session.waiting and not message.frozen:
            self.out.send(link.number, self.session.statistics())

    def _share_statistics(self) -> None:
        for link in self.links.all_ready():
            self.out.send(link.number, self.session.statistics())

    def _step_done(self, event: StepDone) -> None:
        label, self._step, self._failures = self._step, "", 0
        if label == "sums":
            id_, self._sums_for = self._sums_for, None
            self.conclusion.sums_ready(id_, event.result, self._situation())
        else:
            self._tick_done(event.result)
        if self.phase == "leaving":
            self._save_last()

    def _tick_done(self, result: Any) -> None:
        outcome = self.session.finish(result)
        if outcome.failed:
            self.out.add(*self.issues.report("weights", outcome.failed, self._now))
        if self.phase != "live":
            return
        for name, seq, vector, weight, note in outcome.outgoing:
            link = self.links.ready(name)
            if link is None or link.hello is None or name not in self.edges.up():
                continue
            link.in_flight[seq] = self._now
            link.sent += 1
            self.out.send(
                link.number,
                Push(
                    self.incarnation, link.hello.incarnation, seq, self.session.ticks, vector, weight, note,
                    self.session.scale_digest, self.neighbourhood.narrow and link.hello.float32,
                ),
            )  # fmt: skip

    def _step_failed(self, event: StepFailed) -> None:
        self._step, self._sums_for, self._failures = "", None, self._failures + 1
        outcome = self.session.abort(f"a training step failed ({event.reason})")
        self.out.add(*self.issues.report("weights", outcome.failed, self._now))
        if self._failures > MAX_STEP_FAILURES:
            self._fail(outcome.failed)
        elif self.phase == "leaving":
            self._save_last()

    def _credentials_changed(self, event: CredentialsChanged) -> None:
        self.expires = event.expires

    # Snapshots and models

    def _write_what_is_due(self) -> None:
        """Once per heartbeat. A snapshot waits while a step changes the learner."""
        conclusion, writer, ticks = self.conclusion, self.writer, self.session.ticks
        if conclusion.export_due and self.session.scale is not None:
            conclusion.exporting(writer.export(conclusion.document(self.session.scale), ticks, self._now))
        if (conclusion.snapshot_due or writer.snapshot_is_due(self._now, ticks)) and not self._step:
            self._save("snapshot")
        if writer.export_is_due(self._now, ticks):
            self._export_current()

    def _save(self, label: str) -> None:
        self.conclusion.saving(self.writer.save(label, self._snapshot, self.session.ticks, self._now))

    def _export_current(self) -> None:
        """Write the present model, unless there is a certified one: nothing replaces that."""
        model, scale = self.session.model(), self.session.scale
        if model is None or scale is None or self.conclusion.label:
            return
        metadata = {
            "name": self.settings.name, "ticks": self.session.ticks, "study": self.study.name,
            "study_digest": self.study.digest.hex(), "time": self._wall_time,
        }  # fmt: skip
        document = ModelDocument("current", model.copy(), scale.divisor, scale.shift, metadata)
        self.writer.export(document, self.session.ticks, self._now)

    def _saved(self, event: Saved) -> None:
        label = self.writer.saved(event.number, self._now)
        self.issues.resolve("model" if label == "model" else "snapshot")
        if self.conclusion.saved(event.number):
            self.neighbourhood.confirm(self.conclusion.confirmed)
        if self.phase == "starting" and label == "incarnation":
            self._go_live()
        self._finish_if_saved()

    def _save_failed(self, event: SaveFailed) -> None:
        label = self.writer.failed(event.number)
        self.out.add(*self.issues.report("model" if label == "model" else "snapshot", event.reason, self._now))
        self.conclusion.save_failed(event.number)
        if self.phase == "starting":
            self.error, self._reason, self.phase = event.reason, "cannot save", "leaving"
        elif label == "last":
            self.error = self.error or event.reason
        self._finish_if_saved()

    def _snapshot(self) -> Snapshot:
        about = {
            "study": self.study.text(), "rows": self.site.fingerprint(), "incarnation": self.incarnation,
            **self.neighbourhood.snapshot(self._now),
        }  # fmt: skip
        return join_parts(about, {"session": self.session.snapshot(), "conclusion": self.conclusion.snapshot()})

    def _restore(self, snapshot: Snapshot) -> int:
        """Continue from a snapshot; return the incarnation that wrote it."""
        parts = split_parts(snapshot)
        self.neighbourhood.restore(snapshot.about, self._now)
        for warning in self.session.restore(*parts["session"]):
            self.out.log("warning", warning)
        self.conclusion.restore(*parts["conclusion"], self._now)
        return int(snapshot.about["incarnation"])

    # Helpers

    @property
    def _wall_time(self) -> float:
        return self._wall_offset + self._now

    def _members(self) -> dict[str, Member]:
        """Everybody present, this node included, by name."""
        return {line.name: line for line in self.neighbourhood.present()}

    def _situation(self) -> Situation:
        session = self.session
        return Situation(
            self._now, self._wall_time, self.incarnation, session.rows, self.edges.up() & self.links.names,
            session.scale, session.scale_digest, session.ticks,
        )  # fmt: skip
