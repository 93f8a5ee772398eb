"""When a node trains, and what goes between its training session and its neighbours: pushes and statistics.

Owns the pace of ticks and the step under way. One step runs at a time, in a thread of the host.
"""

from collections.abc import Callable
from math import inf
from typing import Any

from gadget_svm.peers.edges import EdgeTable
from gadget_svm.peers.events import RunStep
from gadget_svm.peers.issues import IssueTable
from gadget_svm.peers.links import Link, LinkTable
from gadget_svm.peers.outbox import Outbox
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.training.scale import ScalingError
from gadget_svm.peers.training.session import TrainingSession
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.wire.messages import Acknowledgement, Push, Statistics
from gadget_svm.study.study import Study

SLOW_GAP = 0.1
"""Below this part of the study's gap, a node without a certificate makes one tick per heartbeat."""
MAX_STEP_FAILURES = 3
"""Training steps that may fail in a row before the node gives up."""
STATISTICS_HEARTBEATS = 2
"""Statistics for the scale are repeated to each neighbour after so many heartbeats, until they are settled."""


class TrainingLoop:
    """The training of one node."""

    def __init__(
        self, settings: NodeSettings, study: Study, site: Site, links: LinkTable, edges: EdgeTable,
        out: Outbox, issues: IssueTable,
    ) -> None:  # fmt: skip
        self.settings, self.links, self.edges, self.out, self.issues = settings, links, edges, out, issues
        self.session = TrainingSession(study, site, settings.name, settings.seed, noise=settings.noise)
        self.narrow = settings.float32 and study.algorithm == "pdmm"  # running sums need all their digits
        self.step = ""  # the label of the step under way
        self.tick_at = inf
        self._pace = max(settings.tick, (4 if self.narrow else 8) * study.dimension / settings.send_rate)
        self._slow_gap = SLOW_GAP * study.gap
        self._work = float(site.X.nnz)
        self._measure_at = -inf
        self._failures = 0  # of steps, in a row
        self._beats = 0
        self._told: set[str] = set()  # neighbours with another scale that have the statistics of this one

    @property
    def due(self) -> float:
        """When the next tick is due; never, while a step is under way."""
        return inf if self.step else self.tick_at

    # Steps

    def run(self, step: Callable[[], Any] | None, label: str) -> bool:
        """Let the host run a step, if there is one; return whether there is."""
        if step is None:
            return False
        self.step = label
        self.out.add(RunStep(step, label, self._work))
        return True

    def tick(self, at_rest: bool, gap: float, now: float) -> None:
        """Begin a tick if it is time. At rest only a new learner is built."""
        if now < self.tick_at:
            return  # the sums of a certificate were due
        heartbeat = self.settings.heartbeat
        if at_rest and self.session.ready:
            self.tick_at = now + heartbeat
            return
        self.tick_at = now + (max(self._pace, heartbeat) if gap < self._slow_gap else self._pace)
        measure = now >= self._measure_at
        if self.run(self.session.next_step(self._open(now), measure), "tick") and measure:
            self._measure_at = now + min(1.0, heartbeat)

    def _open(self, now: float) -> list[str]:
        """Return the neighbours that can take another push."""
        ready = ((name, self.links.ready(name)) for name in sorted(self.edges.up()))
        return [name for name, link in ready if link is not None and link.has_room(now, self.settings.heartbeat)]

    def done(self, result: Any, incarnation: int, now: float) -> None:
        """Take over a tick, and send what it gives."""
        self.step, self._failures = "", 0
        for name, seq, vector, weight, note in self.session.finish(result):
            link = self.links.ready(name)
            if link is None or link.hello is None or name not in self.edges.up():
                continue
            link.in_flight[seq] = now
            link.sent += 1
            push = Push(
                incarnation, link.hello.incarnation, seq, self.session.ticks, vector, weight, note,
                self.session.scale_digest, self.narrow and link.hello.float32,
            )  # fmt: skip
            self.out.send(link.number, push)

    def failed(self, reason: str, now: float) -> str:
        """Go back to an earlier state after a step failed; return why the node has to give up, or an empty text."""
        self.step, self._failures = "", self._failures + 1
        text = self.session.abort(f"a training step failed ({reason})")
        self.issues.report("weights", text, now)
        return text if self._failures > MAX_STEP_FAILURES else ""

    # Messages

    def pushed(self, link: Link, push: Push, incarnation: int) -> bool:
        """Acknowledge a push, and keep it if it is for this incarnation and on an edge that is UP.

        Returns False if no honest neighbour sends such a push: nothing of it reaches the learner.
        """
        self.out.send(link.number, Acknowledgement(push.seq, incarnation))
        if push.scale != self.session.scale_digest and link.name not in self._told:  # the lower digest wins
            self._told.add(link.name)
            self.out.send(link.number, self.session.statistics())
        hello = link.hello
        if hello is None or push.receiver_incarnation != incarnation or push.incarnation != hello.incarnation:
            return True
        if link.name not in self.edges.up():
            return True
        if not self.session.is_plausible(push):
            return False
        link.received += self.session.receive(link.name, push)
        return True

    def heard_statistics(self, link: Link, message: Statistics, now: float) -> None:
        """Take in statistics for the scale, and pass on what is new."""
        try:
            is_new = self.session.hear_statistics(message)
            self.issues.resolve("scaling")
        except ScalingError as error:
            self.issues.report("scaling", f"from {link.name}: {error}", now)
            return
        if is_new:
            self._share_statistics()
        elif not self.session.waiting and not message.frozen:
            self.out.send(link.number, self.session.statistics())

    def greet(self, link: Link) -> None:
        """Tell a new neighbour the statistics, while they are needed."""
        if self.session.waiting:
            self.out.send(link.number, self.session.statistics())

    def _share_statistics(self) -> None:
        for link in self.links.all_ready():
            self.out.send(link.number, self.session.statistics())

    # Once per heartbeat

    def beat(self, now: float) -> None:
        """Repeat statistics while they are needed, and report what keeps this site from learning or being heard."""
        self._beats += 1
        if self._beats % STATISTICS_HEARTBEATS == 0:
            self._told.clear()
            if self.session.waiting:
                self._share_statistics()
        if clashes := self.session.name_clashes:
            text = f"no edge to {', '.join(clashes)}: another peer has the same number; rename one"
            self.issues.report("names", text, now)

    def status(self) -> dict[str, Any]:
        """Return rows, ticks and accuracy as plain values."""
        session, measures = self.session, self.session.measures
        return {
            "rows": int(session.rows), "ticks": session.ticks, "waiting": session.waiting or session.held,
            "test_accuracy": None if measures is None else measures.test_accuracy,
            "train_accuracy": None if measures is None else measures.accuracy,
            "local_objective": None if measures is None else measures.objective,
        }  # fmt: skip
