"""The study: ticks of the learner, on the peer's own clock and in a thread of its own.

Owns the order within a tick: take what came, solve, look at what would be sent, absorb, measure, send. Whoever else
wants to see or change the learner does so between two ticks.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gadget_svm.peers import vault
from gadget_svm.peers.discretion import Discretion
from gadget_svm.peers.learner import Learner, Measures, Parcel
from gadget_svm.peers.logs import fields
from gadget_svm.peers.overlay import node_id
from gadget_svm.peers.scaling import divided

if TYPE_CHECKING:
    from gadget_svm.peers.peer import Peer

log = logging.getLogger(__name__)
Floats = NDArray[np.float64]

REFRESH = 64
"""Ticks after which w is worked out anew."""


class Study:
    """That of one peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.between_ticks = asyncio.Lock()
        self.ticked = time.monotonic()
        self.rescaled = False  # whether the sites have settled on a scale since the last tick
        self.measures: Measures | None = None
        self.test_accuracy: float | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="learner")

    def close(self) -> None:
        """Wait for the tick under way; there is no other."""
        self._worker.shutdown()

    def begin(self) -> None:
        """Learn from the beginning, if there is a scale."""
        peer = self.peer
        if peer.scaling.scale is None:
            return
        X = peer.site.X if peer.scaling.kind == "none" else divided(peer.site.X, peer.scaling.scale)
        peer.learner = Learner(X, peer.site.label, peer.charter, node_id(peer.name), seed=peer.config.learn.seed)
        peer.discretion = Discretion(peer.learner.X, peer.charter.outputs)
        peer.mailbox.restart()
        peer.legacies.restart()
        peer.relink = True

    async def go_on(self) -> None:
        """Ticks, no faster than the pace; everything that changes the learner happens between two of them."""
        peer, loop, pace = self.peer, asyncio.get_running_loop(), self.peer.config.pace
        measure_at = -math.inf
        while True:
            start = time.monotonic()
            if self.rescaled:
                self.rescaled = False
                log.info(
                    "the sites have settled on a scale: learning begins", extra=fields(sites=len(peer.scaling.entries))
                )
                async with self.between_ticks:
                    await loop.run_in_executor(self._worker, self.begin)
            if peer.learner is not None and not self._waits(start):
                async with self.between_ticks:
                    await peer.tend_links()
                    parcels, open_to = peer.drain(), self._open(start)
                    outgoing = await loop.run_in_executor(self._worker, self._tick, parcels, open_to)
                    peer.taken_in()
                    if start >= measure_at:
                        await loop.run_in_executor(self._worker, self._measure)
                        measure_at = start + min(1.0, pace.heartbeat)
                for parcel, target in outgoing:
                    peer.send(target, parcel)
                    peer.mailbox.turns.wrote(target, start)
                self.ticked = time.monotonic()
                peer.metrics.ticks.inc()
                if pace.stop_after_ticks is not None and peer.ticks >= pace.stop_after_ticks:
                    peer.stop("done")
            await asyncio.sleep(max(0.0, start + pace.tick - time.monotonic()))

    def _open(self, now: float) -> list[str] | None:
        """Neighbours whose turn it is to get a letter; None if there is nobody to wait for."""
        peer = self.peer
        if peer.charter.algorithm != "gadget" or not peer.contacts:
            return None
        return peer.mailbox.turns.open(peer.contacts, now, peer.config.pace.heartbeat)

    def _waits(self, now: float) -> bool:
        """Whether a tick would be in vain: no letter could follow it (see `turns`)."""
        return self._open(now) == [] and not self.peer.links_due

    def _tick(self, parcels: list[Parcel], open_to: list[str] | None) -> list[tuple[Parcel, str]]:
        """In the worker: solve, look at what would be sent, absorb. Gives what may be sent, and to whom."""
        peer = self.peer
        learner, discretion = peer.learner, peer.discretion
        assert learner is not None
        assert discretion is not None
        names = {node_id(name): name for name in peer.contacts}
        if learner.t % REFRESH == REFRESH - 1:
            learner.refresh()
        learner.draw_from(None if open_to is None else set(map(node_id, open_to)))
        outgoing = [
            (parcel._replace(vector=vector), names[parcel.other])
            for parcel in learner.solve()
            if parcel.other in names
            and (vector := discretion.released(parcel.other, parcel.vector, learner.duals)) is not None
        ]
        learner.absorb(parcels)
        learner.weigh_recent()
        if learner.finite():
            peer.absorbed = parcels
        else:
            self._recover()
        return outgoing

    def _recover(self) -> None:
        """Weights that are no numbers any more: back to the last that were."""
        peer = self.peer
        log.error("the weights are not finite: going back to the last checkpoint")
        assert peer.learner is not None
        numbered, sent = peer.learner.block.exchanges, peer.discretion
        memory = vault.recall(peer.config.peer.state, peer.charter, peer.fingerprint)
        self.begin()
        if memory is not None and memory.learner is not None:
            peer.learner.restore(memory.arrays, memory.learner)
            peer.legacies.restart(memory.kept)
        for name in list(peer.mailbox.heard):
            peer.mailbox.begun_anew(name)  # maybe it did, since then
        peer.learner.block.exchanges = numbered  # to the others the next letter is newer than the last
        peer.discretion = sent

    def _measure(self) -> None:
        peer, learner = self.peer, self.peer.learner
        assert learner is not None
        self.measures = learner.measure([model for _, model in self.glimpses()])
        if peer.site.X_test is not None and peer.scaling.scale is not None:
            self.test_accuracy = learner.accuracy(divided(peer.site.X_test, peer.scaling.scale), peer.site.label_test)

    def glimpses(self) -> list[tuple[str, Floats]]:
        """About what the neighbours' weights are, as far as their letters tell."""
        peer = self.peer
        learner, discretion = peer.learner, peer.discretion
        if learner is None or discretion is None:
            return []
        found = []
        for name in list(peer.contacts):
            heard = peer.mailbox.heard.get(name)
            if heard is not None and heard.last is not None:
                model = learner.glimpse(heard.last, heard.previous, discretion.sent(node_id(name)))
                if model is not None:
                    found.append((name, model))
        return found
