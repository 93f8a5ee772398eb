"""Pushes between two peers, a process each, against bare gRPC with the same payload: all aio and over mTLS.

A push is encoded, queued, sent, checked (size, form, ranges, rate), handled by a real node, which
puts it where its learner finds it, and acknowledged. Bare calls carry the same bytes: unary, and as messages of one
stream of which each is acknowledged.
"""

import asyncio
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Table, generated, publish_tables, say
from gadget_svm.peers.events import Dial, Effect, Event, Finish, LinkUp, Received, Send, Started, StopRequested
from gadget_svm.peers.membership.member import Member
from gadget_svm.peers.process import config
from gadget_svm.peers.process.credential_files import CredentialFiles
from gadget_svm.peers.process.host import HostSettings, PeerHost
from gadget_svm.peers.process.snapshot_store import SnapshotStore
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.wire.codec import encode
from gadget_svm.peers.wire.limits import Limits
from gadget_svm.peers.wire.messages import Acknowledgement, EdgeState, Heartbeat, Hello, Push
from gadget_svm.study.study import Study

SIZES = (123, 784, 47236)
IN_FLIGHT = 8
ROUNDS = 3
INCARNATION = 10_000
NO_SCALE = bytes(32)


def study_of(features: int) -> Study:
    """Return a study of which models have so many numbers."""
    return Study("bench", 1e-3, features, (-1.0, 1.0), intercept=False)


def credentials_of(folder: Path, name: str) -> CredentialFiles:
    """Return the credentials in a folder of `certificates.issue`."""
    bundle = folder / "ca" / "peers" / name
    return CredentialFiles(bundle / f"{name}.pem", bundle / f"{name}.key", bundle / "ca.pem", bundle / "revoked.pem")


def host_of(folder: Path, name: str, node: Any, study: Study) -> PeerHost:
    """Return a host without limits on the rate."""
    settings = HostSettings("127.0.0.1:0", config.Limits(message_rate=1e9, burst=10**9))
    store = SnapshotStore(folder / name)
    return PeerHost(node, settings, Limits.of(study), credentials_of(folder, name), store, lambda _: None)


class Driver:
    """A node that keeps some pushes to one peer under way and counts what is acknowledged."""

    def __init__(self, study: Study, address: str) -> None:
        self.study, self.address = study, address
        self.vector = np.random.default_rng(0).normal(size=study.dimension)
        self.acknowledged = self.seq = self.link = self.other = 0
        self.ready, self.sending = False, False

    def handle(self, event: Event, now: float) -> list[Effect]:  # noqa: ARG002
        """Greet, answer heartbeats so that the edge is up, and push."""
        match event:
            case Started():
                return [Dial(self.address, "b")]
            case LinkUp():
                self.link = event.link
                me = Member("a", "127.0.0.1:9", INCARNATION, 1, rows=1.0, slack=-1.0)
                hello = Hello("a", INCARNATION, self.study.text(), self.study.digest, me.address, False, (me,))
                return [Send(self.link, hello)]
            case Received(message=Hello() as hello):
                self.other = hello.incarnation
                return [self._heartbeat(EdgeState.INIT)]
            case Received(message=Heartbeat() as heard):
                self.ready = heard.edge is EdgeState.UP
                return [self._heartbeat(EdgeState.INIT if heard.edge is EdgeState.DOWN else EdgeState.UP)]
            case Received(message=Acknowledgement()):
                self.acknowledged += 1
                return [self.push()] if self.sending else []
            case StopRequested():
                return [Finish("done")]
        return []

    def push(self) -> Effect:
        """Return the next push."""
        self.seq += 1
        push = Push(INCARNATION, self.other, self.seq, self.seq, self.vector, 1.0, 1.0, NO_SCALE)
        return Send(self.link, push)

    def status(self, now: float) -> dict[str, Any]:  # noqa: ARG002
        """Nothing of interest."""
        return {}

    def _heartbeat(self, edge: EdgeState) -> Effect:
        self.seq += 1
        return Send(self.link, Heartbeat(self.seq, INCARNATION, self.other, edge))


def serve(folder: str, features: int, pipe: Connection) -> None:
    """Run the receiving process: a peer, and a bare server with the same certificate on another port."""
    asyncio.run(_serve(Path(folder), study_of(features), pipe))


async def _serve(folder: Path, study: Study, pipe: Connection) -> None:
    import grpc
    import grpc.aio

    from gadget_svm.peers.node import Node

    X, y = generated(50, study.n_features, min(14, study.n_features), seed=1)
    site = Site(X, (y > 0).astype(np.int32), classes=study.classes)
    settings = NodeSettings("b", "127.0.0.1:9", tick=3600.0, heartbeat=0.2, suspect=60.0, snapshot_interval=3600.0)
    host = host_of(folder, "b", Node(settings, study, site, random.Random(0)), study)
    running = asyncio.create_task(host.run())
    answer = b"x" * 20

    async def unary(_: bytes, __: Any) -> bytes:
        return answer

    async def stream(_: Any, context: Any) -> None:
        while await context.read() is not grpc.aio.EOF:
            await context.write(answer)

    methods = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary), "Stream": grpc.stream_stream_rpc_method_handler(stream)
    }  # fmt: skip
    handler = grpc.method_handlers_generic_handler("bare", methods)
    server = grpc.aio.server(handlers=[handler], options=[("grpc.max_receive_message_length", 64 << 20)])
    port = server.add_secure_port("127.0.0.1:0", credentials_of(folder, "b").server_credentials())
    await server.start()
    while not host.port:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)  # until the node is live
    pipe.send((host.port, port))
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, pipe.recv) is not None:
        pipe.send(time.process_time())
    await server.stop(None)
    host.stop("done")
    await running


async def measure(folder: Path, features: int, pipe: Connection, seconds: float) -> dict[str, list[Any]]:
    """Return messages a second, and microseconds of CPU a message at both ends, for each kind in turn."""
    import grpc
    import grpc.aio

    host_port, bare_port = pipe.recv()
    study = study_of(features)
    driver = Driver(study, f"127.0.0.1:{host_port}")
    host = host_of(folder, "a", driver, study)
    running = asyncio.create_task(host.run())
    payload = encode(driver.push().message, Limits.of(study))  # type: ignore[union-attr]
    credentials = credentials_of(folder, "a").channel_credentials()
    options = [("grpc.max_send_message_length", -1)]
    channel = grpc.aio.secure_channel(f"127.0.0.1:{bare_port}", credentials, options)
    unary, stream = channel.unary_unary("/bare/Unary"), channel.stream_stream("/bare/Stream")()

    async def by_unary(until: Callable[[], bool]) -> int:
        done = 0

        async def one_after_another() -> None:
            nonlocal done
            while not until():
                await unary(payload, timeout=30.0)
                done += 1

        await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
        return done

    async def by_stream(until: Callable[[], bool]) -> int:
        done, room = 0, asyncio.Semaphore(IN_FLIGHT)
        ended = asyncio.Event()

        async def read(count: list[int]) -> None:
            nonlocal done
            while not (ended.is_set() and done == count[0]):
                await stream.read()
                done += 1
                room.release()

        sent = [0]
        reader = asyncio.create_task(read(sent))
        while not until():
            await room.acquire()
            await stream.write(payload)
            sent[0] += 1
        ended.set()
        if done < sent[0]:
            await reader
        reader.cancel()
        return done

    async def by_peer(until: Callable[[], bool]) -> int:
        before = driver.acknowledged
        driver.sending = True
        for _ in range(IN_FLIGHT):
            host.links.send(driver.push())  # type: ignore[arg-type]
        while not until():
            await asyncio.sleep(0.01)
        driver.sending = False
        await asyncio.sleep(0.2)  # for what is under way
        return driver.acknowledged - before

    end = time.perf_counter() + 30.0
    while not driver.ready:
        assert time.perf_counter() < end, "the edge is not up"
        await asyncio.sleep(0.01)
    kinds = {"unary": by_unary, "stream": by_stream, "peer": by_peer}
    found: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for turn in range(ROUNDS + 1):
        for kind, drive in kinds.items():
            pipe.send(True)
            cpu, start = -pipe.recv() - time.process_time(), time.perf_counter()
            length = seconds if turn else 0.3  # the first turn is not counted
            done = await drive(lambda start=start, length=length: time.perf_counter() - start > length)
            took = min(time.perf_counter() - start, length) if kind == "peer" else time.perf_counter() - start
            pipe.send(True)
            cpu += pipe.recv() + time.process_time()
            if turn:
                found[kind].append((done / took, 1e6 * cpu / done))
    await channel.close()
    host.stop("done")
    await running
    return {**found, "bytes": [len(payload)]}


def between_two(features: int, seconds: float) -> dict[str, list[Any]]:
    """Measure one size: start the receiving process, measure, end it."""
    from gadget_svm.authority import certificates

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        certificates.init_ca(folder / "ca")
        for name in "ab":
            certificates.issue(folder / "ca", name, ["127.0.0.1"])
        spawn = multiprocessing.get_context("spawn")
        here, there = spawn.Pipe()
        process = spawn.Process(target=serve, args=(temporary, features, there))
        process.start()
        try:
            return asyncio.run(measure(folder, features, here, seconds))
        finally:
            here.send(None)
            process.join(10)
            if process.is_alive():
                process.kill()


def main(quick: bool = False) -> None:
    """Measure every size in turn."""
    table = Table(
        ("features", "bytes a push", "unary, messages/s", "stream, messages/s", "peers, messages/s",
         "unary, CPU us a message", "stream, CPU us a message", "peers, CPU us a message", "peers / stream",
         "peers / unary")
    )  # fmt: skip
    seconds = 0.5 if quick else 3.0
    for features in SIZES:
        say(f"peer_messages: {features:,} features")
        found = between_two(features, seconds)
        (unary, unary_cpu), (stream, stream_cpu), (peer, peer_cpu) = (
            np.median(found[kind], axis=0) for kind in ("unary", "stream", "peer")
        )
        table.add(
            features, found["bytes"][0], round(unary), round(stream), round(peer), round(unary_cpu), round(stream_cpu),
            round(peer_cpu), peer / stream, peer / unary,
        )  # fmt: skip
    notes = [
        f"Two processes of one machine, {IN_FLIGHT} under way, median of {ROUNDS} turns of {seconds:g} s each. "
        "CPU is that of both ends. A push is encoded, checked, handled by a real node and acknowledged; bare calls and "
        "bare messages of a stream carry the same bytes and are answered with 20.",
    ]
    publish_tables("peer_messages", "Pushes between two peers beside bare gRPC", notes, [table], quick=quick)


if __name__ == "__main__":
    main()
