"""A small node for tests of the simulated world: greets, beats, and keeps what it was told. Learns nothing."""

import random
from typing import Any

import numpy as np

from gadget_svm.peers.events import (
    Dial,
    Effect,
    Event,
    Finish,
    LinkDown,
    LinkUp,
    Received,
    Save,
    Saved,
    Send,
    SetTimer,
    Started,
    StopRequested,
    TimerFired,
)  # fmt: skip
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.storage.snapshot import Snapshot
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.wire.messages import EdgeState, Heartbeat, Hello
from gadget_svm.study.study import Study


class FakeNode:
    """Says hello on every link and beats once per heartbeat; saves its incarnation before it speaks."""

    def __init__(self, settings: NodeSettings, study: Study, site: Site, rng: random.Random) -> None:
        self.settings, self.study, self.site, self.rng = settings, study, site, rng
        self.incarnation, self.beats, self.live = 0, 0, False
        self.links: dict[int, str] = {}
        self.events: list[tuple[float, Event]] = []
        self.finished = False

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.events.append((now, event))
        if isinstance(event, Started):
            self.incarnation = 1 + (event.snapshot.about["incarnation"] if event.snapshot else 0)
            arrays = {"numbers": np.arange(4.0)}
            return [Save(1, Snapshot(arrays, {"incarnation": self.incarnation}))]
        if isinstance(event, Saved) and not self.live:
            self.live = True
            return [*(Dial(address) for address in self.settings.join), SetTimer(now + self.settings.heartbeat)]
        if isinstance(event, LinkUp):
            self.links[event.link] = event.identity
            hello = Hello(self.settings.name, self.incarnation, self.study.text(), self.study.digest)
            return [Send(event.link, hello)]
        if isinstance(event, LinkDown):
            self.links.pop(event.link, None)
        if isinstance(event, TimerFired):
            self.beats += 1
            beat = Heartbeat(self.beats, self.incarnation, 0, EdgeState.DOWN)
            return [*(Send(link, beat) for link in self.links), SetTimer(now + self.settings.heartbeat)]
        if isinstance(event, StopRequested):
            self.finished = True
            return [Finish(event.reason)]
        return []

    def received(self) -> list[Any]:
        """Return the messages so far."""
        return [event.message for _, event in self.events if isinstance(event, Received)]

    def numbers(self) -> list[int]:
        """Return the numbers of the heartbeats so far."""
        return [message.number for message in self.received() if isinstance(message, Heartbeat)]

    def status(self, now: float) -> dict[str, Any]:
        return {"now": now}

    def model(self) -> None:
        return None
