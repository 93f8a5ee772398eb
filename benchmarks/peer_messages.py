"""Letters between two peers, a process each, against bare gRPC with the same payload: both aio, unary, over mTLS.

A peer's letter is encoded, sent, checked (certificate, rate, form, run, incarnation, number), put where the learner
finds it, and answered; the answer is decoded. The bare call carries the same bytes, and answers as many as a peer.
"""

import asyncio
import multiprocessing
import socket
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Table, generated, publish_tables, say

SIZES = (123, 784, 47236)
IN_FLIGHT = 8
ROUNDS = 3


def free_port() -> int:
    """A port nobody has at the moment."""
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return int(some.getsockname()[1])


def make_sites(folder: Path, features: int) -> None:
    """Certificates, rows and files of two peers that never tick by themselves."""
    from gadget_svm.peers import certs
    from gadget_svm.peers.config import template

    certs.init_ca(folder / "ca")
    for i in range(2):
        home, port = folder / f"site-{i}", free_port()
        certs.issue(folder / "ca", f"site-{i}", ["127.0.0.1"], out=home)
        X, y = generated(50, features, min(14, features), seed=i)
        np.savez(home / "rows.npz", data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y)
        text = template(
            f"site-{i}", address=f"127.0.0.1:{port}", listen=f"127.0.0.1:{port}", train="rows.npz", lam=1e-3,
            intercept=False, tick=3600.0, message_rate=1e9, burst=10**9, features=features,
        )  # fmt: skip
        (home / "peer.toml").write_text(text)


def serve(folder: str, pipe: Connection) -> None:
    """The receiving process: a peer, and a bare server with the same certificate on another port."""
    asyncio.run(_serve(Path(folder), pipe))


async def _serve(folder: Path, pipe: Connection) -> None:
    import grpc

    from gadget_svm.peers.config import load
    from gadget_svm.peers.peer import Peer

    peer = Peer(load(folder / "site-1" / "peer.toml"))
    peer.study.begin()
    await peer._desk.open(peer.config.peer.listen)
    answer = b"x" * 20

    async def bare(_: bytes, __: Any) -> bytes:
        return answer

    handler = grpc.method_handlers_generic_handler("bare", {"Push": grpc.unary_unary_rpc_method_handler(bare)})
    server = grpc.aio.server(handlers=[handler], options=[("grpc.max_receive_message_length", 64 << 20)])
    port = server.add_secure_port("127.0.0.1:0", peer.identity.server_credentials())
    await server.start()
    pipe.send(port)
    loop = asyncio.get_running_loop()
    while True:
        if await loop.run_in_executor(None, pipe.recv) is None:
            break
        pipe.send((time.process_time(), peer.mailbox.heard["site-0"].letters if "site-0" in peer.mailbox.heard else 0))
    await server.stop(None)
    await peer._desk.close(0.0)


async def drive(call: Any, seconds: float) -> tuple[int, float]:
    """How many calls came back, with some always under way, and how long it took."""
    done, until, start = 0, time.perf_counter() + seconds, time.perf_counter()

    async def one_after_another() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await call()
            done += 1

    await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
    return done, time.perf_counter() - start


async def measure(folder: Path, features: int, pipe: Connection, port: int, seconds: float) -> dict[str, list[Any]]:
    """Both kinds in turn: messages a second, and microseconds of CPU a message at both ends."""
    import grpc

    from gadget_svm.peers.config import load
    from gadget_svm.peers.envelope import Letter, Status, decode_ack, encode_letter
    from gadget_svm.peers.peer import Peer
    from gadget_svm.peers.post import Line, introduce

    peer = Peer(load(folder / "site-0" / "peer.toml"))
    peer.study.begin()
    other = load(folder / "site-1" / "peer.toml").peer
    line = Line(peer.identity, other.address, features, other.name)
    reply = await introduce(peer, line)
    vector, count = np.random.default_rng(0).normal(size=features), 0

    async def letter() -> None:
        nonlocal count
        count += 1
        data = encode_letter(
            Letter(
                peer.run, peer.name, peer.members.me.incarnation, other.name, reply.incarnation, count, count, vector,
                1.0, 0.0, True, peer._view_for(other.name, peer._told),
            )
        )  # fmt: skip
        ack = decode_ack(await line.call("Push", data, 30.0))
        peer.learn_of(ack.members, other.name)
        if ack.status not in (Status.OK, Status.REPEATED):
            raise RuntimeError(f"{ack.status.name}: {ack.text}")

    payload = encode_letter(Letter(peer.run, peer.name, 1, other.name, reply.incarnation, 1, 1, vector, 1.0, 0.0, True))
    channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", peer.identity.channel_credentials())
    push = channel.unary_unary("/bare/Push")

    async def bare() -> None:
        await push(payload, timeout=30.0)

    found: dict[str, list[Any]] = {"bare": [], "peer": []}
    for call in (bare, letter):
        await drive(call, 0.3)
    for _ in range(ROUNDS):
        for name, call in (("bare", bare), ("peer", letter)):
            pipe.send(True)
            before, mine = pipe.recv()[0], time.process_time()
            done, took = await drive(call, seconds)
            pipe.send(True)
            cpu = pipe.recv()[0] - before + time.process_time() - mine
            found[name].append((done / took, 1e6 * cpu / done))
    await channel.close()
    await line.close()
    return {**found, "bytes": [len(payload)]}


def between_two(features: int, seconds: float) -> dict[str, list[Any]]:
    """One size: start the receiving process, measure, end it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_sites(folder, features)
        here, there = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(temporary, there))
        process.start()
        try:
            return asyncio.run(measure(folder, features, here, here.recv(), seconds))
        finally:
            here.send(None)
            process.join(10)
            if process.is_alive():
                process.kill()


def main(quick: bool = False) -> None:
    """Every size, in turn."""
    table = Table(
        ("features", "bytes a letter", "bare gRPC, messages/s", "peer, messages/s", "bare, CPU us a message",
         "peer, CPU us a message", "peer / bare, messages/s")
    )  # fmt: skip
    seconds = 0.5 if quick else 3.0
    for features in SIZES:
        say(f"peer_messages: {features:,} features")
        found = between_two(features, seconds)
        (bare, bare_cpu), (peer, peer_cpu) = (np.median(found[kind], axis=0) for kind in ("bare", "peer"))
        table.add(features, found["bytes"][0], round(bare), round(peer), round(bare_cpu), round(peer_cpu), peer / bare)
    notes = [
        f"Two processes on one machine, {IN_FLIGHT} calls under way, median of {ROUNDS} turns each of "
        f"{seconds:g} s; CPU is that of both ends. A peer's letter is encoded, checked, put where the learner "
        "finds it, and its answer decoded; the bare call carries the same bytes both ways.",
    ]
    publish_tables("peer_messages", "Letters between two peers beside bare gRPC", notes, [table], quick=quick)


if __name__ == "__main__":
    main()
