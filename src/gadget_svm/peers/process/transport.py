"""gRPC streams of bytes with mutual TLS. Owns channels, the server and their options; knows no messages.

Both sides use TLS or nothing: a channel trusts the authority of the study only, and the server asks every client for a
certificate of it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

SERVICE = "gadget.v2.Peer"
HANDSHAKE_TIMEOUT_MS = 5_000
WINDOW_BYTES = 4 << 20  # under way on one stream: enough for 40 MB/s at a round trip of 100 ms
BOTH_ENDS: list[tuple[str, Any]] = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.bdp_probe", 0),  # no ping after each message: at rest, those are a third of all bytes
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
]
TLS_ERRORS = {
    "unable to get local issuer certificate": (
        "its certificate is of another authority than ours: use certificates and ca.pem of one authority at both sites"
    ),
    "self signed certificate in certificate chain": (
        "its certificate is of an authority that we do not know: of another study, or of a TLS proxy on the way. Peers "
        "need a direct connection"
    ),
    "WRONG_VERSION_NUMBER": "that port does not speak TLS: another program listens there, or a proxy",
}
"""What gRPC says if a TLS handshake fails, and what that means."""
ENDED = (grpc.RpcError, grpc.aio.BaseError, grpc.aio.UsageError, asyncio.InvalidStateError)
Handler = Callable[["ServerStream"], Awaitable[None]]
Answer = Callable[[bytes, bytes], bytes]
"""From a request and the certificate of its sender; a PermissionError is told to the sender."""


class StreamError(ConnectionError):
    """A stream has ended with an error; the message is the other end's reason, or gRPC's."""


class Stream:
    """One end of a stream, around gRPC's call or the context of a handler. One task reads and one writes."""

    def __init__(self, end: Any) -> None:
        self._end = end

    async def read(self) -> bytes | None:
        """Return the next message, or None after the last; a StreamError if the stream broke."""
        try:
            data = await self._end.read()
        except ENDED as error:
            raise _stream_error(error) from None
        return data if isinstance(data, bytes) else None

    async def write(self, data: bytes) -> None:
        """Return when the message has left this process's hands."""
        try:
            await self._end.write(data)
        except ENDED as error:
            raise _stream_error(error) from None

    async def finish(self, error: str = "") -> None:
        """End the stream after what was written; an error is told to the other end."""


class ClientStream(Stream):
    """A stream that this end opened, with a channel of its own."""

    def __init__(self, address: str, credentials: Any, name: str | None, frame_bytes: int) -> None:
        options = channel_options(frame_bytes, name)
        self._channel = grpc.aio.secure_channel(address, credentials, options=options)
        super().__init__(self._channel.stream_stream(f"/{SERVICE}/Link")())

    async def finish(self, error: str = "") -> None:
        if error:
            return
        with suppress(*ENDED, StreamError, TimeoutError):
            await self._end.done_writing()
            async with asyncio.timeout(1.0):  # for the other end to finish too
                while await self.read() is not None:
                    pass

    async def close(self) -> None:
        """Cancel the stream if it is not finished, and close its channel."""
        self._end.cancel()
        await self._channel.close(grace=None)


class ServerStream(Stream):
    """A stream that the other end opened. It ends when its handler returns."""

    @property
    def address(self) -> str:
        """Where the call comes from, as gRPC writes it."""
        return str(self._end.peer())

    @property
    def certificate(self) -> bytes:
        """What TLS has accepted."""
        return _certificate(self._end)

    async def finish(self, error: str = "") -> None:
        if error:
            with suppress(*ENDED):  # it may have ended already
                await self._end.abort(grpc.StatusCode.FAILED_PRECONDITION, error)


class Server:
    """Accepts streams, which ``handle`` serves, and the calls in ``answers``; ``called`` gets each caller's address."""

    def __init__(
        self, handle: Handler, answers: dict[str, Answer], frame_bytes: int, connections: int,
        called: Callable[[str], object] = str,
    ) -> None:  # fmt: skip
        async def serve(_: Any, context: Any) -> None:
            await handle(ServerStream(context))

        calls = {name: _answering(answer, called) for name, answer in answers.items()}
        methods = {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
        methods["Link"] = grpc.stream_stream_rpc_method_handler(serve)
        self._handler = grpc.method_handlers_generic_handler(SERVICE, methods)
        self._frame_bytes, self._connections = frame_bytes, connections
        self._server: Any = None

    async def start(self, address: str, credentials: Any) -> int:
        """Listen, with mutual TLS only; return the port."""
        self._server = grpc.aio.server(
            handlers=[self._handler],
            maximum_concurrent_rpcs=2 * self._connections,
            options=[
                *BOTH_ENDS,
                ("grpc.max_receive_message_length", self._frame_bytes),
                ("grpc.max_concurrent_streams", 8),
                ("grpc.max_metadata_size", 16 * 1024),
                ("grpc.so_reuseport", 0),
                ("grpc.max_allowed_incoming_connections", self._connections),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ],
        )
        port = 0
        with suppress(RuntimeError):
            port = self._server.add_secure_port(address, credentials)
        if not port:
            raise OSError(
                f"cannot listen on {address} ({_why_not(address)}): "
                "set [peer] listen to a free address of this machine, or stop the program that uses it"
            )
        try:
            await self._server.start()
        except BaseException:  # cancelled: gRPC would wait for ever for a server that was not stopped
            await self.stop(0.0)
            raise
        return int(port)

    async def stop(self, grace_s: float) -> None:
        """Accept no more calls, and end those that are open. Idempotent."""
        if self._server is not None:
            await self._server.stop(grace_s)


def channel_options(frame_bytes: int, name: str | None) -> list[tuple[str, Any]]:
    """Return options of a channel; ``name`` is the one that the other end's certificate must have."""
    options = [
        *BOTH_ENDS,
        ("grpc.max_receive_message_length", frame_bytes),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    return options if name is None else [*options, ("grpc.ssl_target_name_override", name)]


def plain_reason(details: str) -> str:
    """Return why a call failed, in plain words if gRPC reports a TLS handshake."""
    return next((meaning for words, meaning in TLS_ERRORS.items() if words in details), details[:300])


def _answering(answer: Answer, called: Callable[[str], object]) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def handle(request: bytes, context: Any) -> bytes:
        called(context.peer())
        try:
            return answer(request, _certificate(context))
        except PermissionError as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
            raise AssertionError("abort raises") from None

    return handle


def _certificate(context: Any) -> bytes:
    found = context.auth_context().get("x509_pem_cert", ())
    return bytes(found[0]) if found else b""


def _stream_error(error: Exception) -> StreamError:
    if isinstance(error, grpc.aio.AioRpcError):
        return StreamError(f"{error.code().name.lower().replace('_', ' ')}: {plain_reason(error.details() or '')}")
    return StreamError(str(error)[:300] or "the stream is closed")


def _why_not(address: str) -> str:
    """Return what the system says about an address; gRPC only says that it failed."""
    host, _, port = address.rpartition(":")
    try:
        kind, _, _, _, place = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind) as probe:
            probe.bind(place)
    except OSError as error:
        return error.strerror or str(error)
    return "gRPC failed, though it is free"
