"""The door: takes other peers' calls over gRPC, and lets nothing in that was not checked.

In this order: the certificate (ours, in date, not revoked), the rate, the size and form of the message, that it is in
the sender's own name. Only then does the peer see it. Refusals are counted by reason.
"""

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc

from gadget_svm.peers.arrivals import Arrivals
from gadget_svm.peers.envelope import (
    decode_hello,
    decode_letter,
    decode_notice,
    decode_statistics,
    encode_ack,
    encode_hello_reply,
    encode_statistics,
    encode_status_reply,
)
from gadget_svm.peers.identity import Identity, Refused, Verifier
from gadget_svm.peers.limits import Buckets
from gadget_svm.peers.logs import fields
from gadget_svm.peers.messages import (
    METHODS,
    SERVICE,
    Ack,
    Hello,
    HelloReply,
    Letter,
    Malformed,
    Notice,
    Statistics,
    StatusReply,
    largest_letter,
    largest_statistics,
    plain,
)
from gadget_svm.peers.metrics import Metrics

log = logging.getLogger(__name__)

CALLS = 128
"""Calls under way at a time, over all connections."""
CALLS_EACH = 8
"""Of those, by one caller: nobody keeps the others out by calls that never end."""
READING = 10.0
"""Seconds for a message to come in whole."""


class ListenError(OSError):
    """The address cannot be listened on."""


def _why_not(address: str) -> str:
    """What the system says of it; gRPC only says that it did not work."""
    host, _, port = address.rpartition(":")
    try:
        kind, _, _, _, place = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind) as probe:
            probe.bind(place)
    except OSError as error:
        return error.strerror or str(error)
    return "gRPC could not, though it is free"


class Host(Protocol):
    """The peer behind the door. ``name`` is who calls, by its certificate."""

    dimension: int
    features: int

    @property
    def run(self) -> bytes:
        """The run's id; empty before there is one."""

    def greeted(self, hello: Hello, name: str) -> HelloReply:
        """A first contact."""

    def received(self, letter: Letter, name: str) -> Ack:
        """A letter of this run."""

    def misdirected(self, name: str, reason: str, text: str) -> Ack:
        """The answer to a letter that cannot be used."""

    def left(self, notice: Notice, name: str) -> Ack:
        """A goodbye."""

    def exchanged(self, statistics: Statistics, name: str) -> Statistics:
        """Statistics for the scaler."""

    def status(self) -> str:
        """JSON text."""

    def asked_to_stop(self, notice: Notice, name: str) -> Ack:
        """Somebody wants this peer to leave."""


class Desk(grpc.GenericRpcHandler):  # type: ignore[misc,type-arg,unused-ignore]
    """The gRPC server of one peer."""

    def __init__(
        self, host: Host, identity: Identity, verifier: Verifier, metrics: Metrics, *, rate: float, burst: int,
        connections: int, members: int,
    ) -> None:  # fmt: skip
        self.host, self.identity, self.verifier, self.metrics = host, identity, verifier, metrics
        self.buckets = Buckets(rate, burst, most=members)
        self.connections = connections
        self.arrivals = Arrivals(most=8 * connections)
        self._under_way: Counter[str] = Counter()
        answers: dict[str, Callable[[bytes, str], bytes]] = {
            "Hello": self._hello, "Push": self._push, "Leave": self._leave, "Status": self._status,
            "Stop": self._stop, "Statistics": self._statistics,
        }  # fmt: skip
        assert set(answers) == set(METHODS)
        self._handlers = {
            f"/{SERVICE}/{method}": grpc.stream_unary_rpc_method_handler(self._guarded(answer))
            for method, answer in answers.items()
        }
        self._server: Any = None

    def service(self, handler_call_details: Any) -> Any:
        """gRPC asks for every call, before it reads the message."""
        return self._handlers.get(handler_call_details.method)

    async def open(self, address: str) -> None:
        """Listen, with mTLS and nothing else."""
        most = max(largest_letter(self.host.dimension), largest_statistics(self.host.features), 1 << 20)
        self._server = grpc.aio.server(
            handlers=[self],
            maximum_concurrent_rpcs=CALLS,
            options=[
                ("grpc.max_receive_message_length", most),
                ("grpc.max_concurrent_streams", 64),
                ("grpc.max_metadata_size", 16 * 1024),
                ("grpc.so_reuseport", 0),
                ("grpc.max_allowed_incoming_connections", self.connections),
                ("grpc.server_handshake_timeout_ms", 5_000),
                ("grpc.keepalive_time_ms", 10_000),
                ("grpc.keepalive_timeout_ms", 3_000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ],
        )
        try:
            port = self._server.add_secure_port(address, self.identity.server_credentials(self.arrivals.begun))
        except RuntimeError:
            port = 0
        if not port:
            raise ListenError(
                f"cannot listen on {address} ({_why_not(address)}): "
                "set [peer] listen to a free address of this machine, or stop who has it"
            )
        try:
            await self._server.start()
        except BaseException:  # cancelled: gRPC waits for ever for a server that was not stopped
            await self.close(0.0)
            raise

    async def close(self, grace: float = 1.0) -> None:
        """Take no more calls."""
        if self._server is not None:
            await self._server.stop(grace)

    def count_turned_away(self) -> None:
        """Those whom TLS has refused: no call of theirs ever comes here."""
        if times := self.arrivals.turned_away():
            self._refuse("handshake", f"{times} connections on which nobody showed a certificate of ours", times)

    def _guarded(self, answer: Callable[[bytes, str], bytes]) -> Callable[[Any, Any], Awaitable[bytes]]:
        """Declared as a stream, of which one message is read: so that who calls is known before anything is read."""

        async def handle(_: Any, context: Any) -> bytes:
            self.arrivals.spoken(context.peer())
            try:
                name = self.verifier.name_of(context.auth_context()["x509_pem_cert"][0])
            except (Refused, KeyError, IndexError) as error:
                self._refuse(getattr(error, "reason", "nameless"), str(error))
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, plain(str(error)))
            if not self.buckets.take(name):
                self._refuse("rate", name)
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "more messages a second than allowed: wait")
            if self._under_way[name] >= CALLS_EACH:
                self._refuse("busy", name)
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "more calls at a time than allowed: wait")
            self._under_way[name] += 1
            try:
                return answer(await self._read(context, name), name)
            except Malformed as error:
                self._refuse(error.reason, f"{name}: {error}")
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, plain(str(error)))
            finally:
                self._under_way -= Counter((name,))  # names with none are let go
            raise AssertionError("abort raises")

        return handle

    async def _read(self, context: Any, name: str) -> bytes:
        with contextlib.suppress(TimeoutError):
            data = await asyncio.wait_for(context.read(), READING)
            if isinstance(data, bytes):  # else gRPC's end of file
                return data
        self._refuse("too-large", name)
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no message, or one too large to be read")
        raise AssertionError("abort raises")

    def _refuse(self, reason: str, text: str, times: int = 1) -> None:
        self.metrics.refuse(reason, times)
        log.debug("refused", extra=fields(reason=reason, why=text))

    def _hello(self, data: bytes, name: str) -> bytes:
        hello = decode_hello(data)
        self._in_own_name(hello.name, name)
        return encode_hello_reply(self.host.greeted(hello, name))

    def _push(self, data: bytes, name: str) -> bytes:
        self.metrics.bytes_received.inc(len(data))
        try:
            letter = decode_letter(data, self.host.run, self.host.dimension)
        except Malformed as error:
            if error.reason != "run":
                raise
            self._refuse("run", f"{name}: {error}")
            return encode_ack(self.host.misdirected(name, "run", plain(str(error))))
        self._in_own_name(letter.sender, name)
        return encode_ack(self.host.received(letter, name))

    def _leave(self, data: bytes, name: str) -> bytes:
        notice = decode_notice(data)
        self._in_own_name(notice.name, name)
        return encode_ack(self.host.left(notice, name))

    def _status(self, data: bytes, name: str) -> bytes:
        self._in_own_name(decode_notice(data).name, name)
        return encode_status_reply(StatusReply(self.host.status()))

    def _stop(self, data: bytes, name: str) -> bytes:
        notice = decode_notice(data)
        self._in_own_name(notice.name, name)
        return encode_ack(self.host.asked_to_stop(notice, name))

    def _statistics(self, data: bytes, name: str) -> bytes:
        statistics = decode_statistics(data, self.host.features)
        self._in_own_name(statistics.name, name)
        return encode_statistics(self.host.exchanged(statistics, name))

    def _in_own_name(self, said: str, name: str) -> None:
        if said != name:
            raise Malformed("name", f"{name} speaks in the name of {said}")
