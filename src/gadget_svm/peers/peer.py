"""A peer: one site's node, on its own clock, among others that come and go.

Owns the order of things: greet before anything is said, agree before learning, learn and look at it before sending,
check before listening, save before forgetting. The parts it uses know nothing of each other.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import math
import secrets
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm import __version__
from gadget_svm.peers import checkpoint, vault
from gadget_svm.peers.charter import RUN_BYTES, Charter
from gadget_svm.peers.company import Company, PeerError
from gadget_svm.peers.config import PeerConfig
from gadget_svm.peers.desk import Desk
from gadget_svm.peers.discretion import Discretion
from gadget_svm.peers.export import export
from gadget_svm.peers.identity import Identity
from gadget_svm.peers.learner import Learner, Measures, Parcel
from gadget_svm.peers.leaving import hand_over, names_in, take_in
from gadget_svm.peers.logs import fields
from gadget_svm.peers.member import State
from gadget_svm.peers.membership import Changes
from gadget_svm.peers.messages import Ack, Malformed, Notice, Statistics, Status, plain
from gadget_svm.peers.metrics import serve
from gadget_svm.peers.overlay import node_id
from gadget_svm.peers.post import Line, Unreachable
from gadget_svm.peers.scaling import Scaling, ScalingError, divided
from gadget_svm.peers.site import load_site
from gadget_svm.peers.status import describe, estimates

log = logging.getLogger(__name__)
Floats = NDArray[np.float64]

WITHDRAW = "withdraw"
"""To be asked to stop like this is to leave nothing of what our rows have taught the others."""
REFRESH = 64
"""Ticks after which w is worked out anew."""
STUCK = 60.0
"""Seconds without a tick after which a peer no longer says that it is well."""


class Peer(Company):
    """Everything of a running peer. `live` returns when it has left."""

    def __init__(self, config: PeerConfig) -> None:
        tls, data, learn = config.tls, config.data, config.learn
        identity = Identity.load(tls.cert, tls.key, tls.ca, tls.revoked, config.peer.name)
        self.site = load_site(
            data.train, test=data.test, label=data.label, features=data.features, zero_based=data.zero_based,
            classes=data.classes,
        )  # fmt: skip
        charter = Charter(
            learn.run, learn.algorithm, learn.lam, self.site.X.shape[1], self.site.names, self.site.classes,
            learn.intercept, learn.scaling,
        )  # fmt: skip
        super().__init__(config, float(self.site.X.shape[0]), charter, identity)
        self.scaling = Scaling(learn.scaling, learn.sites, self.name, self.site.X)
        self.metrics.info.info(
            {"name": self.name, "run": learn.run, "algorithm": learn.algorithm, "version": __version__}
        )
        self.measures: Measures | None = None
        self.test_accuracy: float | None = None
        self.saved = self.exported = -math.inf
        self.ticked = time.monotonic()
        self._rows = self.site.fingerprint()
        self._run: tuple[bytes | None, bytes] = (None, b"")
        self._between_ticks = asyncio.Lock()
        self._rescaled = self._withdraws = self._went_on = False
        self._withheld = 0
        self._reason = ""
        self._failure: Exception | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="learner")
        limits = config.limits
        self._desk = Desk(
            self, identity, self.verifier, self.metrics, rate=limits.message_rate, burst=limits.burst,
            connections=limits.connections, members=limits.members,
        )  # fmt: skip

    @property
    def run(self) -> bytes:
        """The run on the wire: the terms and the scale."""
        if self._run[0] != self.scaling.digest:
            named = hashlib.sha256(self.charter.digest + self.scaling.digest).digest()[:RUN_BYTES]
            self._run = (self.scaling.digest, named)
        return self._run[1]

    # Starting and stopping

    async def live(self, fresh: bool = False) -> None:
        """Learn until told to stop, and leave in good order. Raises what made it impossible to go on.

        ``fresh``: what was saved is set aside first.
        """
        state = self.config.peer.state
        with checkpoint.Lock.acquire(state):
            if fresh:
                vault.set_aside(state)
            self._go_on(vault.recall(state, self.charter, self._rows))
            await self._desk.open(self.config.peer.listen)
            pages, jobs = None, []
            try:
                if self.config.metrics.port:
                    place = self.config.metrics
                    pages = await serve(self.metrics, self.healthy, place.host, place.port)
                await self._save()  # the incarnation is on disk before anybody hears of it
                log.info(
                    "up",
                    extra=fields(
                        address=self.address, incarnation=self.members.me.incarnation, rows=self.site.X.shape[0],
                        features=self.features, algorithm=self.charter.algorithm, run=self.charter.run,
                    ),
                )  # fmt: skip
                jobs = [
                    asyncio.create_task(self._guarded(job)) for job in (self._mingle(), self._learn(), self._keep())
                ]
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopping.wait(), self.config.pace.stop_after_seconds)
            finally:
                jobs += self.calls
                for job in jobs:
                    job.cancel()
                try:
                    await asyncio.gather(*jobs, return_exceptions=True)
                    await self._leave()
                finally:  # last: whoever waits for this peer to be gone finds its files complete
                    await self._desk.close()
                    if pages is not None:
                        pages.close()
                log.info("left", extra=fields(incarnation=self.members.me.incarnation))
        if self._failure is not None:
            raise self._failure

    def stop(self, reason: str) -> None:
        """Leave soon."""
        self._reason = self._reason or reason
        self.stopping.set()

    async def _guarded(self, job: Coroutine[Any, Any, None]) -> None:
        try:
            await job
        except asyncio.CancelledError:
            raise
        except Exception as error:  # whatever it was: say so, save, leave
            self._failure = error
            log.error("cannot go on", extra=fields(why=str(error)), exc_info=not isinstance(error, PeerError))
            self.stop("cannot go on")

    async def _leave(self) -> None:
        """Say goodbye, so that nobody waits for us, and put everything where the next start finds it."""
        log.info("leaving", extra=fields(why=self._reason or "time is up", ticks=self.ticks))
        await asyncio.to_thread(self._worker.shutdown)
        if self._failure is None:
            take_in(self)
        heir = None if self._withdraws or self._failure is not None else await hand_over(self)
        notice = Notice(self.name, self.members.me.incarnation, plain(self._reason))
        goodbyes = [contact.line.notice("Leave", notice) for name, contact in self.contacts.items() if name != heir]
        await asyncio.gather(*goodbyes, return_exceptions=True)
        await asyncio.gather(*(contact.close() for contact in self.contacts.values()))
        await self._save()
        await self._export()
        for about in ("checkpoint", "model"):
            if about in self.trouble:
                log.error(
                    "leaving, though not all could be written", extra=fields(about=about, why=self.trouble[about])
                )

    # What survives

    def _go_on(self, memory: vault.Memory | None) -> None:
        if memory is not None:
            for warning in memory.warnings:
                log.warning(warning)
            self.members = self._membership(memory.incarnation)
            self._former = {name: address for name, address in memory.addresses.items() if name != self.name}
            self._seeds |= set(self._former.values())
            for name, incarnation in memory.numbers.items():
                self.members.remember(name, incarnation)
            if memory.statistics is not None:
                self.scaling.hear(memory.statistics)
        self._begin()
        if memory is None or memory.learner is None or self.learner is None:
            return
        if memory.scaling != self.scaling.digest.hex():
            log.warning("the scale is another one than in the checkpoint: learning begins anew")
            return
        self.learner.restore(memory.arrays, memory.learner)
        assert self.discretion is not None
        vault.recall_sent(memory, self.discretion)
        linked, self.kept, self._went_on = set(self.learner.neighbours), dict(memory.kept), self.ticks > 0
        self.recall_voices(memory.voices)
        for part in names_in(self.kept):
            self.members.leave(part.name, part.incarnation)
        self._former = {name: address for name, address in self._former.items() if node_id(name) in linked}
        log.info("going on from a checkpoint", extra=fields(path=str(memory.path), ticks=self.ticks))

    def _begin(self) -> None:
        """Learn from the beginning, if there is a scale."""
        if self.scaling.scale is None:
            return
        X = self.site.X if self.scaling.kind == "none" else divided(self.site.X, self.scaling.scale)
        self.learner = Learner(X, self.site.label, self.charter, node_id(self.name), seed=self.config.learn.seed)
        self.discretion = Discretion(self.learner.X, self.charter.outputs)
        self._inbox, self._relink, self.kept, self.bequests, self._voices = {}, True, {}, {}, {}
        for heard in self.heard.values():
            heard.seq, heard.last, heard.previous = -1, None, None

    async def _save(self) -> None:
        addresses = {m.name: m.address for m in map(self.members.get, self.members.alive()) if m.address}
        async with self._between_ticks:
            arrays, about = vault.pack(
                self.charter, self._rows, self.members.me.incarnation, {**self._former, **addresses}, self.scaling,
                self.learner, self.discretion, self.kept, self.members.numbers(), self.voices(),
                learned=not self._in_vain,
            )  # fmt: skip
        start = time.perf_counter()
        try:
            await asyncio.to_thread(checkpoint.save, self.config.peer.state, arrays, about)
        except checkpoint.CheckpointError as error:
            self.metrics.checkpoint_failures.inc()
            self.complain("checkpoint", str(error))
            return
        self.saved = time.monotonic()
        self.trouble.pop("checkpoint", None)
        self.metrics.checkpoints.inc()
        self.metrics.checkpoint_time.set_to_current_time()
        self.metrics.checkpoint_seconds.observe(time.perf_counter() - start)

    @property
    def _in_vain(self) -> bool:
        """Refused for its terms before anybody agreed to them: what it has learned alone meanwhile is of no use."""
        return self._refused and not self._agreed and not self._went_on

    async def _export(self) -> None:
        if self.learner is None or self.scaling.scale is None:
            return
        async with self._between_ticks:
            weights, ticks = self.learner.model(), self.ticks
        try:
            await asyncio.to_thread(
                export, self.config.peer.model, weights, self.scaling.scale, self.charter, name=self.name, ticks=ticks,
                columns=self.site.columns,
            )  # fmt: skip
        except OSError as error:
            self.complain("model", f"cannot write {self.config.peer.model}: {error.strerror or error}")
            return
        self.exported = time.monotonic()
        self.trouble.pop("model", None)

    def export_saved(self) -> Path:
        """The model of the last checkpoint, without starting."""
        self._go_on(vault.recall(self.config.peer.state, self.charter, self._rows))
        if self.learner is None or self.scaling.scale is None or not self.ticks:
            raise PeerError(f"{self.config.peer.state} holds no model yet: start the peer with 'gadget peer run'")
        return export(
            self.config.peer.model, self.learner.model(), self.scaling.scale, self.charter, name=self.name,
            ticks=self.ticks, columns=self.site.columns,
        )  # fmt: skip

    async def _keep(self) -> None:
        """Save and write the model, now and then."""
        pace, export_at = self.config.pace, time.monotonic() + min(self.config.pace.export, 5.0)
        save_at = time.monotonic() + pace.checkpoint
        while True:
            await asyncio.sleep(min(1.0, pace.checkpoint, pace.export))
            now = time.monotonic()
            if now >= save_at or self.unsaved:
                self.unsaved = False
                await self._save()
                save_at = time.monotonic() + pace.checkpoint
            if now >= export_at:
                await self._export()
                export_at = time.monotonic() + pace.export

    # Learning

    async def _learn(self) -> None:
        """Ticks, no faster than the pace; everything that changes the learner happens between two of them."""
        loop, pace = asyncio.get_running_loop(), self.config.pace
        measure_at = -math.inf
        while True:
            start = time.monotonic()
            if self._rescaled:
                self._rescaled = False
                log.info(
                    "the sites have settled on a scale: learning begins", extra=fields(sites=len(self.scaling.entries))
                )
                async with self._between_ticks:
                    await loop.run_in_executor(self._worker, self._begin)
            if self.learner is not None and not self._waits(start):
                async with self._between_ticks:
                    await self.tend_links()
                    parcels = self.drain()
                    outgoing = await loop.run_in_executor(self._worker, self._tick, parcels)
                    self.taken_in()
                    if start >= measure_at:
                        await loop.run_in_executor(self._worker, self._measure)
                        measure_at = start + min(1.0, pace.heartbeat)
                for parcel, target in outgoing:
                    self.send(target, parcel)
                self.ticked, self.turns = time.monotonic(), max(self.turns - 1, 0)
                self.metrics.ticks.inc()
                if pace.stop_after_ticks is not None and self.ticks >= pace.stop_after_ticks:
                    self.stop("done")
            await asyncio.sleep(max(0.0, start + pace.tick - time.monotonic()))

    def _waits(self, now: float) -> bool:
        """GADGET's nodes drift apart, and run out of mass, while letters are late: so each letter is good for a tick.
        Who hears nobody goes on at the pace of heartbeats, as nobody may ever answer."""
        idle = not self._relink and self._meetings == self.members.meetings
        late = bool(self.contacts) and not self.turns and now - self.ticked < self.config.pace.heartbeat
        return idle and late and self.charter.algorithm == "gadget"

    def _tick(self, parcels: list[Parcel]) -> list[tuple[Parcel, str]]:
        """In the worker: solve, look at what would be sent, absorb. Gives what may be sent, and to whom."""
        learner, discretion = self.learner, self.discretion
        assert learner is not None
        assert discretion is not None
        names = {node_id(name): name for name in self.contacts}
        if learner.t % REFRESH == REFRESH - 1:
            learner.refresh()
        outgoing = [
            (parcel._replace(vector=vector), names[parcel.other])
            for parcel in learner.solve()
            if parcel.other in names
            and (vector := discretion.released(parcel.other, parcel.vector, learner.duals)) is not None
        ]
        learner.absorb(parcels)
        learner.weigh_recent()
        if learner.finite():
            self.absorbed = parcels
        else:
            self._recover()
        return outgoing

    def _recover(self) -> None:
        """Weights that are no numbers any more: back to the last that were."""
        log.error("the weights are not finite: going back to the last checkpoint")
        assert self.learner is not None
        numbered, sent = self.learner.block.exchanges, self.discretion
        memory = vault.recall(self.config.peer.state, self.charter, self._rows)
        self._begin()
        if memory is not None and memory.learner is not None:
            self.learner.restore(memory.arrays, memory.learner)
            self.kept = dict(memory.kept)
        for name in self.heard:
            self.begun_anew(name)  # maybe it did, since then
        self.learner.block.exchanges = numbered  # to the others the next letter is newer than the last
        self.discretion = sent

    def _measure(self) -> None:
        learner = self.learner
        assert learner is not None
        self.measures = learner.measure([model for _, model in self.glimpses()])
        if self.site.X_test is not None and self.scaling.scale is not None:
            self.test_accuracy = learner.accuracy(divided(self.site.X_test, self.scaling.scale), self.site.label_test)

    def glimpses(self) -> list[tuple[str, Floats]]:
        """About what the neighbours' weights are, as far as their letters tell."""
        learner, discretion = self.learner, self.discretion
        if learner is None or discretion is None:
            return []
        found = []
        for name in list(self.contacts):
            heard = self.heard.get(name)
            if heard is not None and heard.last is not None:
                model = learner.glimpse(heard.last, heard.previous, discretion.sent(node_id(name)))
                if model is not None:
                    found.append((name, model))
        return found

    # Among others

    async def _mingle(self) -> None:
        """Signs of life, failure detection, and calls to those not heard of: seeds, and members that were lost."""
        pace = self.config.pace
        beat_at = probe_at = -math.inf
        probe: asyncio.Task[None] | None = None
        while True:
            now = time.monotonic()
            await self._apply(self.members.tick())
            if self._former and now > self.started + pace.suspect + pace.dead:
                self._former, self._relink = {}, True
            if now >= beat_at:
                beat_at = now + pace.heartbeat
                self._beat(now)
            if now >= probe_at and (probe is None or probe.done()):
                if probe is not None:
                    probe.result()
                probe, probe_at = asyncio.create_task(self._look_around()), now + pace.heartbeat
            await asyncio.sleep(pace.heartbeat / 4)

    def _beat(self, now: float) -> None:
        measured = self.measures
        if measured is None:
            self.members.beat()
        else:
            slack = -1.0 if self.kept else measured.slack  # of rows that are not here nobody can tell it
            self.members.beat(loss=measured.loss, slack=slack, objective=measured.objective)
        for name, contact in self.contacts.items():
            if now - contact.answered > self.config.pace.heartbeat:
                self.send(name, None)
            self.watch_link(name, now)
        if self.verifier.reload():  # whoever is on it now has a connection that was made before
            self._relink = True
            for contact in self.contacts.values():
                contact.regreet()
        self._desk.count_turned_away()
        if time.time() > self.identity.not_after:
            self.complain("certificate", "this peer's certificate has expired: issue a new one, and start again")
        self._show()

    async def _apply(self, changes: Changes) -> None:
        for name in changes.renewed:
            self.begun_anew(name)
            if name in self.contacts:
                self.contacts[name].regreet()
        if changes.joined or changes.left or changes.renewed:
            self._relink = True
            self.trouble.pop("join", None)
            log.info("members", extra=fields(joined=changes.joined, left=changes.left, renewed=changes.renewed))
        if changes.raised is not None:
            log.warning("outbidding a claim to this peer's name", extra=fields(incarnation=changes.raised))
            await self._save()
        if changes.impostor is not None:
            log.warning("somebody else is said to have this peer's name", extra=fields(at=changes.impostor.address))
            if changes.impostor.address not in ("", self.address):
                self._seeds.add(changes.impostor.address)

    async def _look_around(self) -> None:
        await self.probe()
        if self.scaling.kind != "none":
            await self._share_statistics()

    async def _share_statistics(self) -> None:
        """Pass on what is known for the scaler: to all who are here until it is settled, then now and then to one."""
        contacts = self.members.met()
        some = contacts if not self.scaling.settled else self._rng.sample(contacts, min(1, len(contacts)))
        if self.scaling.settled and self._rng.random() > 0.2:
            return
        for name in some[:16]:
            line = Line(self.identity, self.members.get(name).address, self.dimension, name)
            try:
                await line.greet(self.hello(secrets.token_bytes(32)), self.verifier)
                heard = await line.statistics(self.scaling.message(), self.features)
                self._rescaled |= self.scaling.hear(heard)
                self.trouble.pop("scaling", None)
            except (Unreachable, Malformed, ScalingError) as error:
                self.complain("scaling", str(error))
            finally:
                await line.close()

    def left(self, notice: Notice, name: str) -> Ack:
        """A goodbye: gone at once, and what it has taught is not for us to keep. If it asked us to, before, then our
        answer got lost and somebody else keeps it."""
        asked = self.bequests.get(name)
        legacy = self.kept.get(name) if asked is None else asked.legacy
        if legacy is not None and notice.incarnation >= legacy.incarnation:
            self.bequests.pop(name, None)
            self.kept.pop(name, None)
            self._relink = self.unsaved = True
            if notice.incarnation == legacy.incarnation:
                return self._ack(name, Status.OK)
        if not self.members.accept(name, notice.incarnation):
            return self.misdirected(name, "incarnation", f"incarnation {notice.incarnation} of {name} is over")
        self.farewell(name, notice.incarnation)
        return self._ack(name, Status.OK)

    def exchanged(self, statistics: Statistics, name: str) -> Statistics:
        """Statistics for the scaler, theirs for ours: of members, which have the same terms."""
        if name not in self.members.alive():
            raise Malformed("run", f"{name} has not greeted this peer: greet first, statistics are for members")
        try:
            self._rescaled |= self.scaling.hear(statistics)
        except ScalingError as error:
            raise Malformed("garbage", f"{name}: {error}") from error
        return self.scaling.message()

    def asked_to_stop(self, notice: Notice, name: str) -> Ack:
        """Only by the holder of this peer's own certificate."""
        if name != self.name:
            self.metrics.refuse("name")
            return self._ack(name, Status.REFUSED, f"only {self.name} itself may stop {self.name}, not {name}")
        self._withdraws |= notice.text == WITHDRAW
        self.stop(notice.text or "asked to")
        return self._ack(name, Status.OK, "leaving")

    # What is shown

    def status(self) -> str:
        """How this peer is, as JSON."""
        return json.dumps(describe(self), allow_nan=False)

    def healthy(self) -> tuple[bool, dict[str, Any]]:
        """Whether it learns, and what is wrong."""
        waiting = self.learner is None
        well = (waiting or time.monotonic() - self.ticked < STUCK) and time.time() < self.identity.not_after
        return well, {"peer": self.name, "ticks": self.ticks, "learning": not waiting, "trouble": dict(self.trouble)}

    def _show(self) -> None:
        metrics, found = self.metrics, estimates(self)
        metrics.objective.set(found.objective)
        metrics.gap_estimate.set(found.gap)
        metrics.disagreement.set(found.disagreement)
        metrics.neighbours.set(len(self.contacts))
        metrics.incarnation.set(self.members.me.incarnation)
        metrics.certificate_expires.set(self.identity.not_after)
        states = self.members.states()
        metrics.set_members({state.name.lower(): states[state] + (state is State.ALIVE) for state in State})
        if self.discretion is not None:
            metrics.withheld.inc(self.discretion.withheld - self._withheld)
            self._withheld = self.discretion.withheld
