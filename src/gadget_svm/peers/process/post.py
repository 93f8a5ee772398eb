"""Calls to other peers over gRPC: greetings, letters, goodbyes. Owns channels, deadlines and what is under way.

To each neighbour at most one letter is under way and one waits, which a newer one replaces: letters say all there is to
say, so that a slow peer costs neither memory nor anybody's time.
"""

import asyncio
import logging
import secrets
import time
from typing import Any, Protocol

import grpc
import numpy as np
from numpy.typing import NDArray

from gadget_svm.peers.charter import Charter, disagreements
from gadget_svm.peers.envelope import (
    decode_ack,
    decode_hello_reply,
    decode_statistics,
    decode_status_reply,
    encode_hello,
    encode_letter,
    encode_notice,
    encode_statistics,
)
from gadget_svm.peers.identity import Identity, Refused, Verifier
from gadget_svm.peers.logs import fields
from gadget_svm.peers.member import Member
from gadget_svm.peers.messages import (
    SERVICE,
    Ack,
    Hello,
    HelloReply,
    Letter,
    Malformed,
    Notice,
    Statistics,
    Status,
    largest_letter,
    largest_statistics,
    plain,
)

log = logging.getLogger(__name__)

GREETING, LETTER, GOODBYE, QUESTION = 5.0, 5.0, 2.0, 10.0
"""Seconds a call may take."""
PAUSE = 1.0
"""Seconds after a failure before a peer is called again."""


class Disagreement(ValueError):  # noqa: N818 - what happened, not what is wrong
    """The other peer learns something else: a sentence for every term."""


class Unreachable(OSError):  # noqa: N818
    """No answer, or one that is not believed."""


def channel_options(dimension: int, name: str | None) -> list[tuple[str, Any]]:
    """Bounded messages, quick reconnects, and the name the other end's certificate must have."""
    most = max(largest_letter(dimension), largest_statistics(dimension), 8 << 20)
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", most),
        ("grpc.max_send_message_length", most),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.min_reconnect_backoff_ms", 3000),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 3_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    if name is not None:
        options.append(("grpc.ssl_target_name_override", name))
    return options


def signed_part(nonce: bytes, name: str, incarnation: int, charter: str) -> bytes:
    """What one who is greeted signs: the greeter's nonce, and what it says of itself."""
    return b"\0".join((nonce, name.encode(), str(incarnation).encode(), charter.encode()))


def signed_reply(
    identity: Identity, me: Member, charter: Charter, hello: Hello, *, float32: bool, members: tuple[Member, ...],
    objection: str = "",
) -> HelloReply:  # fmt: skip
    """The answer to a greeting; accepted unless there is an objection."""
    terms = charter.text()
    signature = identity.sign(signed_part(hello.nonce, me.name, me.incarnation, terms))
    return HelloReply(
        me.name, me.address, me.incarnation, hello.nonce, terms, float32, members, not objection, plain(objection),
        identity.cert_pem, signature,
    )  # fmt: skip


class Line:
    """A channel to one address, and the calls it takes."""

    def __init__(self, identity: Identity, address: str, dimension: int, name: str | None = None) -> None:
        self.address, self.name, self.dimension = address, name, dimension
        self.channel = grpc.aio.secure_channel(
            address, identity.channel_credentials(), options=channel_options(dimension, name)
        )
        self._calls: dict[str, Any] = {}

    async def call(self, method: str, data: bytes, deadline: float) -> bytes:
        """Bytes there and back; an Unreachable says why not."""
        if method not in self._calls:
            self._calls[method] = self.channel.unary_unary(f"/{SERVICE}/{method}", None, None)
        try:
            answer: bytes = await self._calls[method](data, timeout=deadline)
        except grpc.aio.AioRpcError as error:
            raise Unreachable(f"{self.address}: {error.code().name.lower()}: {(error.details() or '')[:300]}") from None
        return answer

    async def greet(self, hello: Hello, verifier: Verifier) -> HelloReply:
        """Say hello; the answer is signed by a key whose certificate is good and not revoked, or it is an error."""
        data = encode_hello(hello)
        try:
            reply = decode_hello_reply(await self.call("Hello", data, GREETING))
        except Malformed as error:
            raise Unreachable(f"{self.address}: {error}") from error
        if self.name is not None and reply.name != self.name:
            raise Unreachable(f"{self.address} answers as {reply.name}, {self.name} was called")
        part = signed_part(hello.nonce, reply.name, reply.incarnation, reply.charter)
        try:
            verifier.check_signature(reply.certificate, reply.name, part, reply.signature)
        except Refused as error:
            raise Unreachable(f"{self.address} is not believed: {error}") from error
        return reply

    async def notice(self, method: str, notice: Notice, deadline: float = GOODBYE) -> Ack:
        """Leave or stop."""
        return decode_ack(await self.call(method, encode_notice(notice), deadline))

    async def status(self, notice: Notice) -> str:
        """A peer's status, as JSON text."""
        return decode_status_reply(await self.call("Status", encode_notice(notice), QUESTION)).text

    async def statistics(self, mine: Statistics, features: int) -> Statistics:
        """Exchange what is known for the scaler."""
        return decode_statistics(await self.call("Statistics", encode_statistics(mine), QUESTION), features)

    async def close(self) -> None:
        """Hang up."""
        await self.channel.close(grace=None)


class Caller(Protocol):
    """What a contact needs of the peer it belongs to."""

    identity: Identity
    verifier: Verifier
    charter: Charter

    def hello(self, nonce: bytes) -> Hello:
        """Who I am."""

    def learn_of(self, members: tuple[Member, ...], speaker: str) -> None:
        """Somebody's view."""

    def handed(self, name: str, vector: NDArray[np.float64]) -> None:
        """Weights are on their way."""

    def delivered(self, name: str, size: int, seconds: float, ack: Ack) -> None:
        """A letter was answered."""

    def failed(self, name: str, why: str) -> None:
        """A letter was not."""


async def introduce(caller: Caller, line: Line) -> HelloReply:
    """Greet over a line, and see that both learn the same."""
    reply = await line.greet(caller.hello(secrets.token_bytes(32)), caller.verifier)
    try:
        theirs = Charter.parse(reply.charter)
    except ValueError as error:
        raise Unreachable(f"{line.address} ({reply.name}): {error}") from error
    differing = disagreements(caller.charter, theirs, caller.identity.name, reply.name)
    if differing:
        raise Disagreement("; ".join(differing))
    caller.learn_of(reply.members, reply.name)  # also if declined: it says why, as what it knows of us
    if not reply.accepted:
        raise Unreachable(f"{reply.name} at {line.address} declines: {reply.text}")
    return reply


class Contact:
    """One neighbour, by name: its line, and the letter that waits."""

    def __init__(self, caller: Caller, name: str, address: str, float32: bool) -> None:
        self.caller, self.name, self.address, self.float32 = caller, name, address, float32
        self.line = Line(caller.identity, address, caller.charter.dimension, name)
        self.incarnation = 0
        self.sent = self.failures = 0
        self.answered = float("-inf")
        self.rtt = float("nan")
        self.trouble = ""
        self._narrow = False
        self._greeted = False
        self._shown = b""  # the certificate of the last greeting
        self._waiting: Letter | None = None
        self._not_before = float("-inf")
        self._at_work: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    def post(self, letter: Letter) -> None:
        """Send soon, instead of what waits. Nothing is queued for a peer that has just failed."""
        if time.monotonic() < self._not_before:
            return
        self._waiting = letter
        if self._at_work is None or self._at_work.done():
            self._at_work = asyncio.create_task(self._work())

    async def hand(self, letter: Letter) -> bool:
        """The last letter, whatever is under way; whether it was taken."""
        await self._drop_work()
        return await self._deliver(letter, GOODBYE)

    def regreet(self) -> None:
        """The other end was started anew."""
        self._greeted = False

    async def close(self) -> None:
        """Let go of the line, whatever is under way."""
        try:
            await self._drop_work()
        finally:
            await self.line.close()

    async def _drop_work(self) -> None:
        tasks = [task for task in (self._at_work, self._watcher) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # who closes may be cancelled itself, and must hear it
        self._watcher = None

    async def _work(self) -> None:
        while self._waiting is not None:
            try:
                await self._be_sure()  # which may take long: the letter that is taken then is the newest
                letter, self._waiting = self._waiting, None
                await self._deliver(letter)
            except (Unreachable, Disagreement, Malformed) as error:
                self._waiting = None
                self._fail(str(error))

    async def _deliver(self, letter: Letter, deadline: float = LETTER) -> bool:
        await self._be_sure()
        if letter.vector is not None:
            self.caller.handed(self.name, letter.vector)
        data = encode_letter(letter, self._narrow)
        start = time.perf_counter()
        ack = decode_ack(await self.line.call("Push", data, deadline))
        self.rtt, self.answered = time.perf_counter() - start, time.monotonic()
        self.caller.learn_of(ack.members, self.name)
        self.caller.delivered(self.name, len(data), self.rtt, ack)
        if ack.status in (Status.OK, Status.REPEATED):
            self.sent += 1
            self.trouble = ""
            return True
        if ack.status != Status.BUSY:
            self._greeted = False
            self._fail(f"{ack.status.name.lower()}: {ack.text}")
        return False

    async def _be_sure(self) -> None:
        """Greet, unless that was done and nothing has changed since: a connection outlives the certificates on it.

        With ours expired nobody would take a letter, so that none is sent.
        """
        identity, verifier = self.caller.identity, self.caller.verifier
        if identity.expired:
            raise Unreachable(f"the certificate of {identity.name!r}, our own, has expired: nobody takes its letters")
        if not self._greeted or verifier.has_expired(self._shown):
            await self._greet()

    async def _greet(self) -> None:
        """On every new connection: TLS proves a name, the signature that its certificate is not revoked."""
        self._greeted = False
        reply = await introduce(self.caller, self.line)
        self._shown = reply.certificate
        self.incarnation = reply.incarnation
        self._narrow = self.float32 and reply.float32
        self._greeted = True
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """A connection that breaks may come back to somebody else: greet again."""
        while True:
            state = self.line.channel.get_state()
            if state is not grpc.ChannelConnectivity.READY:
                self._greeted = False
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                return
            await self.line.channel.wait_for_state_change(state)

    def _fail(self, why: str) -> None:
        self.failures += 1
        self._not_before = time.monotonic() + PAUSE
        if why != self.trouble:
            log.info("a letter was not delivered", extra=fields(to=self.name, why=why))
        self.trouble = why
        self.caller.failed(self.name, why)
