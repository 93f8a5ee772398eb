"""A peer as a pure state machine: `Node.handle` takes an event and returns effects. Knows no socket, file or clock.

Owns the life of a node (starting, live, leaving, finished) and its timer. Everything else belongs to a part: other
peers to `neighbourhood`, training to `training_loop`, the end of the study to `certification`, and what is written of
them to `persistence`. The first three do not know each other.
"""

import random
from collections.abc import Callable
from math import inf, nan
from typing import Any

from gadget_svm.core.types import Floats
from gadget_svm.peers import events as ev
from gadget_svm.peers.certification import Certification, Situation
from gadget_svm.peers.estimates import Estimates, estimate
from gadget_svm.peers.issues import IssueTable
from gadget_svm.peers.links import Link
from gadget_svm.peers.membership.failure_detector import SupersededError
from gadget_svm.peers.membership.member import Member
from gadget_svm.peers.neighbourhood import Neighbourhood
from gadget_svm.peers.outbox import Outbox
from gadget_svm.peers.persistence import Persistence
from gadget_svm.peers.settings import NodeSettings, Until
from gadget_svm.peers.spending import Spending
from gadget_svm.peers.status import with_state
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.training_loop import TrainingLoop
from gadget_svm.peers.wire import messages as m
from gadget_svm.study.study import Study

FRESH_HEARTBEATS = 5
"""Members that were heard of within so many heartbeats count in the estimates."""
WAKING_GAPS = 2.0
"""A node at rest learns again when the estimated gap is above this multiple of the study's."""


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
        check_until(settings.until, study)
        self.settings, self.study, self.site = settings, study, site
        self.out = Outbox()
        self.issues = IssueTable(self.out)
        me = Member(settings.name, settings.address, 1, 1, rows=float(site.X.shape[0]), slack=-1.0)
        self.neighbourhood = Neighbourhood(settings, study, me, rng, self.out, self.issues)
        self.links, self.edges = self.neighbourhood.links, self.neighbourhood.edges
        self.training = TrainingLoop(settings, study, site, self.links, self.edges, self.out, self.issues)
        self.session = self.training.session
        self.certification = Certification(settings, study, self.links, self.out)
        self.persistence = Persistence(
            settings, study, self.session, self.neighbourhood, self.certification, self.out, self.issues
        )
        self.spending = Spending(settings, study, self.persistence.schedule) if study.is_private else None
        self.phase = "starting"  # then "live", "leaving", "finished"
        self.found = Estimates()  # as of the last heartbeat
        self.at_rest = False  # the model is certified for the sites and rows that are here: nothing is left to learn
        self._n_sites = len(study.sites) or study.min_sites
        self._error = self._reason = ""
        self._is_new = self._is_refused = False  # without a model from before; whether its study was refused then
        self._started = self._expires = inf
        self._wall_offset = self._now = 0.0
        self._beat_at = self._timer = inf
        self._sums_for: m.CertificateId | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.Started: self._start, ev.TimerFired: self._timer_fired, ev.LinkUp: self._link_up,
            ev.LinkDown: lambda event: self.neighbourhood.link_down(event.link, event.reason, self._now),
            ev.DialFailed: self._dial_failed,
            ev.Rejected: lambda event: self.neighbourhood.refusals.count(event.reason, event.text, event.count),
            ev.Received: self._received, ev.StepDone: self._step_done, ev.StepFailed: self._step_failed,
            ev.Saved: self._saved, ev.SaveFailed: self._save_failed, ev.CredentialsChanged: self._credentials_changed,
            ev.StopRequested: lambda event: self._leave(event.reason),
        }  # fmt: skip
        self._readers: dict[type, Callable[[Link, Any], None]] = {
            m.Heartbeat: lambda link, message: self.neighbourhood.heard(link, message, self._now),
            m.Push: self._pushed,
            m.Acknowledgement: lambda link, message: link.acknowledged(message.seq),
            m.Statistics: lambda link, message: self.training.heard_statistics(link, message, self._now),
            m.CertificateProbe: self._certificate, m.CertificateSums: self._certificate, m.Certified: self._certificate,
            m.Leave: self._other_left,
        }  # fmt: skip

    # The interface of hosts

    def handle(self, event: ev.Event, now: float) -> list[ev.Effect]:
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
        self._finish_if_saved()
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

    def status(self, now: float) -> dict[str, Any]:
        """Return everything worth knowing, as plain values."""
        own = {
            "name": self.settings.name, "address": self.settings.address, "incarnation": self.incarnation,
            "uptime": now - self._started, "phase": self.phase, "at_rest": self.at_rest,
            "study": self.study.name, "study_digest": self.study.digest.hex(), "algorithm": self.study.algorithm,
            "lam": self.study.lam, "gap": self.study.gap, "objective": self.found.objective,
            "gap_estimate": self.found.gap, "disagreement": self.found.disagreement, "network_rows": self.found.rows,
            "snapshot_age": now - self.persistence.schedule.saved_at, "issues": dict(self.issues.open),
            "certificate_days_left": (self._expires - self._wall_time) / 86400.0,
            "missing": sorted({*self.study.sites} - self._members().keys()),
        }  # fmt: skip
        ended = self.certification.status(now, self.neighbourhood.everyone())
        if self.spending is not None:
            rows = sum(line.rows for line in self._members().values())
            done = {"rounds": self.session.rounds_done, "network_rows": rows}
            own |= done | {"privacy": {"rounds": self.session.rounds_done, **self.spending.status()}}
        return with_state(own | ended | self.training.status() | self.neighbourhood.status(now))

    # Life

    def _start(self, event: ev.Started) -> None:
        self._wall_offset, self._started = event.wall_time - self._now, self._now
        try:
            if self.spending is not None:
                self.spending.begin(event.ledger, event.snapshot is not None)
                self.session.reserved = self.spending.rounds
            before = self.persistence.restore(event.snapshot, self._now) if event.snapshot is not None else 0
        except ValueError as error:  # nothing was written, so that the snapshot is still there
            self.phase, self._reason, self._error = "leaving", "cannot continue from the snapshot", str(error)
            return
        self.neighbourhood.begin(max(int(event.wall_time), before + 1))
        self.persistence.save("incarnation", self._now)  # it is on disk before anybody hears of it

    def _go_live(self) -> None:
        self.phase = "live"
        self.training.tick_at = self._beat_at = self._now
        self.persistence.schedule.start(self._now, self.session.ticks)
        self._is_new = not self.session.ticks
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
            self.neighbourhood.leave(reason)
        if not self.training.step:
            self._save_last()

    def _save_last(self) -> None:
        if self._is_refused:  # what it learned alone would not fit the study when that is corrected
            self.session.forget()
        self.persistence.save("last", self._now)
        self.persistence.export_current(self._now, self._wall_time)

    def _finish_if_saved(self) -> None:
        if self.phase == "leaving" and not self.training.step and self.persistence.schedule.idle:
            self.phase = "finished"
            self.out.add(ev.Finish(self._reason, self._error))

    def _fail(self, error: str) -> None:
        self._error = self._error or error
        self.out.log("error", "cannot go on", reason=error)
        self._leave("cannot go on")

    # What is due

    def _timer_fired(self, event: ev.TimerFired) -> None:  # noqa: ARG002
        self._timer = inf

    def _set_timer(self) -> None:
        due = min(self._beat_at, self.training.due) if self.phase == "live" else inf
        if due != self._timer or due <= self._now:
            self._timer = due
            if due < inf:
                self.out.add(ev.SetTimer(max(due, self._now)))

    def _do_what_is_due(self) -> None:
        if self._now >= self._beat_at:
            self._beat_at = self._now + self.settings.heartbeat
            self._beat()
        if self.phase != "live" or self.training.step:
            return
        last = self.settings.stop_after_ticks
        if last is not None and self.session.ticks >= last:
            self._leave("enough ticks")
            return
        due = self.certification.take_sums()
        if due is None and self._now < self.training.tick_at:
            return
        self.session.set_edges(self.edges.counted(self._now))
        if self.spending is not None:
            self.session.held = self._why_held()
            if self.session.needs_rounds:
                self.spending.reserve()
        if due is not None and self.training.run(self.session.sums_step(due.model, due.scale), "sums"):
            self._sums_for = due.id
            return
        self.training.tick(self.at_rest, self.found.gap, self._now)

    def _beat(self) -> None:
        """Do what is due once per heartbeat."""
        members = self._members()
        self.found = self._estimates()
        limit = WAKING_GAPS * self.study.gap if self.at_rest else self.study.gap
        is_certified = bool(self.certification.confirmed) and self.certification.policy.at_rest(members)
        is_good = self.spending is not None or self.found.gap <= limit
        self.at_rest = self.neighbourhood.at_rest = is_certified and is_good
        measures, slack = self.session.measures, self.session.gap_share()
        own = {} if measures is None else {"loss": measures.loss, "slack": slack, "objective": measures.objective}
        if self.spending is not None:
            own = {"rounds": self.session.rounds_done}  # whatever is computed from rows would need a budget
        self.neighbourhood.beat(self._now, certified=self.certification.confirmed, **own)
        others = self.neighbourhood.refusals.other_studies
        starts = self._is_new and self._now - self._started <= self.settings.suspect
        if starts and not self.neighbourhood.agreed and len(others) >= max(1, self._n_sites - 1):
            self._is_refused = True  # by all: it is this site that has another study
            self._fail(f"cannot learn together: {'; '.join(others.values())}. {_how_to_agree(len(others))}")
            return
        gap = self.found.gap if self.spending is None else self._private_gap()
        self.certification.beat(self._situation(), self.session.model(), gap, self._members())
        self.training.beat(self._now)
        if self._wall_time > self._expires:
            text = "this peer's certificate has expired: issue a new one, and start the peer again"
            self.issues.report("certificate", text, self._now)
        self._write_what_is_due()
        end = self.settings.stop_after_seconds
        if end is not None and self._now - self._started >= end:
            self._leave("time is up")
        elif reason := self.certification.end(self._now, self.neighbourhood.everyone()):
            self._leave(reason)

    # Events

    def _link_up(self, event: ev.LinkUp) -> None:
        if self.phase == "live":
            self.neighbourhood.link_up(event.link, event.identity, event.dialled, self._now)
        else:
            self.out.hang_up(event.link, "not live")

    def _dial_failed(self, event: ev.DialFailed) -> None:
        if self.phase == "live":
            self.neighbourhood.dial_failed(event.address, event.reason, self._now)

    def _received(self, event: ev.Received) -> None:
        link, message = self.links.get(event.link), event.message
        if link is None or self.phase != "live":
            return
        link.heard = self._now
        if isinstance(message, m.Refusal):
            self.neighbourhood.refused_by(link, message, self._now)
        elif isinstance(message, m.Hello):
            if not link.ready and self.neighbourhood.hello(link, message, self._now):
                self.training.greet(link)
        elif link.ready:  # what comes before the hello was accepted is not read
            self._readers[type(message)](link, message)

    def _pushed(self, link: Link, push: m.Push) -> None:
        if not self.training.pushed(link, push, self.incarnation):
            what = f"in round {push.seq}" if self.study.is_private else f"with the weight {push.weight:.3g}"
            self.neighbourhood.refuse_edge(link, f"{link.name} pushes {what}")

    def _certificate(self, link: Link, message: m.Message) -> None:
        self.certification.received(link.name, message, self._situation())

    def _other_left(self, link: Link, message: m.Leave) -> None:
        self.certification.other_left(message.reason)
        self.neighbourhood.left(link, message)

    def _step_done(self, event: ev.StepDone) -> None:
        if self.training.step == "sums" and self._sums_for is not None:
            self.training.step = ""
            self.certification.sums_ready(self._sums_for, event.result, self._situation())
        else:
            self.training.done(event.result, self.incarnation, self._now)
        if self.phase == "leaving":
            self._save_last()
        elif self.persistence.waits:
            self._write_what_is_due()

    def _step_failed(self, event: ev.StepFailed) -> None:
        error = self.training.failed(event.reason, self._now)
        if self.phase == "leaving":
            self._save_last()
        elif error:
            self._fail(error)

    def _credentials_changed(self, event: ev.CredentialsChanged) -> None:
        self._expires = event.expires

    # Writes

    def _write_what_is_due(self) -> None:
        self.persistence.write_what_is_due(self._now, self._wall_time, stepping=bool(self.training.step))

    def _saved(self, event: ev.Saved) -> None:
        label = self.persistence.saved(event, self._now)
        if label == "ledger" and self.spending is not None:
            self.spending.saved()
            self.session.reserved = self.spending.rounds
        if label == "incarnation":
            self.out.muted = False
            if self.phase == "starting":
                self._go_live()
        if self.phase == "live" and self.certification.export_is_ready:
            self._write_what_is_due()

    def _save_failed(self, event: ev.SaveFailed) -> None:
        label = self.persistence.failed(event, self._now)
        if label == "ledger" and self.spending is not None:
            self.spending.failed()
        if self.phase == "starting":
            self._error, self._reason, self.phase = event.reason, "cannot save", "leaving"
        elif label == "last":
            self._error = self._error or event.reason

    # Helpers

    @property
    def _wall_time(self) -> float:
        return self._wall_offset + self._now

    def _members(self) -> dict[str, Member]:
        """Everybody present, this node included, by name."""
        return {line.name: line for line in self.neighbourhood.present()}

    def _estimates(self) -> Estimates:
        measures = self.session.measures
        if measures is None:
            return Estimates()
        detector = self.neighbourhood.detector
        others = detector.fresh(FRESH_HEARTBEATS * self.settings.heartbeat)
        near = self.session.neighbour_models()
        return estimate(self.study.lam, measures.norm, detector.me, others, self.session.model(), near)

    def _why_held(self) -> str:
        """Return why a private site releases nothing now: it spends its budget when all sites learn together."""
        members = self._members()
        if self.certification.policy.enough(members.keys()):
            return ""
        missing = sorted({*self.study.sites} - members.keys())
        return f"waiting for {', '.join(missing)}" if missing else f"waiting for {self._n_sites} sites"

    def _private_gap(self) -> float:
        """Return 0 if all sites have done the rounds of their plans, so that they may agree on a model, else NaN."""
        sites = [line for line in self._members().values() if line.rows > 0]
        return 0.0 if all(line.rounds >= (self.study.rounds or 0) for line in sites) else nan

    def _situation(self) -> Situation:
        session, neighbours = self.session, self.edges.counted(self._now) & self.links.names
        return Situation(
            self._now, self._wall_time, self.incarnation, session.rows, neighbours, session.scale,
            session.scale_digest, session.ticks,
        )  # fmt: skip


def check_until(until: Until, study: Study) -> None:
    """Raise ValueError if a study cannot end in this way."""
    if until == "finished" and not study.is_private:
        raise ValueError(
            f"--until finished is for private studies, which end after their planned rounds, and {study.name!r} is of "
            f"{study.algorithm}: use --until certified with pdmm, or leave it out"
        )
    if until == "certified" and study.is_private:
        raise ValueError(
            "--until certified needs sums over rows, which are not in the budget of a private study: use --until "
            "finished, which ends when all sites have done their rounds and have one model"
        )
    if until == "certified" and study.algorithm == "gadget":
        raise ValueError(
            "--until certified needs the algorithm pdmm: gadget has no dual variables, so no model can be certified. "
            "Leave --until out, or agree on a study with --algorithm pdmm"
        )


def _how_to_agree(others: int) -> str:
    """Return what to do about studies that differ; of two sites, nobody can tell which one is wrong."""
    if others == 1:
        return "Agree on one study.toml, copy it to both sites, and start both again"
    return f"All {others} others differ from this site: copy their study.toml, and start this peer again"
