"""The end of a study at one node: attempts at a certificate, adopting one, passing it on, and confirming it.

Owns what goes between `CertificateEcho` (messages), `CertificationPolicy` and the host (a durable model). A certificate
is confirmed to the others only after the model file and a snapshot that holds it are on disk.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from gadget_svm.core.types import Floats
from gadget_svm.peers.links import LinkTable
from gadget_svm.peers.membership.member import Member
from gadget_svm.peers.outbox import Outbox
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.storage.snapshot import ModelDocument, Part
from gadget_svm.peers.training import certificate_echo as c
from gadget_svm.peers.training.certification_policy import CertificationPolicy
from gadget_svm.peers.training.scale import Scale
from gadget_svm.peers.wire import codec
from gadget_svm.peers.wire import messages as m
from gadget_svm.peers.wire.limits import Limits
from gadget_svm.study.study import Study

MAX_NAMES = 10
"""Sites that a line of the log names."""
RESEND_HEARTBEATS = 3
"""A neighbour that lacks the certificate gets it again after so many heartbeats."""
ALL_CONFIRMED = "all sites have the model of certificate {}"
"""The reason of a leave that tells neighbours, too, that nobody is waited for."""


class Situation(NamedTuple):
    """What a certificate needs to know of the rest of the node."""

    now: float
    wall_time: float
    incarnation: int
    rows: float
    neighbours: frozenset[str]  # with an edge in the learner, and a link
    scale: Scale | None
    scale_digest: bytes
    ticks: int


class Certification:
    """A node's part in ending the study."""

    def __init__(self, settings: NodeSettings, study: Study, links: LinkTable, out: Outbox) -> None:
        self.settings, self.study, self.links, self.out = settings, study, links, out
        self.echo = c.CertificateEcho(settings.name, study.lam, study.outputs, study.width)
        self.policy = CertificationPolicy(study, settings.name)
        self.sums_due: c.ComputeSums | None = None
        self.exports_due: list[m.Certified] = []
        self.label = ""  # of the adopted certificate
        self.confirmed = ""  # of the certificate that is on disk
        self.snapshot_due = False
        self._writing: dict[int, m.Certified | None] = {}  # writes that the confirmation waits for: models, snapshots
        self._resend: dict[str, int] = {}
        self._told_of = ""  # the certificate whose wait for others is in the log

    # Messages

    def received(self, name: str, message: m.Message, at: Situation) -> None:
        """Handle a message of a certificate."""
        if isinstance(message, m.Certified):
            if message.scale == at.scale_digest and at.scale is not None:
                self._adopt(message, at.now)
        elif not self._is_over():
            actions = self.echo.receive(name, message, at.now, at.neighbours, at.incarnation, at.rows)
            self._do(actions, at)

    def sums_ready(self, id_: m.CertificateId, sums: Floats, at: Situation) -> None:
        """Add this node's own sums to an attempt."""
        self._do(self.echo.sums_ready(id_, sums, at.now), at)

    def take_sums(self) -> c.ComputeSums | None:
        """Return which sums to compute next, once."""
        due, self.sums_due = self.sums_due, None
        return due

    # Once per heartbeat

    def beat(self, at: Situation, model: Floats | None, gap: float, members: Mapping[str, Member]) -> None:
        """Begin an attempt when it is time, repeat what was lost, and pass the certificate on."""
        self._do(self.echo.tick(at.now, at.neighbours), at)
        if self.study.algorithm != "gadget" and model is not None and not self.echo.busy and not self._is_over():
            alive = {name: line for name, line in members.items() if line.rows > 0}
            if self.policy.should_begin(at.now, gap, alive):
                self.out.log("info", "attempt at a certificate", gap_estimate=gap)
                actions = self.echo.begin(
                    at.now, at.wall_time, at.incarnation, at.rows, model.ravel(), at.scale_digest, at.neighbours,
                    at.ticks,
                )  # fmt: skip
                self._do(actions, at)
        for name in self.links.names:
            self._pass_on(name, members.get(name))

    def _pass_on(self, name: str, line: Member | None) -> None:
        """Send the certificate to a neighbour that has an older one or none, now and then."""
        latest = self.policy.latest
        if latest is None or not self.confirmed or line is None or c.number_of(line.certified) >= latest.id.number:
            self._resend.pop(name, None)
            return
        wait = self._resend.get(name, 0)
        self._resend[name] = wait - 1 if wait > 0 else RESEND_HEARTBEATS
        link = self.links.ready(name)
        if wait <= 0 and link is not None:
            self.out.send(link.number, latest)

    def _is_over(self) -> bool:
        """Whether this peer takes part in no more attempts, so that its model file stays as the others have it."""
        return self.settings.until != "stopped" and bool(self.label) and not self.policy.conflict

    # Actions

    def _do(self, actions: list[c.Action], at: Situation) -> None:
        for action in actions:
            if isinstance(action, c.Tell):
                link = self.links.ready(action.name)
                if link is not None:
                    self.out.send(link.number, action.message)
            elif isinstance(action, c.ComputeSums) and self.study.is_private:
                self._do(self.echo.sums_ready(action.id, np.empty(0), at.now), at)
            elif isinstance(action, c.ComputeSums):
                self.sums_due = action
            elif isinstance(action, m.Certified) and (
                self.study.is_private or relative_bound(action) <= self.study.gap
            ):
                self._adopt(action, at.now)
            else:
                why = action.reason if isinstance(action, c.Failed) else "the bound is above the study's gap"
                self.policy.failed(at.now)
                self.out.log("info", "no certificate", reason=why)

    def _adopt(self, certified: m.Certified, now: float) -> None:
        before = self.policy.latest
        if not self.policy.adopt(certified, now):
            return
        name, is_full = c.label(certified), self.policy.covers(certified)
        if is_full and before is not None and (lost := _names(before) - _names(certified)):
            text = f"the certificate of {_listed(_names(certified))} replaces that of {_listed(_names(before))}"
            self.out.log("warning", text, no_longer_covered=sorted(lost))
        what = "agreed on a model" if self.study.is_private else "certified"
        bound = {} if self.study.is_private else {"bound": relative_bound(certified)}
        self.out.log(
            "info", what if is_full else f"{what} of a part of the sites", certificate=name, **bound,
            sites=[site.name for site in certified.sites],
        )  # fmt: skip
        self.echo.adopted(certified.id.number)
        self.exports_due.append(certified)
        if is_full:
            self.label, self.confirmed, self.snapshot_due, self._writing = name, "", True, {}
        else:
            self._flood(certified)

    def _flood(self, certified: m.Certified) -> None:
        for link in self.links.all_ready():
            self.out.send(link.number, certified)

    # Durability

    @property
    def export_is_ready(self) -> bool:
        """Whether a model file may be written: a certified one only after the snapshot that knows of it.

        In the other order a peer that is killed in between would replace the certified model by a current one.
        """
        if not self.exports_due:
            return False
        is_known = not self.snapshot_due and None not in self._writing.values()
        return is_known or self.exports_due[0] is not self.policy.latest

    def take_export(self, number: int, scale: Scale) -> ModelDocument:
        """Return the next model file, which is written under this number."""
        certified = self.exports_due.pop(0)
        if certified is self.policy.latest:
            self._writing[number] = certified
        return document(certified, self.study, scale, self.policy.covers(certified))

    def saving(self, number: int) -> None:
        """Note that a snapshot, with the certificate, is written under this number."""
        self.snapshot_due = False
        if self.label != self.confirmed:
            self._writing[number] = None

    def saved(self, number: int) -> bool:
        """Note a durable write; return whether the certificate is confirmed by it."""
        if number not in self._writing:
            return False
        del self._writing[number]
        if self._writing or self.snapshot_due or self.policy.latest in self.exports_due:
            return False
        self.confirmed = self.label
        if self.policy.latest is not None:
            self._flood(self.policy.latest)  # not earlier: a restart must not make its initiator forget it
        return True

    def save_failed(self, number: int) -> None:
        """Note that a write has failed: it is due again."""
        if number in self._writing:
            certified = self._writing.pop(number)
            if certified is not None:
                self.exports_due.append(certified)
            else:
                self.snapshot_due = True

    def end(self, now: float, members: Collection[Member]) -> str:
        """Return why a peer that runs until certified may leave now; an empty text if it may not."""
        if self.settings.until == "stopped" or not self.confirmed:
            return ""
        until, names = self.policy.waits_until(members, self.settings.linger), self.policy.unconfirmed(members)
        if now < until:
            if self._told_of != self.label:
                self._told_of = self.label
                seconds = round(until - now)
                self.out.log("info", "waiting until the others have the model", sites=names, at_most_seconds=seconds)
            return ""
        if names:
            text = "sites did not confirm in time that they have the model: copy the model file to those that lack it"
            self.out.log("warning", text, sites=names)
            return self.settings.until
        return ALL_CONFIRMED.format(self.label)

    def other_left(self, reason: str) -> None:
        """Note why a neighbour has left: it may be because all sites have confirmed."""
        if self.confirmed and reason == ALL_CONFIRMED.format(self.confirmed):
            self.policy.all_confirmed()

    def snapshot(self) -> Part:
        """Return the adopted certificate, as it is sent."""
        if self.policy.latest is None:
            return {}, {}
        encoded = codec.encode(self.policy.latest, Limits.of(self.study))
        return {"certified": np.frombuffer(encoded, dtype=np.uint8)}, {}

    def restore(self, part: Part, now: float) -> None:
        """Adopt the certificate of a snapshot again: the model file may not have been written."""
        if "certified" in part[0]:
            certified = codec.decode(part[0]["certified"].tobytes(), Limits.of(self.study))
            assert isinstance(certified, m.Certified)
            self._adopt(certified, now)

    def status(self, now: float, members: Collection[Member]) -> dict[str, Any]:
        """Return the adopted certificate, a later one of a partition, and how long it waits, as plain values."""
        policy, certified, wait = self.policy, None, None
        if policy.latest is not None:
            confirmed, is_saved = sorted(policy.confirmed_by(members)), self.confirmed == self.label
            certified = self._described(policy.latest) | {"confirmed": confirmed, "saved": is_saved}
            if self.settings.until != "stopped" and is_saved:
                seconds = policy.waits_until(members, self.settings.linger) - now
                wait = {"sites": policy.unconfirmed(members), "seconds": seconds} if seconds > 0 else None
        is_later = policy.latest is None or (
            policy.partition is not None and policy.partition.id.number > policy.latest.id.number
        )
        partition = self._described(policy.partition) if policy.partition is not None and is_later else None
        return {"certified": certified, "partition": partition, "wait": wait}

    def _described(self, certified: m.Certified) -> dict[str, Any]:
        bound = None if self.study.is_private else relative_bound(certified)
        return {
            "id": c.label(certified), "bound": bound, "time": certified.time,
            "sites": [site.name for site in certified.sites], "rows": sum(site.rows for site in certified.sites),
        }  # fmt: skip


def _names(certified: m.Certified) -> set[str]:
    return {site.name for site in certified.sites}


def _listed(names: Collection[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(sorted(names)[:MAX_NAMES]) + more


def relative_bound(certified: m.Certified) -> float:
    """Return the upper bound of F(model) / F* - 1."""
    below = float(certified.duals.sum())
    return float(certified.bounds.sum()) / below if below > 0 else float("inf")


def document(certified: m.Certified, study: Study, scale: Scale, is_full: bool) -> ModelDocument:
    """Return the model file of a certificate: the same at all sites."""
    if study.is_private:
        about: dict[str, Any] = {name: getattr(study, name) for name in ("epsilon", "delta", "clip", "rounds")}
        about |= {"kind": "agreed"} if is_full else {}  # nothing is proved about the model
    else:
        about = {
            "gap_bound": relative_bound(certified), "bounds": certified.bounds.tolist(),
            "duals": certified.duals.tolist(),
        }  # fmt: skip
    metadata = about | {
        "certificate": c.label(certified), "time": certified.time, "ticks": certified.ticks,
        "sites": [[site.name, site.incarnation, site.rows] for site in certified.sites],
        "rows": sum(site.rows for site in certified.sites), "study": study.name, "study_digest": study.digest.hex(),
    }  # fmt: skip
    weights = certified.model.reshape(study.outputs, study.width)
    return ModelDocument("certified" if is_full else "partition", weights, scale.divisor, scale.shift, metadata)
