"""Peers in lock step, for tests: a fixed network whose nodes wait for each other in every tick.

Over the same wire, with the same checks and the same learner, N such peers have the simulator's weights bit for bit.
Nobody may fail: one that is missing stops all.
"""

import asyncio
import hashlib
import json
import logging
import time

import numpy as np
from numpy.typing import NDArray

from gadget_svm.peers.charter import RUN_BYTES, Charter, disagreements
from gadget_svm.peers.config import Lockstep, PeerConfig
from gadget_svm.peers.desk import Desk
from gadget_svm.peers.discretion import Discretion
from gadget_svm.peers.envelope import decode_ack, encode_letter
from gadget_svm.peers.export import export
from gadget_svm.peers.identity import Identity, Verifier
from gadget_svm.peers.learner import Learner, Parcel
from gadget_svm.peers.logs import fields
from gadget_svm.peers.member import Member
from gadget_svm.peers.messages import Ack, Hello, HelloReply, Letter, Malformed, Notice, Statistics, Status
from gadget_svm.peers.metrics import Metrics
from gadget_svm.peers.post import Disagreement, Line, Unreachable, introduce, signed_reply
from gadget_svm.peers.scale import Scale
from gadget_svm.peers.site import load_site
from gadget_svm.topologies import build

log = logging.getLogger(__name__)

WAIT = 0.05
PATIENCE = 60.0
"""Seconds to wait for one neighbour before giving up."""


class LockstepError(ValueError):
    """A neighbour that did not come, or does not fit."""


class Stepper:
    """One node of a fixed network. See `desk.Host` and `post.Caller` for what others call."""

    def __init__(self, config: PeerConfig, step: Lockstep) -> None:
        tls, data, learn = config.tls, config.data, config.learn
        if learn.scaling != "none":
            raise LockstepError("lock step knows no scaling across sites: set [learn] scaling to none")
        self.config, self.step = config, step
        self.identity = Identity.load(tls.cert, tls.key, tls.ca, tls.revoked, config.peer.name)
        self.verifier, self.metrics = Verifier(self.identity, tls.revoked), Metrics()
        self.site = load_site(
            data.train, label=data.label, features=data.features, zero_based=data.zero_based, classes=data.classes
        )
        self.charter = Charter(
            learn.run, learn.algorithm, learn.lam, self.site.X.shape[1], self.site.names, self.site.classes,
            learn.intercept, learn.scaling,
        )  # fmt: skip
        self.dimension, self.features = self.charter.dimension, self.charter.features
        self.run = hashlib.sha256(b"lockstep" + self.charter.digest).digest()[:RUN_BYTES]
        network = build(step.topology, step.nodes, seed=learn.seed)
        self.learner = Learner(self.site.X, self.site.label, self.charter, step.node, seed=learn.seed, network=network)
        self.discretion = Discretion(self.learner.X, self.charter.outputs)
        self.me = Member(config.peer.name, config.peer.address, 1, 1)
        self.numbers: dict[str, int] = {}  # neighbours' names, once greeted
        self.lines = {
            int(j): Line(self.identity, step.addresses[j], self.dimension) for j in self.learner.block.links.target
        }
        self._arrived: dict[int, dict[str, Letter]] = {}
        self._news = asyncio.Event()

    async def live(self) -> None:
        """All ticks, then the model."""
        limits = self.config.limits
        desk = Desk(
            self, self.identity, self.verifier, self.metrics, rate=1e6, burst=1_000_000,
            connections=limits.connections, members=limits.members,
        )  # fmt: skip
        await desk.open(self.config.peer.listen)
        try:
            await asyncio.gather(*(self._meet(j) for j in self.lines))
            for _ in range(self.step.ticks):
                await self._tick()
            path = export(
                self.config.peer.model, self.learner.model(), Scale.none(self.features), self.charter,
                name=self.me.name, ticks=self.learner.t, columns=self.site.columns,
            )  # fmt: skip
            log.info("done", extra=fields(ticks=self.learner.t, model=str(path)))
        finally:
            try:
                await asyncio.gather(*(line.close() for line in self.lines.values()))
            finally:  # also if cancelled while hanging up
                await desk.close(grace=2.0)

    async def _meet(self, j: int) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self.numbers[(await introduce(self, self.lines[j])).name] = j
                return
            except Disagreement as error:
                raise LockstepError(str(error)) from error
            except Unreachable as error:
                if time.monotonic() > until:
                    raise LockstepError(f"node {j} does not answer: {error}") from error
                await asyncio.sleep(4 * WAIT)

    async def _tick(self) -> None:
        parcels = await asyncio.to_thread(self.learner.solve)
        allowed = {p.other: p for p in parcels if self.discretion.allows(p.other, p.vector, self.learner.duals)}
        if len(allowed) < len(parcels):
            log.warning("a vector was withheld: from here on the weights are not the simulator's")
        t = self.learner.t
        await asyncio.gather(*(self._deliver(name, j, t, allowed.get(j)) for name, j in self.numbers.items()))
        letters = await self._all_of(t)
        await asyncio.to_thread(self.learner.absorb, [self._parcel(name, letters[name]) for name in sorted(letters)])

    async def _deliver(self, name: str, j: int, t: int, parcel: Parcel | None) -> None:
        """What goes to a neighbour in this tick, or that nothing does; again until it has it."""
        seq, vector, weight, note = (0, None, 0.0, None) if parcel is None else parcel[1:]
        letter = Letter(self.run, self.me.name, 1, name, 0, seq, t, vector, weight, note, True, (self.me,))
        if vector is not None:
            self.handed(name, vector)
        data, until = encode_letter(letter), time.monotonic() + PATIENCE
        while True:
            try:
                ack = decode_ack(await self.lines[j].call("Push", data, 5.0))
                if ack.status in (Status.OK, Status.REPEATED):
                    return
                why = ack.text
            except (Unreachable, Malformed) as error:
                why = str(error)
            if time.monotonic() > until:
                raise LockstepError(f"{name} did not take the letter of tick {t}: {why}")
            await asyncio.sleep(WAIT)

    async def _all_of(self, t: int) -> dict[str, Letter]:
        """The letters of every neighbour of tick t that carry weights."""
        while set(self._arrived.get(t, {})) != set(self.numbers):
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), PATIENCE)
            except TimeoutError:
                missing = sorted(set(self.numbers) - set(self._arrived.get(t, {})))
                raise LockstepError(f"nothing of tick {t} came from {', '.join(missing)}") from None
        return {name: letter for name, letter in self._arrived.pop(t).items() if letter.vector is not None}

    def _parcel(self, name: str, letter: Letter) -> Parcel:
        assert letter.vector is not None
        return Parcel(self.numbers[name], letter.seq, letter.vector, letter.weight, letter.note)

    # What other peers say

    def hello(self, nonce: bytes) -> Hello:
        """Who I am."""
        return Hello(self.me.name, self.me.address, 1, nonce, self.charter.text(), False, (self.me,))

    def greeted(self, hello: Hello, name: str) -> HelloReply:
        """Accepted if both learn the same."""
        try:
            objection = "; ".join(disagreements(self.charter, Charter.parse(hello.charter), self.me.name, name))
        except ValueError as error:
            objection = str(error)
        return signed_reply(
            self.identity, self.me, self.charter, hello, float32=False, members=(self.me,), objection=objection
        )

    def learn_of(self, members: tuple[Member, ...], speaker: str) -> None:
        """Everyone is known beforehand."""

    def handed(self, name: str, vector: NDArray[np.float64]) -> None:
        """Weights go out."""
        self.discretion.handed(self.numbers[name], np.array(vector))

    def delivered(self, name: str, size: int, seconds: float, ack: Ack) -> None:
        """Nobody counts."""

    def failed(self, name: str, why: str) -> None:
        """Tried again."""

    def received(self, letter: Letter, name: str) -> Ack:
        """Kept for its tick; one that is too early has to come again."""
        if name not in self.numbers or letter.time > self.learner.t + 1:
            return self._ack(Status.BUSY, "too early")
        if letter.time < self.learner.t or name in self._arrived.get(letter.time, {}):
            return self._ack(Status.REPEATED)
        self._arrived.setdefault(letter.time, {})[name] = letter
        self._news.set()
        return self._ack(Status.OK)

    def misdirected(self, name: str, reason: str, text: str) -> Ack:  # noqa: ARG002
        """A letter of another run."""
        return self._ack(Status.WRONG_RUN, text)

    def left(self, notice: Notice, name: str) -> Ack:  # noqa: ARG002
        """Nobody leaves."""
        return self._ack(Status.REFUSED, "in lock step nobody leaves")

    def exchanged(self, statistics: Statistics, name: str) -> Statistics:  # noqa: ARG002
        """There is nothing to exchange."""
        return Statistics(self.me.name)

    def status(self) -> str:
        """How far it is."""
        return json.dumps({"name": self.me.name, "ticks": self.learner.t, "lockstep": True})

    def asked_to_stop(self, notice: Notice, name: str) -> Ack:
        """It stops by itself."""
        return self.left(notice, name)

    def _ack(self, status: Status, text: str = "") -> Ack:
        return Ack(status, 1, 1, text)


async def run_lockstep(config: PeerConfig) -> None:
    """One node of a network in lock step, to its last tick."""
    assert config.lockstep is not None
    await Stepper(config, config.lockstep).live()
