"""One peer's part in certificates: the echo of `algorithms.certificate` as messages, along a tree for each attempt.

Owns which attempt this peer takes part in, what it has heard of its neighbours, and what it asks for again. Computes no
sums, and does not decide when to begin or which certificates count. Time comes in as ``now``.

The sender of the first probe is the parent. A probe goes to all neighbours and names the sender's parent, so that a
peer learns which neighbours are its children. When all neighbours are accounted for, and the sums of all children are
there, it sends the total to its parent. Whoever lacks something asks for it again:

- a probe with the model, to a neighbour that was not heard; who has it already, answers with a probe without the model;
- a probe without the model, to a child whose sums are missing; a child that has sent them sends them again, another one
  sends a probe without the model: it is still at work.

Answers cause no messages, so that a duplicate causes no further ones. A peer joins attempts of growing numbers only,
one of each number, and none while another one is unfinished, unless that one's initiator has begun anew. It sends its
total once: what comes later is not counted. If one site is counted twice, because it restarted meanwhile, the attempt
fails. A probe whose number is too low is answered by one without a model, with the number to exceed: its initiator
tries again. A peer that gives up tells its parent so in the same way.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from gadget_svm.algorithms.certificate import bound_of
from gadget_svm.core.types import Floats
from gadget_svm.peers.wire import messages as m

FIRST_REPEAT_S, LONGEST_REPEAT_S = 1.0, 8.0
REPEAT_RATE = 50_000
"""Repeats to one neighbour soon wait as long as this many bytes per second take: those of a small model stay frequent,
so that half of all messages may be lost."""
STALL_TIMEOUT_S = 30.0
"""An attempt without any news for so long has failed."""
ABSENCE_TIMEOUT_S = 10.0
"""A neighbour without an edge for so long is gone; shorter absences are not noticed."""


class Tell(NamedTuple):
    """Send a message to a neighbour. It may be lost."""

    name: str
    message: m.Message


class ComputeSums(NamedTuple):
    """Compute this peer's sums for a model, and return them with `CertificateEcho.sums_ready`."""

    id: m.CertificateId
    model: Floats
    scale: bytes


class Failed(NamedTuple):
    """This peer's attempt, or its part in another's, has failed."""

    reason: str


Action = Tell | ComputeSums | m.Certified | Failed
"""What to do; `Certified` is the result of this peer's own attempt."""


@dataclass(slots=True)
class _Neighbour:
    """What is known of a neighbour in one attempt."""

    seen_at: float  # when it last had an edge
    parent: str | None = None
    sums: m.CertificateSums | None = None
    ask_at: float = 0.0
    wait: float = FIRST_REPEAT_S


@dataclass(slots=True)
class _Attempt:
    probe: m.CertificateProbe  # as this peer sends it
    site: m.CoveredSite
    news_at: float  # when something new was heard
    ticks: int = 0
    others: dict[str, _Neighbour] = field(default_factory=dict)
    own: Floats | None = None
    sent: m.CertificateSums | None = None

    @property
    def short_probe(self) -> m.CertificateProbe:
        """The probe without the model."""
        return replace(self.probe, model=np.empty(0))


class CertificateEcho:
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
        self._longest_wait = min(max(8 * outputs * width / REPEAT_RATE, FIRST_REPEAT_S), LONGEST_REPEAT_S)
        self._highest = 0  # number ever heard of
        self._joined = 0  # highest number that this peer took part in, or adopted
        self._attempt: _Attempt | None = None  # under way

    @property
    def busy(self) -> bool:
        """Whether an attempt is under way here."""
        return self._attempt is not None

    def adopted(self, number: int) -> None:
        """A certificate of this number counts: take part in higher numbers only."""
        self._highest, self._joined = max(self._highest, number), max(self._joined, number)
        if self._attempt is not None and self._attempt.probe.id.number <= number:
            self._attempt = None

    def begin(
        self, now: float, wall_time: float, incarnation: int, rows: float, model: Floats, scale: bytes,
        neighbours: Collection[str], ticks: int,
    ) -> list[Action]:  # fmt: skip
        """Begin an attempt to certify a model, unless one is under way."""
        if self.busy:
            return []
        self._highest += 1
        id_ = m.CertificateId(self._highest, self.me, incarnation)
        probe = m.CertificateProbe(id_, wall_time, scale, np.array(model, dtype=np.float64).ravel(), self.me)
        return self._join(_Attempt(probe, m.CoveredSite(self.me, incarnation, rows), now, ticks), neighbours)

    def receive(
        self, name: str, message: m.Message, now: float, neighbours: Collection[str], incarnation: int, rows: float
    ) -> list[Action]:
        """Take a message of a neighbour. ``incarnation`` and ``rows`` are this peer's own."""
        attempt = self._attempt
        if isinstance(message, m.CertificateSums) and attempt is not None and attempt.probe.id == message.id:
            return self._summed(attempt, name, message, now)
        if not isinstance(message, m.CertificateProbe):
            return []
        self._highest = max(self._highest, message.id.number)
        if attempt is not None and attempt.probe.id == message.id:
            return self._probed(attempt, name, message, now)
        if attempt is not None and not len(message.model) and message.id.number >= attempt.probe.id.number:
            return self._outnumbered(name, message)
        if len(message.model) != self.outputs * self.width:
            return []
        if message.id.number <= self._joined:  # its initiator does not know how high the numbers are
            id_ = m.CertificateId(self._joined, self.me, incarnation)
            return [Tell(name, replace(message, id=id_, model=np.empty(0), parent=self.me))]
        if not self._may_join(message.id, now):
            return []
        joined = _Attempt(replace(message, parent=name), m.CoveredSite(self.me, incarnation, rows), now)
        joined.others[name] = _Neighbour(now, message.parent)
        return [*self._join(joined, neighbours), Tell(name, joined.short_probe)]

    def sums_ready(self, id: m.CertificateId, sums: Floats, now: float) -> list[Action]:
        """Take this peer's own sums."""
        attempt = self._attempt
        if attempt is None or attempt.probe.id != id:
            return []
        attempt.own, attempt.news_at = np.array(sums, dtype=np.float64), now
        return self._advance(attempt, now)

    def tick(self, now: float, neighbours: Collection[str]) -> list[Action]:
        """Ask again for what is missing, and give up what cannot end."""
        attempt = self._attempt
        if attempt is None:
            return []
        is_stalled = now - attempt.news_at >= STALL_TIMEOUT_S
        if attempt.sent is not None:  # kept for a while, for a parent that asks again
            self._attempt = None if is_stalled else attempt
            return []
        if is_stalled:
            return self._fail("no answer for too long")
        actions = self._introduce(attempt, neighbours, now)
        for name, other in sorted(attempt.others.items()):
            if name in neighbours:
                other.seen_at = now
                if self._lacks(other) and now >= other.ask_at:
                    actions.append(Tell(name, attempt.probe if other.parent is None else attempt.short_probe))
                    other.wait = min(2 * other.wait, self._longest_wait)
                    other.ask_at = now + other.wait
            elif _is_gone(other, now) and (
                name == attempt.probe.parent or (other.parent is not None and self._lacks(other))
            ):
                return self._fail(f"{name} is gone")
        return actions + self._advance(attempt, now)

    def _outnumbered(self, name: str, notice: m.CertificateProbe) -> list[Action]:
        """Give up an attempt that a neighbour takes no part in, and tell its initiator the number to exceed."""
        reason = f"{name} takes no part: it knows attempt {notice.id.number} of {notice.id.initiator}"
        return self._fail(reason, notice.id)

    def _may_join(self, id: m.CertificateId, now: float) -> bool:
        old = self._attempt
        is_free = old is None or now - old.news_at >= STALL_TIMEOUT_S or id.initiator == old.probe.id.initiator
        return id.number > self._joined and id.initiator != self.me and is_free

    def _join(self, attempt: _Attempt, neighbours: Collection[str]) -> list[Action]:
        self._attempt, probe = attempt, attempt.probe
        self._joined = probe.id.number
        compute = ComputeSums(probe.id, probe.model, probe.scale)
        return [compute, *self._introduce(attempt, neighbours, attempt.news_at)]

    @staticmethod
    def _introduce(attempt: _Attempt, neighbours: Collection[str], now: float) -> list[Action]:
        """Send the model to neighbours that are new in this attempt."""
        new = sorted({*neighbours} - attempt.others.keys())
        attempt.others.update({name: _Neighbour(now, ask_at=now + FIRST_REPEAT_S) for name in new})
        return [Tell(name, attempt.probe) for name in new]

    def _probed(self, attempt: _Attempt, name: str, probe: m.CertificateProbe, now: float) -> list[Action]:
        is_parent = name == attempt.probe.parent
        if is_parent and attempt.sent is not None:
            attempt.news_at = now  # the attempt goes on: keep the sums
            return [Tell(name, attempt.sent)]
        actions: list[Action] = []
        other = attempt.others.get(name)
        asks = len(probe.model) > 0 or (is_parent and probe.parent != self.me)  # not if it answers, as its child
        if other is None or (asks and other.parent is not None):
            actions.append(Tell(name, attempt.short_probe))
        other = attempt.others.setdefault(name, _Neighbour(now))
        if self._lacks(other):
            attempt.news_at = now  # it is still at work
        if other.parent is None or (len(probe.model) and other.sums is None):  # it may have restarted, and joined anew
            other.parent = probe.parent
        return actions + self._advance(attempt, now)

    def _summed(self, attempt: _Attempt, name: str, message: m.CertificateSums, now: float) -> list[Action]:
        other = attempt.others.get(name)
        if attempt.sent is not None or other is None or other.sums is not None:
            return []
        if other.parent not in (None, self.me) or name == attempt.probe.parent:
            return []
        other.parent, other.sums, attempt.news_at = self.me, message, now
        return self._advance(attempt, now)

    def _lacks(self, other: _Neighbour) -> bool:
        """Whether something of a neighbour is missing: its parent, or its sums if it is a child."""
        return other.parent is None or (other.parent == self.me and other.sums is None)

    def _advance(self, attempt: _Attempt, now: float) -> list[Action]:
        """Send the sums of the subtree, or complete the attempt. Waits for all children, and for who is not gone."""
        lacking = [other for other in attempt.others.values() if self._lacks(other)]
        is_missing = any(other.parent is not None or not _is_gone(other, now) for other in lacking)
        if attempt.own is None or attempt.sent is not None or is_missing:
            return []
        parts = [other.sums for _, other in sorted(attempt.others.items()) if other.sums is not None]
        sites = tuple(sorted([attempt.site, *(site for part in parts for site in part.sites)]))
        if len({site.name for site in sites}) < len(sites):
            return self._fail("a site was counted twice")
        if any(len(part.sums) != len(attempt.own) for part in parts):
            return self._fail("sums of another length")
        probe, total = attempt.probe, np.sum([attempt.own, *(part.sums for part in parts)], axis=0)
        attempt.sent = m.CertificateSums(probe.id, total, sites)
        if probe.parent != self.me:
            return [Tell(probe.parent, attempt.sent)]
        if len(total):
            bounds, duals, _ = bound_of(probe.model, total, self.lam, self.outputs, self.width)
        else:  # sites agree on a model, and prove nothing about it
            bounds = duals = total
        if not (np.isfinite(bounds).all() and np.isfinite(duals).all()):
            return self._fail("the model or the dual variables are not finite")
        self._attempt = None
        bounds, duals = bounds.copy(), duals.copy()
        return [m.Certified(probe.id, probe.time, probe.scale, probe.model, bounds, duals, sites, attempt.ticks)]

    def _fail(self, reason: str, known: m.CertificateId | None = None) -> list[Action]:
        """Give up the attempt under way, and tell the parent so. ``known``: the number to exceed, and whose it is."""
        assert self._attempt is not None
        probe, self._attempt = self._attempt.short_probe, None
        if probe.parent == self.me:
            return [Failed(reason)]
        notice = replace(probe, id=known or replace(probe.id, initiator=self.me), parent=self.me)
        return [Tell(probe.parent, notice), Failed(reason)]


def _is_gone(other: _Neighbour, now: float) -> bool:
    return now - other.seen_at >= ABSENCE_TIMEOUT_S


def label(certified: m.Certified) -> str:
    """Return a short text that is the same only for the same certificate: its number and a digest of its content."""
    content = asdict(certified) | {"scale": certified.scale.hex()}
    text = json.dumps(content, sort_keys=True, default=lambda array: np.asarray(array, dtype="<f8").tobytes().hex())
    return f"{certified.id.number}-{sha256(text.encode()).hexdigest()[:8]}"


def number_of(text: str) -> int:
    """Return the number in a label; 0 for an empty one."""
    head = text.partition("-")[0]
    return int(head) if head.isdecimal() else 0
