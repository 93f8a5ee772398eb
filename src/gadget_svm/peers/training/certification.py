"""One peer's part in certificates: the echo of `algorithms.certificate` as messages, along a tree for each attempt.

Owns which attempt this peer takes part in, what it has heard of its neighbours, and what it asks for again. Computes no
sums, and does not decide when to begin or which certificates count. Time comes in as ``now``.

The sender of the first probe is the parent. A probe goes to all neighbours and names the sender's parent, so that a
peer learns which neighbours are its children. When all neighbours are accounted for, and the sums of all children are
there, it sends the total to its parent. Whoever lacks something asks for it again:

- a probe with the model, to a neighbour that was not heard; who has it already, answers with a probe without the model;
- a probe without the model, to a child whose sums are missing; a child that has sent them sends them again.

Answers cause no messages, so that duplicates die out. A peer joins attempts of growing numbers only, one of each
number, and none while another one is unfinished, unless that one's initiator has begun anew. It sends its total once:
what comes later is not counted. If one site is counted twice, because it restarted meanwhile, the attempt fails.
"""

import json
import struct
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from hashlib import sha256

import numpy as np

from gadget_svm.algorithms.certificate import bound_of
from gadget_svm.core.types import Floats
from gadget_svm.peers.wire.messages import (
    CertificateId,
    CertificateProbe,
    CertificateSums,
    Certified,
    CoveredSite,
    Message,
)

FIRST_REPEAT_S, LONGEST_REPEAT_S = 1.0, 8.0
STALL_TIMEOUT_S = 30.0
"""An attempt without any news for so long has failed."""
ABSENCE_TIMEOUT_S = 10.0
"""A neighbour without an edge for so long is gone; shorter absences are not noticed."""
NO_MODEL = np.empty(0)


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a message to a neighbour. It may be lost."""

    name: str
    message: Message


@dataclass(frozen=True, slots=True, eq=False)
class ComputeSums:
    """Compute this peer's sums for a model, and return them with `Certification.sums_ready`."""

    id: CertificateId
    model: Floats
    scale: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Completed:
    """This peer's attempt has come to an end: a model and its bound."""

    certified: Certified


@dataclass(frozen=True, slots=True)
class Failed:
    """This peer's attempt, or its part in another's, has failed."""

    id: CertificateId
    reason: str


Action = Tell | ComputeSums | Completed | Failed


@dataclass(slots=True)
class _Neighbour:
    """What is known of a neighbour in one attempt."""

    seen_at: float  # when it last had an edge
    parent: str | None = None
    sums: CertificateSums | None = None
    ask_at: float = 0.0
    wait: float = FIRST_REPEAT_S


@dataclass(slots=True)
class _Attempt:
    probe: CertificateProbe  # as this peer sends it
    site: CoveredSite
    news_at: float  # when something new was heard
    ticks: int = 0
    others: dict[str, _Neighbour] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    own: Floats | None = None
    sent: CertificateSums | None = None
    over: bool = False

    @property
    def id(self) -> CertificateId:
        return self.probe.id


class Certification:
    """The certificates of one peer.

    Parameters
    ----------
    me : str
        The name of this peer.
    lam : float
        The regularisation.
    outputs, width : int
        The shape of the model.
    """

    def __init__(self, me: str, lam: float, outputs: int, width: int) -> None:
        self.me, self.lam, self.outputs, self.width = me, lam, outputs, width
        self._highest = 0  # number ever heard of
        self._joined = 0  # highest number that this peer took part in, or adopted
        self._attempt: _Attempt | None = None

    @property
    def busy(self) -> bool:
        """Whether an attempt is under way here."""
        return self._attempt is not None and not self._attempt.over

    def adopted(self, number: int) -> None:
        """A certificate of this number counts: take part in higher numbers only."""
        self._highest, self._joined = max(self._highest, number), max(self._joined, number)
        if self._attempt is not None and self._attempt.id.number <= number:
            self._attempt = None

    def begin(
        self, now: float, wall_time: float, incarnation: int, rows: float, model: Floats, scale: bytes,
        neighbours: Collection[str], ticks: int,
    ) -> list[Action]:  # fmt: skip
        """Begin an attempt to certify a model, unless one is under way."""
        if self.busy:
            return []
        self._highest += 1
        id_ = CertificateId(self._highest, self.me, incarnation)
        probe = CertificateProbe(id_, wall_time, scale, np.array(model, dtype=np.float64).ravel(), self.me)
        return self._join(probe, "", now, neighbours, CoveredSite(self.me, incarnation, rows), ticks)

    def receive(
        self, name: str, message: Message, now: float, neighbours: Collection[str], incarnation: int, rows: float
    ) -> list[Action]:
        """Take a message of a neighbour. ``incarnation`` and ``rows`` are this peer's own."""
        if isinstance(message, CertificateProbe):
            self._highest = max(self._highest, message.id.number)
            if self._attempt is not None and self._attempt.id == message.id:
                return self._probed(self._attempt, name, message, now)
            if len(message.model) != self.outputs * self.width or not self._may_join(message.id, now):
                return []
            return self._join(message, name, now, neighbours, CoveredSite(self.me, incarnation, rows))
        if isinstance(message, CertificateSums):
            attempt = self._attempt
            if attempt is not None and attempt.id == message.id:
                return self._summed(attempt, name, message, now)
        return []

    def sums_ready(self, id: CertificateId, sums: Floats, now: float) -> list[Action]:
        """Take this peer's own sums."""
        attempt = self._attempt
        if attempt is None or attempt.id != id or attempt.over:
            return []
        attempt.own, attempt.news_at = np.array(sums, dtype=np.float64), now
        return self._advance(attempt)

    def tick(self, now: float, neighbours: Collection[str]) -> list[Action]:
        """Ask again for what is missing, and give up what cannot end."""
        attempt = self._attempt
        if attempt is None or attempt.over:
            return []
        if now - attempt.news_at >= STALL_TIMEOUT_S:
            return self._fail(attempt, "no answer for too long")
        if attempt.sent is not None:
            return []
        actions = [self._introduce(attempt, name, now) for name in sorted({*neighbours} - attempt.others.keys())]
        for name in attempt.others.keys() & {*neighbours}:
            attempt.others[name].seen_at = now
        gone = [name for name, other in attempt.others.items() if now - other.seen_at >= ABSENCE_TIMEOUT_S]
        attempt.gone = frozenset(gone)
        for name, other in sorted(attempt.others.items()):
            if name in gone and (name == attempt.probe.parent or (other.parent is not None and self._lacks(other))):
                return self._fail(attempt, f"{name} is gone")
            if name in neighbours and self._lacks(other) and now >= other.ask_at:
                actions.append(Tell(name, attempt.probe if other.parent is None else _without_model(attempt)))
                other.wait = min(2 * other.wait, LONGEST_REPEAT_S)
                other.ask_at = now + other.wait
        return actions + self._advance(attempt)

    def _may_join(self, id: CertificateId, now: float) -> bool:
        old = self._attempt
        free = old is None or not self.busy or now - old.news_at >= STALL_TIMEOUT_S
        anew = old is not None and id.initiator == old.id.initiator != self.me
        return id.number > self._joined and id.initiator != self.me and (free or anew)

    def _join(
        self, probe: CertificateProbe, parent: str, now: float, neighbours: Collection[str], site: CoveredSite,
        ticks: int = 0,
    ) -> list[Action]:  # fmt: skip
        mine = CertificateProbe(probe.id, probe.time, probe.scale, probe.model, parent or self.me)
        attempt = self._attempt = _Attempt(mine, site, now, ticks)
        self._joined = probe.id.number
        actions: list[Action] = [ComputeSums(probe.id, probe.model, probe.scale)]
        if parent:
            attempt.others[parent] = _Neighbour(now, probe.parent)
            actions.append(Tell(parent, _without_model(attempt)))
        return actions + [self._introduce(attempt, name, now) for name in sorted({*neighbours} - {parent})]

    @staticmethod
    def _introduce(attempt: _Attempt, name: str, now: float) -> Action:
        attempt.others[name] = _Neighbour(now, ask_at=now + FIRST_REPEAT_S)
        return Tell(name, attempt.probe)

    def _probed(self, attempt: _Attempt, name: str, probe: CertificateProbe, now: float) -> list[Action]:
        if attempt.over:
            return []
        known = name in attempt.others
        other = attempt.others.setdefault(name, _Neighbour(now))
        actions: list[Action] = []
        if name == attempt.probe.parent and attempt.sent is not None:
            return [Tell(name, attempt.sent)]
        if not known or (len(probe.model) and other.parent is not None):
            actions.append(Tell(name, _without_model(attempt)))
        if other.parent is None or (len(probe.model) and other.sums is None):  # it may have restarted, and joined anew
            attempt.news_at = now if other.parent is None else attempt.news_at
            other.parent = probe.parent
        return actions + self._advance(attempt)

    def _summed(self, attempt: _Attempt, name: str, message: CertificateSums, now: float) -> list[Action]:
        other = attempt.others.get(name)
        if attempt.over or attempt.sent is not None or other is None or other.sums is not None:
            return []
        if other.parent not in (None, self.me) or name == attempt.probe.parent:
            return []
        other.parent, other.sums, attempt.news_at = self.me, message, now
        return self._advance(attempt)

    def _lacks(self, other: _Neighbour) -> bool:
        """Whether something of a neighbour is missing: its parent, or its sums if it is a child."""
        return other.parent is None or (other.parent == self.me and other.sums is None)

    def _advance(self, attempt: _Attempt) -> list[Action]:
        """Send the sums of the subtree, or complete the attempt. Waits for everyone who is not gone."""
        missing = any(self._lacks(other) for name, other in attempt.others.items() if name not in attempt.gone)
        if attempt.own is None or attempt.sent is not None or missing:
            return []
        parts = [other.sums for _, other in sorted(attempt.others.items()) if other.sums is not None]
        sites = sorted([attempt.site, *(site for part in parts for site in part.sites)])
        if len({site.name for site in sites}) < len(sites):
            return self._fail(attempt, "a site was counted twice")
        if any(len(part.sums) != len(attempt.own) for part in parts):
            return self._fail(attempt, "sums of another length")
        total = np.sum([attempt.own, *(part.sums for part in parts)], axis=0)
        attempt.sent = CertificateSums(attempt.id, total, tuple(sites))
        if attempt.probe.parent != self.me:
            return [Tell(attempt.probe.parent, attempt.sent)]
        return self._complete(attempt, total, tuple(sites))

    def _complete(self, attempt: _Attempt, total: Floats, sites: tuple[CoveredSite, ...]) -> list[Action]:
        probe = attempt.probe
        bounds, duals, _ = bound_of(probe.model, total, self.lam, self.outputs, self.width)
        if not (np.isfinite(bounds).all() and np.isfinite(duals).all()):
            return self._fail(attempt, "the model or the dual variables are not finite")
        attempt.over = True
        certified = Certified(
            probe.id, probe.time, probe.scale, probe.model, bounds.copy(), duals.copy(), sites, attempt.ticks
        )  # fmt: skip
        return [Completed(certified)]

    @staticmethod
    def _fail(attempt: _Attempt, reason: str) -> list[Action]:
        attempt.over = True
        return [Failed(attempt.id, reason)]


def label(certified: Certified) -> str:
    """Return a short text that is the same only for the same certificate: its number and a digest of its content."""
    head = {
        "id": asdict(certified.id), "time": certified.time, "scale": certified.scale.hex(),
        "sites": [asdict(site) for site in certified.sites], "ticks": certified.ticks,
    }  # fmt: skip
    digest = sha256(json.dumps(head, sort_keys=True).encode())
    for array in (certified.model, certified.bounds, certified.duals):
        content = np.ascontiguousarray(array, dtype="<f8").tobytes()
        digest.update(struct.pack("<Q", len(content)) + content)
    return f"{certified.id.number}-{digest.hexdigest()[:8]}"


def number_of(text: str) -> int:
    """Return the number in a label; 0 for an empty one."""
    head = text.partition("-")[0]
    return int(head) if head.isdecimal() else 0


def _without_model(attempt: _Attempt) -> CertificateProbe:
    probe = attempt.probe
    return CertificateProbe(probe.id, probe.time, probe.scale, NO_MODEL, probe.parent)
