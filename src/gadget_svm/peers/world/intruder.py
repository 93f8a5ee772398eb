"""A hostile process for simulations: it has a valid certificate, but no right to take part. Speaks a node's events.

It greets with another study, or not at all, then says that its edges are up and pushes large vectors. Nothing of it may
have an effect on the others.
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


class Intruder:
    """Dials everybody in ``settings.join``, and sends what a peer with an accepted hello would send."""

    def __init__(self, settings: NodeSettings, study: Study, rng: random.Random) -> None:
        self.settings, self.study, self.rng = settings, study, rng
        self.links: dict[int, int] = {}  # the other end's incarnation by link
        self.count = 0
        self.finished = False

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Answer every event with an attempt to be heard."""
        if isinstance(event, LinkUp):
            self.links[event.link] = 0
            digest = bytes(32) if self.rng.random() < 0.5 else self.study.digest[::-1]
            return [Send(event.link, Hello(self.settings.name, 10**9, self.study.text(), digest))]
        if isinstance(event, Received) and isinstance(event.message, Hello | Heartbeat):
            self.links[event.link] = event.message.incarnation
        if isinstance(event, Started | TimerFired):
            self.count += 1
            sent = [Send(link, self._message(name)) for link, name in self.links.items()]
            dials = [Dial(address) for address in self.settings.join]
            return [*dials, *sent, SetTimer(now + PERIOD_S)]
        return []

    def status(self, now: float) -> dict[str, Any]:
        """Return nothing of interest."""
        return {"now": now}

    def model(self) -> Floats | None:
        """Return nothing: it learns nothing."""
        return None

    def _message(self, incarnation: int) -> Message:
        rng, width = np.random.default_rng(self.rng.getrandbits(32)), self.study.dimension
        vector = 1e3 * rng.normal(size=width)
        site = CoveredSite(self.settings.name, 10**9, 1000.0)
        kinds: list[Message] = [
            Heartbeat(self.count, 10**9, incarnation, EdgeState.UP),
            Push(10**9, incarnation, self.count, self.count, vector, 1.0, 1.0),
            Statistics(),
            Certified(
                CertificateId(10**6, self.settings.name, 10**9), 0.0, b"", vector, np.zeros(1), np.ones(1), (site,), 1
            ),
        ]
        return self.rng.choice(kinds)


def make_intruder(settings: NodeSettings, study: Study, seed: int) -> Intruder:
    """Return an intruder whose choices follow from the seed."""
    return Intruder(settings, study, generator(seed, "intruder", settings.name))
