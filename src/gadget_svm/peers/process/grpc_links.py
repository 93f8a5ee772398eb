"""Links to other peers: identities are proved here, and messages are bounded, before the node sees anything.

Each end first sends a `Challenge`; the node's `Hello` then travels with a signature (see `security.handshake`). A link
is closed if its other end does not prove its certificate, sends what is malformed, or does not take what is sent to it.
When to dial, and which links to keep, is the node's business.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable

from gadget_svm.peers import events as ev
from gadget_svm.peers.process import config
from gadget_svm.peers.process.credential_files import CredentialFiles
from gadget_svm.peers.process.handshake_counter import HandshakeCounter
from gadget_svm.peers.process.link import Link, split_frames
from gadget_svm.peers.process.rate_limits import RateLimits
from gadget_svm.peers.process.transport import ClientStream, ServerStream, Stream, StreamError
from gadget_svm.peers.security.errors import UntrustedError
from gadget_svm.peers.wire.codec import decode, encode
from gadget_svm.peers.wire.limits import Limits, MalformedError, printable
from gadget_svm.peers.wire.messages import Challenge, Hello, SignedHello

DIAL_TIMEOUT_S = 5.0  # until both ends have sent their challenges
HELLO_TIMEOUT_S = 10.0  # from then until the hello
FLUSH_TIMEOUT_S = 2.0  # for what was sent before a hangup
THROTTLE_S = 0.1  # pause of a sender that exceeds its rate
MAX_LINKS_PER_PEER = 4
log = logging.getLogger(__name__)


class Links:
    """All links of one peer, by number. ``deliver`` takes events for the node; ``counts`` is for the status."""

    def __init__(
        self, credentials: CredentialFiles, limits: Limits, bounds: config.Limits, deliver: Callable[[ev.Event], None],
        counts: Counter[str],
    ) -> None:  # fmt: skip
        self._credentials, self._limits, self._deliver, self._counts = credentials, limits, deliver, counts
        self._rates = RateLimits(bounds.message_rate, bounds.burst, max_names=bounds.members)
        self._links: dict[int, Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_number = 0
        self._closing = False
        self.handshakes = HandshakeCounter(8 * bounds.connections)
        self.untrusted: dict[str, str] = {}  # peers whose certificate is refused: "revoked" or "expired"

    def __len__(self) -> int:
        return len(self._links)

    # Effects

    def dial(self, effect: ev.Dial) -> None:
        """Open a link; `LinkUp` or `DialFailed` follows."""
        task = asyncio.create_task(self._dial(effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def send(self, effect: ev.Send) -> None:
        """Queue a message. A link that is closed ignores it, and one that is full is closed."""
        link, message = self._links.get(effect.link), effect.message
        if link is None:
            return
        try:
            data = encode(link.handshake.sign(message) if isinstance(message, Hello) else message, self._limits)
        except MalformedError as error:  # a defect of this program, and no reason to leave the other links
            log.exception("a message to %s cannot be sent", link.name)
            self._drop(link, f"a message cannot be sent: {error}", tell="a defect")
            return
        if not link.push(data):
            self._drop(link, "the other end does not take what is sent to it", tell="you do not read")
            return
        self._counts["messages_sent"] += 1
        self._counts["bytes_sent"] += len(data)

    def hang_up(self, effect: ev.Hangup) -> None:
        """Close a link after what was sent on it."""
        link = self._links.pop(effect.link, None)
        if link is not None:
            link.close()

    def check_certificates(self) -> None:
        """Close links that were opened with certificates, of either end, that are revoked or expired by now."""
        for link in list(self._links.values()):
            try:
                for certificate in link.certificates:
                    self._credentials.identify(certificate)
            except UntrustedError as error:
                self._refuse(error)
                self._drop(link, error.reason, tell=str(error))

    async def close(self) -> None:
        """Hang up all links and wait for what was sent on them."""
        self._closing = True
        for number in list(self._links):
            self.hang_up(ev.Hangup(number, "stopped"))
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=FLUSH_TIMEOUT_S + 1.5)
            for task in late:
                task.cancel()

    def reject(self, reason: str, text: str, count: int = 1) -> None:
        """Report something that the node does not see."""
        log.debug("rejected: %s: %s", reason, text)
        self._deliver(ev.Rejected(reason, printable(text), count))

    def _refuse(self, error: UntrustedError | MalformedError, where: str = "") -> None:
        """Report a refusal; the log says once whose certificate is no longer valid."""
        name = error.name if isinstance(error, UntrustedError) else ""
        if name and self.untrusted.get(name) != error.reason:
            self.untrusted[name] = error.reason
            log.warning("%s: nothing is exchanged with it", error)
        self.reject(error.reason, f"{where}{error}")

    # From a stream to a link

    async def serve(self, stream: ServerStream) -> None:
        """Handle a stream that another peer has opened."""
        self.handshakes.proved(stream.address)
        try:
            name = self._credentials.identify(stream.certificate).name  # before anything is read
            if not self._rates.take(name):
                raise UntrustedError("rate", f"{name} opens more links per second than it may")
            link = await self._identified(stream, stream.certificate)
        except (UntrustedError, MalformedError) as error:
            self._refuse(error)
            await stream.finish(printable(str(error)))
        except (StreamError, TimeoutError) as error:
            self.reject("timeout", f"no challenge from {stream.address}: {error}")
        else:
            await self._run(link, ev.LinkUp(link.number, link.name))

    async def _dial(self, effect: ev.Dial) -> None:
        address = effect.address
        stream = ClientStream(address, self._credentials.channel_credentials(), effect.name, self._limits.frame_bytes)
        try:
            link = await self._identified(stream, None, effect.name)
        except (UntrustedError, MalformedError, StreamError, TimeoutError) as error:
            if isinstance(error, UntrustedError | MalformedError):
                self._refuse(error, f"{address}: ")
            reason = f"no answer within {DIAL_TIMEOUT_S:g} s" if isinstance(error, TimeoutError) else str(error)
            self._counts["dial_failures"] += 1
            self._deliver(ev.DialFailed(address, printable(reason)))
        else:
            await self._run(link, ev.LinkUp(link.number, link.name, address))
        finally:
            await stream.close()

    async def _identified(self, stream: Stream, tls_certificate: bytes | None, expect: str | None = None) -> Link:
        """Exchange challenges; return the link if the other end may have one."""
        if own := self._credentials.problem():
            raise UntrustedError(own, f"this peer's own certificate is {own}")
        handshake = self._credentials.handshake(self._limits, dialled=tls_certificate is None, expect=expect)
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            await stream.write(encode(handshake.challenge, self._limits))
            data = await stream.read()
        if data is None:
            raise StreamError("the other end closed the stream")
        theirs = decode(data, self._limits)
        if not isinstance(theirs, Challenge):
            raise MalformedError("sequence", "the first message is not a challenge")
        name = handshake.receive_challenge(theirs, time.time(), tls_certificate).name
        if self._closing or sum(link.name == name for link in self._links.values()) >= MAX_LINKS_PER_PEER:
            raise UntrustedError("busy", f"{name!r} has too many links, or this peer is leaving")
        self._last_number += 1
        certificates = (theirs.certificate, handshake.challenge.certificate)
        return Link(self._last_number, stream, name, certificates, handshake, self._limits.frame_bytes)

    # A link

    async def _run(self, link: Link, up: ev.LinkUp) -> None:
        """Read and write until the link is closed, for whatever reason."""
        self._links[link.number] = link
        self._deliver(up)
        reader, writer = (asyncio.create_task(work(link)) for work in (self._receive, self._write))
        try:
            error = await link.closed
            if not error:
                await asyncio.wait((writer,), timeout=FLUSH_TIMEOUT_S)
        finally:
            self._drop(link, "the connection was lost")
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
        await link.stream.finish(error)

    async def _write(self, link: Link) -> None:
        try:
            await link.write_queue()
        except Exception as error:
            self._drop(link, str(error), tell="broken")

    async def _receive(self, link: Link) -> None:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                data = await link.stream.read()
            while data is not None:
                for frame in split_frames(data):
                    while not self._rates.take(link.name):
                        self.reject("rate", f"{link.name} sends more messages per second than it may")
                        await asyncio.sleep(THROTTLE_S)
                    self._handle(link, frame)
                data = await link.stream.read()
            self._drop(link, "closed by the other end")
        except (MalformedError, UntrustedError) as error:
            self._refuse(error, f"{link.name}: ")
            self._drop(link, f"rejected: {error}", tell=str(error))
        except TimeoutError:
            self.reject("timeout", f"{link.name} sent no hello within {HELLO_TIMEOUT_S:g} s")
            self._drop(link, "no hello", tell="no hello")
        except StreamError as error:
            self._drop(link, str(error), tell="broken")

    def _handle(self, link: Link, data: bytes) -> None:
        """Check one message and deliver it. The first must be a hello that proves the certificate of its sender."""
        message = decode(data, self._limits)
        if isinstance(message, SignedHello):
            message = link.handshake.verify(message, time.time())
            link.greeted = True
            self.untrusted.pop(link.name, None)
        elif not link.greeted or isinstance(message, Challenge):
            raise MalformedError("sequence", "a message before the hello, or a second challenge")
        self._counts["messages_received"] += 1
        self._counts["bytes_received"] += len(data)
        if link.number in self._links:
            self._deliver(ev.Received(link.number, message))

    def _drop(self, link: Link, reason: str, *, tell: str = "") -> None:
        """Close a link, and report it unless the node has hung up itself. With ``tell`` for the other end, at once."""
        link.close(printable(tell))
        if self._links.pop(link.number, None) is not None:
            self._deliver(ev.LinkDown(link.number, printable(reason)))
