"""What must hold in every simulated history, and what must be reached after the faults have stopped.

Owns both lists. Sees everything that machines do, and changes nothing. A failure is an `InvariantError`, which ends the
run; its text says what was expected.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gadget_svm.peers.events import (
    Effect,
    Event,
    Export,
    LinkUp,
    Received,
    Report,
    RunStep,
    Send,
    StepDone,
    StepFailed,
    TimerFired,
)  # fmt: skip
from gadget_svm.peers.storage.snapshot import ModelDocument, Snapshot
from gadget_svm.peers.training.scale import Scale
from gadget_svm.peers.wire.messages import Certified, Heartbeat, Hello, Leave, Push
from gadget_svm.peers.world.edge_epochs import EdgeEpochs
from gadget_svm.peers.world.learner_inputs import LearnerInputs
from gadget_svm.peers.world.machine import Machine
from gadget_svm.peers.world.shards import Optima
from gadget_svm.study.study import Study

MAX_TIMERS_AT_ONCE = 200
"""More timers than this at one time mean that a node is in an endless loop."""
ROUNDING = 1e-6
Say = Callable[[str, str], None]


class InvariantError(AssertionError):
    """A history in which something is wrong."""


@dataclass
class Invariants:
    """The observer of a run. ``members`` are the peers whose rows may count; others must not have any effect."""

    study: Study
    optima: Optima
    members: Collection[str]
    strangers: Collection[str]  # machines of which nothing may count in the end
    refused: Collection[str]  # of those, the ones that never get an edge
    say: Say | None = None
    certificates: dict[str, str] = field(default_factory=dict)  # digests of certified models by certificate
    _incarnations: dict[str, tuple[int, int]] = field(default_factory=dict)  # life and incarnation by name
    _timers: dict[str, tuple[float, int]] = field(default_factory=dict)
    _inputs: dict[str, LearnerInputs] = field(default_factory=dict)
    _epochs: dict[str, EdgeEpochs] = field(default_factory=dict)
    released: dict[str, int] = field(default_factory=dict)  # noisy slopes of all lives, by name
    _counted: dict[str, tuple[Any, int]] = field(default_factory=dict)  # learner and what it had released, by name
    _scales: dict[bytes, Scale] = field(default_factory=dict)  # by digest
    _confirmed: dict[str, str] = field(default_factory=dict)  # certificates by name
    _seen: dict[Any, str] = field(default_factory=dict)

    # What machines do

    def started(self, machine: Machine, snapshot: Snapshot | None) -> None:
        """Note a start."""
        self._inputs[machine.name] = LearnerInputs(machine.name, self.refused)
        self._inputs[machine.name].restored(snapshot)
        self._epochs[machine.name] = EdgeEpochs(snapshot, per_edge=self.study.algorithm == "pdmm")
        if self.say:
            self.say(machine.name, f"starts {'with a snapshot' if snapshot else 'from scratch'}")

    def ended(self, machine: Machine, reason: str) -> None:
        """Note an end."""
        if self.say:
            self.say(machine.name, reason)

    def without_timer(self, machine: Machine, event: Event) -> None:
        """Fail: the node would wait for ever."""
        raise InvariantError(f"{machine.name} waits for nothing after {type(event).__name__}: it set no timer")

    def handled(self, machine: Machine, event: Event, effects: Sequence[Effect]) -> None:
        """Check an event and its effects."""
        if self.say:
            self.say(machine.name, f"{short(event)} -> {', '.join(map(short, effects)) or 'nothing'}")
        if type(event) is TimerFired:
            self._check_timer(machine)
        elif type(event) is LinkUp:
            self._inputs[machine.name].identities[event.link] = event.identity
        elif type(event) is Received:
            self._note_arrival(machine, event)
        elif type(event) is StepDone:
            self._note_step(machine)
        elif type(event) is StepFailed:
            self._epochs[machine.name] = EdgeEpochs(None, self.study.algorithm == "pdmm")
        for effect in effects:
            if type(effect) is Send:
                self._check_message(machine, effect)
            elif type(effect) is RunStep:
                if wrong := self._inputs[machine.name].step(effect):
                    raise InvariantError(wrong)
                self._epochs[machine.name].runs(effect)
            elif type(effect) is Export and machine.name not in self.strangers:
                self._check_export(machine, effect.model)

    def _note_step(self, machine: Machine) -> None:
        if wrong := self._epochs[machine.name].done():
            raise InvariantError(f"the learner of {machine.name} {wrong}")
        session = getattr(machine.node, "session", None)
        if session is not None and session.scale is not None:
            self._scales[session.scale_digest] = session.scale

        if self.study.is_private and machine.name not in self.strangers:
            self._check_ledger(machine, getattr(session, "_trainer", None))

    def _check_ledger(self, machine: Machine, trainer: Any) -> None:
        """What is recorded as spent is never below what was released, in all lives together."""
        if trainer is None:
            return
        learner, before = self._counted.get(machine.name, (None, 0))
        now = trainer.learner.released
        new = now - (before if learner is trainer.learner else 0)
        self._counted[machine.name] = trainer.learner, now
        released = self.released[machine.name] = self.released.get(machine.name, 0) + new
        ledger = machine.disk.restore_ledger()
        recorded = 0 if ledger is None else ledger.rounds(self.study.digest.hex())
        if released > recorded:
            raise InvariantError(f"{machine.name} has released {released} noisy slopes, and recorded {recorded}")
        if recorded > (self.study.rounds or 0):
            raise InvariantError(f"{machine.name} has recorded {recorded} rounds of {self.study.rounds}")

    def _check_timer(self, machine: Machine) -> None:
        now = machine.queue.now
        since, count = self._timers.get(machine.name, (now, 0))
        count = count + 1 if now - since < 1e-3 else 0
        self._timers[machine.name] = (since if count else now), count
        if count > MAX_TIMERS_AT_ONCE:
            raise InvariantError(f"{machine.name} sets timers for the time at which they fire, without end")

    def _note_arrival(self, machine: Machine, event: Received) -> None:
        inputs, message = self._inputs[machine.name], event.message
        sender = inputs.identities[event.link]
        if machine.refuses(sender) and event.link in machine.network.ends[machine.name]:
            raise InvariantError(f"{machine.name} hears {sender}, whose certificate is revoked")
        if isinstance(message, Push):
            inputs.push(sender, message)
        elif isinstance(message, Heartbeat):
            inputs.heartbeat(sender, message)

    def _check_message(self, machine: Machine, send: Send) -> None:
        message = send.message
        kind = type(message)
        if machine.name in self.strangers:
            return
        if kind is Certified:
            self._check_certified(machine, message)  # type: ignore[arg-type]
        elif kind is Hello or kind is Heartbeat or kind is Push or kind is Leave:
            self._check_incarnation(machine, message.incarnation)  # type: ignore[union-attr]
            if kind is Heartbeat:
                self._check_confirmed(machine, message)  # type: ignore[arg-type]
            elif kind is Push and not np.isfinite(message.vector).all():  # type: ignore[union-attr]
                raise InvariantError(f"{machine.name} pushes numbers that are not finite")

    def _check_incarnation(self, machine: Machine, incarnation: int) -> None:
        life, known = self._incarnations.get(machine.name, (0, -1))
        if incarnation < known or (incarnation == known and machine.life != life):
            raise InvariantError(
                f"{machine.name} speaks as incarnation {incarnation}, after {known} in life {life} (now {machine.life})"
            )
        if machine.life != life or incarnation != known:
            stored = machine.disk.stored()
            if stored is None or stored.about.get("incarnation", 0) < incarnation:
                raise InvariantError(f"{machine.name} speaks as incarnation {incarnation} before that is on its disk")
        self._incarnations[machine.name] = machine.life, incarnation
        self._inputs[machine.name].incarnation = incarnation

    def _check_confirmed(self, machine: Machine, beat: Heartbeat) -> None:
        """What a peer says it has certified is synced at its site, and never replaced by an earlier one."""
        line = beat.members[0] if beat.members else None
        if line is None or line.name != machine.identity or not line.certified:
            return
        stored = machine.disk.models.get("model")
        if stored is None or not stored.metadata.get("certificate"):
            raise InvariantError(
                f"{machine.name} confirms certificate {line.certified}, and has no certified model on its disk"
            )
        before = self._confirmed.get(machine.name, line.certified)
        if before != line.certified and _number(line.certified) <= _number(before):
            raise InvariantError(f"{machine.name} confirms certificate {line.certified} after {before}")
        self._confirmed[machine.name] = line.certified

    # Certificates

    def _check_certified(self, machine: Machine, message: Certified) -> None:
        found = digest(message.model, message.bounds, message.duals, message.sites, message.time, message.ticks)
        if self._seen.setdefault(("sent", message.id), found) != found:
            raise InvariantError(f"{machine.name} sends another certificate {message.id} than others did")
        if ("checked", found) in self._seen:
            return
        self._seen["checked", found] = ""
        names = [site.name for site in message.sites]
        if strange := set(names).difference(self.members):
            raise InvariantError(f"certificate {message.id} covers {sorted(strange)}, which are refused")
        if len(set(names)) < len(names):
            raise InvariantError(f"certificate {message.id} counts a site twice: {names}")
        for site in message.sites:
            if site.rows != len(self.optima.shards[site.name].label):
                raise InvariantError(f"certificate {message.id} counts {site.rows} rows of {site.name}")
        if self.study.is_private:
            return
        if (scale := self._scales.get(message.scale)) is None:
            raise InvariantError(f"certificate {message.id} is of a scale that nobody learned with")
        self._check_bound(str(message.id), message.model, float(message.bounds.sum()), names, scale)

    def _check_bound(
        self, name: str, model: Any, bound: float, names: Collection[str], scale: Scale | None = None
    ) -> None:
        least, found = self.optima.least(names, scale), self.optima.objective(model, names, scale)
        if found - least > bound + ROUNDING * least:
            raise InvariantError(
                f"certificate {name} says at most {bound:.3g} above the optimum of {sorted(names)}, it is "
                f"{found - least:.3g} above"
            )

    def _check_export(self, machine: Machine, model: ModelDocument) -> None:
        stored = machine.disk.models.get("model")
        if model.kind == "current" and stored is not None and stored.kind == "certified":
            raise InvariantError(f"{machine.name} replaces a certified model by one without a certificate")
        if model.kind != "certified":
            return
        name, found = model.metadata["certificate"], document_digest(model)
        sites, least = {site[0] for site in model.metadata["sites"]}, set(self.study.sites)
        if not least <= sites or len(sites) < self.study.min_sites:
            raise InvariantError(f"{machine.name} takes certificate {name} of {len(sites)} sites for a full one")
        if not self.study.is_private and model.metadata["gap_bound"] > self.study.gap:
            raise InvariantError(
                f"{machine.name} takes certificate {name} with bound {model.metadata['gap_bound']:.2%}"
            )
        if self.certificates.setdefault(name, found) != found:
            raise InvariantError(f"the model of certificate {name} is another one at {machine.name}")


def scale_of(node: Any) -> Scale | None:
    """Return the scale with which a node learns; None if it has none."""
    session = getattr(node, "session", None)
    return None if session is None else session.scale


def _number(certificate: str) -> int:
    return int(certificate.partition("-")[0])


def document_digest(model: ModelDocument) -> str:
    """Return a digest of everything in a model file."""
    about = sorted((key, repr(value)) for key, value in model.metadata.items())
    return digest(model.weights, model.divisor, model.shift, model.kind, about)


def digest(*parts: Any) -> str:
    """Return a digest of arrays and plain values."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return found.hexdigest()


def short(item: Any) -> str:
    """Return an event, effect or message for a trace: without vectors and members."""
    name = type(item).__name__
    if isinstance(item, Send | Received):
        return f"{name}({item.link}, {short(item.message)})"
    if isinstance(item, Report):
        return f"{item.level}: {item.text} {dict(item.fields) or ''}".rstrip()
    parts = []
    for key in getattr(type(item), "__dataclass_fields__", ()):
        value = getattr(item, key)
        if isinstance(value, str | int | float | bool):
            parts.append(f"{key}={value:.6g}" if isinstance(value, float) else f"{key}={str(value)[:60]}")
    return f"{name}({', '.join(parts)})"
