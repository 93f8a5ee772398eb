# ruff: noqa: ARG001, ARG005 - replaced methods keep their parameters
"""Bugs for the simulated world to find: each changes one rule of a node or its host, and nothing else."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gadget_svm.gossip import running_sum
from gadget_svm.peers import certification
from gadget_svm.peers.certification import Certification
from gadget_svm.peers.edges import EdgeTable
from gadget_svm.peers.links import Link, LinkTable
from gadget_svm.peers.membership.discovery import Discovery
from gadget_svm.peers.membership.failure_detector import FailureDetector
from gadget_svm.peers.membership.name_conflict import NameConflict
from gadget_svm.peers.neighbourhood import Neighbourhood
from gadget_svm.peers.node import Node
from gadget_svm.peers.persistence import Persistence
from gadget_svm.peers.training import learner, scale_agreement
from gadget_svm.peers.training.certificate_echo import CertificateEcho
from gadget_svm.peers.training.certification_policy import CertificationPolicy
from gadget_svm.peers.training.inbox import Heard, Inbox
from gadget_svm.peers.training.learner import Learner, NodeMessage
from gadget_svm.peers.training.private_learner import PrivateLearner
from gadget_svm.peers.training.scale_agreement import ScaleAgreement
from gadget_svm.peers.training.session import TrainingSession
from gadget_svm.peers.wire.messages import EdgeState
from gadget_svm.peers.world.disk import Disk

Patch = Callable[[object, str, object], None]


@dataclass(frozen=True)
class PlantedBug:
    """A bug, and the scenarios in which it should show, from a seed on."""

    name: str
    plant: Callable[[Patch], None]
    scenarios: tuple[str, ...]
    first: int = 0

    def histories(self, count: int) -> Iterator[tuple[str, int]]:
        """Yield scenarios and seeds."""
        for i in range(count):
            yield self.scenarios[i % len(self.scenarios)], self.first + i // len(self.scenarios)


def _old_sequence_numbers(patch: Patch) -> None:
    def put(self, number, push):
        message = NodeMessage(number, push.seq, push.vector, push.weight, push.note)
        self.heard[number] = Heard(push.incarnation, message)
        self._waiting.add(number)
        return True

    patch(Inbox, "put", put)


def _epochs_do_not_matter(patch: Patch) -> None:
    patch(running_sum, "_join_epoch", lambda block, messages: None)


def _epochs_begin_again(patch: Patch) -> None:
    original = Learner.restore

    def restore(self, arrays, about):
        original(self, arrays, about)
        if "epoch" in self.block.edge:
            self.block.edge["epoch"][:] = 0

    patch(Learner, "restore", restore)


def _saved_before_synced(patch: Patch) -> None:
    original = Disk.write

    def write(self, number, content, answer):
        original(self, number, content, lambda *_: None)
        self.queue.after(0.0, answer, number, "")

    patch(Disk, "write", write)


def _speaks_before_saved(patch: Patch) -> None:
    original = Node._start

    def start(self, event):
        original(self, event)
        if self.phase == "starting":
            self._go_live()

    patch(Node, "_start", start)


def _same_incarnation(patch: Patch) -> None:
    original = Neighbourhood.begin

    def begin(self, incarnation):
        original(self, 1_800_000_000)

    patch(Neighbourhood, "begin", begin)


def _counts_before_acknowledged(patch: Patch) -> None:
    def counted(self, now):
        return frozenset(
            name
            for name, edge in self._edges.items()
            if edge.state != EdgeState.ADMIN_DOWN or edge.retained_until > now
        )

    patch(EdgeTable, "counted", counted)


def _counts_for_ever(patch: Patch) -> None:
    def counted(self, now):
        return frozenset(
            name for name, e in self._edges.items() if e.state == EdgeState.UP or e.retained_until > -np.inf
        )

    patch(EdgeTable, "counted", counted)
    patch(EdgeTable, "forget", lambda self, name: False)


def _dropped_at_one_end(patch: Patch) -> None:
    original = EdgeTable.counted

    def counted(self, now):
        first = min(self._edges, default="")
        return frozenset(name for name in original(self, now) if name != first or len(self._edges) < 3)

    patch(EdgeTable, "counted", counted)


def _forgotten_tombstone(patch: Patch) -> None:
    def tick(self, now, original=FailureDetector.tick):
        changes = original(self, now)
        for name in list(self.table.gone):
            self._revive(self.table.records[name])
        return changes

    patch(FailureDetector, "tick", tick)


def _never_dead(patch: Patch) -> None:
    patch(FailureDetector, "_watch", lambda self: None)


def _any_study(patch: Patch) -> None:
    original = Neighbourhood.hello

    def hello(self, link, hello, now):
        return original(self, link, replace(hello, digest=self._digest), now)

    patch(Neighbourhood, "hello", hello)


def _no_hello_needed(patch: Patch) -> None:
    patch(Link, "ready", property(lambda self: True))


def _sums_counted_twice(patch: Patch) -> None:
    original = CertificateEcho._summed

    def summed(self, attempt, name, message, now):
        return original(self, attempt, name, replace(message, sums=2.0 * message.sums), now)

    patch(CertificateEcho, "_summed", summed)


def _any_bound(patch: Patch) -> None:
    adopt, should_begin = CertificationPolicy.adopt, CertificationPolicy.should_begin

    def adopt_any(self, certified, now):
        study, self.study = self.study, replace(self.study, gap=1e9)
        taken = adopt(self, certified, now)
        self.study = study
        return taken

    patch(certification, "relative_bound", lambda certified: 0.0)
    patch(CertificationPolicy, "adopt", adopt_any)
    patch(CertificationPolicy, "should_begin", lambda self, now, gap, members: should_begin(self, now, 0.0, members))


def _optimistic_duals(patch: Patch) -> None:
    original = Learner.sums

    def sums(self, w):
        found = original(self, w).copy()
        found[self.study.dimension : self.study.dimension + 1] *= 0.9
        return found

    patch(Learner, "sums", sums)


def _confirms_before_saved(patch: Patch) -> None:
    original = Certification._adopt

    def adopt(self, certified, now):
        original(self, certified, now)
        self.confirmed = self.label

    patch(Certification, "_adopt", adopt)


def _exports_over_the_certificate(patch: Patch) -> None:
    original = Persistence.export_current

    def export(self, now, wall_time):
        label, self.certification.label = self.certification.label, ""
        original(self, now, wall_time)
        self.certification.label = label

    patch(Persistence, "export_current", export)


def _partition_counts_as_all(patch: Patch) -> None:
    patch(CertificationPolicy, "enough", lambda self, names: True)


def _exits_without_the_others(patch: Patch) -> None:
    patch(CertificationPolicy, "waits_until", lambda self, members, linger: -math.inf)


def _timer_lost(patch: Patch) -> None:
    original = Node._set_timer

    def set_timer(self):
        if not self.at_rest:
            original(self)

    patch(Node, "_set_timer", set_timer)


def _dials_once(patch: Patch) -> None:
    original = Discovery.failed

    def failed(self, address):
        original(self, address)
        self._attempt(address).next = np.inf

    patch(Discovery, "failed", failed)


def _credit_never_returns(patch: Patch) -> None:
    patch(Link, "has_room", lambda self, now, heartbeat: len(self.in_flight) < 2)


def _snapshot_shares_memory(patch: Patch) -> None:
    original = TrainingSession.snapshot

    def snapshot(self):
        arrays, about = original(self)
        if self._trainer is not None and arrays:
            arrays = {**arrays, "w": self._trainer.learner.block.w}
        return arrays, about

    patch(TrainingSession, "snapshot", snapshot)


def _snapshot_forgets_the_certificate(patch: Patch) -> None:
    patch(Certification, "snapshot", lambda self: ({}, {}))


def _one_step_too_many(patch: Patch) -> None:
    original = Node._received

    def received(self, event):
        original(self, event)
        self.training.step = ""

    patch(Node, "_received", received)


def _failed_save_forgotten(patch: Patch) -> None:
    patch(Certification, "save_failed", lambda self, number: self._writing.pop(number, None))


def _second_process_ignored(patch: Patch) -> None:
    patch(NameConflict, "hear", lambda self, member, direct, mine, now: False)


def _former_link_kept(patch: Patch) -> None:
    original = LinkTable.accept

    def accept(self, link, hello):
        other = self._ready.get(link.name)
        if other is not None and other.hello.incarnation < hello.incarnation:
            link.hello = hello
            return link
        return original(self, link, hello)

    patch(LinkTable, "accept", accept)


def _own_scale_kept(patch: Patch) -> None:
    original = ScaleAgreement._freeze

    def freeze(self, known):
        if not self.digest:
            original(self, known)

    patch(ScaleAgreement, "_freeze", freeze)
    patch(scale_agreement, "digest_of", lambda entries: bytes(31) + b"1")


def _any_penalty(patch: Patch) -> None:
    patch(TrainingSession, "is_plausible", lambda self, push: True)


def _classes_mixed_up(patch: Patch) -> None:
    original = learner._signs

    def signs(label, outputs):
        return original(label, outputs) if outputs == 1 else np.roll(original(label, outputs), 1, axis=1)

    patch(learner, "_signs", signs)


def _reserved_again(patch: Patch) -> None:
    patch(PrivateLearner, "count_as_done", lambda self, rounds: None)


def _released_before_recorded(patch: Patch) -> None:
    needs, step = TrainingSession.needs_rounds, PrivateLearner.step
    patch(TrainingSession, "needs_rounds", property(lambda self: needs.fget(self) and self.rounds_done % 5 == 0))
    patch(PrivateLearner, "step", lambda self, most: step(self, most + 5))


BUGS = (
    PlantedBug("an old sequence number is accepted", _old_sequence_numbers, ("reordered", "chaos")),
    PlantedBug("an epoch check is removed", _epochs_do_not_matter, ("gadget",)),
    PlantedBug("edges begin again at epoch 0 after a restart", _epochs_begin_again, ("gadget", "stop-and-return")),
    PlantedBug("a save is acknowledged before it is synced", _saved_before_synced, ("torn-disk",)),
    PlantedBug("a node speaks before its incarnation is saved", _speaks_before_saved, ("torn-disk",)),
    PlantedBug("an incarnation is used twice", _same_incarnation, ("crash-restart",)),
    PlantedBug("an edge counts before it is acknowledged", _counts_before_acknowledged, ("lossy", "one-way-cut")),
    PlantedBug("an edge to a dead peer counts for ever", _counts_for_ever, ("crash-for-ever",)),
    PlantedBug("an edge is dropped at one end only", _dropped_at_one_end, ("calm", "crash-restart")),
    PlantedBug("a tombstone is forgotten", _forgotten_tombstone, ("crash-for-ever", "stop-and-return")),
    PlantedBug("nobody is ever dead", _never_dead, ("crash-for-ever",)),
    PlantedBug("a peer of another study is accepted", _any_study, ("revocation",)),
    PlantedBug("messages before the hello are accepted", _no_hello_needed, ("lossy", "revocation")),
    PlantedBug("sums are counted twice", _sums_counted_twice, ("calm", "lossy")),
    PlantedBug("sums of a certificate are too small", _optimistic_duals, ("calm",)),
    PlantedBug(
        "a certificate is confirmed before it is saved", _confirms_before_saved, ("certificate-kills", "full-disk")
    ),
    PlantedBug("a present model replaces a certified one", _exports_over_the_certificate, ("certificate-kills",)),
    PlantedBug("a partition's certificate counts as full", _partition_counts_as_all, ("late-join", "partition")),
    PlantedBug("a peer exits before others have the model", _exits_without_the_others, ("certificate-kills",)),
    PlantedBug("a timer is lost", _timer_lost, ("calm",)),
    PlantedBug("an address is dialled once", _dials_once, ("calm", "resets")),
    PlantedBug("lost acknowledgements block an edge", _credit_never_returns, ("lossy",)),
    PlantedBug("a certificate with any bound counts", _any_bound, ("calm",)),
    PlantedBug("a snapshot shares the learner's memory", _snapshot_shares_memory, ("torn-disk", "full-disk")),
    PlantedBug("a second step is started", _one_step_too_many, ("slow-peers",)),
    PlantedBug("a model that could not be saved is forgotten", _failed_save_forgotten, ("full-disk",)),
    PlantedBug("a restart forgets the certificate", _snapshot_forgets_the_certificate, ("certificate-kills",), 10),
    PlantedBug("a second process of a name is ignored", _second_process_ignored, ("same-name",)),
    PlantedBug("a link of a former process is kept", _former_link_kept, ("same-name",)),
    PlantedBug("a late site keeps its own scale", _own_scale_kept, ("scaled",)),
    PlantedBug("any penalty of a neighbour is used", _any_penalty, ("hostile-neighbour",)),
    PlantedBug("rounds that were reserved before a kill are released again", _reserved_again, ("private-kills",)),
    PlantedBug("slopes are released before the ledger is on disk", _released_before_recorded, ("private-kills",)),
    PlantedBug("a class is learned with the sign of another", _classes_mixed_up, ("three-classes",)),
)
