"""What a peer lets others watch: Prometheus metrics, and a small HTTP server for ``/metrics`` and ``/healthz``.

Owns names, help texts and the answers; the peer counts. The server reads nothing but a request line and headers, both
bounded, answers once and hangs up; it has no encryption, so it belongs on a local address.
"""

import asyncio
import json
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gadget_svm.peers.logs import plain

log = logging.getLogger(__name__)

PREFIX = "gadget_peer"
STATES = ("alive", "suspect", "dead", "left")
REASONS = (
    *("garbage", "version", "run", "name", "dimension", "not-finite", "too-large", "sequence", "members"),
    *("expired", "revoked", "stranger", "nameless", "rate", "incarnation", "unknown", "busy", "handshake"),
)
OTHER = "other"
REQUEST = 8192
LINGER = 64 * 1024
QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SLOW = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Healthy = Callable[[], tuple[bool, Mapping[str, Any]]]


class Metrics:
    """The metrics of one peer, in a registry of their own; what is not known yet is NaN, not 0."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.info = Info(PREFIX, "Who this peer is: name, version, run.", registry=self.registry)
        self.messages_sent = self._counter("messages_sent", "Letters that another peer has acknowledged.")
        self.messages_received = self._counter("messages_received", "Letters of others that were used.")
        self.bytes_sent = self._counter("bytes_sent", "Bytes of letters sent, as encoded.")
        self.bytes_received = self._counter("bytes_received", "Bytes of letters received, refused ones too.")
        self.send_failures = self._counter("send_failures", "Letters given up: no answer, or an answer that refused.")
        self.refused = self._counter("refused", "Letters and greetings of others turned away, by reason.", ["reason"])
        self.withheld = self._counter("withheld", "Letters not sent because they might say too much about the rows.")
        self.ticks = self._counter("ticks", "Steps of learning since the start.")
        self.objective = self._gauge("objective", "The estimated objective over all sites.")
        self.gap_estimate = self._gauge("gap_estimate", "The estimated relative gap to the optimum; not a bound.")
        self.disagreement = self._gauge("disagreement", "How far this model is from its neighbours', relative.")
        self.members = Gauge(
            f"{PREFIX}_members", "Known peers by state, this one among them.", ["state"], registry=self.registry
        )
        self.neighbours = self._gauge("neighbours", "Peers that this one exchanges letters with now.", 0.0)
        self.incarnation = self._gauge("incarnation", "Grows with every start of a peer of this name.")
        self.certificate_expires = self._gauge(
            "certificate_expires_timestamp_seconds", "When this peer's certificate ends, in Unix time."
        )
        self.checkpoints = self._counter("checkpoints", "States saved to disk.")
        self.checkpoint_failures = self._counter("checkpoint_failures", "States that could not be saved.")
        self.checkpoint_time = self._gauge(
            "checkpoint_timestamp_seconds", "When the state was last saved, in Unix time."
        )
        self.checkpoint_seconds = self._histogram("checkpoint_seconds", "Time that saving a state took.", SLOW)
        self.rtt = self._histogram("rtt_seconds", "Time from sending a letter to its acknowledgement.", QUICK)
        self.set_members({})

    def refuse(self, reason: str, times: int = 1) -> None:
        """Count refusals; reasons nobody listed share one label, so that others cannot make up series."""
        self.refused.labels(reason if reason in REASONS else OTHER).inc(times)

    def set_members(self, counts: Mapping[str, int]) -> None:
        """How many peers are in each state; none in those not given."""
        for state in STATES:
            self.members.labels(state).set(counts.get(state, 0))

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels or (), registry=self.registry)

    def _gauge(self, name: str, text: str, value: float = math.nan) -> Gauge:
        gauge = Gauge(f"{PREFIX}_{name}", text, registry=self.registry)
        gauge.set(value)
        return gauge

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, buckets=buckets, registry=self.registry)


class Answer(NamedTuple):
    status: HTTPStatus
    body: bytes = b""
    kind: str = "text/plain; charset=utf-8"
    head: bool = False
    more: str = ""

    def encoded(self) -> bytes:
        body = self.body or f"{self.status.value} {self.status.phrase}\n".encode()
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: {self.kind}\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n{self.more}\r\n"
        )
        return lines.encode("ascii") + (b"" if self.head else body)


async def serve(
    metrics: Metrics, healthy: Healthy, host: str, port: int, *, timeout: float = 5.0, connections: int = 16
) -> asyncio.Server:
    """Serve until closed. ``healthy`` says whether, and what to show.

    A connection has ``timeout`` seconds to ask and as many to take its answer; beyond ``connections`` at a time the
    answer is 503.
    """
    pages: dict[str, Callable[[], Answer]] = {
        "/metrics": lambda: Answer(HTTPStatus.OK, metrics.text(), CONTENT_TYPE_LATEST),
        "/healthz": lambda: _health(healthy),
    }
    desk = _Desk(pages, timeout, connections)
    try:
        return await asyncio.start_server(desk.welcome, host, port, limit=REQUEST)
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot serve metrics on {host}:{port} ({error.strerror or error}): "
            "set [metrics] port to a free one, or to 0 for none",
        ) from error


class _Desk:
    """Answers connections, a few at a time."""

    def __init__(self, pages: Mapping[str, Callable[[], Answer]], timeout: float, connections: int) -> None:
        self.pages = pages
        self.timeout = timeout
        self.connections = connections
        self.open = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A task of our own: Python 3.11 logs a traceback for one of its own that is cancelled at the end."""
        task = asyncio.get_running_loop().create_task(self.receive(reader, writer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            async with asyncio.timeout(2 * self.timeout):  # to ask, and to be answered
                answer = await self._heard(reader)
                if answer is not None:
                    await _send(answer, reader, writer)
        except (TimeoutError, ConnectionError):
            log.debug("a reader of the metrics went away")
        finally:
            self.open -= 1
            writer.transport.abort()  # no more, if all was sent

    async def _heard(self, reader: asyncio.StreamReader) -> Answer | None:
        """What to answer; None to one who asked nothing."""
        if self.open > self.connections:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, b"too many connections\n", more="Retry-After: 1\r\n")
        try:
            async with asyncio.timeout(self.timeout):
                request = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            return Answer(HTTPStatus.REQUEST_TIMEOUT)
        except asyncio.LimitOverrunError:
            return Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except asyncio.IncompleteReadError as short:
            return Answer(HTTPStatus.BAD_REQUEST) if short.partial else None
        return self._answer(request)

    def _answer(self, request: bytes) -> Answer:
        try:
            method, target, version = request.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        except ValueError:  # also what is not ASCII
            return Answer(HTTPStatus.BAD_REQUEST)
        if version not in ("HTTP/1.0", "HTTP/1.1"):
            return Answer(HTTPStatus.BAD_REQUEST)
        page = self.pages.get(target.partition("?")[0])
        if page is None:
            return Answer(HTTPStatus.NOT_FOUND, head=method == "HEAD")
        if method not in ("GET", "HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, more="Allow: GET, HEAD\r\n")
        return _made(page)._replace(head=method == "HEAD")


def _made(page: Callable[[], Answer]) -> Answer:
    try:
        return page()
    except Exception:
        log.exception("a page of the metrics server failed")
        return Answer(HTTPStatus.INTERNAL_SERVER_ERROR)


def _health(healthy: Healthy) -> Answer:
    well, about = healthy()
    body = json.dumps({"healthy": bool(well), **plain(about)}, allow_nan=False).encode() + b"\n"
    return Answer(HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE, body, "application/json")


async def _send(answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send, and read on a little: closing on unread bytes would reset the connection and take the answer back."""
    writer.write(answer.encoded())
    await writer.drain()
    with suppress(OSError):  # already closed by the other end
        writer.write_eof()
    seen = 0
    while seen < LINGER:
        data = await reader.read(REQUEST)
        if not data:
            break
        seen += len(data)
    writer.close()
    await writer.wait_closed()
