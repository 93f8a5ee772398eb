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
from pathlib import Path
from typing import Any

from gadget_svm import __version__
from gadget_svm.peers import checkpoint, vault
from gadget_svm.peers.calls import PeerError
from gadget_svm.peers.charter import RUN_BYTES, Charter
from gadget_svm.peers.company import Company
from gadget_svm.peers.config import PeerConfig
from gadget_svm.peers.desk import Desk
from gadget_svm.peers.identity import Identity
from gadget_svm.peers.keeping import Keeper
from gadget_svm.peers.leaving import hand_over, take_in
from gadget_svm.peers.logs import fields
from gadget_svm.peers.member import State
from gadget_svm.peers.membership import Changes, Superseded
from gadget_svm.peers.messages import Ack, Malformed, Notice, Statistics, Status, plain
from gadget_svm.peers.metrics import serve
from gadget_svm.peers.overlay import node_id
from gadget_svm.peers.post import Line, Unreachable
from gadget_svm.peers.scale import ScalingError
from gadget_svm.peers.scaling import Scaling
from gadget_svm.peers.site import load_site
from gadget_svm.peers.status import describe, estimates, own_slack
from gadget_svm.peers.study import Study
from gadget_svm.peers.turns import PATIENCE

log = logging.getLogger(__name__)

WITHDRAW = "withdraw"
"""To be asked to stop like this is to leave nothing of what our rows have taught the others."""
SENTENCES = (PeerError, Superseded, vault.VaultError, checkpoint.CheckpointError)
"""Errors that say to a user what is wrong and what to do: where in the program they arose is of no use."""
STUCK = 60.0
"""Seconds without a tick, beyond those it may have to wait for, after which a peer no longer says that it is well."""


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
            learn.intercept, learn.scaling, learn.sites if learn.scaling != "none" else 0,
        )  # fmt: skip
        super().__init__(config, float(self.site.X.shape[0]), charter, identity)
        self.scaling = Scaling(learn.scaling, learn.sites, self.name, self.site.X, shifts=learn.intercept)
        self.metrics.info.info(
            {"name": self.name, "run": learn.run, "algorithm": learn.algorithm, "version": __version__}
        )
        self.fingerprint = self.site.fingerprint()
        self._run: tuple[bytes | None, bytes] = (None, b"")
        self._withdraws = self._went_on = False
        self._reason = ""
        self._failure: Exception | None = None
        self.study, self.keeper = Study(self), Keeper(self)
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
        with checkpoint.Lock.acquire(state), self.keeper:
            if fresh:
                vault.set_aside(state)
            self.go_on_from(vault.recall(state, self.charter, self.fingerprint))
            await self._desk.open(self.config.peer.listen)
            pages, jobs = None, []
            try:
                if self.config.metrics.port:
                    place = self.config.metrics
                    pages = await serve(self.metrics, self.healthy, place.host, place.port)
                await self.keeper.save()  # the incarnation is on disk before anybody hears of it
                log.info(
                    "up",
                    extra=fields(
                        address=self.address, incarnation=self.members.me.incarnation, rows=self.site.X.shape[0],
                        features=self.features, algorithm=self.charter.algorithm, run=self.charter.run,
                    ),
                )  # fmt: skip
                jobs = [
                    asyncio.create_task(self._guarded(job))
                    for job in (self._mingle(), self.study.go_on(), self.keeper.go_on())
                ]
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopping.wait(), self.config.pace.stop_after_seconds)
            finally:
                jobs += self.calls.under_way
                for job in jobs:
                    job.cancel()
                try:
                    await asyncio.gather(*jobs, return_exceptions=True)
                    await self._leave()
                    await asyncio.to_thread(self.keeper.close)
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
            log.error("cannot go on", extra=fields(why=str(error)), exc_info=not isinstance(error, SENTENCES))
            self.stop("cannot go on")

    async def _leave(self) -> None:
        """Say goodbye, so that nobody waits for us, and put everything where the next start finds it."""
        log.info("leaving", extra=fields(why=self._reason or "time is up", ticks=self.ticks))
        await asyncio.to_thread(self.study.close)
        well = self._failure is None and (self.learner is None or self.learner.finite())
        if well:
            take_in(self)
        heir = await hand_over(self) if well and not self._withdraws else None
        notice = Notice(self.name, self.members.me.incarnation, plain(self._reason))
        goodbyes = [contact.line.notice("Leave", notice) for name, contact in self.contacts.items() if name != heir]
        await asyncio.gather(*goodbyes, return_exceptions=True)
        await asyncio.gather(*(contact.close() for contact in self.contacts.values()))
        await self.keeper.save()
        await self.keeper.export()
        for about in ("checkpoint", "model"):
            if about in self.trouble:
                log.error(
                    "leaving, though not all could be written", extra=fields(about=about, why=self.trouble[about])
                )

    # What survives

    def go_on_from(self, memory: vault.NodeState | None) -> None:
        """What was saved, if there is anything that fits; else begin."""
        if memory is not None:
            for warning in memory.warnings:
                log.warning(warning)
            self.members = self._membership(memory.incarnation)
            self.former = {name: address for name, address in memory.addresses.items() if name != self.name}
            self.calls.seeds.former = tuple(sorted(self.former.values()))
            for name, incarnation in memory.numbers.items():
                self.members.remember(name, incarnation)
            if memory.statistics is not None:
                self.scaling.hear(memory.statistics)
        self.study.begin()
        if memory is None or memory.learner is None or self.learner is None:
            return
        if memory.scaling != self.scaling.digest.hex():
            log.warning("the scale is another one than in the checkpoint: learning begins anew")
            return
        self.learner.restore(memory.arrays, memory.learner)
        assert self.discretion is not None
        vault.recall_sent(memory, self.discretion)
        linked, self._went_on = set(self.learner.neighbours), self.ticks > 0
        self.calls.agreed = self._went_on and bool(memory.numbers)  # of others who were met on these terms
        self.legacies.restart(memory.kept)
        self.mailbox.recall(memory.voices, map(int, self.learner.block.links.target))
        for part in self.legacies.names:
            self.members.leave(part.name, part.incarnation)
        self.former = {name: address for name, address in self.former.items() if node_id(name) in linked}
        log.info("going on from a checkpoint", extra=fields(path=str(memory.path), ticks=self.ticks))

    @property
    def in_vain(self) -> bool:
        """Refused for its terms before anybody agreed to them: what it has learned alone meanwhile is of no use."""
        return self.calls.refused and not self.calls.agreed and not self._went_on

    def export_saved(self) -> Path:
        """The model of the last checkpoint, without starting."""
        self.go_on_from(vault.recall(self.config.peer.state, self.charter, self.fingerprint))
        if self.learner is None or self.scaling.scale is None or not self.ticks:
            raise PeerError(f"{self.config.peer.state} holds no model yet: start the peer with 'gadget peer run'")
        return self.keeper.write_model(self.learner.model(), self.scaling.scale, self.ticks)

    # Among others

    async def _mingle(self) -> None:
        """Signs of life, failure detection, and calls to those not heard of: seeds, and members that were lost."""
        pace = self.config.pace
        beat_at = probe_at = -math.inf
        probe: asyncio.Task[None] | None = None
        try:
            while True:
                now = time.monotonic()
                await self._apply(self.members.tick())
                if self.former and now > self.started + pace.suspect + pace.dead:
                    self.former, self.set_neighbours = {}, True
                if now >= beat_at:
                    beat_at = now + pace.heartbeat
                    self._beat(now)
                if now >= probe_at and (probe is None or probe.done()):
                    if probe is not None:
                        probe.result()
                    probe, probe_at = asyncio.create_task(self._look_around()), now + pace.heartbeat
                await asyncio.sleep(pace.heartbeat / 4)
        finally:  # nobody is called any more by one who leaves
            if probe is not None:
                probe.cancel()
                await asyncio.gather(probe, return_exceptions=True)

    def _beat(self, now: float) -> None:
        measured = self.study.measures
        if measured is None:
            self.members.beat()
        else:
            self.members.beat(loss=measured.loss, slack=own_slack(self), objective=measured.objective)
        for name, contact in self.contacts.items():
            if now - contact.answered > self.config.pace.heartbeat:
                self.send(name, None)
            self.watch_link(name, now)
        if self.verifier.reload():  # whoever is on it now has a connection that was made before
            self.set_neighbours = True
            for contact in self.contacts.values():
                contact.regreet()
        self._desk.count_turned_away()
        if time.time() > self.identity.not_after:
            self.complain("certificate", "this peer's certificate has expired: issue a new one, and start again")
        self._show()

    async def _apply(self, changes: Changes) -> None:
        for name in changes.renewed:
            self.mailbox.begun_anew(name)
            if name in self.contacts:
                self.contacts[name].regreet()
        if changes.joined or changes.left or changes.renewed:
            self.set_neighbours = True
            self.trouble.pop("join", None)
            log.info("members", extra=fields(joined=changes.joined, left=changes.left, renewed=changes.renewed))
        if changes.raised is not None:
            log.warning("outbidding a claim to this peer's name", extra=fields(incarnation=changes.raised))
            await self.keeper.save()
        if changes.impostor is not None:
            log.warning("somebody else is said to have this peer's name", extra=fields(at=changes.impostor.address))
            if changes.impostor.address not in ("", self.address):
                self.calls.seeds.claim(changes.impostor.address)

    async def _look_around(self) -> None:
        await self.look_for_the_cut()
        await self.calls.round()
        if self.scaling.kind != "none":
            await self._share_statistics()

    async def _share_statistics(self) -> None:
        """Pass on what is known for the scaler: to all who are here until it is settled, then now and then to one."""
        contacts = self.members.met()
        some = contacts if not self.scaling.settled else self.rng.sample(contacts, min(1, len(contacts)))
        if self.scaling.settled and self.rng.random() > 0.2:
            return
        for name in some[:16]:
            line = Line(self.identity, self.members.get(name).address, self.dimension, name)
            try:
                await line.greet(self.hello(secrets.token_bytes(32)), self.verifier)
                heard = await line.statistics(self.scaling.message(), self.features)
                self.study.hear(heard)
                self.trouble.pop("scaling", None)
            except (Unreachable, Malformed, ScalingError) as error:
                self.complain("scaling", str(error))
            finally:
                await line.close()

    def left(self, notice: Notice, name: str) -> Ack:
        """A goodbye: gone at once, and what it has taught is not for us to keep. If it asked us to, before, then our
        answer got lost and somebody else keeps it."""
        asked_as = self.legacies.release(name, notice.incarnation)
        self.changed_legacies(asked_as is not None)
        if asked_as == notice.incarnation:
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
            self.study.hear(statistics)
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
        waiting, patience = self.learner is None, STUCK + PATIENCE * self.config.pace.heartbeat
        well = (waiting or time.monotonic() - self.study.ticked < patience) and not self.identity.expired
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
