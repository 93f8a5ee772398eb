"""The study: ticks of the learner, on the peer's own clock and in a thread of its own.

Owns the order within a tick: take what came, solve, look at what would be sent, absorb, measure, send. Whoever else
wants to see or change the learner does so between two ticks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.peers import checkpoint, vault
from gadget_svm.peers.discretion import Discretion
from gadget_svm.peers.learner import Learner, Measures, Parcel
from gadget_svm.peers.logs import fields
from gadget_svm.peers.messages import Statistics
from gadget_svm.peers.overlay import node_id
from gadget_svm.peers.scale import Scale, ScalingError
from gadget_svm.peers.scaling import Scaling

if TYPE_CHECKING:
    from gadget_svm.peers.legacies import Legacy
    from gadget_svm.peers.peer import Peer

log = logging.getLogger(__name__)
Floats = NDArray[np.float64]

REFRESH = 64
"""Ticks after which w is worked out anew."""
MOST_HEARD = 8
"""Peers of whom statistics may wait for the end of a tick."""
ALONE = 2.0
"""Seconds that one who has lost its last neighbour takes for the problem of its own rows before anybody looks."""


class Study:
    """That of one peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.between_ticks = asyncio.Lock()
        self.ticked = time.monotonic()
        self._test: tuple[Scale, sp.csr_matrix] | None = None  # test rows, and how they were scaled
        self._mute: list[str] = []  # neighbours to whom nothing may be sent
        self._statistics: dict[str, Statistics] = {}  # heard since the last tick, by who told them
        self.measures: Measures | None = None
        self.test_accuracy: float | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="learner")

    def close(self) -> None:
        """Wait for the tick under way; there is no other. What it should have done first is done now."""
        self._worker.shutdown()
        if self.peer.learner is not None:
            self._settle(self.peer.learner)

    def begin(self) -> None:
        """Learn from the beginning, if there is a scale."""
        if self.peer.scaling.scale is not None:
            self._enter(*self._beginner(self.peer.scaling))

    def _beginner(self, scaling: Scaling) -> tuple[Learner, Discretion]:
        """One who has learned nothing yet, and what looks at its letters. Changes nothing, so that a thread may."""
        peer = self.peer
        assert scaling.scale is not None
        X = peer.site.X if scaling.kind == "none" else scaling.scale.apply(peer.site.X)
        learner = Learner(X, peer.site.label, peer.charter, node_id(peer.name), seed=peer.config.learn.seed)
        return learner, Discretion(learner.X, peer.charter.outputs)

    def _enter(self, learner: Learner, discretion: Discretion, kept: Mapping[str, Legacy] | None = None) -> None:
        """This one learns from here on. For the loop alone: letters are answered out of what changes here."""
        peer = self.peer
        peer.learner, peer.discretion = learner, discretion
        peer.mailbox.restart()
        peer.legacies.restart(kept)
        peer.set_neighbours = True

    async def go_on(self) -> None:
        """Ticks, no faster than the pace; everything that changes the learner happens between two of them."""
        peer, loop, pace = self.peer, asyncio.get_running_loop(), self.peer.config.pace
        measure_at = -math.inf
        while True:
            start = time.monotonic()
            if self._statistics:
                await self._rescale()
            if peer.learner is not None and not self._waits(start):
                async with self.between_ticks:
                    await peer.tend_links()
                    parcels, open_to = peer.drain(), self._open(start)
                    outgoing = await loop.run_in_executor(self._worker, self._tick, parcels, open_to)
                    if outgoing is None:
                        await self._recover()
                    peer.taken_in()
                    if start >= measure_at:
                        await loop.run_in_executor(self._worker, self._measure)
                        self._mind_silence()
                        measure_at = start + min(1.0, pace.heartbeat)
                for parcel, target in outgoing or ():
                    peer.send(target, parcel)
                    peer.mailbox.turns.wrote(target, start)
                self.ticked = time.monotonic()
                peer.metrics.ticks.inc()
                if pace.stop_after_ticks is not None and peer.ticks >= pace.stop_after_ticks:
                    peer.stop("done")
            await asyncio.sleep(max(0.0, start + pace.tick - time.monotonic()))

    def hear(self, heard: Statistics) -> None:
        """Statistics of sites: looked at now and taken in between two ticks, as the learner has to fit the scale."""
        scaling = self.peer.scaling
        if heard.frozen and scaling.digest and heard.frozen >= scaling.digest:
            return  # nothing new
        scaling.check(heard)
        if heard.name in self._statistics or len(self._statistics) < MOST_HEARD:  # or else it will be told again
            self._statistics[heard.name] = heard

    async def _rescale(self) -> None:
        """Take in what was heard, and begin anew if the scale is another one now."""
        peer, loop = self.peer, asyncio.get_running_loop()
        scaling, heard, self._statistics = peer.scaling.copy(), self._statistics, {}
        for each in heard.values():
            try:
                scaling.hear(each)
                peer.trouble.pop("scale", None)
            except ScalingError as error:
                peer.complain("scale", str(error))
        if scaling.digest == peer.scaling.digest:
            peer.scaling = scaling
            return
        if peer.legacies.kept:
            log.warning(
                "what was kept of those who left is of another scale", extra=fields(names=list(peer.legacies.kept))
            )
        async with self.between_ticks:
            begun = await loop.run_in_executor(self._worker, self._beginner, scaling)
            peer.scaling, peer.unsaved, self.measures = scaling, True, None
            self._enter(*begun)
        log.info("the sites have settled on a scale: learning begins", extra=fields(sites=len(peer.scaling.entries)))

    def _open(self, now: float) -> list[str] | None:
        """Neighbours whose turn it is to get a letter; None if there is nobody to wait for."""
        peer = self.peer
        if peer.charter.algorithm != "gadget" or not peer.contacts:
            return None
        return peer.mailbox.turns.open(peer.contacts, now, peer.config.pace.heartbeat)

    def _waits(self, now: float) -> bool:
        """Whether a tick would be in vain: no letter could follow it (see `turns`)."""
        return self._open(now) == [] and not self.peer.links_due

    def _tick(self, parcels: list[Parcel], open_to: list[str] | None) -> list[tuple[Parcel, str]] | None:
        """In the worker: solve, look at what would be sent, absorb. Gives what may be sent, and to whom; None if the
        weights are no numbers any more."""
        peer = self.peer
        learner, discretion = peer.learner, peer.discretion
        assert learner is not None
        assert discretion is not None
        names = {node_id(name): name for name in peer.contacts}
        self._settle(learner)
        if learner.t % REFRESH == REFRESH - 1:
            learner.refresh()
        learner.draw_from(None if open_to is None else set(map(node_id, open_to)))
        before = discretion.withheld
        outgoing = [
            (parcel._replace(vector=vector), names[parcel.other])
            for parcel in learner.solve()
            if parcel.other in names
            and (vector := discretion.released(parcel.other, parcel.vector, learner.duals)) is not None
        ]
        peer.metrics.withheld.inc(discretion.withheld - before)
        learner.absorb(parcels)
        learner.weigh_recent()
        if not learner.finite():
            return None
        peer.absorbed = parcels
        return outgoing

    def _settle(self, learner: Learner) -> None:
        """Before anything is measured or written of one who was left alone just now: see `Learner.settle`."""
        end = time.monotonic() + ALONE
        repeats = learner.settle(lambda: time.monotonic() < end)
        if repeats:
            log.info("without neighbours: learning from these rows alone", extra=fields(repeats=repeats))

    async def _recover(self) -> None:
        """Weights that are no numbers any more: back to the last that were saved, or to the beginning.

        If what was saved is of no use either, to begin anew loses least: the neighbours know what was learned together,
        and one that ended would take its rows from all of them. Between two ticks, in the loop but for what takes long.
        """
        peer, loop = self.peer, asyncio.get_running_loop()
        former, sent = peer.learner, peer.discretion
        assert former is not None
        assert sent is not None
        peer.complain("weights", f"not finite at tick {former.t}, so that the peer went back to what was saved before")
        learner, kept = await loop.run_in_executor(self._worker, self._successor)
        learner.succeed(former)
        self._enter(learner, sent, kept)
        for name in list(peer.mailbox.heard):
            peer.mailbox.begun_anew(name)  # maybe it did, since then
        peer.unsaved = True

    def _successor(self) -> tuple[Learner, Mapping[str, Legacy]]:
        """In the worker: a learner as it was saved last, and whose legacies it has; or from nothing, with none."""
        (learner, _), memory = self._beginner(self.peer.scaling), self._recalled()
        if memory is None or memory.learner is None or memory.scaling != self.peer.scaling.digest.hex():
            log.error("nothing was saved that could be gone on from: learning begins anew")
            return learner, {}
        learner.restore(memory.arrays, memory.learner)
        return learner, memory.kept

    def _recalled(self) -> vault.NodeState | None:
        """What was saved, if it is of use. If not it is set aside: the next checkpoint must not take its place."""
        peer = self.peer
        try:
            return vault.recall(peer.config.peer.state, peer.charter, peer.fingerprint)
        except (vault.VaultError, checkpoint.CheckpointError) as error:
            log.error("the last checkpoint is of no use", extra=fields(why=str(error)))
        with contextlib.suppress(OSError):  # a folder that cannot be written to is safe as it is
            vault.set_aside(peer.config.peer.state)
        return None

    def _measure(self) -> None:
        peer, learner = self.peer, self.peer.learner
        assert learner is not None
        assert peer.discretion is not None
        self.measures = learner.measure([model for _, model in self.glimpses()])
        self._mute = sorted(name for name in list(peer.contacts) if peer.discretion.mute(node_id(name)))
        if peer.site.X_test is not None and peer.scaling.scale is not None:
            if self._test is None or self._test[0] is not peer.scaling.scale:
                self._test = (peer.scaling.scale, peer.scaling.scale.apply(peer.site.X_test))
            self.test_accuracy = learner.accuracy(self._test[1], peer.site.label_test)

    def _mind_silence(self) -> None:
        """Rows that are nearly alike make vectors like them, none of which may leave: only the site can change that."""
        if self._mute:
            learn, fix = self.peer.config.learn, "or leave them out"
            if learn.scaling != "deviation" or not learn.intercept:
                fix += ', or set [learn] scaling to "deviation", with an intercept'
            self.peer.complain(
                "letters",
                f"nothing was sent to {', '.join(self._mute)} so far, as it would give a row away: are the rows nearly "
                "alike? At all sites, take the mean off features that vary little beside it (years, temperatures), "
                f"{fix}",
            )
        else:
            self.peer.trouble.pop("letters", None)

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
