"""Hostile processes for simulations, with a valid certificate. They speak a node's events.

An `Intruder` has no right to take part: it greets with another study, or not at all, then says that its edges are up
and pushes large vectors. Nothing of it may have an effect on the others. A `HostileNeighbour` is accepted, and pushes
with penalties that no rows propose.
"""

import random
from typing import Any

import numpy as np

from gadget_svm.core.types import Floats
from gadget_svm.peers.events import Dial, Effect, Event, LinkUp, Received, Send, SetTimer, Started, TimerFired
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.wire.messages import (
    CertificateId,
    Certified,
    CoveredSite,
    EdgeState,
    Heartbeat,
    Hello,
    Message,
    Push,
    Statistics,
)  # fmt: skip
from gadget_svm.peers.world.randomness import generator
from gadget_svm.study.study import Study

PERIOD_S = 1.0
INCARNATION = 10**9
IMPLAUSIBLE_PENALTIES = (1e-30, 1e-14, 1e14, 1e30)


class Intruder:
    """Dials everybody in ``settings.join``, and sends what a peer with an accepted hello would send."""

    redials = True  # every period, also who is linked

    def __init__(self, settings: NodeSettings, study: Study, rng: random.Random) -> None:
        self.settings, self.study, self.rng = settings, study, rng
        self.links: dict[int, int] = {}  # the other end's incarnation by link
        self.count = 0
        self.finished = False

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Answer every event with an attempt to be heard."""
        if isinstance(event, LinkUp):
            self.links[event.link] = 0
            return [Send(event.link, Hello(self.settings.name, INCARNATION, self.study.text(), self._digest()))]
        if isinstance(event, Received) and isinstance(event.message, Hello | Heartbeat):
            self.links[event.link] = event.message.incarnation
        if isinstance(event, Started | TimerFired):
            self.count += 1
            sent = [Send(link, each) for link, other in self.links.items() for each in self._messages(other)]
            dials = [Dial(address) for address in self.settings.join if self.redials or not self.links]
            return [*dials, *sent, SetTimer(now + PERIOD_S)]
        return []

    def status(self, now: float) -> dict[str, Any]:
        """Return nothing of interest."""
        return {"now": now}

    def model(self) -> Floats | None:
        """Return nothing: it learns nothing."""
        return None

    def _digest(self) -> bytes:
        return bytes(32) if self.rng.random() < 0.5 else self.study.digest[::-1]

    def _messages(self, incarnation: int) -> list[Message]:
        rng, width = np.random.default_rng(self.rng.getrandbits(32)), self.study.dimension
        vector = 1e3 * rng.normal(size=width)
        site = CoveredSite(self.settings.name, INCARNATION, 1000.0)
        certificate = CertificateId(10**6, self.settings.name, INCARNATION)
        kinds: list[Message] = [
            Heartbeat(self.count, INCARNATION, incarnation, EdgeState.UP),
            Push(INCARNATION, incarnation, self.count, self.count, vector, 1.0, 1.0),
            Statistics(),
            Certified(certificate, 0.0, b"", vector, np.zeros(1), np.ones(1), (site,), 1),
        ]
        return [self.rng.choice(kinds)]


class HostileNeighbour(Intruder):
    """Is accepted, wants an edge to everybody, and pushes with a penalty that is far too small or too large."""

    redials = False

    def _digest(self) -> bytes:
        return self.study.digest

    def _messages(self, incarnation: int) -> list[Message]:
        penalty = self.rng.choice(IMPLAUSIBLE_PENALTIES)
        return [
            Heartbeat(self.count, INCARNATION, incarnation, EdgeState.INIT, chosen=True),
            Push(
                INCARNATION, incarnation, self.count, self.count, np.zeros(self.study.dimension), penalty, penalty,
                bytes(32),
            ),
        ]  # fmt: skip


HOSTILE: dict[str, type[Intruder]] = {"intruder": Intruder, "hostile-neighbour": HostileNeighbour}
"""By the kind of the fault."""


def make_hostile(kind: str, settings: NodeSettings, study: Study, seed: int) -> Intruder:
    """Return a hostile process whose choices follow from the seed."""
    return HOSTILE[kind](settings, study, generator(seed, "intruder", settings.name))
