"""For tests of the process host: certificates, one end of links without a node, and a node that only notes events."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np

from gadget_svm.authority import certificates
from gadget_svm.peers.events import Dial, Effect, Event, Finish, LinkUp, Send, StopRequested
from gadget_svm.peers.process import config
from gadget_svm.peers.process.control import control_answers
from gadget_svm.peers.process.credential_files import CredentialFiles
from gadget_svm.peers.process.grpc_links import Links
from gadget_svm.peers.process.transport import SERVICE, Server
from gadget_svm.peers.wire.codec import decode, encode
from gadget_svm.peers.wire.limits import Limits
from gadget_svm.peers.wire.messages import Challenge, Hello, Message, Push

LIMITS = Limits("pdmm", features=12, outputs=1, dimension=13)


class Certificates:
    """An authority in a folder, and the certificates that it has issued."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        certificates.init_ca(folder)

    def paths(self, name: str, **options: Any) -> dict[str, Path]:
        """The four files of a peer, issued when first asked for."""
        bundle = self.folder / "peers" / name
        if options or not bundle.exists():
            certificates.issue(self.folder, name, ["127.0.0.1", "localhost"], **options)
        files = {"cert": f"{name}.pem", "key": f"{name}.key", "ca": "ca.pem", "revoked": "revoked.pem"}
        return {key: bundle / file for key, file in files.items()}

    def of(self, name: str) -> CredentialFiles:
        """The credentials of a peer, as a process has them."""
        return CredentialFiles(**self.paths(name), expect=name)

    def revoke(self, name: str, *told: str) -> None:
        """Revoke a certificate, and copy the new list to these peers."""
        certificates.revoke(self.folder, name)
        for other in told:
            self.paths(other)["revoked"].write_bytes((self.folder / "revoked.pem").read_bytes())


def hello(name: str, **changes: Any) -> Hello:
    return Hello(**{"name": name, "incarnation": 7, "study": "{}", "digest": bytes(32), **changes})


def push(seq: int = 0, size: int = 13, **changes: Any) -> Push:
    values = {"incarnation": 7, "receiver_incarnation": 7, "seq": seq, "time": 1, "vector": np.full(size, 0.1)}
    return Push(**{**values, "weight": 1.0, "note": 1.0, **changes})


class End:
    """The links of one peer over real sockets, with a list of events in place of a node."""

    def __init__(self, credentials: CredentialFiles, limits: Limits = LIMITS, **settings: Any) -> None:
        self.credentials, self.limits, self.name = credentials, limits, credentials.name
        self.events: list[Event] = []
        self.counts: Counter[str] = Counter()
        self.greets, self.stopped, self.float32 = True, "", False
        bounds = config.Limits(**settings)
        self.links = Links(credentials, limits, bounds, self.deliver, self.counts)
        answers = control_answers(credentials, lambda: {"name": self.name}, self.stop, self.links.reject)
        self.server = Server(self.links.serve, answers, limits.frame_bytes, bounds.connections)
        self.address = ""

    async def __aenter__(self) -> "End":
        began = self.links.handshakes.began
        port = await self.server.start("127.0.0.1:0", self.credentials.server_credentials(began))
        self.address = f"127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.links.close()
        await self.server.stop(0.5)

    def deliver(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, LinkUp) and self.greets:
            self.send(event.link, hello(self.name, float32=self.float32))

    def stop(self, reason: str) -> None:
        self.stopped = reason

    def send(self, link: int, message: Message) -> None:
        self.links.send(Send(link, message))

    def all(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def next(self, kind: type, number: int = 1) -> Any:
        """The event of this kind with this number, when it is there."""
        await until(lambda: len(self.all(kind)) >= number, f"{kind.__name__} at {self.name}: {self.events}")
        return self.all(kind)[number - 1]

    async def dial(self, other: "End | str", name: str | None = None) -> None:
        self.links.dial(Dial(other if isinstance(other, str) else other.address, name))


async def until(condition: Callable[[], Any], what: str = "", patience: float = 30.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"not in {patience:g} s: {what}"
        await asyncio.sleep(0.005)


class RawLink:
    """A stream to an end by hand: any bytes, with any credentials, or none."""

    def __init__(self, end: End | str, credentials: Any, name: str = "a") -> None:
        address = end if isinstance(end, str) else end.address
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address, options)
        else:
            options.append(("grpc.ssl_target_name_override", name))
            self.channel = grpc.aio.secure_channel(address, credentials, options)
        self.call = self.channel.stream_stream(f"/{SERVICE}/Link")()

    async def __aenter__(self) -> "RawLink":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.call.cancel()
        await self.channel.close()

    async def shake(self, credentials: CredentialFiles, limits: Limits = LIMITS) -> Any:
        """Exchange challenges as an honest client."""
        handshake = credentials.handshake(limits, dialled=True)
        await self.call.write(encode(handshake.challenge, limits))
        theirs = decode(await self.call.read(), limits)
        assert isinstance(theirs, Challenge)
        handshake.receive_challenge(theirs, time.time())
        return handshake

    async def greet(self, credentials: CredentialFiles, limits: Limits = LIMITS) -> None:
        """All of a handshake."""
        handshake = await self.shake(credentials, limits)
        await self.call.write(encode(handshake.sign(hello(credentials.name)), limits))

    async def code(self) -> grpc.StatusCode:
        """How the stream ends; what is sent until then is read."""
        try:
            while await self.call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK


class NotingNode:
    """A node that notes events, does what it is told for each kind, and finishes when it is asked to stop."""

    def __init__(self, **effects: Any) -> None:
        self.events: list[Event] = []
        self.effects = effects  # by the name of an event's class: a list of effects, or a function that returns one
        self.state = "learning"

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.events.append(event)
        found = self.effects.get(type(event).__name__, [])
        effects: list[Effect] = found(event, now) if callable(found) else list(found)
        if isinstance(event, StopRequested) and "StopRequested" not in self.effects:
            effects.append(Finish(event.reason))
        return effects

    def status(self, now: float) -> dict[str, Any]:
        return {"name": "a", "state": self.state, "ticks": 3, "refused": {}, "uptime": now - now}

    def all(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]
