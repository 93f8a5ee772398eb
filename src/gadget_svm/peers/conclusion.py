"""The end of a study at one node: attempts at a certificate, adopting one, passing it on, and confirming it.

Owns what goes between `Certification` (messages), `EndOfStudy` (policy) and the host (a durable model). A certificate
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
from gadget_svm.peers.storage.snapshot import ModelDocument
from gadget_svm.peers.training.certification import (
    Action,
    Certification,
    Completed,
    ComputeSums,
    Failed,
    Tell,
    label,
)
from gadget_svm.peers.training.ending import EndOfStudy
from gadget_svm.peers.training.scale import Scale
from gadget_svm.peers.wire.messages import (
    CertificateId,
    CertificateProbe,
    CertificateSums,
    Certified,
    CoveredSite,
    Message,
)
from gadget_svm.study.study import Study

RESEND_HEARTBEATS = 3
"""A neighbour that lacks the certificate gets it again after so many heartbeats."""


class Situation(NamedTuple):
    """What a certificate needs to know of the rest of the node."""

    now: float
    wall_time: float
    incarnation: int
    rows: float
    neighbours: frozenset[str]  # with an edge that is UP
    scale: Scale | None
    scale_digest: bytes
    ticks: int


class Conclusion:
    """A node's part in ending the study."""

    def __init__(self, settings: NodeSettings, study: Study, links: LinkTable, out: Outbox) -> None:
        self.settings, self.study, self.links, self.out = settings, study, links, out
        self.certification = Certification(settings.name, study.lam, study.outputs, study.width)
        self.ending = EndOfStudy(study, settings.name)
        self.wanted_sums: tuple[CertificateId, Floats, bytes] | None = None
        self.label = ""  # of the adopted certificate
        self.confirmed = ""  # of the certificate that is on disk
        self.snapshot_due = False
        self.export_due: tuple[Certified, bool] | None = None
        self._numbers: set[int] = set()  # writes that must be on disk before the certificate is confirmed
        self._export: int | None = None
        self._resend: dict[str, int] = {}

    # Messages

    def received(self, name: str, message: Message, at: Situation) -> bool:
        """Handle a message of a certificate; return whether it was one."""
        if isinstance(message, Certified):
            if message.scale == at.scale_digest and at.scale is not None:
                self._adopt(message, at)
        elif isinstance(message, CertificateProbe | CertificateSums):
            if not self._is_over():
                self._do(
                    self.certification.receive(name, message, at.now, at.neighbours, at.incarnation, at.rows), at
                )  # fmt: skip
        else:
            return False
        return True

    def sums_ready(self, id_: CertificateId, sums: Floats, at: Situation) -> None:
        """Add this node's own sums to an attempt."""
        self._do(self.certification.sums_ready(id_, sums, at.now), at)

    def take_sums(self) -> tuple[CertificateId, Floats, bytes] | None:
        """Return the sums to compute next, once."""
        wanted, self.wanted_sums = self.wanted_sums, None
        return wanted

    # Once per heartbeat

    def beat(self, at: Situation, model: Floats | None, gap: float, members: Mapping[str, Member]) -> None:
        """Begin an attempt when it is time, repeat what was lost, and pass the certificate on."""
        self._do(self.certification.tick(at.now, at.neighbours), at)
        alive = {name: line for name, line in members.items() if line.rows > 0}
        is_idle = not self.certification.busy and not self._is_over()
        may_begin = self.study.algorithm == "pdmm" and model is not None and is_idle
        if may_begin and self.ending.should_begin(at.now, gap, alive):
            assert model is not None
            self.out.log("info", "attempt at a certificate", gap_estimate=gap)
            actions = self.certification.begin(
                at.now, at.wall_time, at.incarnation, at.rows, model.ravel(), at.scale_digest, at.neighbours, at.ticks
            )  # fmt: skip
            self._do(actions, at)
        for name in self.links.names:
            self._pass_on(name, members.get(name))

    def _pass_on(self, name: str, line: Member | None) -> None:
        latest = self.ending.latest
        if (
            latest is None
            or not self.confirmed
            or line is None
            or line.certified == self.label
            or _number(line.certified) >= latest.id.number
        ):
            self._resend.pop(name, None)
            return
        wait = self._resend.get(name, 0)
        self._resend[name] = RESEND_HEARTBEATS if wait <= 0 else wait - 1
        link = self.links.ready(name)
        if wait <= 0 and link is not None:
            self.out.send(link.number, latest)

    def _is_over(self) -> bool:
        """Whether this peer takes part in no more attempts, so that its model file stays as the others have it."""
        return self.settings.until == "certified" and bool(self.label) and not self.ending.conflict

    # Actions

    def _do(self, actions: list[Action], at: Situation) -> None:
        for action in actions:
            if isinstance(action, Tell):
                link = self.links.ready(action.name)
                if link is not None:
                    self.out.send(link.number, action.message)
            elif isinstance(action, ComputeSums):
                self.wanted_sums = (action.id, action.model, action.scale)
            elif isinstance(action, Completed):
                self._completed(action.certified, at)
            elif isinstance(action, Failed):
                self.ending.failed(at.now)
                self.out.log("info", "no certificate", attempt=action.id.number, reason=action.reason)

    def _completed(self, certified: Certified, at: Situation) -> None:
        bound, limit = relative_bound(certified), self.study.gap
        if bound > limit:
            self.ending.failed(at.now)
            self.out.log("info", "the bound is above the study's gap", bound=bound, gap=limit)
        else:
            self._adopt(certified, at)

    def _adopt(self, certified: Certified, at: Situation) -> None:
        if not self.ending.adopt(certified, at.now):
            return
        is_full = self.ending.covers(certified)
        name = label(certified)
        self.out.log(
            "info", "certified" if is_full else "certified a part of the sites", certificate=name,
            bound=relative_bound(certified), sites=[site.name for site in certified.sites],
        )  # fmt: skip
        self.certification.adopted(certified.id.number)
        self.export_due = certified, is_full
        if is_full:
            self.label, self.confirmed, self.snapshot_due, self._numbers = name, "", True, set()
        else:
            self._flood(certified)

    def _flood(self, certified: Certified) -> None:
        for link in self.links.all_ready():
            self.out.send(link.number, certified)

    def document(self, scale: Scale) -> ModelDocument:
        """Return the model file that is due."""
        assert self.export_due is not None
        certified, is_full = self.export_due
        return document(certified, self.study, scale, is_full)

    def exporting(self, number: int) -> None:
        """The model file is on its way to the disk."""
        assert self.export_due is not None
        (_, is_full), self.export_due = self.export_due, None
        if is_full:
            self._numbers.add(number)
            self._export = number

    def saving(self, number: int) -> None:
        """A snapshot with the certificate is on its way to the disk."""
        self.snapshot_due = False
        if self.label and not self.confirmed:
            self._numbers.add(number)

    def saved(self, number: int) -> bool:
        """Note a durable write; return whether the certificate is confirmed by it."""
        if number not in self._numbers:
            return False
        self._numbers.discard(number)
        if self._numbers or self.snapshot_due or self.export_due is not None or self.confirmed == self.label:
            return False
        self.confirmed = self.label
        if self.ending.latest is not None:
            self._flood(self.ending.latest)  # not earlier: a restart must not make its initiator forget it
        return True

    def save_failed(self, number: int) -> None:
        """Write again what could not be written."""
        if number not in self._numbers:
            return
        self._numbers.discard(number)
        if number == self._export and self.ending.latest is not None:
            self.export_due = self.ending.latest, True
        else:
            self.snapshot_due = True

    def is_finished(self, now: float, members: Collection[Member]) -> bool:
        """Return whether a peer that runs until certified may leave."""
        if self.settings.until != "certified" or not self.confirmed:
            return False
        return bool(self.ending.finished(now, members, self.settings.linger))

    def status(self, members: Collection[Member]) -> dict[str, Any] | None:
        """Return the adopted certificate as plain values."""
        latest = self.ending.latest
        if latest is None:
            return None
        return {
            "id": self.label, "bound": relative_bound(latest), "time": latest.time,
            "sites": [site.name for site in latest.sites], "rows": sum(site.rows for site in latest.sites),
            "confirmed": sorted(self.ending.confirmed_by(members)), "saved": self.confirmed == self.label,
        }  # fmt: skip

    # Snapshots

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the adopted certificate as arrays and values."""
        latest = self.ending.latest
        if latest is None:
            return {}, {}
        arrays = {name: np.array(getattr(latest, name)) for name in ("model", "bounds", "duals")}
        about = {
            "id": list(_values(latest.id)), "time": latest.time, "scale": latest.scale.hex(), "ticks": latest.ticks,
            "sites": [list(_values(site)) for site in latest.sites],
        }  # fmt: skip
        return arrays, about

    def restore(self, arrays: Mapping[str, Any], about: Mapping[str, Any], now: float) -> None:
        """Adopt the certificate of a snapshot, which is on disk."""
        if not about:
            return
        certified = Certified(
            CertificateId(*about["id"]), about["time"], bytes.fromhex(about["scale"]),
            np.array(arrays["model"]), np.array(arrays["bounds"]), np.array(arrays["duals"]),
            tuple(CoveredSite(*site) for site in about["sites"]), about["ticks"],
        )  # fmt: skip
        self.certification.adopted(certified.id.number)
        if self.ending.adopt(certified, now):
            self.label = label(certified)
            self.export_due = certified, True  # the file may not be there
            self.snapshot_due = True


def relative_bound(certified: Certified) -> float:
    """Return the upper bound of F(model) / F* - 1."""
    below = float(certified.duals.sum())
    return float(certified.bounds.sum()) / below if below > 0 else float("inf")


def document(certified: Certified, study: Study, scale: Scale, is_full: bool) -> ModelDocument:
    """Return the model file of a certificate: the same at all sites."""
    metadata = {
        "certificate": label(certified), "time": certified.time, "ticks": certified.ticks,
        "gap_bound": relative_bound(certified), "bounds": certified.bounds.tolist(), "duals": certified.duals.tolist(),
        "sites": [[site.name, site.incarnation, site.rows] for site in certified.sites],
        "rows": sum(site.rows for site in certified.sites), "study": study.name, "study_digest": study.digest.hex(),
    }  # fmt: skip
    weights = certified.model.reshape(study.outputs, study.width)
    return ModelDocument("certified" if is_full else "partition", weights, scale.divisor, scale.shift, metadata)


def _values(item: CertificateId | CoveredSite) -> tuple[Any, ...]:
    return tuple(getattr(item, name) for name in type(item).__dataclass_fields__)


def _number(text: str) -> int:
    head = text.partition("-")[0]
    return int(head) if head.isdigit() else 0
